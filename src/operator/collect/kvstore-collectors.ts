import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { type Collection, identityCollection, lockCollection } from '../../kvstore/gc/collections.ts';
import { GarbageCollector } from '../../kvstore/gc/garbage-collector.ts';
import type { KvstoreBackend } from '../../kvstore/session/backend.ts';
import type { IdentityRange } from '../../model/numeric-identity.ts';
import type { Leadership } from '../elect/leader-election.ts';
import { IDENTITY_DELETES_PER_SECOND } from './identity-collector.ts';
import { DutyError } from './perform-write.ts';
import type { Collector, RoundReport } from './rounds.ts';

export interface KvstoreCollectorOptions {
  readonly backend: KvstoreBackend;
  readonly clock: Clock;
  readonly election: Leadership;
  /** If set, receives each delete, and nothing is deleted. Default: deletes are made. */
  readonly dryRun?: ((line: string) => void) | undefined;
}

/**
 * Lease of an agent's keys. If an agent loses its connection, its slave keys may be missing for this time although its
 * pods run.
 */
export const AGENT_LEASE_MS: number = 15 * 60_000;
/** Interval of the collector of locks. Not configurable, as in Cilium. */
export const LOCK_GC_INTERVAL_MS = 25_000;
const LOCK_REMOVALS_PER_SECOND = 20;

/**
 * Returns a collector which deletes the keys of the kvstore that were stale and unchanged in two consecutive rounds.
 *
 * @param reason the reported reason of each delete
 */
function kvstoreCollector(
  name: string,
  collection: Collection,
  removalsPerSecond: number,
  reason: string,
  { clock, election, dryRun }: KvstoreCollectorOptions,
): Collector {
  let report: RoundReport | undefined; // of the running round
  const dryRunCollection: Collection = {
    ...collection,
    remove: (key) => {
      dryRun?.(`delete ${key}: ${reason}`);
      return Promise.resolve(false);
    },
  };
  const collector = new GarbageCollector({
    collection: dryRun === undefined ? collection : dryRunCollection,
    clock,
    intervalMs: 0,
    removalsPerSecond,
    mayDelete: () => election.mayWrite(),
    onRemoved: (key, revision, round) => {
      const seen = `${reason}, unchanged since revision ${revision}, in rounds ${round - 1} and ${round}`;
      report?.countDelete();
      report?.addAction({ action: `delete ${key}`, reason: seen, outcome: 'done' });
    },
  });
  return {
    name,
    needs: [],
    round: async (current, signal) => {
      report = current;
      const { failures: previous } = collector.status();
      await collector.round(signal);
      const { stale, failures, lastFailure } = collector.status();
      report.setMarked(stale);
      if (failures > previous) throw new DutyError(lastFailure?.code ?? '', lastFailure?.message ?? '');
      if (!election.mayWrite()) throw new DutyError('not-leader', 'this operator is not the leader');
    },
  };
}

/** Returns the collector of unreleased locks of the identity allocator (OPERATOR 14). */
export function lockCollector(options: KvstoreCollectorOptions): Collector {
  const collection = lockCollection(options.backend);
  const reason = 'the lock was not released';
  return kvstoreCollector('lock-gc', collection, LOCK_REMOVALS_PER_SECOND, reason, options);
}

/**
 * Returns the collector of the cluster's identities without references (OPERATOR 17 to 19).
 *
 * @param intervalMs at least {@link AGENT_LEASE_MS}
 */
export function kvstoreIdentityCollector(
  range: IdentityRange,
  intervalMs: number,
  options: KvstoreCollectorOptions,
): Collector {
  assert(intervalMs >= AGENT_LEASE_MS, 'the interval is at least the lease of an agent');
  const collection = identityCollection(options.backend, range);
  const reason = 'no node references the identity';
  return kvstoreCollector('identity-gc', collection, IDENTITY_DELETES_PER_SECOND, reason, options);
}
