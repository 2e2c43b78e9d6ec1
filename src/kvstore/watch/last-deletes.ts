// Each costs a read of one key when a stream resumes after it.
const KEPT = 8;

/** The last deleted keys, with the revision of the delete. A key may exist again. */
export class LastDeletes {
  /** Ascending by revision. */
  #kept: { readonly key: string; readonly revision: number }[] = [];
  /** All deletes later than this revision are kept. */
  #completeAfter = 0;

  /** Returns the revision of the latest delete; 0 if there is none. */
  get newest(): number {
    return this.#kept.at(-1)?.revision ?? 0;
  }

  add(key: string, revision: number): void {
    this.#kept.push({ key, revision });
    if (this.#kept.length > KEPT) this.#completeAfter = this.#kept.shift()?.revision ?? 0;
  }

  /** Returns the keys of all deletes after `revision`; undefined if some of them were dropped. */
  after(revision: number): readonly string[] | undefined {
    if (revision < this.#completeAfter) return undefined;
    return this.#kept.filter((deleted) => deleted.revision > revision).map(({ key }) => key);
  }

  /** Starts again: all deletes from this revision on will be added, and earlier ones are unknown. */
  restart(revision: number): void {
    this.#kept = [];
    this.#completeAfter = revision;
  }
}
