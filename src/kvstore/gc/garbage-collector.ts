import { checkArguments, SIGNAL } from '../../base/arguments.ts';
import type { Clock, Random } from '../../base/clock.ts';
import type { Failure } from '../../base/failure.ts';
import { sleep } from '../../base/sleep.ts';
import { Supervisor } from '../../base/supervisor.ts';
import type { Collection } from './collections.ts';

/** Options of {@link GarbageCollector}. */
export interface GarbageCollectorOptions {
  readonly collection: Collection;
  readonly clock: Clock;
  readonly intervalMs: number;
  /** Deletes are spread, at most so many a second. Default 20. */
  readonly removalsPerSecond?: number | undefined;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
  /** Asked before each removal; where it says no, the round ends. Default: always. */
  readonly mayDelete?: (() => boolean) | undefined;
  /** Receives what was removed, and the number of the round. */
  readonly onRemoved?: ((key: string, modRevision: number, round: number) => void) | undefined;
  /** Receives the failures of rounds and removals. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** A collector as data. */
export interface GarbageCollectorStatus {
  readonly rounds: number;
  readonly removed: number;
  /** Found in the last round, and to be removed if the next one still finds it. */
  readonly stale: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

const REMOVALS_PER_SECOND = 20;

/** What a round of collection makes of a listing. */
export interface StaleRound<R> {
  /** Keys to delete, each only while it still has this revision. */
  readonly remove: ReadonlyMap<string, R>;
  /** What to hand to the next round. */
  readonly stale: ReadonlyMap<string, R>;
}

/**
 * One round of collecting garbage (SEMANTICS 5): what is stale now, **and was already in the round before, at
 * the same mod revision**, is to go; what is stale for the first time gets a round's time to be used again:
 * collectors of one round delete what is in use. Pure.
 *
 * @param before `stale` of the round before; empty at first
 * @param staleNow revision by key: what changes whenever the key is written
 */
export function staleRound<R extends number | string>(
  before: ReadonlyMap<string, R>,
  staleNow: ReadonlyMap<string, R>,
): StaleRound<R> {
  const remove = new Map<string, R>();
  const stale = new Map<string, R>();
  for (const [key, modRevision] of staleNow) {
    (before.get(key) === modRevision ? remove : stale).set(key, modRevision);
  }
  return { remove, stale };
}

/** Runs rounds: two in a row must find a key stale and unchanged before it is deleted ({@link staleRound}). */
export class GarbageCollector {
  readonly #options: GarbageCollectorOptions;
  readonly #tasks: Supervisor;
  #stale: Map<string, number> = new Map();
  #rounds = 0;
  #removed = 0;

  constructor(options: GarbageCollectorOptions) {
    this.#options = options;
    const { clock, random = Math.random, onFailure } = options;
    this.#tasks = new Supervisor({ clock, random, onFailure });
  }

  status(): GarbageCollectorStatus {
    const { failures, lastFailure } = this.#tasks.status();
    return { rounds: this.#rounds, removed: this.#removed, stale: this.#stale.size, failures, lastFailure };
  }

  /** A round every interval until the signal fires; the time that one takes is part of it. A round that fails counts as none. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs } = this.#options;
    while (!signal.aborted) {
      const begun = clock.now();
      await this.#tasks.run('collection', (until) => this.round(until), { signal }).catch(() => {}); // it is counted
      await sleep(clock, Math.max(0, begun + intervalMs - clock.now()), signal);
    }
  }

  /** One round. What could not be removed stays marked: the next one tries again. */
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

checkArguments(GarbageCollector, { run: { signal: SIGNAL }, round: { signal: SIGNAL } });
