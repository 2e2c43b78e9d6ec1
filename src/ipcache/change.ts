import { formatPrefixOf, type PrefixRegister } from '../net/prefix.ts';
import { sameMetadata } from './k8s-metadata.ts';
import type { IPCacheChange, IPCacheEntry } from './types.ts';

/** Returns true if two entries are equal for a listener (I3). */
export function sameEntry(a: IPCacheEntry | undefined, b: IPCacheEntry | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return (
    a.identity === b.identity &&
    a.hostIP === b.hostIP &&
    a.encryptKey === b.encryptKey &&
    sameMetadata(a.k8s, b.k8s)
  );
}

/**
 * Returns the change of one prefix as plain data. At least one of `old` and `next` is defined. `text` is the text from
 * which the key was parsed, or empty. A canonical text saves formatting the key.
 */
export function prefixChange(
  key: Readonly<PrefixRegister>,
  old: IPCacheEntry | undefined,
  next: IPCacheEntry | undefined,
  text = '',
): IPCacheChange {
  return {
    kind: next === undefined ? 'delete' : 'upsert',
    prefix: formatPrefixOf(text, key),
    old,
    new: next,
  };
}

/** Returns a hash of a prefix. Both forms of a full-length prefix have the same hash. */
export function prefixHash({ w0, w1, w2, w3, length, clusterID }: Readonly<PrefixRegister>): number {
  return w0 ^ Math.imul(w1 ^ Math.imul(w2 ^ w3, 31), 31) ^ (length << 24) ^ (clusterID << 12);
}

/** Returns the net effect of a change and a later one of the same prefix. */
export function mergeChanges(earlier: IPCacheChange, later: IPCacheChange): IPCacheChange {
  return { kind: later.kind, prefix: later.prefix, old: earlier.old, new: later.new };
}

/**
 * Returns the net effect of changes: one for each prefix that differs at the end, in order of the first change (I8).
 */
export function netChanges(changes: readonly IPCacheChange[]): readonly IPCacheChange[] {
  const byPrefix = new Map<string, IPCacheChange>();
  for (const change of changes) {
    const earlier = byPrefix.get(change.prefix);
    byPrefix.set(change.prefix, earlier === undefined ? change : mergeChanges(earlier, change));
  }
  return [...byPrefix.values()].filter((change) => !sameEntry(change.old, change.new));
}
