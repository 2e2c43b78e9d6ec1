import { equalBytes } from '../codec/bytes.ts';
import type { KeyValue } from '../session/transport.ts';
import { WireKeyValue } from '../session/wire-key-value.ts';

/** A put of a key, with enough data to recognise it in a store. */
export interface Anchor {
  readonly key: string;
  readonly modRevision: number;
  readonly value: Uint8Array;
}

/** Returns true if a server that was asked for the key of a put still has that put. */
export function isUnchanged({ modRevision, value }: Anchor, found: KeyValue | undefined): boolean {
  return found?.modRevision === modRevision && equalBytes(found.value, value);
}

// Number of puts that are compared before a stream resumes, each with a read of its key. One put alone may be equal in
// two histories, because writers that restart often repeat their writes.
const LATEST = 3;
// Number of older anchors: enough that one remains if the newest keys are overwritten or deleted.
const OLDER = 8;

/**
 * A sample of the known keys, with their values. If a server still has one of these keys unchanged, it has the same
 * history up to the revision of the key. The sample contains the latest puts, and increasingly sparse older puts, so
 * that keys which are overwritten often do not replace the whole sample.
 *
 *     revisions  12 ........ 845 .... 990 .. 1003 1010 | 1014 1016 1017
 */
export class Anchors {
  /** Anchors that are older than those in `#latest`, ascending by revision. */
  #older: Anchor[] = [];
  #latest: Anchor[] = [];
  /** The latest puts of the current batch. Their values may be views that keep a whole message in memory. */
  #arrived: Anchor[] = [];
  /** Number of anchors that have replaced an older one. */
  #replacements = 0;

  get newestFirst(): readonly Anchor[] {
    return [...this.#older, ...this.#latest, ...this.#arrived].toReversed();
  }

  /** Returns the anchors that are compared before a stream resumes. */
  get latest(): readonly Anchor[] {
    return this.newestFirst.slice(0, LATEST);
  }

  /** The revision of the newest anchor; 0 if there is none. */
  get newest(): number {
    return (this.#arrived.at(-1) ?? this.#latest.at(-1) ?? this.#older.at(-1))?.modRevision ?? 0;
  }

  /**
   * Records a put of a key, unless a later put is recorded. Call {@link drop} before, if an earlier version of the key
   * or this one may be recorded.
   */
  put(anchor: Anchor): void {
    if (anchor.modRevision < this.newest) return;
    this.#arrived.push(anchor);
    if (this.#arrived.length > LATEST) this.#arrived.shift();
  }

  /**
   * Removes the put of a key, because the key was deleted or is put again. Faster if the revision of the put is passed.
   */
  drop(kv: Pick<Anchor, 'key'>, modRevision?: number): void {
    remove(this.#older, kv, modRevision);
    remove(this.#latest, kv, modRevision);
    remove(this.#arrived, kv, modRevision);
  }

  /** Copies the values of the batch, so that its message does not stay in memory. Call it after each batch. */
  copyValues(): void {
    if (this.#arrived.length === 0) return;
    const copied = this.#arrived.map(({ key, value, modRevision }) => ({
      key,
      value: new Uint8Array(value), // `from` would iterate
      modRevision,
    }));
    this.#arrived = [];
    const all = [...this.#latest, ...copied];
    this.#latest = all.slice(-LATEST);
    const replaced = all.at(-LATEST - 1);
    if (replaced !== undefined) this.#addOlder(replaced);
  }

  clear(): void {
    this.#older = [];
    this.#latest = [];
    this.#arrived = [];
  }

  /**
   * Adds an anchor to the older anchors. If a batch replaces several anchors, only the newest of them is added; the
   * others are dropped.
   */
  #addOlder(anchor: Anchor): void {
    if (this.#older.length === OLDER) this.#older.splice(this.#indexToRemove(), 1);
    this.#older.push(anchor);
  }

  /**
   * Returns the index of the older anchor to remove: every second time the newest, every fourth time the second newest,
   * and so on.
   */
  #indexToRemove(): number {
    const count = ++this.#replacements;
    let age = 0;
    while (age < OLDER - 1 && count % 2 ** (age + 1) === 0) age++;
    return OLDER - 1 - age;
  }
}

function remove(anchors: Anchor[], kv: Pick<Anchor, 'key'>, modRevision: number | undefined): void {
  for (let i = anchors.length - 1; i >= 0; i--) {
    const anchor = anchors[i];
    // Numbers first, because this runs for every event.
    if (modRevision !== undefined && anchor?.modRevision !== modRevision) continue;
    if (anchor !== undefined && hasSameKey(anchor, kv)) anchors.splice(i, 1);
  }
}

function hasSameKey(anchor: Pick<Anchor, 'key'>, kv: Pick<Anchor, 'key'>): boolean {
  if (!(anchor instanceof WireKeyValue && kv instanceof WireKeyValue)) return anchor.key === kv.key;
  const length = anchor.keyEnd - anchor.keyAt;
  if (kv.keyEnd - kv.keyAt !== length) return false;
  // From the end, because the keys of a prefix begin with the same bytes.
  for (let i = 1; i <= length; i++)
    if (anchor.buffer[anchor.keyEnd - i] !== kv.buffer[kv.keyEnd - i]) return false;
  return true;
}
