/** Numbers the scrapes of a process, so that metrics with a common status read it once per scrape. */
export class Scrape {
  #count = 0;

  /** Starts a new scrape. Values of the previous one become stale. */
  begin(): void {
    this.#count++;
  }

  /** Returns a reader that calls `read` once per scrape. If `read` throws, the next call in the scrape retries it. */
  once<T>(read: () => T): () => T {
    let last: { readonly of: number; readonly value: T } | undefined;
    return () => {
      if (last?.of !== this.#count) last = { of: this.#count, value: read() };
      return last.value;
    };
  }
}
