import type { Claim, K8sMetadata } from '../../src/ipcache/types.ts';
import { mayOverwrite, type Source } from '../../src/model/source.ts';
import { addressBits, maskWords } from '../../src/net/address-words.ts';
import { formatAddress, formatPrefix } from '../../src/net/format-address.ts';
import { canonicalAddress, type PrefixRegister, parsePrefix, prefixRegister } from '../../src/net/prefix.ts';
import type { PrefixSubject } from './subject.ts';

interface Identity {
  readonly id: number;
  readonly source: Source;
}

interface HostKeyPair {
  readonly ip: string;
  readonly key: number;
}

/** A change in the form of the original's listeners. */
export interface FiveMapsChange {
  readonly modification: 'upsert' | 'delete';
  readonly prefix: string;
  readonly oldHostIP: string | undefined;
  readonly newHostIP: string | undefined;
  readonly oldID: number | undefined;
  readonly newID: number;
  readonly encryptKey: number;
  readonly k8s: K8sMetadata | undefined;
}

function sameMetadata(a: K8sMetadata | undefined, b: K8sMetadata | undefined): boolean {
  return (a?.namespace ?? '') === (b?.namespace ?? '') && (a?.podName ?? '') === (b?.podName ?? '');
}

/**
 * The design of the original, ported unchanged: maps keyed by the text of an IP or CIDR, one for each attribute, and
 * prefix lengths with their counts, which the longest match tries one by one (upstream `pkg/ipcache/ipcache.go`, 1.8;
 * the longest match of 1.17). Single slot, without named ports. If endpoints shadow CIDRs, it has the same errors as
 * the original.
 */
export class FiveMapsSubject implements PrefixSubject {
  readonly #identityOf = new Map<string, Identity>();
  readonly #keysOf = new Map<number, Set<string>>();
  readonly #hostOf = new Map<string, HostKeyPair>();
  readonly #metadataOf = new Map<string, K8sMetadata>();
  /** Number of CIDRs of each length: IPv4 from 0, IPv6 from 256 on. */
  readonly #lengths = new Map<number, number>();
  readonly #listener: (change: FiveMapsChange) => void;
  readonly #key: PrefixRegister = prefixRegister();
  changes = 0;

  /** `listener` receives every change; without one, changes are counted in `changes`. */
  constructor(listener?: (change: FiveMapsChange) => void) {
    this.#listener =
      listener ??
      (() => {
        this.changes++;
      });
  }

  get size(): number {
    return this.#identityOf.size;
  }

  upsertAll(keys: readonly string[], claims: readonly Claim[]): void {
    for (let i = 0; i < keys.length; i++) {
      const claim = claims[i];
      if (claim !== undefined) this.upsert(keys[i] ?? '', claim);
    }
  }

  getAll(keys: readonly string[]): number {
    let found = 0;
    for (const key of keys) if (this.get(key) !== undefined) found++;
    return found;
  }

  matchAll(addresses: readonly string[]): number {
    let found = 0;
    for (const address of addresses) if (this.lookup(address) !== undefined) found++;
    return found;
  }

  deleteAll(keys: readonly string[]): void {
    for (const key of keys) this.delete(key, 'kvstore');
  }

