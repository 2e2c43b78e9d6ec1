import { laterFailure } from '../../base/failure.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { type Rejection, RejectionLog } from '../../base/rejection.ts';
import { deferred } from '../../base/sleep.ts';
import { interruptible, Supervisor } from '../../base/supervisor.ts';
import { OPEN_GATE } from '../../base/turn-gate.ts';
import { FollowedKind } from '../../k8s/feed/followed-kind.ts';
import { NAMESPACES } from '../../k8s/feed/kinds.ts';
import { type KindReader, ObjectFeed } from '../../k8s/feed/object-feed.ts';
import { readClusterScopedName } from '../../k8s/parse-object.ts';
import type { ResourceSource } from '../../k8s/resource.ts';
import type { Duty, DutyState, DutyStatus } from '../duty.ts';
import type { DutyContext } from '../duty-report.ts';

/** The annotation of a Namespace that decides if its objects are published to the mesh (1.19). */
export const GLOBAL_NAMESPACE = 'clustermesh.cilium.io/global';

/** Returns true if the objects of a namespace are exported, by the value of its annotation {@link GLOBAL_NAMESPACE}. */
export function isGlobalNamespace(annotation: string | undefined, globalByDefault: boolean): boolean {
  return annotation === undefined ? globalByDefault : annotation.toLowerCase() === 'true';
}

/** A part of the keys of a namespace. Identities are put before the keys that contain them, and deleted after them. */
export type ExportStage = 'identities' | 'others';

/** The keys of a producer whose objects have namespaces. */
export interface NamespacedKeys {
  readonly stage: ExportStage;
  /** Returns steps that put or delete the keys of a namespace, as {@link GlobalNamespaces.exports} reports. */
  review(namespace: string): Iterable<unknown>;
  /** Returns the number of objects of a namespace, exported or not. */
  count(namespace: string): number;
  /** Resolves when all puts and deletes so far are in the kvstore. */
  whenFlushed(): Promise<void>;
  /** Called when all namespaces have been listed and reviewed. */
  onComplete(): void;
}

export interface GlobalNamespacesOptions extends DutyContext {
  readonly source: ResourceSource;
  /** True if a Namespace without the annotation is global. */
  readonly globalByDefault: boolean;
  /** Receives every rejected object, after it was counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** For a dry run: once all namespaces are known, prints each namespace that is not global. */
  readonly print?: ((line: string) => void) | undefined;
}

export interface GlobalNamespacesStatus {
  readonly globalByDefault: boolean;
  /** True if all namespaces have been listed, and the keys reviewed. */
  readonly complete: boolean;
  /** Number of Namespaces. */
  readonly known: number;
  /** Number of Namespaces whose objects are published. */
  readonly global: number;
}

/** The name of a changed namespace, and the number of the change, counted over all namespaces. */
type Change = readonly [name: string, number: number];

function namesByStage(): Readonly<Record<ExportStage, Set<string>>> {
  return { identities: new Set(), others: new Set() };
}

/** A Namespace, as far as it is read. */
interface NamespaceSetting {
  readonly name: string;
  readonly annotation: string | undefined;
}

/**
 * The global namespaces (1.19): only their objects are exported. An unknown namespace exports nothing.
 *
 *     Namespaces ─► wanted ──┬─► identities: put first, deleted last ─► keys of CiliumIdentities
 *                            └─► others ─────────────────────────────► keys of endpoints and services
 *
 * The second step of a change waits until the kvstore has all writes of the first step. A published address therefore
 * never refers to an identity removed by the change.
 */
export class GlobalNamespaces implements Duty {
  readonly name = 'namespaces';
  readonly #options: GlobalNamespacesOptions;
  readonly #tasks: Supervisor;
  readonly #guard: CallbackGuard;
  readonly #members = new Set<NamespacedKeys>();
  #rejections: RejectionLog;
  readonly #known = new Map<string, NamespaceSetting>();
  /** The namespaces whose keys are put, by stage. `others` is a subset of `identities`. */
  readonly #exported = namesByStage();
  /** The namespaces of a failed review, by stage. The next review of the stage repeats it. */
  readonly #unreviewed = namesByStage();
  /** Changed namespaces whose step has not begun, each with the number of its latest change. */
  readonly #changed = new Map<string, number>();
  /** By namespace: the number of its latest change, until the second step of this change begins. */
  readonly #latest = new Map<string, number>();
  #changes = 0;
  /** True after a failed first step. The next second step waits for the writes of both stages. */
  #mustFlush = false;
  #wake = deferred();
  #followed: FollowedKind | undefined;
  #complete = false;
  #state: DutyState = 'waiting';

