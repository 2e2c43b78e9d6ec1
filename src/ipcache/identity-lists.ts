import { Int32Map } from '../columns/int32-map.ts';
import { Int32Rows } from '../columns/int32-rows.ts';

// Columns of a link. A column contains a slot + 1; 0 means none.
const NEXT = 0;
const PREVIOUS = 1;

/**
 * A linked list of slots for each identity, the latest slot first (I5):
 *
 *     identity ──heads──► slot ─► │ next │ previous │ ─► …        8 bytes a slot; a write touches two cache lines
 */
export class IdentityLists {
  /** The first slot of each identity's list. */
  readonly #heads: Int32Map;
  /** The length of each identity's list. */
  readonly #counts: Int32Map;
  readonly #links: Int32Rows;
  readonly #seed: number;

  /** `seed` is mixed in so that an attacker cannot choose identities that collide in the maps. */
  constructor(
    seed = 0,
    heads: Int32Map = new Int32Map(),
    counts: Int32Map = new Int32Map(),
    links: Int32Rows = new Int32Rows(2),
  ) {
    this.#seed = seed;
    this.#heads = heads;
    this.#counts = counts;
    this.#links = links;
  }

  get bytes(): number {
    return this.#heads.bytes + this.#counts.bytes + this.#links.bytes;
  }

  /** Returns the current lists. Later writes do not change the copy. */
  fork(): IdentityLists {
    return new IdentityLists(this.#seed, this.#heads.fork(), this.#counts.fork(), this.#links.fork());
  }

  /** Yields the slots of an identity. */
  *of(identity: number): Generator<number, void, void> {
    let link = this.#heads.get(identity ^ this.#seed);
    while (link !== 0) {
      yield link - 1;
      link = this.#links.get(link - 1, NEXT);
    }
  }

  /** Yields the identities with at least one slot, unordered. The lists must not be written during the iteration. */
  *identities(): Generator<number, void, void> {
    for (const key of this.#heads.keys()) yield (key ^ this.#seed) >>> 0;
  }

  /** Returns the number of slots of an identity. */
  count(identity: number): number {
    return this.#counts.get(identity ^ this.#seed);
  }

  /** Adds a slot that is in no list to the front of an identity's list. */
  add(slot: number, identity: number): void {
    const links = this.#links;
    links.reserve(slot);
    const first = this.#heads.exchange(identity ^ this.#seed, slot + 1);
    this.#counts.exchange(identity ^ this.#seed, this.count(identity) + 1);
    if (first !== 0) links.set(first - 1, PREVIOUS, slot + 1);
    links.set(slot, NEXT, first);
    links.set(slot, PREVIOUS, 0);
  }

  /** Removes a slot from the list of its identity. */
  remove(slot: number, identity: number): void {
    const links = this.#links;
    const next = links.get(slot, NEXT);
    const previous = links.get(slot, PREVIOUS);
    this.#counts.exchange(identity ^ this.#seed, this.count(identity) - 1);
    if (next !== 0) links.set(next - 1, PREVIOUS, previous);
    if (previous !== 0) links.set(previous - 1, NEXT, next);
    else this.#heads.exchange(identity ^ this.#seed, next);
  }
}
