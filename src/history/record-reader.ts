import { mix } from '../columns/mix.ts';
import type { CompleteClaim } from '../ipcache/row-reader.ts';
import type { ClaimWriter } from '../ipcache/types.ts';
import { type ByteBuffer, DamagedError } from '../net/byte-buffer.ts';
import { readKey } from '../net/key-record.ts';
import { copyRegister, type PrefixRegister, prefixRegister, sameKey } from '../net/prefix.ts';
import { parseWriter, readClaim, readClaimIdentity } from './claim-codec.ts';
import type { Names } from './names.ts';

/** Kinds of records in a segment. */
export const KIND = { prefix: 0, service: 1, node: 2, mark: 3, batch: 4 } as const;

export type Kind = (typeof KIND)[keyof typeof KIND];

/** The writer in a record of kind `batch`, if the changes of the batch withdraw the state of a store. */
export const WITHDRAWAL = 'withdrawal';

const LAST_KIND: number = KIND.batch;

// Flags of the record of a prefix, in addition to those of its key. `HAS_BEFORE` and `HAS_AFTER` are also used for
// records with texts.
export const HAS_BEFORE = 4;
/** `before` is omitted: it is `after` of the last earlier record of the same key and writer in this segment. */
export const LINKED_BEFORE = 8;
export const HAS_AFTER = 16;
export const EFFECT_SHIFT = 5; // two bits

/** The length of a long record follows as 32 bits. */
export const LONG = 255;
export const LONG_HEAD = 5;

export interface ClaimChange {
  readonly writer: ClaimWriter;
  readonly before: CompleteClaim | undefined;
  readonly after: CompleteClaim | undefined;
  /** Sum of flags of `EFFECT` of the IPCache: whether `before` was effective, and whether `after` is. */
  readonly effect: number;
}

/** A change of a part of a service or of a claim on a node, or a mark. All values are texts. */
export interface TextChange {
  /** The source of the change: a cluster, a source of nodes. */
  readonly writer: string;
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/** Returns the hash of a prefix key: the same for an endpoint and the CIDR of its prefix. */
export function keyHash(key: Readonly<PrefixRegister>): number {
  const word = (key.family === 6 ? 256 : 0) + key.length + 1024 * key.clusterID;
  const hash = mix(mix(0, word), key.w0);
  return key.family === 4 ? hash : mix(mix(mix(hash, key.w1), key.w2), key.w3);
}

/** Returns the hash of the key of a service or a node. */
export function documentKeyHash(kind: Kind, key: string): number {
  let hash = mix(0x5bd1, kind);
  for (let i = 0; i < key.length; i++) hash = mix(hash, key.charCodeAt(i));
  return hash;
}

/**
 * Finds and reads the records of a segment. A bucket is a linked list of the records whose key hashes have the same low
 * bits:
 *
 *     record: length of the following fields (8 bits; for 255 and more: 255, then 32 bits) │ kind (8 bits)
 *             │ ms since the segment began │ bytes to the previous record of the bucket; 0: none │ body
 *
 *     buckets[hash of key] ─► last record of the bucket ─► previous one ─► …
 *
 * Integers are groups of 7 bits.
 */
export class RecordReader {
  /** Start of the segment, in milliseconds since the life began. Its records suffice to compute every later state. */
  readonly startMs: number;
  protected readonly bytes: ByteBuffer;
  protected readonly names: Names;
  /** Position of the newest record of each bucket. */
  protected readonly buckets: Int32Array;
  protected readonly bucketMask: number;
  protected readonly scratch: PrefixRegister = prefixRegister();
  /** Kind of the record whose head was read last. */
  protected kind: Kind = KIND.prefix;
  protected ms = 0;
  /** The last claim that a link led to, and the position of its record, which is usually read next. */
  #linked: { readonly position: number; readonly after: CompleteClaim } | undefined;

  protected constructor(startMs: number, bytes: ByteBuffer, names: Names, buckets: Int32Array) {
    this.startMs = startMs;
    this.bytes = bytes;
    this.names = names;
    this.buckets = buckets;
    this.bucketMask = buckets.length - 1;
  }

  /** Returns the position of the newest record in the bucket of a hash, or -1. */
  newest(hash: number): number {
    return this.buckets[hash & this.bucketMask] ?? -1;
  }

  /** Returns the position of the newest record of a key at or before `position`, or -1. */
  findKey(position: number, key: Readonly<PrefixRegister>): number {
    let at = position;
    while (at >= 0) {
      const previous = this.enter(at);
      if (this.kind === KIND.prefix && this.matchesKey(key)) return at;
      at = previous;
    }
    return -1;
  }

