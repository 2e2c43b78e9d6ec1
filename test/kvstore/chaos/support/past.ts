/** One write of a key: its value, or undefined for a delete. */
export interface PastWrite {
  readonly revision: number;
  readonly value: string | undefined;
}

/**
 * The history of a store, write by write, up to a revision. A restore from a backup begins another past,
 * which shares its beginning with the previous one: `upTo` the backup's revision.
 *
 *     revisions  1 ──────── 40 ──────── 90      first past
 *                            └──── 65           next past, after a restore of the backup of revision 40
 */
export class Past {
  /** The last revision shared with the previous past; 0 for the first one. */
  readonly fork: number;
  readonly #before: Past | undefined;
  readonly #writes = new Map<string, PastWrite[]>();
  #revision: number;

  constructor(before?: Past, fork = 0) {
    this.fork = fork;
    this.#before = before;
    this.#revision = fork;
  }

  /** The last known revision. */
  get revision(): number {
    return this.#revision;
  }

  /** Adds a write. The writes of each key must be added in order. */
  add(key: string, write: PastWrite): void {
    const writes = this.#writes.get(key);
    if (writes === undefined) this.#writes.set(key, [write]);
    else writes.push(write);
    this.reached(write.revision);
  }

  /** Sets the last known revision, without further writes. */
  reached(revision: number): void {
    this.#revision = Math.max(this.#revision, revision);
  }

  /** Returns a past with the same beginning. */
  upTo(revision: number): Past {
    const copy = new Past(this, revision);
    for (const [key, writes] of this.#writes) {
      for (const write of writes) if (write.revision <= revision) copy.add(key, write);
    }
    return copy;
  }

  /**
   * Returns true if this past shares the given revision with `other`, which is this past or an earlier one.
   */
  shares(other: Past, revision: number): boolean {
    if (other === this) return true;
    return revision <= this.fork && this.#before?.shares(other, revision) === true;
  }

  /** Returns the key's last write at a revision. */
  at(key: string, revision: number): PastWrite | undefined {
    return this.#writes.get(key)?.findLast((write) => write.revision <= revision);
  }

  /** Returns true if exactly this write happened. */
  has(key: string, { revision, value }: PastWrite): boolean {
    const found = this.at(key, revision);
    return found?.revision === revision && found.value === value;
  }

  /** Returns the existing keys at its end, each with its last write. */
  content(): Map<string, PastWrite> {
    const content = new Map<string, PastWrite>();
    for (const [key, writes] of this.#writes) {
      const last = writes.at(-1);
      if (last?.value !== undefined) content.set(key, last);
    }
    return content;
  }
}
