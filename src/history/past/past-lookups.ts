import { EFFECT } from '../../ipcache/claims/claim-state.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import { type Family, maskWords } from '../../net/address-words.ts';
import { formatKey, hasAddressLength, type PrefixRegister, prefixRegister } from '../../net/prefix.ts';
import { claimsBefore, keysOf } from '../prefix-timeline.ts';
import { keyHash } from '../record-reader.ts';
import type { Segment } from '../segment.ts';

/** Lengths of prefixes, longest first. */
export type Lengths = Readonly<Record<Family, readonly number[]>>;

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
    let from = this.#segments.length; // index of the first segment with later changes
    while (from > 0 && (this.#segments[from - 1] as Segment).lastMs > ms) from--;
    for (const length of this.#lengths[address.family]) {
      const key = this.#prefixOf(address, length);
      const hash = keyHash(key);
      for (let index = from; index < this.#segments.length; index++) {
        const isChanged = this.#segments[index]?.hasPrefixAfter(hash, key, ms) === true;
        if (isChanged) return this.#recordedIdentityAt(address, from, ms);
      }
    }
    return this.#ipcache.lookupIdentity(ip);
  }

  /** Like {@link PastLookups.identityAt}, if a prefix of the address has changed after the time. */
  #recordedIdentityAt(address: Readonly<PrefixRegister>, from: number, ms: number): number | undefined {
    for (const length of this.#lengths[address.family]) {
      for (const key of keysOf(this.#prefixOf(address, length))) {
        const identity = this.#effectiveIdentityAt(key, from, ms);
        if (identity !== undefined) return identity;
      }
    }
    return undefined;
  }

  /**
   * Returns the identity of the effective claim of a key at a time. Later changes are in the segments from `from` on.
   */
  #effectiveIdentityAt(key: PrefixRegister, from: number, ms: number): number | undefined {
    const hash = keyHash(key);
    for (let index = from; index < this.#segments.length; index++) {
      const segment = this.#segments[index] as Segment; // below the length
      const oldest = segment.oldestAfter(hash, key, ms);
      if (oldest < 0) continue;
      if ((segment.effectAt(oldest) & EFFECT.before) !== 0) return segment.identityBefore(oldest);
      const claimsOf = (text: string): ReturnType<IPCache['claimsOf']> => this.#ipcache.claimsOf(text);
      return claimsBefore(key, claimsOf(formatKey(key)), this.#segments, (place) => place.ms > ms)[0]
        ?.identity;
    }
    if (key.form === 'cidr' && hasAddressLength(key) && !this.#hasFullCIDR[key.family]) return undefined;
    return this.#ipcache.claimsOf(formatKey(key))[0]?.identity;
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
