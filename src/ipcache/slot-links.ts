import { Int32Rows } from '../columns/int32-rows.ts';

// Columns of a link. A column contains a slot + 1; 0 means none.
const NEXT = 0;
const PREVIOUS = 1;

/**
 * Linked lists of slots, 8 bytes a slot. A slot is in at most one list. A list is represented by its first slot + 1,
 * which the owner stores; 0 is the empty list.
 */
export class SlotLinks {
  readonly #links: Int32Rows;

  constructor(links: Int32Rows = new Int32Rows(2)) {
    this.#links = links;
  }

  get bytes(): number {
    return this.#links.bytes;
  }

  /** Returns the current links. Later writes do not change the copy. */
  fork(): SlotLinks {
    return new SlotLinks(this.#links.fork());
  }

  /** Yields the slots of a list, the latest first. */
  *of(list: number): Generator<number, void, void> {
    for (let link = list; link !== 0; link = this.#links.get(link - 1, NEXT)) yield link - 1;
  }

  /** Adds a slot that is in no list to the front of `list`. The list is `slot` + 1 from now on. */
  addFirst(slot: number, list: number): void {
    const links = this.#links;
    links.reserve(slot);
    if (list !== 0) links.set(list - 1, PREVIOUS, slot + 1);
    links.set(slot, NEXT, list);
    links.set(slot, PREVIOUS, 0);
  }

  /** Returns true if a slot that is in a list is its first one. */
  isFirst(slot: number): boolean {
    return this.#links.get(slot, PREVIOUS) === 0;
  }

  /** Removes a slot from its list. Returns the part after it, which is the whole list if the slot was the first. */
  remove(slot: number): number {
    const links = this.#links;
    const next = links.get(slot, NEXT);
    const previous = links.get(slot, PREVIOUS);
    if (next !== 0) links.set(next - 1, PREVIOUS, previous);
    if (previous !== 0) links.set(previous - 1, NEXT, next);
    return next;
  }
}
