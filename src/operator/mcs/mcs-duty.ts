import type { Clock, Random } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { sleep } from '../../base/sleep.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import { WorkQueue } from '../../base/work-queue.ts';
import type { MeshEngines } from '../../clustermesh/engines.ts';
import { jsonPatch } from '../../k8s/memory/json-patch.ts';
import type { KubernetesObject, ResourceEvent } from '../../k8s/resource.ts';
import type { ObjectReader } from '../../k8s/rest/object-reader.ts';
import { type ObjectWriter, placeOf, type WriteOutcome, writeText } from '../../k8s/rest/object-writer.ts';
import { timestampText } from '../../kvstore/codec/timestamp.ts';
import type { SliceAddressType } from '../../model/cluster-endpoint-slice.ts';
import type { ServiceExport, ServiceExportKey } from '../../model/service-export.ts';
import { isObject } from '../../net/fields.ts';
import { field } from '../collect/field.ts';
import { objectKey } from '../collect/observed-kind.ts';
import { CollectError } from '../collect/reaper.ts';
import { type Action, NotReadyError } from '../collect/rounds.ts';
import type { Duty, DutyState, DutyStatus } from '../duty.ts';
import { GLOBAL_NAMESPACE, isGlobalNamespace } from '../publish/global-namespaces.ts';
import type { RemoteClusters } from '../remote-clusters.ts';
import { WakeableSleep } from '../wakeable-sleep.ts';
import { readLocalExport } from './local-export.ts';
import { MCS_KINDS, type McsKindName, type McsObjects } from './mcs-objects.ts';
import { derivedName, IMPORT_NAME_LABEL, type McsVersion } from './names.ts';
import { OwnWrites } from './own-writes.ts';
import { MCS_PARTS, type McsPlan, type McsState, type PlannedWrite, planName } from './plan.ts';

/** Options of {@link McsDuty}. */
export interface McsDutyOptions {
  readonly clusterName: string;
  /** The families of the Services of the local cluster. */
  readonly families: readonly SliceAddressType[];
  /** As `OperatorDutiesOptions.globalByDefault`. Undefined: all namespaces are global. */
  readonly globalByDefault?: boolean | undefined;
  readonly clusters: Pick<RemoteClusters, 'feed' | 'stateOf' | 'known' | 'onChange'>;
  readonly objects: McsObjects;
  readonly reader: ObjectReader;
  /** Limits the writes a second. */
  readonly writer: ObjectWriter;
  /** True if the writer only prints. */
  readonly isDryRun?: boolean | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly gate?: TurnGate | undefined;
  readonly onFailure?: ((error: unknown, duty: string) => void) | undefined;
  /** Receives each write, except of the status, with its reason. */
  readonly onAction?: ((action: Action) => void) | undefined;
}

/** The numbers of a {@link McsDuty}. */
export interface McsStatus {
  /** The served version of the API group; `none` if its CRDs are not installed; undefined if it is not known yet. */
  readonly version: McsVersion | 'none' | undefined;
  /** Number of ServiceExports of the local cluster. */
  readonly exports: number;
  /** Number of services that each other cluster exports. */
  readonly remoteExports: Readonly<Record<string, number>>;
  readonly imports: number;
  /** Number of names by the reason of their conflict. */
  readonly conflicts: Readonly<Record<string, number>>;
  /** Number of imports that are left as they are, because a cluster of theirs is not completely known. */
  readonly held: number;
}

/** A write that an API server changed, because its version of the CRD lacks a field or sets a default. */
interface Settled {
  readonly content: string;
  readonly resourceVersion: string;
}

/** The wait for the first sync of the other clusters, so that an import is not written once for each of them. */
const FIRST_SYNC_MS = 60_000;
const LOOK_MS = 500;
/** Time after which the reason of a wait is reported. */
const SLOW_MS = 5000;
const BACKOFF = { baseMs: 500, capMs: 60_000 };
/** The wait for a change has no limit; this one only bounds a timer. */
const LONGEST_WAIT_MS = 600_000;
/** Reading and comparing the objects of a name takes about 0.2 ms. */
const NAME_WEIGHT = 64;
/** More writes than a name ever needs: status, import, Service, import again, status. */
const MOST_WRITES = 8;

