import { Int32Map } from '../base/int32-map.ts';
import { Int32Rows } from '../base/int32-rows.ts';
import { ObjectColumn } from '../base/object-column.ts';
import type { NumericIdentity } from '../identity/numeric-identity.ts';
import type { Source } from '../identity/source.ts';
import type { PrefixTable } from '../net/prefix-table.ts';
import { HostTable } from './host-table.ts';
import { metadataOrNone, sameMetadata } from './k8s-metadata.ts';
import type { Claim, IPCacheEntry, K8sMetadata } from './types.ts';
import { WriterTable } from './writer-table.ts';

/** A claim taken out of the rows: complete, canonical, immutable. */
export interface HeldClaim extends IPCacheEntry {
  readonly source: Source;
  readonly owner: string;
}

// Columns of a row; see the drawing below.
const IDENTITY = 0;
const HOST_AND_KEY = 1;
const WRITER_AND_FLAGS = 2;
const NEXT = 3;
const PREVIOUS = 4;
const STRIDE = 5;

/** Flags that the engine keeps with a row. */
export const FLAG = {
  /** A full-length CIDR under an endpoint IP. */
  shadowed: 1,
  /** Some claim on this key has been overruled, or replaced by another writer's. */
  contested: 2,
} as const;

/** One of {@link FLAG}. */
export type Flag = (typeof FLAG)[keyof typeof FLAG];

const FLAG_BITS = 8;
const FLAG_MASK: number = (1 << FLAG_BITS) - 1;
const KEY_BITS = 8;
const KEY_MASK: number = (1 << KEY_BITS) - 1;

/**
 * The effective claim of every key, by slot, in columns of integers:
 *
 *     slot ─►│ identity │ host·key │ writer·flags │ next │ previous │    and    k8s[slot]
 *                           │           │            └──┬──┘
 *                       HostTable   WriterTable     the other slots of this identity, newest first
 *
 * A row costs 20 bytes, and 8 for the reference to the metadata object that was handed in. Slot 0 is a slot like
 * any other: links are stored plus one, so that the zero of a new row means "none".
 */
export class EntryRows {
  readonly #rows = new Int32Rows(STRIDE);
  readonly #k8s = new ObjectColumn<K8sMetadata>();
  /** For each identity the first link of its list. */
  readonly #heads = new Int32Map();
  readonly hosts: HostTable;
  readonly writers: WriterTable = new WriterTable();

  /** `hostTable` must be empty; it becomes these rows' own. */
  constructor(hostTable: PrefixTable) {
    this.hosts = new HostTable(hostTable);
  }

  /** Bytes held, interned hosts and writers aside. */
  get bytes(): number {
    return this.#rows.bytes + this.#k8s.bytes;
  }

  /** Fills an empty row. `host` is the number of the claim's `hostIP`. */
  fill(slot: number, claim: Claim, host: number): void {
    this.#rows.reserve(slot);
    const chunk = this.#rows.chunkOf(slot);
    const at = this.#rows.offsetOf(slot);
    chunk[at + IDENTITY] = claim.identity;
    chunk[at + HOST_AND_KEY] = (host << KEY_BITS) | (claim.encryptKey ?? 0);
    chunk[at + WRITER_AND_FLAGS] = this.writers.acquire(claim) << FLAG_BITS;
    this.hosts.retain(host);
    this.#k8s.set(slot, metadataOrNone(claim.k8s));
    this.#link(slot, chunk, at);
  }

  /** Writes other attributes of the same writer into a row, flags kept. */
  update(slot: number, claim: Claim, host: number): void {
    const chunk = this.#rows.chunkOf(slot);
    const at = this.#rows.offsetOf(slot);
    if (chunk[at + IDENTITY] !== (claim.identity | 0)) {
      this.#unlink(chunk, at);
      chunk[at + IDENTITY] = claim.identity;
      this.#link(slot, chunk, at);
    }
    const before = (chunk[at + HOST_AND_KEY] ?? 0) >>> KEY_BITS;
    if (before !== host) {
      this.hosts.retain(host);
      this.hosts.release(before);
    }
    chunk[at + HOST_AND_KEY] = (host << KEY_BITS) | (claim.encryptKey ?? 0);
    this.#k8s.set(slot, metadataOrNone(claim.k8s));
  }

  /** Replaces the claim in a row by another writer's, flags kept. */
  replace(slot: number, claim: Claim, host: number): void {
    const flags = this.#rows.get(slot, WRITER_AND_FLAGS) & FLAG_MASK;
    this.hosts.retain(host); // it may be the same as before, and nobody else's
    this.clear(slot);
    this.fill(slot, claim, host);
    this.hosts.release(host);
    this.#rows.set(slot, WRITER_AND_FLAGS, this.#rows.get(slot, WRITER_AND_FLAGS) | flags);
  }

