import {
  atLeast,
  checkArgument,
  checkArguments,
  FUNCTION,
  objectWith,
  optional,
  optionsWith,
  SIGNAL,
} from '../../base/arguments.ts';
import type { Failure } from '../../base/failure.ts';
import { sleep } from '../../base/sleep.ts';
import { Supervisor } from '../../base/supervisor.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import type { Collection } from './collections.ts';

/** Options of {@link GarbageCollector}. */
export interface GarbageCollectorOptions extends RuntimeOptions {
  /** The keys to check: {@link identityCollection} or {@link lockCollection}. */
  readonly collection: Collection;
  /** Time from the start of a round to the start of the next one. */
  readonly intervalMs: number;
  /** Maximum rate of deletes per second. Default 20. */
  readonly removalsPerSecond?: number | undefined;
  /** Called before each removal. If it returns false, the round ends. Default: always true. */
  readonly mayDelete?: (() => boolean) | undefined;
  /** Receives each removed key and the number of the round. */
  readonly onRemoved?: ((key: string, modRevision: number, round: number) => void) | undefined;
  /** Receives the failures of rounds and removals. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** Status of a {@link GarbageCollector}, as plain data. */
export interface GarbageCollectorStatus {
  readonly rounds: number;
  readonly removed: number;
  /** Number of keys which the next round removes if they are still stale and unchanged. */
  readonly stale: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

const REMOVALS_PER_SECOND = 20;

export interface StaleRound<R> {
  /** Keys to delete if they still have this revision. */
  readonly remove: ReadonlyMap<string, R>;
  /** Input of the next round. */
  readonly stale: ReadonlyMap<string, R>;
}

/**
 * Computes one round of garbage collection (SEMANTICS 5). A key is removed if it is stale **and was stale in the
 * previous round, at the same mod revision**. A key that is stale for the first time stays for one more round, because
 * it may be used again. Pure.
 *
 * @param previous `stale` of the previous round; empty at first
 * @param staleNow revision by key; it must change with every write of the key
 */
export function staleRound<R extends number | string>(
  previous: ReadonlyMap<string, R>,
  staleNow: ReadonlyMap<string, R>,
): StaleRound<R> {
  const remove = new Map<string, R>();
  const stale = new Map<string, R>();
  for (const [key, revision] of staleNow) {
    if (previous.get(key) === revision) remove.set(key, revision);
    else stale.set(key, revision);
  }
  return { remove, stale };
}

/** Deletes keys that two rounds in a row found stale and unchanged. */
export class GarbageCollector {
  readonly #options: GarbageCollectorOptions & Runtime;
  readonly #tasks: Supervisor;
  /** The keys which the next round removes if they are still stale at the same mod revision. */
  #stale: Map<string, number> = new Map();
  #rounds = 0;
  #removed = 0;

  constructor(options: GarbageCollectorOptions) {
    checkArgument('new GarbageCollector: options', options, OPTIONS);
    this.#options = withRuntime(options);
    const { clock, random, onFailure } = this.#options;
    this.#tasks = new Supervisor({ clock, random, onFailure });
  }

  status(): GarbageCollectorStatus {
    const { failures, lastFailure } = this.#tasks.status();
    return { rounds: this.#rounds, removed: this.#removed, stale: this.#stale.size, failures, lastFailure };
  }

  /**
   * Runs a round every interval until the signal fires. The interval includes the duration of the round. A round after
   * failed ones is compared with the last round that did not fail.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs } = this.#options;
    while (!signal.aborted) {
      const startedAt = clock.now();
      // the supervisor counts the failure
      await this.#tasks.run('collection', (until) => this.round(until), { signal }).catch(() => {});
      await sleep(clock, Math.max(0, startedAt + intervalMs - clock.now()), signal);
    }
  }

  /** Runs one round. If a removal fails, the key remains marked, so the next round retries it. */
  async round(signal: AbortSignal): Promise<void> {
    const {
      collection,
      clock,
      removalsPerSecond = REMOVALS_PER_SECOND,
      mayDelete,
      onRemoved,
    } = this.#options;
    const { remove, stale } = staleRound(this.#stale, await collection.list(signal));
    this.#stale = new Map([...stale, ...remove]);
    this.#rounds++;
    for (const [key, modRevision] of remove) {
      if (signal.aborted || mayDelete?.() === false) return;
      const removal = (until: AbortSignal): Promise<boolean> => collection.remove(key, modRevision, until);
      const isRemoved = await this.#tasks
        .run(`removal of ${key}`, removal, { signal })
        .catch(() => undefined);
      if (isRemoved !== undefined) this.#stale.delete(key);
      if (isRemoved === true) {
        this.#removed++;
        onRemoved?.(key, modRevision, this.#rounds);
      }
      await sleep(clock, 1000 / removalsPerSecond, signal);
    }
  }
}

const OPTIONS = optionsWith({
  collection: objectWith({ list: FUNCTION }),
  intervalMs: atLeast(0),
  removalsPerSecond: optional(atLeast(0)),
  mayDelete: optional(FUNCTION),
  onRemoved: optional(FUNCTION),
});

checkArguments(GarbageCollector, { run: { signal: SIGNAL }, round: { signal: SIGNAL } });
