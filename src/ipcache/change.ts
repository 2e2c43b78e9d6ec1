import type { AddressWords, Family } from '../net/address-words.ts';
import { formatPrefix } from '../net/format-address.ts';
import type { PrefixRegister } from '../net/prefix.ts';
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

/** A change whose prefix is put into words only when somebody reads it: most consumers count, filter or fold. */
export class PrefixChange implements IPCacheChange {
  readonly old: IPCacheEntry | undefined;
  readonly new: IPCacheEntry | undefined;
  readonly #family: Family;
  readonly #length: number;
  readonly #w0: number;
  readonly #wide: AddressWords | undefined;
  #text: string | undefined;

  /** Copies `key`, which is usually a register. At least one of `old` and `next` is defined. */
  constructor(key: Readonly<PrefixRegister>, old: IPCacheEntry | undefined, next: IPCacheEntry | undefined) {
    this.old = old;
    this.new = next;
    this.#family = key.family;
    this.#length = key.length;
    this.#w0 = key.w0;
    this.#wide = key.family === 4 ? undefined : { family: 6, w0: key.w0, w1: key.w1, w2: key.w2, w3: key.w3 };
  }

  get kind(): 'upsert' | 'delete' {
    return this.new === undefined ? 'delete' : 'upsert';
  }

  get prefix(): string {
    this.#text ??= formatPrefix(this.#words(), this.#length);
    return this.#text;
  }

  /** Differs only where the prefix does; equal hashes say nothing. */
  get hash(): number {
    const wide = this.#wide;
    const words =
      wide === undefined ? this.#w0 : this.#w0 ^ Math.imul(wide.w1 ^ Math.imul(wide.w2 ^ wide.w3, 31), 31);
    return words ^ (this.#length << 24);
  }

  /** This change and a later one of the same prefix in one. */
  followedBy(later: PrefixChange): PrefixChange {
    return new PrefixChange({ ...this.#words(), length: this.#length, form: 'cidr' }, this.old, later.new);
  }

  /** All of it as plain data: the prefix is not a property of the object itself. */
  toJSON(): IPCacheChange {
    return { kind: this.kind, prefix: this.prefix, old: this.old, new: this.new };
  }

  #words(): AddressWords {
    return this.#wide ?? { family: this.#family, w0: this.#w0, w1: 0, w2: 0, w3: 0 };
  }
}

/** The net effect of changes in order: one for each prefix that differs at the end, in order of first touch (I8). */
export function netChanges(changes: readonly PrefixChange[]): readonly PrefixChange[] {
  if (areDistinct(changes)) return changes;
  const byPrefix = new Map<string, PrefixChange>();
  for (const change of changes) {
    const earlier = byPrefix.get(change.prefix);
    byPrefix.set(change.prefix, earlier === undefined ? change : earlier.followedBy(change));
  }
  return [...byPrefix.values()].filter((change) => !sameEntry(change.old, change.new));
}

/** Whether all prefixes are known to differ: the usual batch, told by numbers instead of texts. */
function areDistinct(changes: readonly PrefixChange[]): boolean {
  const hashes = new Set<number>();
  for (const change of changes) hashes.add(change.hash);
  return hashes.size === changes.length;
}