  /** Empties a row. */
  clear(slot: number): void {
    const chunk = this.#rows.chunkOf(slot);
    const at = this.#rows.offsetOf(slot);
    this.#unlink(chunk, at);
    this.hosts.release((chunk[at + HOST_AND_KEY] ?? 0) >>> KEY_BITS);
    this.writers.release((chunk[at + WRITER_AND_FLAGS] ?? 0) >>> FLAG_BITS);
    chunk[at + WRITER_AND_FLAGS] = 0;
    this.#k8s.set(slot, undefined);
  }

  has(slot: number, flag: Flag): boolean {
    return (this.#rows.get(slot, WRITER_AND_FLAGS) & flag) !== 0;
  }

  mark(slot: number, flag: Flag, on: boolean): void {
    const word = this.#rows.get(slot, WRITER_AND_FLAGS);
    this.#rows.set(slot, WRITER_AND_FLAGS, on ? word | flag : word & ~flag);
  }

  /** The number of the writer whose claim is in the row. */
  writer(slot: number): number {
    return this.#rows.get(slot, WRITER_AND_FLAGS) >>> FLAG_BITS;
  }

  k8s(slot: number): K8sMetadata | undefined {
    return this.#k8s.get(slot);
  }

  /** The attributes of a row as listeners are given them. */
  entry(slot: number): IPCacheEntry {
    const chunk = this.#rows.chunkOf(slot);
    const at = this.#rows.offsetOf(slot);
    const hostAndKey = chunk[at + HOST_AND_KEY] ?? 0;
    return {
      identity: identityOf(chunk[at + IDENTITY]),
      hostIP: this.hosts.text(hostAndKey >>> KEY_BITS),
      encryptKey: hostAndKey & KEY_MASK,
      k8s: this.#k8s.get(slot),
    };
  }

  /** The claim in a row. */
  claim(slot: number): HeldClaim {
    const chunk = this.#rows.chunkOf(slot);
    const at = this.#rows.offsetOf(slot);
    const hostAndKey = chunk[at + HOST_AND_KEY] ?? 0;
    const { source, owner } = this.writers.writer((chunk[at + WRITER_AND_FLAGS] ?? 0) >>> FLAG_BITS);
    return {
      identity: identityOf(chunk[at + IDENTITY]),
      hostIP: this.hosts.text(hostAndKey >>> KEY_BITS),
      encryptKey: hostAndKey & KEY_MASK,
      k8s: this.#k8s.get(slot),
      source,
      owner,
    };
  }

  /** Whether a row holds just these attributes. */
  holds(slot: number, claim: Claim, host: number): boolean {
    const chunk = this.#rows.chunkOf(slot);
    const at = this.#rows.offsetOf(slot);
    return (
      chunk[at + IDENTITY] === (claim.identity | 0) &&
      chunk[at + HOST_AND_KEY] === ((host << KEY_BITS) | (claim.encryptKey ?? 0)) &&
      sameMetadata(this.#k8s.get(slot), metadataOrNone(claim.k8s))
    );
  }

  /** A claim as it is kept outside of the rows; `host` is the number of its host IP. */
  held(claim: Claim, host: number): HeldClaim {
    return {
      identity: claim.identity as NumericIdentity, // checked by claimFault
      hostIP: this.hosts.text(host),
      encryptKey: claim.encryptKey ?? 0,
      k8s: metadataOrNone(claim.k8s),
      source: claim.source,
      owner: claim.owner ?? '',
    };
  }

  /** Slots whose entry has this identity, the one that got it last first. */
  *slotsOfIdentity(identity: number): Generator<number, void, void> {
    let link = this.#heads.get(identity | 0);
    while (link !== 0) {
      yield link - 1;
      link = this.#rows.get(link - 1, NEXT);
    }
  }

  /** Puts a row, which is at `at` in `chunk`, at the front of the list of its identity. */
  #link(slot: number, chunk: Int32Array, at: number): void {
    const first = this.#heads.exchange(chunk[at + IDENTITY] ?? 0, slot + 1);
    if (first !== 0) this.#rows.set(first - 1, PREVIOUS, slot + 1);
    chunk[at + NEXT] = first;
    chunk[at + PREVIOUS] = 0;
  }

  #unlink(chunk: Int32Array, at: number): void {
    const next = chunk[at + NEXT] ?? 0;
    const previous = chunk[at + PREVIOUS] ?? 0;
    if (next !== 0) this.#rows.set(next - 1, PREVIOUS, previous);
    if (previous !== 0) this.#rows.set(previous - 1, NEXT, next);
    else this.#heads.exchange(chunk[at + IDENTITY] ?? 0, next);
  }
}

function identityOf(word: number | undefined): NumericIdentity {
  // Only identities that claimFault has checked are ever stored.
  return ((word ?? 0) >>> 0) as NumericIdentity;
}