/**
 * Keeps ServiceImports, the conditions of ServiceExports, and derived Services equal to the exports of all clusters:
 *
 *     exports of other clusters ─┐
 *     ServiceExport, Service ────┼─► merge ─► plan ─► one write after the other
 *     ServiceImport, derived ────┘
 *
 * Writes only what differs. What a cluster exports is deleted here only if that cluster has shown, completely, that it does not
 * export it any more.
 */
export class McsDuty implements Duty {
  readonly name = 'mcs-api';
  readonly #options: McsDutyOptions;
  readonly #guard = new CallbackGuard();
  readonly #queue: WorkQueue<string>;
  /** The exports of other clusters, by `namespace/name` and cluster. */
  readonly #remote = new Map<string, Map<string, ServiceExport>>();
  readonly #remoteCounts = new Map<string, number>();
  /** The names that have objects or exports, by namespace. */
  readonly #names = new Map<string, Set<string>>();
  /** Names by that of their derived Service, because the event of a delete has no labels. */
  readonly #ofDerived = new Map<string, string>();
  readonly #conflicts = new Map<string, string>();
  /** Names whose import is held, with the reason. */
  readonly #held = new Map<string, string>();
  readonly #settled = new Map<string, Settled>();
  readonly #own: OwnWrites;
  #state: DutyState = 'waiting';
  readonly #idle: WakeableSleep;
  #writes = 0;
  #failures = 0;
  #lastFailure: Failure | undefined;

