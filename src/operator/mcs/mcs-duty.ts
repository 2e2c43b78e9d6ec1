import { forEachInSteps, OPEN_GATE } from '../../base/turn-gate.ts';
import type { MeshEngines } from '../../clustermesh/engines.ts';
import { jsonPatch } from '../../k8s/memory/json-patch.ts';
import type { KubernetesObject, ResourceEvent } from '../../k8s/resource.ts';
import type { ObjectReader } from '../../k8s/rest/object-reader.ts';
import { type ObjectWriter, writeText } from '../../k8s/rest/object-writer.ts';
import { timestampText } from '../../kvstore/codec/timestamp.ts';
import type { SliceAddressType } from '../../model/cluster-endpoint-slice.ts';
import { isObject } from '../../net/fields.ts';
import { field, isBeingDeleted } from '../collect/field.ts';
import { objectKey } from '../collect/observed-kind.ts';
import { isUnsuccessful } from '../collect/perform-write.ts';
import { DueKeys } from '../due-keys.ts';
import type { Duty, DutyStatus } from '../duty.ts';
import { type DutyContext, DutyReport } from '../duty-report.ts';
import { handleFailedWrite, LatestObjects } from '../latest-objects.ts';
import { GLOBAL_NAMESPACE, isGlobalNamespace } from '../publish/global-namespaces.ts';
import type { RemoteClusters } from '../remote-clusters.ts';
import { SetMap } from '../set-map.ts';
import { readLocalExport } from './local-export.ts';
import type { McsKindName, McsObjects } from './mcs-objects.ts';
import type { MergedService } from './merge.ts';
import { derivedKey, IMPORT_NAME_LABEL, type McsVersion } from './names.ts';
import { type McsPlan, type McsState, planWrites } from './plan.ts';
import type { McsPart, PlannedWrite } from './planned-write.ts';
import { RemoteExports } from './remote-exports.ts';

/** Options of {@link McsDuty}. Writes of the status are not reported to `onAction`. */
export interface McsDutyOptions extends DutyContext {
  readonly clusterName: string;
  /** The families of the Services of the local cluster. */
  readonly families: readonly SliceAddressType[];
  /** True if EndpointSlice synchronization is on. */
  readonly hasSliceSync: boolean;
  /** As `OperatorDutiesOptions.globalByDefault`. Undefined: all namespaces are global. */
  readonly globalByDefault?: boolean | undefined;
  readonly clusters: Pick<RemoteClusters, 'feed' | 'stateOf' | 'names' | 'onChange'>;
  readonly objects: McsObjects;
  readonly reader: ObjectReader;
  /** Limits the writes a second. */
  readonly writer: ObjectWriter;
}

export interface McsStatus {
  /** The served version of the API group; `none` if its CRDs are not installed; undefined if it is not known yet. */
  readonly version: McsVersion | 'none' | undefined;
  /** Number of ServiceExports of the local cluster. */
  readonly exports: number;
  /** Number of services exported by each other cluster. */
  readonly remoteExports: Readonly<Record<string, number>>;
  readonly imports: number;
  /** Number of names by the reason of their conflict. */
  readonly conflicts: Readonly<Record<string, number>>;
  /**
   * Number of imports that wait until the exports of all their clusters are completely known. They do not change until
   * then.
   */
  readonly waitingImports: number;
}

/**
 * The last patch of an object. A patch is not repeated on the version that it created: if it is planned again, the API
 * server did not store it as sent, because its CRD lacks a field or sets a default.
 */
interface LastPatch {
  /** The operations as JSON. */
  readonly content: string;
  /** Version of the object after the patch. */
  readonly resourceVersion: string;
}

/** Maximum wait for the initial sync of the other clusters, so that an import is not written again for each of them. */
const FIRST_SYNC_MS = 60_000;
/** Time after which the reason of a wait is reported. */
const SLOW_MS = 5000;
/**
 * Minimum time after which rejected values of `trafficDistribution` are written again, because the API server may be
 * newer then.
 */
