import type { IdentityRange } from '../../identity/numeric-identity.ts';
import type { KvstoreBackend } from '../backend.ts';
import { textOfBytes } from '../bytes.ts';
import { parseIdentityText } from '../codec/identity.ts';
import { IDENTITIES_PREFIX, IDENTITY_LOCKS_PREFIX, identityValuePrefix, parseKey } from '../codec/keys.ts';
import type { KeyValue } from '../transport.ts';

/** What a `GarbageCollector` does in its rounds. */
export interface Collection {
  /** What is stale now: mod revision by key. */
  list(signal: AbortSignal): Promise<ReadonlyMap<string, number>>;
  /** Deletes the key if it is still stale and still has this mod revision. True when it is gone. */
  remove(key: string, modRevision: number, signal: AbortSignal): Promise<boolean>;
}

/**
 * The master keys that no node holds by a slave key, with their mod revisions. Keys that cannot be read and
 * identities outside the cluster's range are not collected. Pure.
 *
 * @param listing everything below `cilium/state/identities/v1/`, at one revision
 */
export function staleIdentities(
  listing: readonly KeyValue[],
  range: IdentityRange,
): ReadonlyMap<string, number> {
  const held = new Set<string>();
  for (const { key } of listing) {
    const parsed = parseKey(key);
    if (parsed?.kind === 'identity-value') held.add(parsed.labels);
  }
  const stale = new Map<string, number>();
  for (const { key, value, modRevision } of listing) {
    const parsed = parseKey(key);
    if (parsed?.kind !== 'identity') continue;
    const id = parseIdentityText(parsed.id);
    const labels = textOfBytes(value);
    if (id === undefined || labels === undefined || id < range.min || id > range.max) continue;
    if (!held.has(labels)) stale.set(key, modRevision);
  }
  return stale;
}

/** Master keys of the cluster that no node uses; each deleted under its lock, after another look. */
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
 * Keys of locks that are never given back, though their lease is kept alive: a client that hangs. Only who holds a lock, the
 * oldest key of its path: those behind it wait, and have their time once they hold it.
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
