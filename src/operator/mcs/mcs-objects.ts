import { type Failure, failureOf } from '../../base/failure.ts';
import { followSignal } from '../../base/follow-signal.ts';
import { sleep } from '../../base/sleep.ts';
import { Supervisor } from '../../base/supervisor.ts';
import { OPEN_GATE } from '../../base/turn-gate.ts';
import { NAMESPACES } from '../../k8s/feed/kinds.ts';
import type { KubernetesObject, ResourceEvent, ResourceSource } from '../../k8s/resource.ts';
import { field } from '../collect/field.ts';
import { ObservedKind } from '../collect/observed-kind.ts';
import type { Duty, DutyState, DutyStatus } from '../duty.ts';
import type { DutyContext } from '../duty-report.ts';
import { IMPORT_NAME_LABEL, MCS_GROUP, MCS_VERSIONS, type McsVersion, mcsKind, SERVICES } from './names.ts';

export interface McsObjectsOptions extends DutyContext {
  readonly source: ResourceSource;
}

/** The kinds of the multi-cluster services API, by plural. */
export type McsKindName = 'services' | 'serviceexports' | 'serviceimports' | 'namespaces';

export type McsListener = (kind: McsKindName, events: readonly ResourceEvent[]) => void;

type NamedKind = readonly [McsKindName, ObservedKind];

/** The decoded fields of a Service: those of an export, and those of a derived Service. */
const SERVICE_FIELDS = [
  ...['labels', 'annotations', 'ownerReferences'].map((name) => `metadata.${name}`),
  ...[
    'type',
    'clusterIP',
    'clusterIPs',
    'ports',
    'selector',
    'ipFamilies',
    'ipFamilyPolicy',
    'sessionAffinity',
    'sessionAffinityConfig',
    'internalTrafficPolicy',
    'trafficDistribution',
  ].map((name) => `spec.${name}`),
];

/** Returns the part of a Service to keep in memory. An export needs no labels and annotations. */
function trimmed(service: KubernetesObject): KubernetesObject {
  const { labels, annotations: _, ownerReferences: __, ...metadata } = service.metadata;
  return field(labels, IMPORT_NAME_LABEL) === undefined ? { ...service, metadata } : service;
}

/**
 * Time between two checks: if the API server serves no version of the group, if a list is incomplete, and if the
 * objects are complete.
 */
const POLL_MS = { version: 5000, lists: 500, complete: 30_000 };

/**
 * If the API server serves no version for this time without interruption, there are no objects. An API server that
 * starts, or whose CRDs are replaced, serves no version for seconds; the keys of an earlier run must not be deleted
 * then.
 */
const MISSING_MS = 60_000;

/**
 * The objects of the multi-cluster services API, followed once for all duties. The first served version
 * of the API group is used until the API server serves only another one. If no version is served for a minute after the
 * start, there are no exports and no imports, and the check is repeated.
 */
export class McsObjects implements Duty {
  readonly name = 'mcs-objects';
  readonly #options: McsObjectsOptions;
  readonly #tasks: Supervisor;
  readonly #listeners = new Set<McsListener>();
  #kinds: ReadonlyMap<McsKindName, ObservedKind> = new Map();
  #version: McsVersion | 'none' | undefined;
  #isComplete = false;
  /** Set while the API server serves no version of the group. */
  #missing: Failure | undefined;
  #state: DutyState = 'waiting';

  constructor(options: McsObjectsOptions) {
    this.#options = options;
    this.#tasks = new Supervisor(options);
  }

  /** The served version; `none` if the CRDs are not installed; undefined if the API server has not answered yet. */
  get version(): McsVersion | 'none' | undefined {
    return this.#version;
  }

  /** True if all objects have been received, or if the API server has served no version of the group for a minute. */
  get complete(): boolean {
    return this.#isComplete;
  }

  /** Returns the objects of a kind, by `namespace/name`, and `/name` for a Namespace. */
  objects(kind: McsKindName): ReadonlyMap<string, KubernetesObject> {
    return this.#kinds.get(kind)?.objects ?? new Map();
  }

