import type { Clock } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { sleep } from '../../base/sleep.ts';
import type { IdentityRange } from '../../identity/numeric-identity.ts';
import type { KvstoreBackend } from '../backend.ts';
import { textOfBytes } from '../bytes.ts';
import { IDENTITY_LOCKS_PREFIX, identityValuePrefix } from '../codec/keys.ts';
import { IDENTITY_LISTING_PREFIX, staleIdentities } from './stale-identities.ts';
import { staleRound } from './stale-round.ts';

/** What a {@link GarbageCollector} does in its rounds. */
export interface Collection {
  /** What is stale now: mod revision by key. */
  list(signal: AbortSignal): Promise<ReadonlyMap<string, number>>;
  /** Deletes the key if it is stale still and has this mod revision still. True when it is gone. */
  remove(key: string, modRevision: number, signal: AbortSignal): Promise<boolean>;
}

/** What a {@link GarbageCollector} is made of. */
export interface GarbageCollectorOptions {
  readonly collection: Collection;
  readonly clock: Clock;
  readonly intervalMs: number;
  /** Deletes are spread, at most so many a second. Default 20. */
  readonly removalsPerSecond?: number | undefined;
}

/** A collector as data. */
export interface GarbageCollectorStatus {
  readonly rounds: number;
  readonly removed: number;
  /** Stale for the first time in the last round. */
  readonly stale: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

const REMOVALS_PER_SECOND = 20;

/** Runs rounds: two in a row must find a key stale and unchanged before it is deleted (`staleRound`). */
export class GarbageCollector {
  readonly #options: GarbageCollectorOptions;
  #stale: ReadonlyMap<string, number> = new Map();
  #rounds = 0;
  #removed = 0;
  #failures = 0;
  #lastFailure: Failure | undefined;

  constructor(options: GarbageCollectorOptions) {
    this.#options = options;
  }

  status(): GarbageCollectorStatus {
    return {
      rounds: this.#rounds,
      removed: this.#removed,
      stale: this.#stale.size,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
    };
  }

  /** A round every interval until the signal fires. A round that fails counts as none. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.round(signal).catch((error: unknown) => this.#failed(error, signal));
      await sleep(this.#options.clock, this.#options.intervalMs, signal);
    }
  }

  /** One round. */
  async round(signal: AbortSignal): Promise<void> {
    const { collection } = this.#options;
    const { remove, stale } = staleRound(this.#stale, await collection.list(signal));
    this.#stale = stale;
    this.#rounds++;
    for (const [key, modRevision] of remove) {
      if (signal.aborted) return;
      await this.#remove(key, modRevision, signal);
    }
  }

  async #remove(key: string, modRevision: number, signal: AbortSignal): Promise<void> {
    const { collection, clock, removalsPerSecond = REMOVALS_PER_SECOND } = this.#options;
    try {
      if (await collection.remove(key, modRevision, signal)) this.#removed++;
    } catch (error) {
      this.#failed(error, signal);
    }
    await sleep(clock, 1000 / removalsPerSecond, signal);
  }

  #failed(thrown: unknown, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.#failures++;
    this.#lastFailure = failureOf(thrown, this.#options.clock);
  }
}

/** Master keys of the cluster that no node uses; each deleted under its lock, after another look. */
export function identityCollection(backend: KvstoreBackend, range: IdentityRange): Collection {
  return {
    list: async (signal) =>
      staleIdentities(await backend.listPrefix(IDENTITY_LISTING_PREFIX, { signal }), range),
    remove: async (key, modRevision, signal) => {
      const labels = textOfBytes((await backend.get(key, { signal }))?.value ?? new Uint8Array(0)) ?? '';
      if (labels === '') return false;
      const lock = await backend.lock(`${IDENTITY_LOCKS_PREFIX}${labels}`, { signal });
      try {
        const users = await backend.listPrefix(identityValuePrefix(labels), { signal });
        if (users.length > 0) return false;
        return await backend.delete(key, { ifModRevision: modRevision, ifLocked: lock, signal });
      } finally {
        await lock.release();
      }
    },
  };
}

/** Keys of locks that are never given back, though their lease is kept alive: a client that hangs. */
export function lockCollection(backend: KvstoreBackend, prefix: string = IDENTITY_LOCKS_PREFIX): Collection {
  return {
    list: async (signal) => {
      const locks = await backend.listPrefix(prefix, { signal });
      return new Map(locks.map(({ key, modRevision }) => [key, modRevision]));
    },
    remove: (key, modRevision, signal) => backend.delete(key, { ifModRevision: modRevision, signal }),
  };
}
