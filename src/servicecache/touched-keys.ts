/**
 * Which services have changed since a derived view was brought up to date last. Costs next to nothing until the
 * view is wanted for the first time, and holds no more than there are services.
 */
export class TouchedKeys {
  #touched: Set<string> | undefined;

  touch(key: string): void {
    this.#touched?.add(key);
  }

  /** The keys to look at again; the first time `all` of them. */
  take(all: Iterable<string>): Iterable<string> {
    const taken = this.#touched ?? all;
    this.#touched = new Set();
    return taken;
  }
}
