/**
 * A list of pages that can be forked. Both lists share every page until one of them writes it; the writer then gets
 * a copy of that page alone. A list that is let go leaves nothing behind: each list refers only to the pages that it
 * reads.
 *
 *     pages   [ A │ B │ C' ]      own  [ – │ – │ C' ]      C has been written since the fork
 *     fork    [ A │ B │ C  ]      own  [ – │ – │ –  ]
 */
export class SharedPages<P extends { slice(): P }> {
  #pages: P[] = [];
  /** The pages that no other list has, each in its place. */
  #own: (P | undefined)[] = [];

  get count(): number {
    return this.#pages.length;
  }

  /** A page to read. What is read of it after a write may be out of date: ask again. */
  at(index: number): P | undefined {
    return this.#pages[index];
  }

  /** A page to write: copied first if it is shared. */
  writable(index: number): P | undefined {
    return this.#own[index] ?? this.#copy(index);
  }

  push(page: P): void {
    this.#pages.push(page);
    this.#own.push(page);
  }

  /** A list with the same content; from now on writes to either do not show in the other. Costs one word a page. */
  fork(): SharedPages<P> {
    const fork = new SharedPages<P>();
    fork.#pages = this.#pages.slice();
    fork.#own = new Array<P | undefined>(this.#pages.length).fill(undefined);
    this.#own = fork.#own.slice();
    return fork;
  }

  /** Whether a page has not been written since one of the lists was forked from the other. */
  shares(other: SharedPages<P>, index: number): boolean {
    return this.#pages[index] === other.#pages[index];
  }

  #copy(index: number): P | undefined {
    const copy = this.#pages[index]?.slice();
    if (copy === undefined) return undefined;
    this.#pages[index] = copy;
    this.#own[index] = copy;
    return copy;
  }
}
