/** Average number of entries of a bucket. A bucket is split in less than 1 ms. */
const BUCKET_ENTRIES = 1024;
/** Number of hashed characters. They are near the end of a key, which differs more often than its beginning. */
const HASHED_CHARACTERS = 32;
/**
 * Number of characters at the very end that are not hashed, so that successive keys, such as addresses, share a bucket.
 * With a bucket for each of them, an access takes 1.5 times as long, because all of its memory is out of the cache.
 */
const LAST_CHARACTERS = 2;

/**
 * A map of texts that grows in small steps. A `Map` moves all of its entries when it grows or shrinks: 80 ms in one
 * turn for 500,000 keys. A `SplitMap` divides its entries by hash into buckets, each a `Map`, and splits one bucket at
 * a time (linear hashing).
 *
 *     #buckets  0 1 2 3 │ 4 5      #round = 4: bucket 4 was split from 0, 5 from 1; 2 is next
 *
 * Texts with the same 32 characters before the last two share a bucket.
 */
export class SplitMap<V> {
  #buckets: Map<string, V>[] = [new Map()];
  /** Number of buckets when the present round of splits began: a power of two. */
  #round = 1;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(key: string): V | undefined {
    return this.#bucketOf(key).get(key);
  }

  set(key: string, value: V): void {
    const bucket = this.#bucketOf(key);
    const before = bucket.size;
    bucket.set(key, value);
    this.#size += bucket.size - before;
    if (this.#size > BUCKET_ENTRIES * this.#buckets.length) this.#split();
  }

  delete(key: string): boolean {
    const isDeleted = this.#bucketOf(key).delete(key);
    if (isDeleted) this.#size--;
    return isDeleted;
  }

  /**
   * Iterates over the entries in any order. The map may change during the iteration: an entry that exists all the time
   * is visited once, an entry that is deleted before it is reached is not visited, and an entry that is added may be
   * visited.
   */
  *entries(): Generator<[string, V], void, void> {
    const count = this.#buckets.length;
    for (let at = 0; at < count; at++) {
      // The keys that were in this bucket at the beginning. A later split moves some of them, so they are all read now.
      const keys = this.#splitSince(count, at).flatMap((bucket) => [...bucket.keys()]);
      for (const key of keys) {
        const value = this.get(key);
        if (value !== undefined) yield [key, value];
      }
    }
  }

  /** Returns the bucket at a place, and those split from it since there were `count` buckets. */
  #splitSince(count: number, place: number): readonly Map<string, V>[] {
    const bucket = this.#buckets[place];
    const buckets = bucket === undefined ? [] : [bucket];
    for (const [i, later] of this.#buckets.slice(count).entries()) {
      let origin = count + i;
      // Without its highest bit, a place is that of the bucket from which it was split.
      while (origin >= count) origin -= 1 << (31 - Math.clz32(origin));
      if (origin === place) buckets.push(later);
    }
    return buckets;
  }

  /** Like {@link SplitMap.entries}. */
  *values(): Generator<V, void, void> {
    for (const [, value] of this.entries()) yield value;
  }

  #bucketOf(key: string): Map<string, V> {
    const at = hashOf(key) & (2 * this.#round - 1);
    return this.#buckets[at < this.#buckets.length ? at : at - this.#round] ?? new Map<string, V>();
  }

  /** Moves about half of the entries of the next bucket to a new one. */
  #split(): void {
    const target = this.#buckets.length;
    const bucket = this.#buckets[target - this.#round] ?? new Map<string, V>();
    const moved = new Map<string, V>();
    for (const [key, value] of bucket) {
      if ((hashOf(key) & (2 * this.#round - 1)) !== target) continue;
      bucket.delete(key);
      moved.set(key, value);
    }
    this.#buckets.push(moved);
    if (this.#buckets.length === 2 * this.#round) this.#round *= 2;
  }
}

/** Returns a hash of some characters of a key. The last rounds spread it over the lower bits, which select a bucket. */
function hashOf(key: string): number {
  let hash = 0;
  const end = key.length - LAST_CHARACTERS;
  for (let i = Math.max(0, end - HASHED_CHARACTERS); i < end; i++)
    hash = (Math.imul(hash, 31) + key.charCodeAt(i)) | 0;
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 12)) >>> 0;
}
