import type { Clock } from '../../base/clock.ts';
import type { IdentityRange } from '../../identity/numeric-identity.ts';
import type { KvstoreBackend } from '../../kvstore/backend.ts';
import { type Collection, identityCollection, lockCollection } from '../../kvstore/gc/collections.ts';
import { GarbageCollector } from '../../kvstore/gc/garbage-collector.ts';
import type { Leadership } from '../leader-election.ts';
import { CollectError } from './reaper.ts';
import type { Collector, Tally } from './rounds.ts';
import { UnsafeSettingError } from './unsafe-setting.ts';

/** What a {@link KvstoreCollector} works with. */
export interface KvstoreCollectorOptions {
  readonly backend: KvstoreBackend;
  readonly clock: Clock;
  readonly leadership: Leadership;
  /** Prints each delete instead of making it. Default: it is made. */
  readonly dryRun?: ((line: string) => void) | undefined;
}

/** Fixed in the original. */
export const LOCK_GC_INTERVAL_MS = 25_000;
/** `identity-gc-interval`. */
export const KVSTORE_IDENTITY_GC_INTERVAL_MS: number = 15 * 60_000;
/** The lease of an agent's keys: so long after it was cut off, its references may be gone though its pods live. */
const AGENT_LEASE_MS: number = 15 * 60_000;
/** 2,500 a minute. */
const IDENTITY_REMOVALS_PER_SECOND: number = 2500 / 60;

interface Kind {
  readonly name: string;
  readonly collection: Collection;
  readonly removalsPerSecond: number;
  /** Why its keys go. */
  readonly why: string;
}

/** Deletes keys of the kvstore that two rounds in a row find stale and unchanged. */
class KvstoreCollector implements Collector {
  readonly name: string;
  readonly needs: Collector['needs'] = [];
  readonly #collector: GarbageCollector;
  readonly #leadership: Leadership;
  readonly #why: string;
  #tally: Tally | undefined;

  constructor({ name, collection, removalsPerSecond, why }: Kind, options: KvstoreCollectorOptions) {
    const { clock, leadership, dryRun } = options;
    this.name = name;
    this.#leadership = leadership;
    this.#why = why;
    const printed: Collection = {
      ...collection,
      remove: (key) => {
        dryRun?.(`delete ${key}: ${why}`);
        return Promise.resolve(false);
      },
    };
    this.#collector = new GarbageCollector({
      ...{ collection: dryRun === undefined ? collection : printed, clock, intervalMs: 0, removalsPerSecond },
      mayDelete: () => this.#leadership.mayDelete(),
      onRemoved: (key, revision, round) => {
        const seen = `${this.#why}, unchanged since revision ${revision}, in rounds ${round - 1} and ${round}`;
        this.#tally?.deleted();
        this.#tally?.done({ what: `delete ${key}`, why: seen, outcome: 'done' });
      },
    });
  }

  async round(tally: Tally, signal: AbortSignal): Promise<void> {
    this.#tally = tally;
    const { failures: before } = this.#collector.status();
    await this.#collector.round(signal);
    const { stale, failures, lastFailure } = this.#collector.status();
    tally.marked(stale);
    if (failures > before) throw new CollectError(lastFailure?.code ?? '', lastFailure?.message ?? '');
    if (!this.#leadership.mayDelete())
      throw new CollectError('not-leader', 'this operator does not hold the lease');
  }
}

/** Locks of the identity allocator that are never given back (OPERATOR 14). */
export function lockCollector(options: KvstoreCollectorOptions): Collector {
  const collection = lockCollection(options.backend);
  const why = 'the lock is held, and not given back';
  return new KvstoreCollector({ name: 'lock-gc', collection, removalsPerSecond: 20, why }, options);
}

/**
 * Identities of the cluster that no node refers to (OPERATOR 17 to 19).
 *
 * @param intervalMs throws an {@link UnsafeSettingError} if it is shorter than the lease of an agent's keys
 */
export function kvstoreIdentityCollector(
  range: IdentityRange,
  intervalMs: number,
  options: KvstoreCollectorOptions,
): Collector {
  if (intervalMs < AGENT_LEASE_MS)
    throw new UnsafeSettingError(
      'identity-gc-interval',
      `${intervalMs} ms`,
      `a node that lives may have lost its references for the ${AGENT_LEASE_MS / 60_000} min of its lease`,
    );
  const collection = identityCollection(options.backend, range);
  const why = `no node refers to the identity`;
  const removalsPerSecond = IDENTITY_REMOVALS_PER_SECOND;
  return new KvstoreCollector({ name: 'identity-gc', collection, removalsPerSecond, why }, options);
}
