/** A key as it was put: enough to recognise the put in a store. */
export interface Anchor {
  readonly key: string;
  readonly modRevision: number;
  readonly value: Uint8Array;
}

// As many puts are compared before a stream goes on, each with a read of its key: the last of them alone may be the same in
// two histories, because writers that begin anew write much as it was.
const LATEST = 3;
// With those enough that overwriting and deleting the keys written last leaves one.
const OLDER = 8;

/**
 * Some of the keys that a watch knows, with their values: a server that still shows one of them as it was put has the
 * history that was followed, at least up to that revision. The latest puts are always among them; the others are the
 * sparser the older they are, so that keys which are overwritten all the time do not push out all of them.
 *
 *     revisions  12 ........ 845 .... 990 .. 1003 1010 | 1014 1016 1017
 */
export class Anchors {
  /** Each ascending by revision, and older than the next one. */
  #older: Anchor[] = [];
  #latest: Anchor[] = [];
  /** The latest of a batch: their values may be views that pin the whole message they came in. */
  #arrived: Anchor[] = [];
  #promoted = 0;

  /** Newest first. */
  get newestFirst(): readonly Anchor[] {
    return [...this.#older, ...this.#latest, ...this.#arrived].toReversed();
  }

  /** As many of them as are compared before a stream goes on. */
  get latest(): readonly Anchor[] {
    return this.newestFirst.slice(0, LATEST);
  }

  /** The revision of the latest put that still stands; 0 when there is none. */
  get newest(): number {
    return (this.#arrived.at(-1) ?? this.#latest.at(-1) ?? this.#older.at(-1))?.modRevision ?? 0;
  }

  /** A key was put. */
  put(key: string, value: Uint8Array, modRevision: number): void {
    this.drop(key);
    if (modRevision < this.newest) return;
    this.#arrived.push({ key, value, modRevision });
    if (this.#arrived.length > LATEST) this.#arrived.shift();
  }

  /** A key was deleted, or is put anew. */
  drop(key: string): void {
    remove(this.#older, key);
    remove(this.#latest, key);
    remove(this.#arrived, key);
  }

  /** To be called after each batch: what is kept of it must not pin the message that it came in. */
  seal(): void {
    if (this.#arrived.length === 0) return;
    const sealed = this.#arrived.map((anchor) => ({ ...anchor, value: Uint8Array.from(anchor.value) }));
    this.#arrived = [];
    const all = [...this.#latest, ...sealed];
    this.#latest = all.slice(-LATEST);
    const replaced = all.at(-LATEST - 1);
    if (replaced !== undefined) this.#promote(replaced);
  }

  clear(): void {
    this.#older = [];
    this.#latest = [];
    this.#arrived = [];
  }

  /** One that is not among the latest any more; of many that were replaced at once the others are not kept. */
  #promote(anchor: Anchor): void {
    if (this.#older.length === OLDER) this.#older.splice(this.#next(), 1);
    this.#older.push(anchor);
  }

  /** Which one goes: every other time the newest, every fourth time the one before, and so on. */
  #next(): number {
    const turn = ++this.#promoted;
    const age = 31 - Math.clz32(turn & -turn); // how often two divides it
    return Math.max(0, OLDER - 1 - age);
  }
}

function remove(anchors: Anchor[], key: string): void {
  for (let i = 0; i < anchors.length; i++) if (anchors[i]?.key === key) anchors.splice(i, 1);
}
