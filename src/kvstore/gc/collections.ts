import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import type { IdentityRange } from '../../model/numeric-identity.ts';
import { textOfBytes } from '../codec/bytes.ts';
import { parseIdentityText } from '../codec/identity.ts';
import {
  IDENTITIES_PREFIX,
  IDENTITY_LOCKS_PREFIX,
  identityValuePrefix,
  parseKvstoreKey,
} from '../codec/keys.ts';
import type { KvstoreBackend } from '../session/backend.ts';
import type { KeyValue } from '../session/transport.ts';

/** Number of keys which are examined in one turn of the event loop: 5 to 10 ms. */
const KEYS_PER_TURN = 4096;

/** The operations of a `GarbageCollector` on one kind of key. */
export interface Collection {
  /** Returns the stale keys with their mod revisions. */
  list(signal: AbortSignal): Promise<ReadonlyMap<string, number>>;
  /** Deletes the key if it is still stale and still has this mod revision. Returns true if it is deleted. */
  remove(key: string, modRevision: number, signal: AbortSignal): Promise<boolean>;
}

/**
 * Returns the master keys without a slave key, with their mod revisions. Ignores keys that cannot be parsed and
 * identities outside the range of the cluster. Examines at most {@link KEYS_PER_TURN} keys in one turn.
 *
 * @param listing all keys below `cilium/state/identities/v1/`, at one revision
 */
export async function staleIdentities(
  listing: readonly KeyValue[],
  range: IdentityRange,
): Promise<ReadonlyMap<string, number>> {
  const inUse = new Set<string>();
  const masters: KeyValue[] = [];
  for (const [index, kv] of listing.entries()) {
    const parsed = parseKvstoreKey(kv.key);
    if (parsed?.kind === 'identity-value') inUse.add(parsed.labels);
    else if (parsed?.kind === 'identity') masters.push(kv);
    if ((index + 1) % KEYS_PER_TURN === 0) await eventLoopTurn();
  }
  const stale = new Map<string, number>();
  for (const [index, { key, value, modRevision }] of masters.entries()) {
    const id = parseIdentityText(key.slice(key.lastIndexOf('/') + 1));
    const labels = textOfBytes(value);
    const isValid = id !== undefined && labels !== undefined && id >= range.min && id <= range.max;
    if (isValid && !inUse.has(labels)) stale.set(key, modRevision);
    if ((index + 1) % KEYS_PER_TURN === 0) await eventLoopTurn();
  }
  return stale;
}

/**
 * Returns the `Collection` of the identities that no node of the cluster uses: master keys without slave keys. A key is
 * deleted under the lock of its labels, after a second check.
 */
export function identityCollection(backend: KvstoreBackend, range: IdentityRange): Collection {
  return {
    list: async (signal) => staleIdentities(await backend.listPrefix(IDENTITIES_PREFIX, { signal }), range),
    remove: async (key, modRevision, signal) => {
      const master = await backend.get(key, { signal });
      const labels = master && textOfBytes(master.value);
      if (labels === undefined) return false;
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

/**
 * Returns the `Collection` of the holders of locks: the oldest key of each path. All holders count as stale, so a lock
 * which one client holds in two rounds is deleted. Such a client hangs: it keeps its lease alive, but never releases
 * its lock. The keys of waiting clients are never stale.
 */
export function lockCollection(backend: KvstoreBackend, prefix: string = IDENTITY_LOCKS_PREFIX): Collection {
  return {
    list: async (signal) => {
      const holders = new Map<string, KeyValue>();
      for (const lock of await backend.listPrefix(prefix, { signal })) {
        const path = lock.key.slice(0, lock.key.lastIndexOf('/'));
        const holder = holders.get(path);
        if (holder === undefined || lock.createRevision < holder.createRevision) holders.set(path, lock);
      }
      return new Map([...holders.values()].map(({ key, modRevision }) => [key, modRevision]));
    },
    remove: (key, modRevision, signal) => backend.delete(key, { ifModRevision: modRevision, signal }),
  };
}