  constructor(options: GlobalNamespacesOptions) {
    this.#options = options;
    this.#rejections = new RejectionLog(options.onReject);
    this.#tasks = new Supervisor(options);
    this.#guard = new CallbackGuard((error) => options.onFailure?.(error, this.name));
  }

  /** True if all Namespaces have been listed, and the keys of all members reviewed. */
  get complete(): boolean {
    return this.#complete;
  }

  /**
   * Returns true if the keys of a stage of a namespace are published. When a namespace becomes global, `identities`
   * changes first; when it is not global any more, last.
   */
  exports(stage: ExportStage, namespace: string): boolean {
    return this.#exported[stage].has(namespace);
  }

  /** Returns why a namespace is not global; undefined if it is global, or if not all namespaces are known. */
  reasonNotGlobal(namespace: string): string | undefined {
    const known = this.#known.get(namespace);
    if (known === undefined)
      return this.#complete ? `namespace ${namespace} does not exist, so it is not global` : undefined;
    if (this.#isWanted(namespace)) return undefined;
    const { annotation } = known;
    const setting = annotation === undefined ? ' by default' : `: ${GLOBAL_NAMESPACE} is "${annotation}"`;
    return `namespace ${namespace} is not global${setting}`;
  }

  /**
   * Adds the keys of a producer, which are reviewed when a namespace changes. For a changed object, the producer calls
   * {@link exports} itself.
   */
  join(member: NamespacedKeys): () => void {
    this.#members.add(member);
    return () => void this.#members.delete(member);
  }

  status(): DutyStatus {
    const { failures, lastFailure } = this.#tasks.status();
    const resource = this.#followed?.status().resource;
    const isWaiting = this.#state === 'running' && !this.#complete;
    return {
      name: this.name,
      state: isWaiting ? 'waiting' : this.#state,
      failures: failures + (resource?.failures ?? 0),
      lastFailure: laterFailure(lastFailure, resource?.lastFailure),
    };
  }

  counts(): GlobalNamespacesStatus {
    const { globalByDefault } = this.#options;
    const global = this.#exported.others.size;
    return { globalByDefault, complete: this.#complete, known: this.#known.size, global };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { source, clock, gate } = this.#options;
    this.#clear();
    this.#state = 'running';
    const feed = new ObjectFeed(this.#reader(), { rejections: this.#rejections, gate });
    const followed = new FollowedKind('namespaces', feed, {
      source,
      clock,
      gate,
      onChange: () => this.#wake.resolve(),
    });
    this.#followed = followed;
    followed.follow(NAMESPACES);
    onAbort(signal, () => this.#wake.resolve());
    await this.#tasks.runWithRestart(this.name, (until) => this.#applyChanges(followed, until), { signal });
    await this.#tasks.stop();
    await followed.stop();
    this.#state = 'ended';
  }

  #clear(): void {
    this.#rejections = new RejectionLog(this.#options.onReject);
    this.#known.clear();
    this.#changed.clear();
    this.#latest.clear();
    for (const names of [...Object.values(this.#exported), ...Object.values(this.#unreviewed)]) names.clear();
    this.#complete = false;
    this.#wake = deferred();
  }

  #reader(): KindReader<NamespaceSetting> {
    return {
      kind: 'Namespace',
      fields: ['metadata.annotations'],
      read: (fields) => {
        const name = readClusterScopedName(fields);
        const annotations = fields.map('metadata').strings('annotations');
        return name === undefined ? undefined : { name, annotation: annotations.get(GLOBAL_NAMESPACE) };
      },
      same: (current, previous) => current.annotation === previous.annotation,
      change: (current, previous) => {
        const name = (current ?? previous)?.name ?? '';
        if (current === undefined) this.#known.delete(name);
        else this.#known.set(name, current);
        this.#changed.set(name, ++this.#changes);
        this.#latest.set(name, this.#changes);
        this.#wake.resolve();
      },
    };
  }

  /** True if the objects of a namespace are to be exported. */
  #isWanted(name: string): boolean {
    const known = this.#known.get(name);
    return known !== undefined && isGlobalNamespace(known.annotation, this.#options.globalByDefault);
  }

  /** Applies changes until the signal fires. If a review throws, the next call repeats its changes. */
  async #applyChanges(followed: FollowedKind, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#wake.promise;
      this.#wake = deferred();
      const names = [...this.#changed];
      this.#changed.clear();
      try {
        const stages = await this.#firstStep(names, signal);
        if (this.#complete) this.#startSecondStep(names, stages, signal);
        else await this.#secondStep(names, signal);
      } catch (error) {
        for (const [name, change] of names) if (!this.#changed.has(name)) this.#changed.set(name, change);
        this.#mustFlush = true;
        this.#wake.resolve();
        throw error;
      }
      if (this.#complete || !followed.complete || this.#changed.size > 0) continue;
      this.#complete = true;
      this.#printWithheld();
      for (const member of this.#members) member.onComplete();
    }
  }

  /**
   * Starts the second step, which waits for the writes of the first step. Does not wait, so other namespaces are not
   * delayed.
   */
  #startSecondStep(names: readonly Change[], stages: ReadonlySet<ExportStage>, signal: AbortSignal): void {
    if (names.length === 0) return;
    const written = [...this.#members].filter(({ stage }) => this.#mustFlush || stages.has(stage));
    this.#mustFlush = false;
    const wait = async (until: AbortSignal): Promise<void> => {
      await interruptible(() => Promise.all(written.map((member) => member.whenFlushed())), until);
      await this.#secondStep(names, until);
    };
    void this.#tasks.runWithRestart('keys of namespaces', wait, { signal });
  }

  /**
   * Puts the identities of namespaces that have become global, and deletes the other keys of namespaces that are no
   * longer global. Returns the stages of the queued writes.
   */
  async #firstStep(names: readonly Change[], signal: AbortSignal): Promise<ReadonlySet<ExportStage>> {
    const { identities, others } = this.#exported;
    const opened = names.filter(([name]) => this.#isWanted(name) && !identities.has(name));
    const closed = names.filter(([name]) => !this.#isWanted(name) && others.has(name));
    for (const [name] of opened) this.#report(name, 'put');
    for (const [name] of closed) this.#report(name, 'delete');
    for (const [name] of opened) identities.add(name);
    for (const [name] of closed) others.delete(name);
    const stages = new Set<ExportStage>();
    if (await this.#review('identities', opened, signal)) stages.add('identities');
    if (await this.#review('others', closed, signal)) stages.add('others');
    return stages;
  }

  /**
   * Puts the other keys of namespaces that have become global, and deletes the identities of namespaces that are no
   * longer global, unless a namespace has changed since.
   */
  async #secondStep(names: readonly Change[], signal: AbortSignal): Promise<void> {
    const { identities, others } = this.#exported;
    const latest = names.filter(([name, change]) => this.#latest.get(name) === change);
    for (const [name] of latest) this.#latest.delete(name);
    const due = latest.filter(([name]) => identities.has(name));
    const opened = due.filter(([name]) => this.#isWanted(name));
    const closed = due.filter(([name]) => !this.#isWanted(name) && !others.has(name));
    for (const [name] of opened) others.add(name);
    for (const [name] of closed) identities.delete(name);
    await this.#review('others', opened, signal);
    await this.#review('identities', closed, signal);
  }

  /**
   * Puts or deletes the keys of a stage of namespaces, as {@link GlobalNamespaces.exports} returns, and repeats failed
   * reviews of the stage. Returns true if there were such namespaces.
   */
  async #review(stage: ExportStage, changes: readonly Change[], signal: AbortSignal): Promise<boolean> {
    const { gate = OPEN_GATE } = this.#options;
    const unreviewed = this.#unreviewed[stage];
    const names = new Set([...unreviewed, ...changes.map(([name]) => name)]);
    unreviewed.clear();
    try {
      await gate.runSteps(this.#reviewSteps(stage, names), signal);
    } catch (error) {
      for (const name of names) unreviewed.add(name);
      throw error;
    }
    return names.size > 0;
  }

  *#reviewSteps(stage: ExportStage, names: ReadonlySet<string>): Generator<unknown, void, void> {
    for (const member of this.#members) {
      if (member.stage !== stage) continue;
      for (const name of names) {
        if (member.count(name) === 0) continue;
        yield* member.review(name);
        yield;
      }
    }
  }

  /** Reports the change of a namespace with objects, unless it is part of the first review of all namespaces. */
  #report(namespace: string, verb: 'put' | 'delete'): void {
    if (!this.#complete) return;
    let objects = 0;
    for (const member of this.#members) objects += member.count(namespace);
    if (objects === 0) return;
    const reason = this.reasonNotGlobal(namespace) ?? `namespace ${namespace} is global`;
    const action = `${verb} the keys of ${objects} objects of namespace ${namespace}`;
    this.#guard.call(this.#options.onAction, { duty: this.name, action, reason, outcome: 'queued' });
  }

  /** In a dry run, prints each namespace that is not global. */
  #printWithheld(): void {
    const { print } = this.#options;
    if (print === undefined) return;
    for (const namespace of this.#known.keys()) {
      const reason = this.reasonNotGlobal(namespace);
      if (reason !== undefined) print(`omit objects of ${namespace}: ${reason}`);
    }
  }
}
