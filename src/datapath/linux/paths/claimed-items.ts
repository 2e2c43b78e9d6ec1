import { SortedMap } from '../../../base/sorted-map.ts';
import { compareWriters, type Source } from '../../../model/source.ts';
import type { DesiredItems } from '../kernel-table.ts';

/** The writer of a claim: a node as its owner, and the source of the node. */
export interface PathWriter {
  readonly owner: string;
  readonly source: Source;
}

/** The only claim on a key. */
interface OnlyClaim<Item> {
  readonly writer: PathWriter;
  readonly item: Item;
}

/** The claim on a key; a map of them, strongest first, if there are several. */
type Claims<Item> = OnlyClaim<Item> | SortedMap<PathWriter, Item>;

/**
 * Items by key, each claimed by one or several owners: two nodes may have the same pod CIDR, and all nodes behind the
 * tunnel claim its device. The claim of the strongest source is effective, then that of the owner whose name sorts
 * first. So the order of arrival does not matter (I2, I4).
 */
export class ClaimedItems<Item> implements DesiredItems<Item> {
  readonly #byKey = new Map<string, Claims<Item>>();
  readonly #byOwner = new Map<string, { readonly writer: PathWriter; readonly keys: readonly string[] }>();

  get size(): number {
    return this.#byKey.size;
  }

  /** Replaces all claims of an owner, and its source. Returns the keys claimed by it before or now. */
  replace(writer: PathWriter, items: ReadonlyMap<string, Item>): ReadonlySet<string> {
    const { owner } = writer;
    const touched = new Set(items.keys());
    const previous = this.#byOwner.get(owner);
    for (const [key, item] of items) this.#claim(writer, previous?.writer, key, item);
    if (previous !== undefined)
      for (const key of previous.keys) {
        touched.add(key);
        if (!items.has(key)) this.#withdraw(previous.writer, key);
      }
    if (items.size === 0) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, { writer, keys: [...items.keys()] });
    return touched;
  }

  get(key: string): Item | undefined {
    const claims = this.#byKey.get(key);
    if (!(claims instanceof SortedMap)) return claims?.item;
    const { first } = claims;
    return first && claims.get(first);
  }

  *entries(): Iterable<readonly [key: string, item: Item]> {
    for (const key of this.#byKey.keys()) {
      const item = this.get(key);
      if (item !== undefined) yield [key, item];
    }
  }

  /** Sets the claim of a writer on a key. `previous` is the writer of an earlier claim of the same owner. */
  #claim(writer: PathWriter, previous: PathWriter | undefined, key: string, item: Item): void {
    const claims = this.#byKey.get(key);
    if (claims instanceof SortedMap) {
      if (previous !== undefined) claims.delete(previous);
      claims.set(writer, item);
    } else if (claims === undefined || claims.writer === previous) this.#byKey.set(key, { writer, item });
    else {
      const sorted = new SortedMap<PathWriter, Item>(compareWriters);
      sorted.set(claims.writer, claims.item);
      sorted.set(writer, item);
      this.#byKey.set(key, sorted);
    }
  }

  #withdraw(writer: PathWriter, key: string): void {
    const claims = this.#byKey.get(key);
    if (claims instanceof SortedMap) claims.delete(writer);
    if (!(claims instanceof SortedMap) || claims.size === 0) this.#byKey.delete(key);
  }
}
