import { EFFECT } from '../../ipcache/claims/claim-state.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import type { CompleteClaim } from '../../ipcache/row-reader.ts';
import type { KeyedEntry } from '../../ipcache/types.ts';
import { type Family, maskWords } from '../../net/address-words.ts';
import { formatKey, hasAddressLength, type PrefixRegister, prefixRegister } from '../../net/prefix.ts';
import { claimsBefore, keysOf } from '../prefix-timeline.ts';
import { keyHash } from '../record-reader.ts';
import type { Segment } from '../segment.ts';

/** Lengths of prefixes, longest first. */
export type Lengths = Readonly<Record<Family, readonly number[]>>;

/** Reads the result of a lookup from an effective claim. */
interface ClaimReading<T> {
  ofClaim(claim: CompleteClaim, key: PrefixRegister): T;
  /** Reads the claim before the change at this position; undefined if there was none. */
  before(segment: Segment, position: number, key: PrefixRegister): T | undefined;
}

const IDENTITY: ClaimReading<number> = {
  ofClaim: ({ identity }) => identity,
  before: (segment, position) => segment.identityBefore(position),
};

const ENTRY: ClaimReading<KeyedEntry> = {
  ofClaim: (claim, key) => ({ key: formatKey(key), shadowed: false, ...claim }),
  before: (segment, position, key) => {
    const { before } = segment.claimAt(position);
    return before && ENTRY.ofClaim(before, key);
  },
};

/**
 * Looks up addresses at times of the current life. Must not be used after the next change. Most addresses have not
 * changed since their times, so that a search of the index and a lookup in the current cache are enough. If the first
 * change of a key after the time contains the former effective claim, no other change of the key is read.
 */
export class PastLookups {
  readonly #ipcache: IPCache;
  readonly #segments: readonly Segment[];
  readonly #lengths: Lengths;
  /** True if a full-length CIDR exists now. */
  readonly #hasFullCIDR: Readonly<Record<Family, boolean>>;
  readonly #key: PrefixRegister = prefixRegister();

  /** `segments` are ordered, oldest first. `lengths` are those of the current and the recorded prefixes. */
  constructor(ipcache: IPCache, segments: readonly Segment[], lengths: Lengths) {
    this.#ipcache = ipcache;
    this.#segments = segments;
    this.#lengths = lengths;
    const { ipv4, ipv6 } = ipcache.status();
    this.#hasFullCIDR = { 4: ipv4.cidrs[32] !== undefined, 6: ipv6.cidrs[128] !== undefined };
  }

  /**
   * Returns the identity of an address at a time, changes of that millisecond included. `address` was parsed from `ip`.
   */
  identityAt(ip: string, address: Readonly<PrefixRegister>, ms: number): number | undefined {
    const from = this.#firstChangedAfter(ms);
    return this.#hasChanged(address, from, ms)
      ? this.#recordedAt(address, from, ms, IDENTITY)
      : this.#ipcache.lookupIdentity(ip);
  }

  /** Like {@link PastLookups.identityAt}, but returns the entry. */
  entryAt(ip: string, address: Readonly<PrefixRegister>, ms: number): KeyedEntry | undefined {
    const from = this.#firstChangedAfter(ms);
    return this.#hasChanged(address, from, ms)
      ? this.#recordedAt(address, from, ms, ENTRY)
      : this.#ipcache.lookup(ip);
  }

  /** Returns the index of the first segment with changes after a time. */
  #firstChangedAfter(ms: number): number {
    let from = this.#segments.length;
    while (from > 0 && (this.#segments[from - 1] as Segment).lastMs > ms) from--;
    return from;
  }

  /** Returns true if a prefix of the address has changed after a time. Later changes are in segments from `from` on. */
  #hasChanged(address: Readonly<PrefixRegister>, from: number, ms: number): boolean {
    if (from === this.#segments.length) return false;
    for (const length of this.#lengths[address.family]) {
      const key = this.#prefixOf(address, length);
      const hash = keyHash(key);
      for (let index = from; index < this.#segments.length; index++)
        if (this.#segments[index]?.hasPrefixAfter(hash, key, ms) === true) return true;
    }
    return false;
  }

  /** Returns the result of a lookup at a time: that of the longest prefix of the address which had a claim then. */
  #recordedAt<T>(
    address: Readonly<PrefixRegister>,
    from: number,
    ms: number,
    reading: ClaimReading<T>,
  ): T | undefined {
    for (const length of this.#lengths[address.family]) {
      for (const key of keysOf(this.#prefixOf(address, length))) {
        const found = this.#effectiveAt(key, from, ms, reading);
        if (found !== undefined) return found;
      }
    }
    return undefined;
  }

  /** Reads the effective claim of a key at a time. Later changes are in the segments from `from` on. */
  #effectiveAt<T>(key: PrefixRegister, from: number, ms: number, reading: ClaimReading<T>): T | undefined {
    const hash = keyHash(key);
    const claimsNow = (): readonly CompleteClaim[] => this.#ipcache.claimsOf(formatKey(key));
    let claim: CompleteClaim | undefined;
    for (let index = from; index < this.#segments.length; index++) {
      const segment = this.#segments[index] as Segment; // below the length
      const oldest = segment.oldestAfter(hash, key, ms);
      if (oldest < 0) continue;
      if ((segment.effectAt(oldest) & EFFECT.before) !== 0) return reading.before(segment, oldest, key);
      [claim] = claimsBefore(key, claimsNow(), this.#segments, (place) => place.ms > ms);
      return claim && reading.ofClaim(claim, key);
    }
    if (key.form === 'cidr' && hasAddressLength(key) && !this.#hasFullCIDR[key.family]) return undefined;
    [claim] = claimsNow();
    return claim && reading.ofClaim(claim, key);
  }

  /** Returns the prefix of an address with this length, in a reused register. */
  #prefixOf(address: Readonly<PrefixRegister>, length: number): PrefixRegister {
    const key = this.#key;
    key.family = address.family;
    key.clusterID = address.clusterID;
    key.form = 'cidr';
    key.length = length;
    key.w0 = address.w0;
    key.w1 = address.w1;
    key.w2 = address.w2;
    key.w3 = address.w3;
    maskWords(key, length);
    return key;
  }
}
