import { Int32Map } from '../columns/int32-map.ts';
import { SlotLinks } from './slot-links.ts';

/**
 * A linked list of slots for each identity, the latest slot first (I5):
 *
 *     identity ──heads──► slot ─► │ next │ previous │ ─► …        8 bytes a slot; a write touches two cache lines
 */
export class IdentityLists {
  /** The first slot of each identity's list, plus one. */
  readonly #heads: Int32Map;
  /** The length of each identity's list. */
  readonly #counts: Int32Map;
  readonly #links: SlotLinks;
  readonly #seed: number;

  /** `seed` is mixed in so that an attacker cannot choose identities that collide in the maps. */
  constructor(
    seed = 0,
    heads: Int32Map = new Int32Map(),
    counts: Int32Map = new Int32Map(),
    links: SlotLinks = new SlotLinks(),
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

  of(identity: number): Generator<number, void, void> {
    return this.#links.of(this.#heads.get(identity ^ this.#seed));
  }

  /** Yields the identities with at least one slot, unordered. The lists must not be written during the iteration. */
  *identities(): Generator<number, void, void> {
    for (const key of this.#heads.keys()) yield (key ^ this.#seed) >>> 0;
  }

  count(identity: number): number {
    return this.#counts.get(identity ^ this.#seed);
  }

  /** Adds a slot that is in no list to the front of an identity's list. */
  add(slot: number, identity: number): void {
    const first = this.#heads.exchange(identity ^ this.#seed, slot + 1);
    this.#counts.exchange(identity ^ this.#seed, this.count(identity) + 1);
    this.#links.addFirst(slot, first);
  }

  remove(slot: number, identity: number): void {
    const isFirst = this.#links.isFirst(slot);
    const next = this.#links.remove(slot);
    this.#counts.exchange(identity ^ this.#seed, this.count(identity) - 1);
    if (isFirst) this.#heads.exchange(identity ^ this.#seed, next);
  }
}