  /** Returns true if the endpoint or the CIDR of a prefix with this hash has a change later than a time. */
  hasPrefixAfter(hash: number, prefix: Readonly<PrefixRegister>, ms: number): boolean {
    let at = this.newest(hash);
    while (at >= 0) {
      const previous = this.enter(at);
      if (this.ms <= ms) return false;
      if (this.kind === KIND.prefix && this.#matchesPrefix(prefix)) return true;
      at = previous;
    }
    return false;
  }

  /** Returns the position of the oldest change of a key with this hash that is later than a time, or -1. */
  oldestAfter(hash: number, key: Readonly<PrefixRegister>, ms: number): number {
    let oldest = -1;
    let at = this.newest(hash);
    while (at >= 0) {
      const previous = this.enter(at);
      if (this.ms <= ms) break;
      if (this.kind === KIND.prefix && this.matchesKey(key)) oldest = at;
      at = previous;
    }
    return oldest;
  }

  effectAt(position: number): number {
    this.enter(position);
    return (this.bytes.readByte() >>> EFFECT_SHIFT) & 3;
  }

  /** Returns the identity of `before` of a change of a prefix; undefined if there was no claim. */
  identityBefore(position: number): number | undefined {
    this.enter(position);
    const flags = readKey(this.bytes, this.scratch);
    if (flags & LINKED_BEFORE) return this.claimAt(position).before?.identity;
    if ((flags & HAS_BEFORE) === 0) return undefined;
    this.names.skip();
    return readClaimIdentity(this.bytes);
  }

  /** Returns the position of the newest record of a service or node at or before `position`, or -1. */
  findDocument(position: number, kind: Kind, key: string): number {
    let at = position;
    while (at >= 0) {
      const previous = this.enter(at);
      if (this.kind === kind) {
        this.bytes.readByte();
        if (this.names.read() === key) return at;
      }
      at = previous;
    }
    return -1;
  }

  /** Returns the position of the previous record in the bucket of a record, or -1. */
  previous(position: number): number {
    return this.enter(position);
  }

  /** Returns the time of a record in milliseconds since the life began. */
  msAt(position: number): number {
    this.enter(position);
    return this.ms;
  }

  kindAt(position: number): Kind {
    this.enter(position);
    return this.kind;
  }

  /** Reads the change of a prefix. Its key is read into `key` if that is passed. */
  claimAt(position: number, key: PrefixRegister = this.scratch): ClaimChange {
    const previous = this.enter(position);
    const flags = readKey(this.bytes, key);
    const name = this.names.read();
    const writer = parseWriter(name);
    const stored = flags & HAS_BEFORE ? readClaim(this.bytes, this.names, writer, undefined) : undefined;
    const linked = this.#linked?.position === position ? this.#linked.after : undefined;
    const after =
      linked ?? (flags & HAS_AFTER ? readClaim(this.bytes, this.names, writer, stored) : undefined);
    const before = flags & LINKED_BEFORE ? this.#linkedAfter(previous, key, writer, name) : stored;
    return { writer, before, after, effect: (flags >>> EFFECT_SHIFT) & 3 };
  }

  /** Reads the key and the texts of a record that is not the change of a prefix. */
  textAt(position: number): TextChange & { readonly key: string } {
    this.enter(position);
    const flags = this.bytes.readByte();
    const key = this.names.read();
    const writer = this.names.read();
    const before = flags & HAS_BEFORE ? this.bytes.readText() : undefined;
    const after = flags & HAS_AFTER ? this.bytes.readText() : undefined;
    return { key, writer, before, after };
  }

  /**
   * Reads the head of a record: sets `kind` and `ms`. Returns the position of the previous record of the bucket, or -1.
   */
  protected enter(position: number): number {
    const bytes = this.bytes;
    bytes.at = position;
    this.#readLength();
    const kind = bytes.readByte();
    if (kind > LAST_KIND) throw new DamagedError(`unknown kind of record ${kind}`);
    this.kind = kind as Kind; // checked
    this.ms = this.startMs + bytes.readNumber();
    const back = bytes.readNumber();
    if (back > position) throw new DamagedError('a record links before the segment');
    return back === 0 ? -1 : position - back;
  }

  /** Returns the position after a record, which is that of the next record. */
  protected endOf(position: number): number {
    this.bytes.at = position;
    const length = this.#readLength();
    return this.bytes.at + length;
  }

  #readLength(): number {
    const length = this.bytes.readByte();
    return length === LONG ? this.bytes.readWord() >>> 0 : length;
  }

  /** Returns `after` of the newest record of a key and writer at or before `position`. */
  #linkedAfter(
    position: number,
    key: Readonly<PrefixRegister>,
    writer: ClaimWriter,
    name: string,
  ): CompleteClaim | undefined {
    const sought = key === this.scratch ? copyRegister(key) : key;
    for (let at = position; at >= 0; ) {
      const previous = this.enter(at);
      if (this.kind === KIND.prefix) {
        const flags = readKey(this.bytes, this.scratch);
        if (sameKey(this.scratch, sought) && this.names.read() === name) {
          if ((flags & HAS_AFTER) === 0) break;
          const stored =
            flags & HAS_BEFORE ? readClaim(this.bytes, this.names, writer, undefined) : undefined;
          const after = readClaim(this.bytes, this.names, writer, stored);
          this.#linked = { position: at, after };
          return after;
        }
      }
      at = previous;
    }
    throw new DamagedError('a record refers to an earlier record that does not exist');
  }

  /** Reads the flags and the key of the record at the position of the buffer. Returns true if the key equals `key`. */
  protected matchesKey(key: Readonly<PrefixRegister>): boolean {
    readKey(this.bytes, this.scratch);
    return sameKey(this.scratch, key);
  }

  /** Like {@link RecordReader.matchesKey}, but an endpoint and the CIDR of the same prefix are equal. */
  #matchesPrefix(prefix: Readonly<PrefixRegister>): boolean {
    readKey(this.bytes, this.scratch);
    this.scratch.form = prefix.form;
    return sameKey(this.scratch, prefix);
  }
}
