/**
 * A list of pages that can be forked. Both lists share every page until one of them writes to it; the writing list then
 * uses a copy of the page. A discarded list keeps no memory in use, because a list refers only to pages and never to
 * other lists.
 *
 *     pages   [ A │ B │ C' ]      unshared  [ – │ – │ C' ]      C was written after the fork
 *     fork    [ A │ B │ C  ]      unshared  [ – │ – │ –  ]
 */
export class SharedPages<P extends { slice(): P }> {
  #pages: P[] = [];
  /** The unshared pages by index. */
  #unshared: (P | undefined)[] = [];

  get count(): number {
    return this.#pages.length;
  }

  /** Returns a page for reading. After a write the page may be out of date; call this again. */
  at(index: number): P | undefined {
    return this.#pages[index];
  }

  /** Returns a page for writing. A shared page is copied first. */
  writable(index: number): P | undefined {
    return this.#unshared[index] ?? this.#copy(index);
  }

  push(page: P): void {
    this.#pages.push(page);
    this.#unshared.push(page);
  }

  /** Replaces a page, for example by a longer one. */
  replace(index: number, page: P): void {
    this.#pages[index] = page;
    this.#unshared[index] = page;
  }

  /** Returns a list with the same content; later writes to either do not affect the other. Costs one word per page. */
  fork(): SharedPages<P> {
    const fork = new SharedPages<P>();
    fork.#pages = this.#pages.slice();
    fork.#unshared = new Array<P | undefined>(this.#pages.length).fill(undefined);
    this.#unshared = fork.#unshared.slice();
    return fork;
  }

  /** Returns true if a page was not written since one of the lists was forked from the other. */
  shares(other: SharedPages<P>, index: number): boolean {
    return this.#pages[index] === other.#pages[index];
  }

  #copy(index: number): P | undefined {
    const copy = this.#pages[index]?.slice();
    if (copy === undefined) return undefined;
    this.#pages[index] = copy;
    this.#unshared[index] = copy;
    return copy;
  }
}
