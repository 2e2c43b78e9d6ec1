/** A key as it was put: enough to recognise the put in a store. */
export interface Anchor {
  readonly key: string;
  readonly modRevision: number;
  readonly value: Uint8Array;
}

// Enough that overwriting and deleting the keys written last leaves one; each is a read of one key at most.
const KEPT = 8;

/**
 * Some of the keys that a watch knows, with their values: a server that still shows one of them as it was put has the
 * history that was followed, at least up to that revision. The latest put is always among them; the others are the
 * sparser the older they are, so that keys which are overwritten all the time do not push out all of them.
 *
 *     revisions  12 ........ 845 .... 990 .. 1003 1010 1014 1016 | 1017
 */
export class Anchors {
  /** Ascending by revision, all older than `#latest`. */
  #kept: Anchor[] = [];
  /** Its value may be a view that pins the whole message it came in. */
  #latest: Anchor | undefined;
  #promoted = 0;

  /** Newest first. */
  get newestFirst(): readonly Anchor[] {
    return (this.#latest === undefined ? this.#kept : [...this.#kept, this.#latest]).toReversed();
  }

  /** The revision of the latest put that still stands; 0 when there is none. */
  get newest(): number {
    return this.#latest?.modRevision ?? this.#kept.at(-1)?.modRevision ?? 0;
  }

  /** A key was put. */
  put(key: string, value: Uint8Array, modRevision: number): void {
    this.drop(key);
    if (modRevision >= this.newest) this.#latest = { key, value, modRevision };
  }

  /** A key was deleted, or is put anew. */
  drop(key: string): void {
    if (this.#latest?.key === key) this.#latest = undefined;
    const kept = this.#kept;
    for (let i = 0; i < kept.length; i++) if (kept[i]?.key === key) kept.splice(i, 1);
  }

  /** To be called after each batch: what is kept of it must not pin the message that it came in. */
  seal(): void {
    if (this.#latest === undefined) return;
    if (this.#kept.length === KEPT) this.#kept.splice(this.#next(), 1);
    this.#kept.push({ ...this.#latest, value: Uint8Array.from(this.#latest.value) });
    this.#latest = undefined;
  }

  clear(): void {
    this.#kept = [];
    this.#latest = undefined;
  }

  /** Which one goes: every other time the newest, every fourth time the one before, and so on. */
  #next(): number {
    const turn = ++this.#promoted;
    const age = 31 - Math.clz32(turn & -turn); // how often two divides it
    return Math.max(0, KEPT - 1 - age);
  }
}
