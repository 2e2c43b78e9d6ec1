import {
  checkArgument,
  FUNCTION,
  objectWith,
  optional,
  optionsWith,
  requireAllowed,
} from '../base/arguments.ts';
import type { Timer } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import { CallbackGuard } from '../base/guard.ts';
import { deferred } from '../base/sleep.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { interruptible, Supervisor } from '../base/supervisor.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../base/system-clock.ts';
import type { ClusterMesh } from './cluster-mesh.ts';
import {
  type ConfigListing,
  type DirectoryChange,
  type DirectoryState,
  EMPTY_DIRECTORY,
  stepDirectory,
  withFailedChanges,
} from './config-directory.ts';

/** A directory with one configuration per remote cluster. */
export interface ConfigSource {
  /** Returns the current files. Rejects if the directory itself cannot be read. */
  list(): Promise<ConfigListing>;
  /** Calls back after a possible change. Superfluous calls are allowed. */
  watch(onChange: () => void): Unsubscribe;
}

/** Options of {@link ConfigFollower}. */
export interface ConfigFollowerOptions extends Pick<RuntimeOptions, 'clock'> {
  /** Lists the configurations of clusters, such as a {@link ConfigFolder}. */
  readonly source: ConfigSource;
  /** The mesh to which clusters are added, and from which they are removed. */
  readonly mesh: Pick<ClusterMesh, 'add' | 'remove' | 'check'>;
  /** Receives each new or changed problem once. `name` is the file name, or empty for the directory. */
  readonly onProblem?: ((name: string, reason: string) => void) | undefined;
  /** Called after each attempt to read the directory, when its changes are applied. */
  readonly onScan?: (() => void) | undefined;
}

/** Delay between the first change and the scan, because editors and kubelets make several changes together. */
const DEBOUNCE_MS = 200;
/** Delay of the next scan after a problem. Doubles up to the maximum while the problems are the same. */
const RETRY_MS = 2_000;
const MAX_RETRY_MS = 10_000;
/**
 * Interval of scans without a notification, because notifications can be lost (network file systems, a replaced
 * directory).
 */
const RESCAN_MS = 60_000;

/** Status of a {@link ConfigFollower}. */
export interface ConfigFollowerStatus {
  /** Number of clusters with a configuration. */
  readonly clusters: number;
  /** True if the directory has been read and all its clusters have been added. Stays true. */
  readonly listed: boolean;
  readonly scans: number;
  /** Current problems by file name, one sentence each. The name of the directory itself is empty. */
  readonly problems: Readonly<Record<string, string>>;
}

/**
 * Keeps the clusters of a mesh equal to a directory of configurations (SEMANTICS 6). If the directory cannot be read,
 * nothing changes and the read is retried. A failed change is retried too, and does not delay the changes of other
 * clusters.
 */
export class ConfigFollower implements AsyncDisposable {
  readonly #options: ConfigFollowerOptions & Runtime;
  readonly #tasks: Supervisor;
  readonly #guard = new CallbackGuard();
  #state: DirectoryState = EMPTY_DIRECTORY;
  #directoryProblem: string | undefined;
  #isListed = false;
  readonly #listed = deferred();
  /** Resolves when the directory has been read and all its clusters have been added to the mesh. */
  readonly listed: Promise<void> = this.#listed.promise;
  #scans = 0;
  /** Maximum delay of the next scan after a problem. */
  #retryMs = RETRY_MS;
  #unwatch: Unsubscribe | undefined;
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #isScanning = false;
  /** True if a change was reported since the last scan began. */
  #hasChanged = false;
  #stopped = false;

  constructor(options: ConfigFollowerOptions) {
    checkArgument('new ConfigFollower: options', options, OPTIONS);
    this.#options = withRuntime(options);
    this.#tasks = new Supervisor({ clock: this.#options.clock, random: () => 1 });
  }

