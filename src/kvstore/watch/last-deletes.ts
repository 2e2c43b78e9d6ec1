// Maximum number of stored deletes. Each costs a read of one key when a stream resumes after it.
const MAX_DELETES = 8;

/** The last deletes of keys. A deleted key may exist again. */
export class LastDeletes {
  /** Ascending by revision. */
  #deletes: { readonly key: string; readonly revision: number }[] = [];
  /** All deletes later than this revision are kept. */
  #completeAfter = 0;

  /** Returns the revision of the latest delete; 0 if there is none. */
  get newest(): number {
    return this.#deletes.at(-1)?.revision ?? 0;
  }

  add(key: string, revision: number): void {
    this.#deletes.push({ key, revision });
    if (this.#deletes.length > MAX_DELETES) this.#completeAfter = this.#deletes.shift()?.revision ?? 0;
  }

  /** Returns the keys of all deletes after `revision`; undefined if some of them were dropped. */
  since(revision: number): readonly string[] | undefined {
    if (revision < this.#completeAfter) return undefined;
    return this.#deletes.filter((deleted) => deleted.revision > revision).map(({ key }) => key);
  }

  /** Starts again: all deletes after `revision` will be added; earlier ones are unknown. */
  restart(revision: number): void {
    this.#deletes = [];
    this.#completeAfter = revision;
  }
}
