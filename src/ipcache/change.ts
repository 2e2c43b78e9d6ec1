import { formatPrefixOf, type PrefixRegister } from '../net/prefix.ts';
import { sameMetadata } from './k8s-metadata.ts';
import type { IPCacheChange, IPCacheEntry } from './types.ts';

/** Whether two entries say the same to a listener (I3). */
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
 * The change of one prefix, as plain data. At least one of `old` and `next` is defined; `key` is usually a register.
 * With the `text` that it was parsed from, most prefixes need not be made anew.
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

/** A number that differs only where the prefix does; equal ones say nothing. */
export function prefixHash({ w0, w1, w2, w3, length }: Readonly<PrefixRegister>): number {
  return w0 ^ Math.imul(w1 ^ Math.imul(w2 ^ w3, 31), 31) ^ (length << 24);
}

/** A change and a later one of the same prefix in one. */
export function mergeChanges(earlier: IPCacheChange, later: IPCacheChange): IPCacheChange {
  return { kind: later.kind, prefix: later.prefix, old: earlier.old, new: later.new };
}

/** The net effect of changes in order: one for each prefix that differs at the end, in order of first touch (I8). */
export function netChanges(changes: readonly IPCacheChange[]): readonly IPCacheChange[] {
  const byPrefix = new Map<string, IPCacheChange>();
  for (const change of changes) {
    const earlier = byPrefix.get(change.prefix);
    byPrefix.set(change.prefix, earlier === undefined ? change : mergeChanges(earlier, change));
  }
  return [...byPrefix.values()].filter((change) => !sameEntry(change.old, change.new));
}