  /** Calls `listener` with the events of all kinds; with no events when {@link complete} may have become true. */
  listen(listener: McsListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Returns the reason why the objects may be incomplete; undefined if all lists are complete and watched. */
  notReadyReason(): string | undefined {
    if (this.#version === 'none')
      return `the server serves no version of ${MCS_GROUP}: install the CRDs of ServiceExport and ServiceImport`;
    if (this.#version === undefined)
      return `the server has not reported yet which versions of ${MCS_GROUP} it serves`;
    for (const kind of this.#kinds.values()) {
      const reason = kind.notReadyReason();
      if (reason !== undefined) return reason;
    }
    return undefined;
  }

  status(): DutyStatus {
    const { failures, lastFailure } = this.#tasks.status();
    const isBlocked = this.#state === 'running' && this.notReadyReason() !== undefined;
    return {
      name: this.name,
      state: isBlocked ? 'waiting' : this.#state,
      failures,
      lastFailure: this.#missing ?? lastFailure,
    };
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#state = 'running';
    this.#isComplete = false;
    this.#version = undefined;
    await this.#tasks.runWithRestart(this.name, (until) => this.#follow(until), { signal });
    await this.#tasks.stop();
    this.#kinds = new Map();
    this.#state = 'ended';
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const version = await this.#firstVersion(signal);
    if (version === undefined) return;
    this.#missing = undefined;
    let ended = this.#followVersion(version, signal);
    while (!signal.aborted) {
      if (this.notReadyReason() === undefined) this.#markComplete();
      else if (this.#kinds.get('serviceexports')?.isMissing === true)
        ended = await this.#changeVersion(ended, signal);
      await sleep(clock, this.#isComplete ? POLL_MS.complete : POLL_MS.lists, signal);
    }
  }

  /** Returns the version of the CRDs as soon as they exist; undefined if the signal fires first. */
  async #firstVersion(signal: AbortSignal): Promise<McsVersion | undefined> {
    const { clock } = this.#options;
    let missingSince: number | undefined;
    while (!signal.aborted) {
      const version = await this.#findVersion(signal);
      if (version !== undefined) return version;
      missingSince ??= clock.now();
      this.#version = 'none';
      this.#missing = failureOf(new Error(this.notReadyReason()), clock);
      if (clock.now() - missingSince >= MISSING_MS) this.#markComplete();
      await sleep(clock, this.#isComplete ? POLL_MS.complete : POLL_MS.version, signal);
    }
    return undefined;
  }

  async #findVersion(signal: AbortSignal): Promise<McsVersion | undefined> {
    const kinds = MCS_VERSIONS.map((version) => mcsKind('serviceexports', version));
    const found = await this.#options.source.firstServed(kinds, signal);
    return MCS_VERSIONS.find((known) => known === found?.version);
  }

  /**
   * Follows another version if the API server serves it instead of the current one. The objects of the current one stay
   * until the new lists are complete. Returns the controller that ends the followed version.
   */
  async #changeVersion(ended: AbortController, signal: AbortSignal): Promise<AbortController> {
    const { source, clock, gate = OPEN_GATE } = this.#options;
    // If the API server does not answer, this is repeated, and the lists report it.
    const version = await this.#findVersion(signal).catch(() => undefined);
    if (version === undefined || version === this.#version) return ended;
    const next = new AbortController();
    const unfollow = followSignal(signal, next);
    const changed = versionedKinds(source, version);
    for (const [name, kind] of changed) this.#listenTo(name, kind, next.signal);
    const isComplete = (): boolean => changed.every(([, kind]) => kind.notReadyReason() === undefined);
    while (!isComplete()) {
      if (signal.aborted || changed.some(([, kind]) => kind.isMissing)) {
        unfollow();
        next.abort();
        return ended;
      }
      await sleep(clock, POLL_MS.lists, signal);
    }
    const previous = this.#kinds;
    this.#kinds = new Map([...previous, ...changed]);
    this.#version = version;
    for (const [name, kind] of changed)
      await gate.runSteps(this.#notifyAll(name, kind, previous.get(name), gate.slice), signal);
    ended.abort();
    return next;
  }

  /** Passes all objects of a kind to the listeners, and deletes of the others of the previous kind, in steps. */
  *#notifyAll(
    name: McsKindName,
    { objects }: ObservedKind,
    previous: ObservedKind | undefined,
    slice: number,
  ): Generator<void, void, void> {
    let events: ResourceEvent[] = [];
    for (const key of new Set([...objects.keys(), ...(previous?.objects.keys() ?? [])])) {
      const [object, gone] = [objects.get(key), previous?.objects.get(key)];
      if (object !== undefined) events.push({ type: 'put', object });
      else if (gone !== undefined) events.push({ type: 'delete', object: gone });
      if (events.length < slice) continue;
      this.#notify(name, events);
      events = [];
      yield;
    }
    this.#notify(name, events);
  }

  #markComplete(): void {
    if (this.#isComplete) return;
    this.#isComplete = true;
    this.#notify('services', []);
  }

  /** Follows all kinds. Returns the controller that ends the kinds of this version. */
  #followVersion(version: McsVersion, signal: AbortSignal): AbortController {
    const { source } = this.#options;
    const ended = new AbortController();
    followSignal(signal, ended);
    const others: readonly NamedKind[] = [
      ['services', new ObservedKind(source, SERVICES, trimmed, SERVICE_FIELDS)],
      [
        'namespaces',
        new ObservedKind(source, NAMESPACES, (namespace) => namespace, ['metadata.annotations']),
      ],
    ];
    const versioned = versionedKinds(source, version);
    this.#version = version;
    this.#kinds = new Map([...others, ...versioned]);
    for (const [name, kind] of others) this.#listenTo(name, kind, signal);
    for (const [name, kind] of versioned) this.#listenTo(name, kind, ended.signal);
    return ended;
  }

  /** Follows a kind until the signal fires. */
  #listenTo(name: McsKindName, kind: ObservedKind, signal: AbortSignal): void {
    kind.follow(signal);
    kind.listen((events) => this.#notify(name, events), signal);
  }

  #notify(name: McsKindName, events: readonly ResourceEvent[]): void {
    for (const listener of this.#listeners) listener(name, events);
  }
}

function versionedKinds(source: ResourceSource, version: McsVersion): readonly NamedKind[] {
  return (['serviceexports', 'serviceimports'] as const).map((plural) => [
    plural,
    new ObservedKind(source, mcsKind(plural, version), (object) => object),
  ]);
}
