/** Counts the scrapes of a process, so that a status that several metrics use is read once per scrape. */
export class Scrape {
  #count = 0;

  /** Starts a new scrape. Values of the previous one become stale. */
  begin(): void {
    this.#count++;
  }

  /** Returns a reader that calls `read` once per scrape. If `read` throws, the next call in the scrape retries it. */
  once<T>(read: () => T): () => T {
    let last: { readonly scrape: number; readonly value: T } | undefined;
    return () => {
      if (last?.scrape !== this.#count) last = { scrape: this.#count, value: read() };
      return last.value;
    };
  }
}