  /**
   * Starts, and resolves after the first attempt to read the directory. If the attempt failed, no cluster has been
   * added yet; {@link ConfigFollower.listed} waits for the first success. Must be called once.
   */
  async start(): Promise<void> {
    requireAllowed(this.#unwatch === undefined, 'start must be called once');
    this.#unwatch = this.#options.source.watch(() => this.#onChange());
    await this.#scan();
  }

  /** Stops, even during a read that does not return. Does not change the mesh. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#unwatch?.();
    this.#timer?.timer.cancel();
    await this.#tasks.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Returns true if the directory contains a file of this name, or has not been read yet. A file without `endpoints:`
   * may be a half-written configuration.
   */
  mayContain(name: string): boolean {
    return !this.#isListed || this.#state.files.has(name);
  }

  status(): ConfigFollowerStatus {
    const { clusters } = this.#state;
    return {
      clusters: clusters.size,
      listed: this.#isListed,
      scans: this.#scans,
      problems: Object.fromEntries(this.#problems()),
    };
  }

  #problems(): ReadonlyMap<string, string> {
    const problems = new Map(this.#state.problems);
    if (this.#directoryProblem !== undefined) problems.set('', this.#directoryProblem);
    return problems;
  }

  #onChange(): void {
    this.#hasChanged = true;
    if (!this.#isScanning) this.#scanIn(DEBOUNCE_MS);
  }

  /** Schedules a scan, unless an earlier one is scheduled. */
  #scanIn(delayMs: number): void {
    if (this.#stopped) return;
    const { clock } = this.#options;
    const at = clock.now() + delayMs;
    if (this.#timer !== undefined && this.#timer.at <= at) return;
    this.#timer?.timer.cancel();
    this.#timer = { at, timer: clock.after(delayMs, () => void this.#scan()) };
  }

  async #scan(): Promise<void> {
    this.#timer?.timer.cancel();
    this.#timer = undefined;
    this.#hasChanged = false;
    this.#isScanning = true;
    await this.#tasks.run('scan', (signal) => this.#scanNow(signal));
    this.#isScanning = false;
    if (this.#hasChanged) this.#scanIn(DEBOUNCE_MS);
  }

  async #scanNow(signal: AbortSignal): Promise<void> {
    const previous = this.#problems();
    this.#scans++;
    let maxRetryMs: number | undefined = MAX_RETRY_MS;
    try {
      maxRetryMs = await this.#applyListing(await interruptible(() => this.#options.source.list(), signal));
    } catch (error) {
      if (!signal.aborted) this.#directoryProblem = messageOf(error);
    }
    if (signal.aborted) return;
    this.#retryMs = this.#report(previous) ? RETRY_MS : Math.min(2 * this.#retryMs, MAX_RETRY_MS);
    this.#guard.call(this.#options.onScan);
    this.#scanIn(maxRetryMs === undefined ? RESCAN_MS : Math.min(maxRetryMs, this.#retryMs));
  }

  /** Applies the changes of a listing. Returns the maximum delay of the next scan; undefined if nothing is pending. */
  async #applyListing(listing: ConfigListing): Promise<number | undefined> {
    const { clock, mesh } = this.#options;
    const now = clock.now();
    const step = stepDirectory(this.#state, listing, { now, check: (name) => mesh.check(name) });
    this.#state = step.state;
    this.#directoryProblem = undefined;
    const failures = await this.#applyAll(step.changes);
    this.#state = withFailedChanges(step.state, failures);
    if (failures.size === 0 && !this.#stopped) {
      this.#isListed = true;
      this.#listed.resolve();
      if (!step.unsettled) return undefined;
    }
    return step.nextScanAt === undefined ? MAX_RETRY_MS : step.nextScanAt - now;
  }

  /** Applies changes concurrently. Returns the problem of each failed change, by the name of its cluster. */
  async #applyAll(changes: readonly DirectoryChange[]): Promise<ReadonlyMap<string, string>> {
    const { mesh } = this.#options;
    const failures = new Map<string, string>();
    const apply = async (change: DirectoryChange): Promise<void> => {
      try {
        if (change.type === 'remove') await mesh.remove(change.name);
        else await mesh.add(change.name, change.connect);
      } catch (error) {
        failures.set(change.name, `could not be applied: ${messageOf(error)}`);
      }
    };
    await Promise.all(changes.map(apply));
    return failures;
  }

  /** Reports the new or changed problems. Returns true if there are any. */
  #report(previous: ReadonlyMap<string, string>): boolean {
    const newProblems = [...this.#problems()].filter(([name, reason]) => previous.get(name) !== reason);
    for (const [name, reason] of newProblems) this.#guard.call(this.#options.onProblem, name, reason);
    return newProblems.length > 0;
  }
}

const OPTIONS = optionsWith({
  source: objectWith({ list: FUNCTION, watch: FUNCTION }),
  mesh: objectWith({ add: FUNCTION }),
  onProblem: optional(FUNCTION),
  onScan: optional(FUNCTION),
});