const RECHECK_MS = 3_600_000;
const BACKOFF = { baseMs: 500, capMs: 60_000 };
/** Reading and comparing the objects of a name takes about 0.2 ms. */
const NAME_WEIGHT = 64;
/**
 * Maximum number of writes for a name in one pass. The usual maximum is 5: status, import, Service, import again,
 * status.
 */
const MAX_WRITES = 8;

/** The kind of the object of each part. */
const KIND_OF: Readonly<Record<McsPart, WrittenKind>> = {
  'export status': 'serviceexports',
  'derived service': 'services',
  import: 'serviceimports',
  'import status': 'serviceimports',
};

type WrittenKind = Exclude<McsKindName, 'namespaces'>;

/**
 * Keeps ServiceImports, the conditions of ServiceExports, and derived Services equal to the exports of all clusters:
 *
 *     exports of other clusters ─┐
 *     ServiceExport, Service ────┼─► merge ─► plan ─► one write after the other
 *     ServiceImport, derived ────┘
 *
 * Writes only objects that differ. The export of another cluster is removed only after all exports of that cluster were
 * received without it, or when its cluster is removed from the mesh.
 */
export class McsDuty implements Duty {
  readonly name = 'mcs-api';
  readonly #options: McsDutyOptions;
  readonly #queue: DueKeys;
  readonly #report: DutyReport;
  readonly #remote = new RemoteExports();
  /** The names with objects or exports, by namespace. */
  readonly #names = new SetMap<string>();
  /** The fields of each Namespace that plans read, as text. Changes of other fields are frequent, and queue nothing. */
  readonly #namespaces = new Map<string, string>();
  /** Names by the key of their derived Service, because the event of a delete has no labels. Usually one. */
  readonly #namesOfDerived = new SetMap<string>();
  readonly #conflicts = new Map<string, string>();
  /** Names whose import waits, with the reason. */
  readonly #waitReasons = new Map<string, string>();
  /** By part and name. */
  readonly #lastPatches = new Map<string, LastPatch>();
  /** Values of `trafficDistribution` that the API server rejected since the last recheck. */
  readonly #rejectedDistributions = new Set<string | undefined>();
  readonly #latest: Readonly<Record<WrittenKind, LatestObjects>>;
  #writes = 0;

