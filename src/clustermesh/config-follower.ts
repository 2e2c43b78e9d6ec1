import { assert } from '../base/assert.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import { CallbackGuard } from '../base/guard.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { interruptible, Supervisor } from '../base/supervisor.ts';
import type { ClusterMesh } from './cluster-mesh.ts';
import {
  type ConfigListing,
  type DirectoryChange,
  type DirectoryState,
  EMPTY_DIRECTORY,
  stepDirectory,
} from './config-directory.ts';

/** A directory with one configuration for each remote cluster, wherever it lies. */
export interface ConfigSource {
  /** Everything in it now. Rejects when the directory itself cannot be read. */
  list(): Promise<ConfigListing>;
  /** Calls back after something may have changed; too often rather than too seldom. */
  watch(onChange: () => void): Unsubscribe;
}

/** Options of {@link ConfigFollower}. */
export interface ConfigFollowerOptions {
  readonly source: ConfigSource;
  readonly mesh: Pick<ClusterMesh, 'add' | 'remove' | 'check'>;
  readonly clock: Clock;
  /** Receives each problem once, and again when it is another one. `name`: the file's, empty for the directory. */
  readonly onProblem?: ((name: string, why: string) => void) | undefined;
}

/** Changes are looked at so long after the first of them: editors and kubelets make several at once. */
const DEBOUNCE_MS = 200;
/** When something is half-written or unreadable; twice as long after each look that finds the same, up to the second. */
const RETRY_MS = 2_000;
const MAX_RETRY_MS = 10_000;
/** Notifications get lost (network file systems, a directory that was replaced), so it is looked at anyway. */
const RESCAN_MS = 60_000;

/** A directory as data. */
export interface ConfigFollowerStatus {
  /** Clusters that it asks for. */
  readonly clusters: number;
  readonly scans: number;
  /** What is wrong now: file name, or empty for the directory itself, → sentence. */
  readonly problems: Readonly<Record<string, string>>;
}

/**
 * Keeps a mesh equal to a directory of configurations (SEMANTICS 6). A directory that cannot be read changes
 * nothing; it is tried again.
 */
export class ConfigFollower {
  readonly #options: ConfigFollowerOptions;
  readonly #tasks: Supervisor;
  readonly #guard = new CallbackGuard();
  #state: DirectoryState = EMPTY_DIRECTORY;
  #unreadable: string | undefined;
  #scans = 0;
  #retryMs = RETRY_MS;
  #watching: Unsubscribe | undefined;
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #isScanning = false;
  #changed = false;
  #stopped = false;

  constructor(options: ConfigFollowerOptions) {
    this.#options = options;
    this.#tasks = new Supervisor({ clock: options.clock, random: () => 1 });
  }

  /** Begins; resolves once every cluster that is configured now has been added to the mesh. Once only. */
  async start(): Promise<void> {
    assert(this.#watching === undefined, 'the directory is followed already');
    this.#watching = this.#options.source.watch(() => this.#onChange());
    await this.#scan();
  }

  /** Ends, also while the directory does not answer; the mesh stays as it is. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#watching?.();
    this.#timer?.timer.cancel();
    await this.#tasks.stop();
  }

  status(): ConfigFollowerStatus {
    const { clusters } = this.#state;
    return { clusters: clusters.size, scans: this.#scans, problems: Object.fromEntries(this.#problems()) };
  }

  #problems(): ReadonlyMap<string, string> {
    const problems = new Map(this.#state.problems);
    if (this.#unreadable !== undefined) problems.set('', this.#unreadable);
    return problems;
  }

  #onChange(): void {
    this.#changed = true;
    if (!this.#isScanning) this.#scanIn(DEBOUNCE_MS);
  }

  /** Never later than was said before. */
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
    this.#changed = false;
    this.#isScanning = true;
    await this.#tasks.run('scan', (signal) => this.#scanNow(signal));
    this.#isScanning = false;
    if (this.#changed) this.#scanIn(DEBOUNCE_MS);
  }

  async #scanNow(signal: AbortSignal): Promise<void> {
    const { source, clock, mesh } = this.#options;
    const before = this.#problems();
    this.#scans++;
    let lookAgainMs = MAX_RETRY_MS;
    try {
      const listing = await interruptible(() => source.list(), signal);
      const now = clock.now();
      const check = (name: string): ReturnType<typeof mesh.check> => mesh.check(name);
      const step = stepDirectory(this.#state, listing, { now, check });
      this.#state = step.state;
      this.#unreadable = undefined;
      if (!step.unsettled) lookAgainMs = RESCAN_MS;
      else if (step.lookAgainAt !== undefined) lookAgainMs = step.lookAgainAt - now;
      await Promise.all(step.changes.map((change) => this.#apply(change)));
    } catch (error) {
      if (signal.aborted) return;
      this.#unreadable = messageOf(error);
    }
    this.#retryMs = this.#report(before) ? RETRY_MS : Math.min(2 * this.#retryMs, MAX_RETRY_MS);
    this.#scanIn(lookAgainMs === RESCAN_MS ? RESCAN_MS : Math.min(lookAgainMs, this.#retryMs));
  }

  async #apply(change: DirectoryChange): Promise<void> {
    const { mesh } = this.#options;
    if (change.type === 'remove') await mesh.remove(change.name);
    else await mesh.add(change.name, change.connect);
  }

  /** Reports what is wrong now and was not before; whether there was any such thing. */
  #report(before: ReadonlyMap<string, string>): boolean {
    const news = [...this.#problems()].filter(([name, why]) => before.get(name) !== why);
    for (const [name, why] of news) this.#guard.call(this.#options.onProblem, name, why);
    return news.length > 0;
  }
}
