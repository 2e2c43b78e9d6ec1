/** A member of a {@link LinkedList}. */
export interface Link<L> {
  previous: L | undefined;
  next: L | undefined;
}

/** A doubly linked list. The members contain the links, so that one is removed from any place in constant time. */
export class LinkedList<L extends Link<L>> {
  first: L | undefined;
  #last: L | undefined;

  /** Appends a link that is in no list. */
  append(link: L): void {
    link.previous = this.#last;
    link.next = undefined;
    if (this.#last === undefined) this.first = link;
    else this.#last.next = link;
    this.#last = link;
  }

  /** Removes a link of this list. */
  remove({ previous, next }: L): void {
    if (previous === undefined) this.first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
  }

  clear(): void {
    this.first = undefined;
    this.#last = undefined;
  }
}
