import type { IPCacheChange } from './types.ts';

/** A ring of the last changes with their revisions, so that a reader that was away briefly can resume. */
export class RecentChanges {
  readonly #capacity: number;
  readonly #changes: IPCacheChange[] = [];
  readonly #revisions: number[] = [];
  /** Index of the next change to write: in a full ring, that of the oldest one. */
  #next = 0;
  /** All changes after this revision are in the ring. */
  #after: number;

  constructor(capacity: number, revision: number) {
    this.#capacity = capacity;
    this.#after = revision;
  }

  add(revision: number, changes: readonly IPCacheChange[]): void {
    for (const change of changes) {
      if (this.#changes.length === this.#capacity) this.#after = this.#revisions[this.#next] ?? this.#after;
      this.#changes[this.#next] = change;
      this.#revisions[this.#next] = revision;
      this.#next = (this.#next + 1) % this.#capacity;
    }
  }

  /** Returns the changes after a revision, oldest first; undefined if some of them were overwritten. */
  since(revision: number): readonly IPCacheChange[] | undefined {
    if (revision < this.#after) return undefined;
    const full = this.#changes.length === this.#capacity;
    const changes = full ? this.#rotated(this.#changes) : this.#changes;
    const revisions = full ? this.#rotated(this.#revisions) : this.#revisions;
    const first = revisions.findIndex((other) => other > revision);
    return first < 0 ? [] : changes.slice(first);
  }

  /** Returns the elements of a full ring, oldest first. */
  #rotated<T>(ring: readonly T[]): readonly T[] {
    return [...ring.slice(this.#next), ...ring.slice(0, this.#next)];
  }
}