  /** Returns true if the source of the claim owns the entry now. */
  upsert(ip: string, claim: Claim): boolean {
    const { identity: newID, source, encryptKey = 0, k8s } = claim;
    const hostIP = claim.hostIP === undefined ? undefined : canonicalAddress(claim.hostIP);
    let oldHost = this.#hostOf.get(ip);
    const oldMetadata = this.#metadataOf.get(ip);
    const cached = this.#identityOf.get(ip);
    let oldID: number | undefined;
    if (cached !== undefined) {
      if (!mayOverwrite(cached.source, source)) return false;
      const unchanged = cached.id === newID && cached.source === source && (oldHost?.key ?? 0) === encryptKey;
      if (unchanged && oldHost?.ip === hostIP && sameMetadata(oldMetadata, k8s)) return true;
      oldID = cached.id;
    }
    let isVisible = true;
    if (!parsePrefix(ip, this.#key)) return false;
    const prefix = formatPrefix(this.#key, this.#key.length);
    if (this.#key.form === 'cidr') {
      if (this.#key.length === addressBits(this.#key.family)) {
        isVisible = !this.#identityOf.has(formatAddress(this.#key));
      }
      if (cached === undefined) this.#countLength(this.#key, 1);
    } else if (cached === undefined) {
      const cidr = this.#identityOf.get(prefix);
      if (cidr !== undefined) {
        oldHost = this.#hostOf.get(prefix);
        if (cidr.id !== newID || oldHost?.ip !== hostIP) oldID = cidr.id;
        else isVisible = false;
      }
    }
    this.#identityOf.set(ip, { id: newID, source });
    if (cached !== undefined) this.#leaveIdentity(cached.id, ip);
    const keys = this.#keysOf.get(newID);
    if (keys === undefined) this.#keysOf.set(newID, new Set([ip]));
    else keys.add(ip);
    if (hostIP === undefined) this.#hostOf.delete(ip);
    else this.#hostOf.set(ip, { ip: hostIP, key: encryptKey });
    if (k8s === undefined) this.#metadataOf.delete(ip);
    else this.#metadataOf.set(ip, k8s);
    if (isVisible) {
      this.#listener({
        modification: 'upsert',
        prefix,
        oldHostIP: oldHost?.ip,
        newHostIP: hostIP,
        oldID,
        newID,
        encryptKey,
        k8s,
      });
    }
    return true;
  }

  delete(ip: string, source: Source): boolean {
    const cached = this.#identityOf.get(ip);
    if (cached === undefined || cached.source !== source || !parsePrefix(ip, this.#key)) return false;
    const prefix = formatPrefix(this.#key, this.#key.length);
    const oldHost = this.#hostOf.get(ip);
    const k8s = this.#metadataOf.get(ip);
    let newHostIP: string | undefined;
    let revived: Identity | undefined;
    let isVisible = true;
    if (this.#key.form === 'cidr') {
      isVisible = !this.#identityOf.has(formatAddress(this.#key));
      this.#countLength(this.#key, -1);
    } else {
      const cidr = this.#identityOf.get(prefix);
      if (cidr !== undefined) {
        newHostIP = this.#hostOf.get(prefix)?.ip;
        if (cidr.id !== cached.id || oldHost?.ip !== newHostIP) revived = cidr;
        else isVisible = false;
      }
    }
    this.#identityOf.delete(ip);
    this.#leaveIdentity(cached.id, ip);
    this.#hostOf.delete(ip);
    this.#metadataOf.delete(ip);
    if (isVisible) {
      this.#listener({
        modification: revived === undefined ? 'delete' : 'upsert',
        prefix,
        oldHostIP: oldHost?.ip,
        newHostIP,
        oldID: revived === undefined ? undefined : cached.id,
        newID: (revived ?? cached).id,
        encryptKey: oldHost?.key ?? 0,
        k8s,
      });
    }
    return true;
  }

  /** Returns the attributes of a key, joined from the maps. */
  get(ip: string): (Identity & { readonly host?: HostKeyPair; readonly k8s?: K8sMetadata }) | undefined {
    const identity = this.#identityOf.get(ip);
    if (identity === undefined) return undefined;
    const host = this.#hostOf.get(ip);
    const k8s = this.#metadataOf.get(ip);
    return { ...identity, ...(host && { host }), ...(k8s && { k8s }) };
  }

  /** Returns the identity of the longest prefix of an address: tries the address, then every length in use as text. */
  lookup(ip: string): Identity | undefined {
    const exact = this.#identityOf.get(ip);
    if (exact !== undefined || !parsePrefix(ip, this.#key)) return exact;
    const offset = this.#key.family === 6 ? 256 : 0;
    for (let length = addressBits(this.#key.family); length >= 0; length--) {
      if (!this.#lengths.has(offset + length)) continue;
      maskWords(this.#key, length);
      const found = this.#identityOf.get(formatPrefix(this.#key, length));
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Returns the keys with an identity. */
  keysOf(identity: number): ReadonlySet<string> {
    return this.#keysOf.get(identity) ?? new Set();
  }

  #leaveIdentity(id: number, ip: string): void {
    const keys = this.#keysOf.get(id);
    keys?.delete(ip);
    if (keys?.size === 0) this.#keysOf.delete(id);
  }

  #countLength({ family, length }: Readonly<PrefixRegister>, by: 1 | -1): void {
    const at = (family === 6 ? 256 : 0) + length;
    const count = (this.#lengths.get(at) ?? 0) + by;
    if (count === 0) this.#lengths.delete(at);
    else this.#lengths.set(at, count);
  }
}