  constructor(options: McsDutyOptions) {
    const { clock, random, clusters } = options;
    this.#options = options;
    this.#own = new OwnWrites(clock, options.isDryRun === true ? Number.POSITIVE_INFINITY : undefined);
    this.#queue = new WorkQueue({ clock, random, backoff: BACKOFF, onDue: () => this.#idle.wake() });
    this.#idle = new WakeableSleep(clock);
    const engines: Pick<MeshEngines, 'exports'> = {
      exports: {
        exportUpdated: (service) => this.#exported(service, service),
        exportDeleted: (key) => this.#exported(key, undefined),
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
      remoteExports: Object.fromEntries([...this.#remoteCounts].sort()),
      imports: objects.objects('serviceimports').size,
      conflicts,
      held: this.#held.size,
    };
  }

  status(): DutyStatus {
    const { objects } = this.#options;
    const pending = this.#queue.size;
    return {
      name: this.name,
      state: this.#state,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
      published: {
        synced: this.#state === 'running' && pending === 0 && this.#held.size === 0,
        keys: objects.objects('serviceimports').size,
        pending,
        writes: this.#writes,
        refused: 0,
      },
    };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { objects, clusters } = this.#options;
    this.#forget();
    this.#state = 'waiting';
    await this.#awaitInputs(signal);
    if (!signal.aborted) this.#state = 'running';
    const unlisten = objects.listen((kind, events) => this.#observe(kind, events));
    const leave = clusters.onChange(() => this.#reviewHeld());
    this.#touchAll();
    while (!signal.aborted) {
      await this.#drain(signal);
      await this.#awaitWork(signal);
    }
    unlisten();
    leave();
    this.#queue.clear();
    this.#state = 'ended';
  }

  #forget(): void {
    const maps = [this.#remote, this.#remoteCounts, this.#names, this.#ofDerived];
    for (const map of [...maps, this.#conflicts, this.#held, this.#settled]) map.clear();
    this.#own.clear();
    this.#queue.clear();
  }

  // ── Inputs ─────────────────────────────────────────────────────────────────────────────────────────────

  /** Waits until the objects are complete, and the exports of the other clusters unless one of them makes no progress. */
  async #awaitInputs(signal: AbortSignal): Promise<void> {
    const { objects, clock } = this.#options;
    const begun = clock.now();
    let since: number | undefined;
    while (!signal.aborted) {
      const blocked = objects.blocked();
      const incomplete = this.#firstIncomplete();
      if (blocked === undefined) since ??= clock.now();
      const isLate = since !== undefined && clock.now() - since >= FIRST_SYNC_MS;
      if (
        blocked === undefined &&
        (incomplete === undefined || (isLate && this.#options.clusters.known !== undefined))
      )
        break;
      const why = blocked ?? `the exports of ${incomplete} are not complete`;
      const isSlow = clock.now() - begun >= SLOW_MS;
      if (isSlow && this.#lastFailure?.message !== why) this.#failed(new NotReadyError(why));
      await sleep(clock, LOOK_MS, signal);
    }
    if (this.#lastFailure?.code === 'not-ready') this.#lastFailure = undefined;
  }

  /** Returns a cluster whose exports are not completely known. */
  #firstIncomplete(): string | undefined {
    const { clusters } = this.#options;
    if (clusters.known === undefined) return 'the configured clusters';
    return clusters.known.find((name) => clusters.stateOf(name) === 'incomplete');
  }

  #exported({ namespace, name, cluster }: ServiceExportKey, service: ServiceExport | undefined): void {
    const key = `${namespace}/${name}`;
    const exports = this.#remote.get(key) ?? new Map<string, ServiceExport>();
    const change = Number(service !== undefined) - Number(exports.has(cluster));
    if (service === undefined) exports.delete(cluster);
    else exports.set(cluster, service);
    if (exports.size === 0) this.#remote.delete(key);
    else this.#remote.set(key, exports);
    const count = (this.#remoteCounts.get(cluster) ?? 0) + change;
    if (count === 0) this.#remoteCounts.delete(cluster);
    else this.#remoteCounts.set(cluster, count);
    this.#touch(key);
  }

  #observe(kind: McsKindName, events: readonly ResourceEvent[]): void {
    for (const event of events) {
      this.#own.observe(kind, event);
      const key = objectKey(event.object);
      if (kind === 'namespaces') for (const name of this.#names.get(key.slice(1)) ?? []) this.#touch(name);
      else if (kind === 'services') this.#touchService(event.object);
      else this.#touch(key);
    }
  }

  /** Queues the name of an exported or derived Service. */
  #touchService(service: KubernetesObject): void {
    const key = objectKey(service);
    const label = field(service, 'metadata', 'labels', IMPORT_NAME_LABEL);
    const ofDerived =
      typeof label === 'string' ? `${service.metadata.namespace}/${label}` : this.#ofDerived.get(key);
    if (ofDerived !== undefined) this.#touch(ofDerived);
    else if (this.#options.objects.objects('serviceexports').has(key)) this.#touch(key);
  }

  #touchAll(): void {
    const { objects } = this.#options;
    for (const kind of ['serviceexports', 'serviceimports'] as const)
      for (const key of objects.objects(kind).keys()) this.#touch(key);
    for (const key of this.#remote.keys()) this.#touch(key);
    for (const service of objects.objects('services').values()) this.#touchService(service);
  }

  #touch(key: string): void {
    this.#queue.add(key);
    this.#idle.wake();
  }

  /** Queues the names that wait for a cluster. */
  #reviewHeld(): void {
    for (const key of this.#held.keys()) this.#touch(key);
  }

  // ── Work ───────────────────────────────────────────────────────────────────────────────────────────────

  /** Resolves when a name is due. */
  async #awaitWork(signal: AbortSignal): Promise<void> {
    if (this.#queue.next !== undefined) return;
    await this.#idle.sleep(LONGEST_WAIT_MS, signal);
  }

  async #drain(signal: AbortSignal): Promise<void> {
    const { gate = OPEN_GATE } = this.#options;
    while (this.#queue.next !== undefined && (await gate.pass(NAME_WEIGHT, signal))) {
      const key = this.#queue.get();
      if (key === undefined) return;
      await this.#reconcile(key, signal);
      this.#queue.done(key);
    }
  }

  /** Makes the writes of a name, one after the other. A part that fails does not prevent those after it. */
  async #reconcile(key: string, signal: AbortSignal): Promise<void> {
    const failed = new Set<string>();
    for (let count = 0; count < MOST_WRITES && !signal.aborted; count++) {
      const state = this.#stateOf(key);
      const plan = state && planName(state);
      this.#record(key, state, plan);
      const next = plan?.writes.find((one) => !failed.has(one.part) && !this.#isSettled(one));
      if (next === undefined) break;
      if (!(await this.#write(key, next, signal))) failed.add(next.part);
    }
    if (failed.size === 0) this.#queue.forget(key);
    else if (!signal.aborted) this.#queue.retry(key);
    // An event that arrived meanwhile may have been of a later version than the write.
    const waitMs = Math.max(...this.#objectsOf(key).map((of) => this.#own.waitMs(of)));
    if (waitMs > 0 && Number.isFinite(waitMs)) this.#queue.addAfter(key, waitMs);
  }

  #stateOf(key: string): McsState | undefined {
    const {
      objects,
      clusterName: cluster,
      families,
      globalByDefault = true,
      clusters,
      clock,
    } = this.#options;
    const { version } = objects;
    const [namespace = '', name = ''] = key.split('/');
    const found = objects.objects('namespaces').get(`/${namespace}`);
    const isGoing = field(found, 'metadata', 'deletionTimestamp') !== undefined;
    if (version === undefined || version === 'none' || found === undefined || isGoing) return undefined;
    const annotation = field(found, 'metadata', 'annotations', GLOBAL_NAMESPACE);
    const serviceExport = this.#latest('serviceexports', key);
    const service = objects.objects('services').get(key);
    return {
      namespace,
      name,
      version,
      cluster,
      families,
      isGlobal:
        this.#options.globalByDefault === undefined ||
        isGlobalNamespace(typeof annotation === 'string' ? annotation : undefined, globalByDefault),
      remote: [...(this.#remote.get(key)?.values() ?? [])],
      isIncomplete: (other) => other !== cluster && clusters.stateOf(other) === 'incomplete',
      firstIncomplete: () => this.#firstIncomplete(),
      serviceExport,
      local: serviceExport && readLocalExport(cluster, serviceExport, service),
      service,
      serviceImport: this.#latest('serviceimports', key),
      derived: this.#latest('services', `${namespace}/${derivedName(namespace, name)}`),
      now: timestampText(clock.wallTime()),
    };
  }

  /** Updates the status, and the indexes of the name. */
  #record(key: string, state: McsState | undefined, plan: McsPlan | undefined): void {
    const [namespace = '', name = ''] = key.split('/');
    const names = this.#names.get(namespace) ?? new Set();
    const derivedKey = `${namespace}/${derivedName(namespace, name)}`;
    // Remote exports of a namespace that does not exist here are imported when it is created.
    const isKnown = this.#remote.has(key) || hasObjects(state);
    if (isKnown) {
      this.#names.set(namespace, names.add(key));
      this.#ofDerived.set(derivedKey, key);
    } else {
      names.delete(key);
      if (names.size === 0) this.#names.delete(namespace);
      this.#ofDerived.delete(derivedKey);
      for (const of of this.#objectsOf(key))
        for (const part of MCS_PARTS) this.#settled.delete(`${part} ${of}`);
    }
    setOrDelete(this.#conflicts, key, plan?.merged?.conflict?.reason);
    setOrDelete(this.#held, key, plan?.held);
  }

  /** Makes a write. Returns true if the next one may follow. */
  async #write(key: string, planned: PlannedWrite, signal: AbortSignal): Promise<boolean> {
    const { writer, onAction } = this.#options;
    const { write, why, part } = planned;
    const answer = await writer.write(write, why, signal);
    if (signal.aborted) return false;
    if (answer.outcome !== 'failed' && !part.endsWith('status'))
      this.#guard.call(onAction, {
        ...{ duty: this.name, action: writeText(write), reason: why, outcome: answer.outcome },
      });
    const isGone = write.verb === 'delete' && answer.outcome === 'not-found';
    if (answer.outcome !== 'done' && answer.outcome !== 'dry-run' && !isGone) {
      await this.#refused(key, planned, answer, signal);
      return false;
    }
    this.#writes++;
    const object = answer.outcome === 'done' ? answer.object : this.#simulated(planned, isGone);
    this.#hold(planned, object);
    return true;
  }

  /** Remembers the result of a write until the watch delivers it. */
  #hold(planned: PlannedWrite, object: KubernetesObject | undefined): void {
    const { uid = '' } = (object ?? this.#known(planned))?.metadata ?? {};
    this.#own.set(objectOf(planned), uid, object, this.#observed(planned));
    const content = contentOf(planned);
    const settled: Settled | undefined =
      object === undefined || content === undefined
        ? undefined
        : { content, resourceVersion: object.metadata.resourceVersion };
    setOrDelete(this.#settled, settledKey(planned), settled);
  }

  /** Returns the keys of the objects that are written for a name. */
  #objectsOf(key: string): readonly string[] {
    const [namespace = '', name = ''] = key.split('/');
    const derived = `${namespace}/${derivedName(namespace, name)}`;
    return [`serviceexports ${key}`, `serviceimports ${key}`, `services ${derived}`];
  }

  #latest(kind: McsKindName, key: string): KubernetesObject | undefined {
    return this.#own.latest(`${kind} ${key}`, this.#options.objects.objects(kind).get(key));
  }

  /** Returns the latest known state of the object of a write. */
  #known(planned: PlannedWrite): KubernetesObject | undefined {
    return this.#own.latest(objectOf(planned), this.#observed(planned));
  }

  /** Returns the object of a write as the watch delivered it. */
  #observed({ write }: PlannedWrite): KubernetesObject | undefined {
    const { kind, namespace = '', name } = placeOf(write);
    const known = MCS_KINDS.find((one) => one === kind.plural);
    return known && this.#options.objects.objects(known).get(`${namespace}/${name}`);
  }

  /** Returns true if the server has already answered this write with the present version of the object. */
  #isSettled(planned: PlannedWrite): boolean {
    const settled = this.#settled.get(settledKey(planned));
    if (settled === undefined || settled.content !== contentOf(planned)) return false;
    return settled.resourceVersion === this.#known(planned)?.metadata.resourceVersion;
  }

  /** Returns the object as it would be after a write that was only printed. */
  #simulated(planned: PlannedWrite, isGone: boolean): KubernetesObject | undefined {
    const { write } = planned;
    if (isGone || write.verb === 'delete' || write.verb === 'update') return undefined;
    const content =
      write.verb === 'create' ? write.object : jsonPatch(this.#known(planned), write.operations);
    const metadata = field(content, 'metadata');
    if (!isObject(content) || !isObject(metadata)) return undefined;
    const life = { name: String(metadata['name']), uid: 'dry-run', resourceVersion: 'dry-run' };
    return { ...content, metadata: { ...life, ...metadata } };
  }

  /** Reports a refused write. After a conflict, reads the object again, because the watch may be late. */
  async #refused(
    key: string,
    planned: PlannedWrite,
    answer: WriteOutcome,
    signal: AbortSignal,
  ): Promise<void> {
    const { reader } = this.#options;
    const isRepeated = this.#queue.failures(key) > 2;
    if (answer.outcome === 'failed') this.#failed(answer.error);
    else if ((answer.outcome !== 'conflict' && answer.outcome !== 'not-found') || isRepeated) {
      const reason = 'message' in answer ? answer.message : 'this operator is not the leader';
      this.#failed(new CollectError(answer.outcome, `cannot ${writeText(planned.write)}: ${reason}`));
    }
    if (answer.outcome !== 'conflict' && answer.outcome !== 'not-found') return;
    try {
      const found = await reader.get(placeOf(planned.write), signal);
      const { uid = '' } = (found ?? this.#known(planned))?.metadata ?? {};
      this.#own.set(objectOf(planned), uid, found, this.#observed(planned));
    } catch (error) {
      if (!signal.aborted) this.#failed(error);
    }
  }

  #failed(error: unknown): void {
    const { clock, onFailure } = this.#options;
    if (!(error instanceof NotReadyError)) this.#failures++;
    this.#lastFailure = failureOf(error, clock);
    this.#guard.call(onFailure, error, this.name);
  }
}

/** Returns the kind and the key of the object of a write. */
function objectOf({ write }: PlannedWrite): string {
  const { kind, namespace = '', name } = placeOf(write);
  return `${kind.plural} ${namespace}/${name}`;
}

function settledKey(planned: PlannedWrite): string {
  return `${planned.part} ${objectOf(planned)}`;
}

/** Returns what a patch changes, without the version that it expects. */
function contentOf({ write }: PlannedWrite): string | undefined {
  return write.verb === 'patch' ? JSON.stringify(write.operations.slice(1)) : undefined;
}

function hasObjects(state: McsState | undefined): boolean {
  const { serviceExport, serviceImport, derived } = state ?? {};
  return (serviceExport ?? serviceImport ?? derived) !== undefined;
}

function setOrDelete<V>(map: Map<string, V>, key: string, value: V | undefined): void {
  if (value === undefined) map.delete(key);
  else map.set(key, value);
}
