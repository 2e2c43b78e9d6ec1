/** A list of numbers, filled and emptied for each batch. Emptying it keeps its memory. */
export class NumberList {
  readonly #items: number[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  at(index: number): number {
    return this.#items[index] ?? 0;
  }

  push(item: number): void {
    this.#items[this.#length++] = item;
  }

  /** Removes the last item and returns it; -1 if the list is empty. */
  pop(): number {
    return this.#length === 0 ? -1 : (this.#items[--this.#length] ?? 0);
  }

  clear(): void {
    this.#length = 0;
  }
}
