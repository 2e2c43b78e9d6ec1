import { assert } from '../base/assert.ts';
import type { Clock, Timer } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';
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

/** What a {@link ConfigFollower} is made of. */
export interface ConfigFollowerOptions {
  readonly source: ConfigSource;
  readonly mesh: Pick<ClusterMesh, 'add' | 'remove' | 'check'>;
  readonly clock: Clock;
  /** Told of each problem once, and again when it is another one. `name`: the file's, empty for the directory. */
  readonly onProblem?: ((name: string, why: string) => void) | undefined;
}

/** Changes are looked at so long after the first of them: editors and kubelets make several at once. */
const DEBOUNCE_MS = 200;
/** When something is half-written or unreadable. */
const RETRY_MS = 2_000;
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
  #state: DirectoryState = EMPTY_DIRECTORY;
  #unreadable: string | undefined;
  #scans = 0;
  #watching: Unsubscribe | undefined;
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #scanning: Promise<void> | undefined;
  #changed = false;
  #stopped = false;

  constructor(options: ConfigFollowerOptions) {
    this.#options = options;
  }

  /** Begins; resolves once every cluster that is configured now has been added to the mesh. Once only. */
  async start(): Promise<void> {
    assert(this.#watching === undefined, 'the directory is followed already');
    this.#watching = this.#options.source.watch(() => this.#onChange());
    await this.#scan();
  }

  /** Ends; the mesh stays as it is. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#watching?.();
    this.#timer?.timer.cancel();
    await this.#scanning;
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
    if (this.#scanning === undefined) this.#scanIn(DEBOUNCE_MS);
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

  #scan(): Promise<void> {
    this.#timer = undefined;
    this.#changed = false;
    this.#scanning = this.#scanNow().finally(() => {
      this.#scanning = undefined;
      if (this.#changed) this.#scanIn(DEBOUNCE_MS);
    });
    return this.#scanning;
  }

  async #scanNow(): Promise<void> {
    const { source, clock, mesh } = this.#options;
    const before = this.#problems();
    this.#scans++;
    let unsettled = true;
    try {
      const listing = await source.list();
      if (this.#stopped) return;
      const check = (name: string): ReturnType<typeof mesh.check> => mesh.check(name);
      const step = stepDirectory(this.#state, listing, { now: clock.now(), check });
      this.#state = step.state;
      this.#unreadable = undefined;
      unsettled = step.unsettled;
      await Promise.all(step.changes.map((change) => this.#apply(change)));
    } catch (error) {
      this.#unreadable = error instanceof Error ? error.message : String(error);
    }
    this.#report(before);
    this.#scanIn(unsettled ? RETRY_MS : RESCAN_MS);
  }

  async #apply(change: DirectoryChange): Promise<void> {
    const { mesh } = this.#options;
    if (change.type === 'remove') await mesh.remove(change.name);
    else await mesh.add(change.name, change.connect);
  }

  #report(before: ReadonlyMap<string, string>): void {
    for (const [name, why] of this.#problems()) {
      if (before.get(name) !== why) this.#options.onProblem?.(name, why);
    }
  }
}