  constructor(options: McsDutyOptions) {
    const { clock, random, clusters, objects } = options;
    this.#options = options;
    this.#latest = {
      services: new LatestObjects(() => objects.objects('services')),
      serviceexports: new LatestObjects(() => objects.objects('serviceexports')),
      serviceimports: new LatestObjects(() => objects.objects('serviceimports')),
    };
    this.#queue = new DueKeys({ clock, random, backoff: BACKOFF });
    this.#report = new DutyReport(this.name, options);
    const engines: Pick<MeshEngines, 'exports'> = {
      exports: {
        exportUpdated: (service) => this.#queue.add(this.#remote.set(service, service)),
        exportDeleted: (key) => this.#queue.add(this.#remote.set(key, undefined)),
      },
    };
    clusters.feed(engines);
  }

  /** Returns the numbers of exports, imports and conflicts. */
  counts(): McsStatus {
    const { objects } = this.#options;
    const conflicts: Record<string, number> = {};
    for (const reason of this.#conflicts.values()) conflicts[reason] = (conflicts[reason] ?? 0) + 1;
    return {
      version: objects.version,
      exports: objects.objects('serviceexports').size,
      remoteExports: Object.fromEntries(this.#remote.counts()),
      imports: objects.objects('serviceimports').size,
      conflicts,
      waitingImports: this.#waitReasons.size,
    };
  }

  status(): DutyStatus {
    const { objects } = this.#options;
    const pending = this.#queue.size;
    return {
      ...this.#report.status(),
      published: {
        synced: this.#report.state === 'running' && pending === 0 && this.#waitReasons.size === 0,
        keys: objects.objects('serviceimports').size,
        pending,
        writes: this.#writes,
        rejected: 0,
      },
    };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { objects, clusters, clock, gate = OPEN_GATE } = this.#options;
    this.#clear();
    this.#report.state = 'waiting';
    await this.#awaitInputs(signal);
    const unlisten = objects.listen((kind, events) => this.#observe(kind, events));
    const leave = clusters.onChange(() => {
      for (const key of this.#waitReasons.keys()) this.#queue.add(key);
    });
    await gate.runSteps(this.#queueAll(gate.slice), signal);
    if (!signal.aborted) this.#report.state = 'running';
    let recheckedAt = clock.now();
    while (!signal.aborted) {
      if (this.#rejectedDistributions.size > 0 && clock.now() - recheckedAt >= RECHECK_MS) {
        recheckedAt = clock.now();
        this.#rejectedDistributions.clear();
        await gate.runSteps(this.#queueAll(gate.slice), signal);
      }
      await this.#queue.processDue(gate, NAME_WEIGHT, (key) => this.#reconcile(key, signal), signal);
      await this.#queue.whenDue(signal);
    }
    unlisten();
    leave();
    this.#queue.clear();
    this.#report.state = 'ended';
  }

  #clear(): void {
    const indexes = [this.#names, this.#namespaces, this.#namesOfDerived, this.#conflicts, this.#waitReasons];
    const objects = [this.#remote, this.#lastPatches, ...Object.values(this.#latest)];
    for (const state of [...indexes, ...objects, this.#rejectedDistributions, this.#queue]) state.clear();
  }

  // ── Inputs ─────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Waits until the objects are complete, and at most {@link FIRST_SYNC_MS} until the exports of the other clusters are
   * complete.
   */
  #awaitInputs(signal: AbortSignal): Promise<void> {
    const { objects, clusters, clock } = this.#options;
    let completeAt: number | undefined;
    const notReadyReason = (): string | undefined => {
      const reason = objects.notReadyReason();
      if (reason !== undefined) return reason;
      completeAt ??= clock.now();
      const incomplete = this.#firstIncomplete();
      const isLate = clock.now() - completeAt >= FIRST_SYNC_MS && clusters.names !== undefined;
      return incomplete === undefined || isLate ? undefined : `the exports of ${incomplete} are not complete`;
    };
    return this.#report.whenReady(notReadyReason, SLOW_MS, signal);
  }

  /** Returns a cluster whose exports are not completely known. */
  #firstIncomplete(): string | undefined {
    const { clusters } = this.#options;
    if (clusters.names === undefined) return 'the configured clusters';
    return clusters.names.find((name) => clusters.stateOf(name) === 'incomplete');
  }

  /** Queues the names of changed objects. A call without events is made after a list. */
  #observe(kind: McsKindName, events: readonly ResourceEvent[]): void {
    if (kind === 'namespaces') {
      for (const event of events) this.#queueNamespace(event);
      return;
    }
    const changed = this.#latest[kind].changedBy(events);
    // Events of own writes queue names, too, because a deleted derived Service may also be exported by its own name.
    const keys = events.length === 0 ? changed : events.map(({ object }) => objectKey(object));
    for (const key of keys)
      if (kind === 'services') this.#queueService(key);
      else this.#queue.add(key);
  }

  /** Queues the names of a Namespace, unless the event changes no field that plans read. */
  #queueNamespace({ type, object }: ResourceEvent): void {
    const { name: namespace } = object.metadata;
    const fields = `${isBeingDeleted(object)} ${field(object, 'metadata', 'annotations', GLOBAL_NAMESPACE)}`;
    if (type === 'put' && this.#namespaces.get(namespace) === fields) return;
    setOrDelete(this.#namespaces, namespace, type === 'put' ? fields : undefined);
    for (const name of this.#names.get(namespace)) this.#queue.add(name);
  }

  /** Queues the names of a Service, which may be both exported and derived. */
  #queueService(key: string): void {
    const service = this.#latest.services.get(key);
    const label = field(service, 'metadata', 'labels', IMPORT_NAME_LABEL);
    if (typeof label === 'string') this.#queue.add(`${service?.metadata.namespace}/${label}`);
    for (const name of this.#namesOfDerived.get(key)) this.#queue.add(name);
    if (this.#options.objects.objects('serviceexports').has(key)) this.#queue.add(key);
  }

  /** Queues all names, in steps of `slice` keys. */
  *#queueAll(slice: number): Generator<void, void, void> {
    const { objects } = this.#options;
    const queueName = (key: string): void => this.#queue.add(key);
    const sources: readonly (readonly [keys: Iterable<string>, queue: (key: string) => void])[] = [
      [objects.objects('serviceexports').keys(), queueName],
      [objects.objects('serviceimports').keys(), queueName],
      [this.#remote.keys(), queueName],
      [objects.objects('services').keys(), (key) => this.#queueService(key)],
    ];
    for (const [keys, queue] of sources) yield* forEachInSteps(keys, slice, queue);
  }

  // ── Work ───────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Makes the writes of a name, one after the other, now or after the pause since its last writes. If the write of one
   * part fails, the other parts are still written.
   */
  async #reconcile(key: string, signal: AbortSignal): Promise<void> {
    if (this.#queue.delayAfterWrite(key)) return;
    /** The parts whose write has failed. */
    const failed = new Set<McsPart>();
    for (let count = 0; count < MAX_WRITES && !signal.aborted; count++) {
      const state = this.#stateOf(key);
      const plan = state && planWrites(state);
      this.#updateIndexes(key, plan);
      const next = plan?.writes.find((write) => !failed.has(write.part) && !this.#isRepeated(key, write));
      if (next === undefined) break;
      if (!(await this.#write(key, next, plan?.merged, signal))) failed.add(next.part);
      this.#queue.recordWrite(key);
    }
    if (failed.size === 0) this.#queue.forget(key);
    else if (!signal.aborted) this.#queue.retry(key);
  }

  #stateOf(key: string): McsState | undefined {
    const { objects, clusterName: cluster, families, globalByDefault, clusters, clock } = this.#options;
    const { hasSliceSync } = this.#options;
    const { version } = objects;
    const [namespace = '', name = ''] = key.split('/');
    const found = objects.objects('namespaces').get(`/${namespace}`);
    if (version === undefined || version === 'none') return undefined;
    if (found === undefined || isBeingDeleted(found)) return undefined;
    const annotation = field(found, 'metadata', 'annotations', GLOBAL_NAMESPACE);
    const serviceExport = this.#latest.serviceexports.get(key);
    const service = objects.objects('services').get(key);
    return {
      namespace,
      name,
      version,
      cluster,
      families,
      isGlobal:
        globalByDefault === undefined ||
        isGlobalNamespace(typeof annotation === 'string' ? annotation : undefined, globalByDefault),
      hasSliceSync,
      rejectedDistributions: this.#rejectedDistributions,
      remote: this.#remote.exportsOf(key),
      isIncomplete: (other) => other !== cluster && clusters.stateOf(other) === 'incomplete',
      firstIncomplete: () => this.#firstIncomplete(),
      serviceExport,
      local: serviceExport && readLocalExport(cluster, serviceExport, service),
      service,
      serviceImport: this.#latest.serviceimports.get(key),
      derived: this.#latest.services.get(derivedKey(key)),
      now: timestampText(clock.wallTime()),
    };
  }

  /**
   * Updates the status, and the indexes of the name. A name without a plan is indexed, too, so that it is imported when
   * the event of its Namespace arrives.
   */
  #updateIndexes(key: string, plan: McsPlan | undefined): void {
    const { serviceexports, serviceimports, services } = this.#latest;
    const [namespace = ''] = key.split('/');
    const derived = derivedKey(key);
    const object = serviceexports.get(key) ?? serviceimports.get(key) ?? services.get(derived);
    if (object !== undefined || this.#remote.has(key)) {
      this.#names.add(namespace, key);
      this.#namesOfDerived.add(derived, key);
    } else {
      this.#names.delete(namespace, key);
      this.#namesOfDerived.delete(derived, key);
      for (const part of Object.keys(KIND_OF)) this.#lastPatches.delete(`${part} ${key}`);
    }
    setOrDelete(this.#conflicts, key, plan?.merged?.conflict?.reason);
    setOrDelete(this.#waitReasons, key, plan?.waitReason);
  }

  /** Makes a write. Returns false if it failed or was aborted. */
  async #write(
    name: string,
    planned: PlannedWrite,
    merged: MergedService | undefined,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { reader, writer } = this.#options;
    const { write, reason, part } = planned;
    const { latest, key } = this.#objectOf(part, name);
    const known = latest.get(key);
    latest.beginRequest(key);
    const answer = await writer.write(write, reason, signal);
    if (signal.aborted) return false;
    if (isUnsuccessful(write, answer)) {
      // The traffic of the Service is more important than its distribution, so the retry omits the field.
      if (answer.outcome === 'invalid' && answer.message.includes('spec.trafficDistribution'))
        this.#rejectedDistributions.add(merged?.trafficDistribution);
      const failed = { key, write, answer, failures: this.#queue.failures(name) + 1 };
      await handleFailedWrite(failed, latest, { reader, report: this.#report }, signal);
      return false;
    }
    if (!part.endsWith('status'))
      this.#report.addAction({ action: writeText(write), reason, outcome: answer.outcome });
    this.#writes++;
    const object = answer.outcome === 'done' ? answer.object : simulated(planned, known);
    latest.endRequest(object);
    const content = contentOf(planned);
    const last: LastPatch | undefined =
      object === undefined || content === undefined
        ? undefined
        : { content, resourceVersion: object.metadata.resourceVersion };
    setOrDelete(this.#lastPatches, `${part} ${name}`, last);
    return true;
  }

  #objectOf(part: McsPart, name: string): { readonly latest: LatestObjects; readonly key: string } {
    return { latest: this.#latest[KIND_OF[part]], key: part === 'derived service' ? derivedKey(name) : name };
  }

  /** Returns true if the current version of the object is the result of the same patch. */
  #isRepeated(name: string, planned: PlannedWrite): boolean {
    const last = this.#lastPatches.get(`${planned.part} ${name}`);
    if (last === undefined || last.content !== contentOf(planned)) return false;
    const { latest, key } = this.#objectOf(planned.part, name);
    return last.resourceVersion === latest.get(key)?.metadata.resourceVersion;
  }
}

/** Returns the object as it would be after a write that a dry run has only printed. */
function simulated(
  { write }: PlannedWrite,
  known: KubernetesObject | undefined,
): KubernetesObject | undefined {
  if (write.verb === 'delete' || write.verb === 'update') return undefined;
  const content = write.verb === 'create' ? write.object : jsonPatch(known, write.operations);
  const metadata = field(content, 'metadata');
  if (!isObject(content) || !isObject(metadata)) return undefined;
  const identity = { name: String(metadata['name']), uid: 'dry-run', resourceVersion: '' };
  return { ...content, metadata: { ...identity, ...metadata } };
}

/** Returns the changes of a patch, without the expected version. */
function contentOf({ write }: PlannedWrite): string | undefined {
  return write.verb === 'patch' ? JSON.stringify(write.operations.slice(1)) : undefined;
}

function setOrDelete<V>(map: Map<string, V>, key: string, value: V | undefined): void {
  if (value === undefined) map.delete(key);
  else map.set(key, value);
}
