// Each costs a read of one key where a stream goes on after it.
const KEPT = 8;

/** The keys that were deleted last, with the revision of the delete; a key may be back by now. */
export class LastDeletes {
  /** Ascending by revision. */
  #kept: { readonly key: string; readonly revision: number }[] = [];
  /** All deletes later than this revision are kept. */
  #completeAfter = 0;

  /** The revision of the latest; 0 when there is none. */
  get newest(): number {
    return this.#kept.at(-1)?.revision ?? 0;
  }

  add(key: string, revision: number): void {
    this.#kept.push({ key, revision });
    if (this.#kept.length > KEPT) this.#completeAfter = this.#kept.shift()?.revision ?? 0;
  }

  /** The keys of all deletes later than `revision`; undefined when not all of them are kept. */
  after(revision: number): readonly string[] | undefined {
    if (revision < this.#completeAfter) return undefined;
    return this.#kept.filter((deleted) => deleted.revision > revision).map(({ key }) => key);
  }

  /** From this revision on every delete is going to be added; what was deleted before is not known. */
  restart(revision: number): void {
    this.#kept = [];
    this.#completeAfter = revision;
  }
}
