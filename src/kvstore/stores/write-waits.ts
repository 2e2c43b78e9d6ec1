/** A waiter: a caller that waits until names are written. */
export interface WriteWait {
  resolve(): void;
  /**
   * Number of unfinished names that were queued after this waiter and before the next one. This waiter does not require
   * them.
   */
  laterCount: number;
}

const NONE: readonly WriteWait[] = [];

/**
 * The waiters for the writes of a {@link SyncStore}, or for the canary after them. A waiter requires all names that
 * were unfinished when it was added, and all written names that the kvstore may have lost since. Only the names that a
 * waiter does *not* require are counted, so the cost of a waiter does not depend on the number of names.
 *
 *     unfinished names   a  b  c │ d  e │ f        the first waiter requires a, b and c: 6 − 3
 *     waiters                    1      2
 */
export class WriteWaits<N> {
  readonly #unfinished: () => number;
  /** The oldest first. */
  readonly #waits = new Set<WriteWait>();
  #newest: WriteWait | undefined;
  /** The unfinished names that were queued after a waiter, with the newest waiter of that time. */
  readonly #nameWaits = new Map<N, WriteWait>();
  /** Number of unfinished names that the oldest waiter does not require. */
  #laterCount = 0;

  /** @param unfinished returns the number of names that are queued or being written */
  constructor(unfinished: () => number) {
    this.#unfinished = unfinished;
  }

  /** Adds a waiter. Resolves in a call of `complete` after all names that are unfinished now have been written. */
  add(): Promise<void> {
    return new Promise((resolve) => {
      this.#newest = { resolve, laterCount: 0 };
      this.#waits.add(this.#newest);
    });
  }

  /**
   * Records that a name becomes unfinished. Present waiters do not require the name. Call it once, before the name is
   * queued.
   */
  recordQueued(name: N): void {
    if (this.#newest === undefined) return;
    this.#nameWaits.set(name, this.#newest);
    this.#newest.laterCount++;
    this.#laterCount++;
  }

  /**
   * Undoes {@link recordQueued}, because the name was written, or must be written again: then all waiters require it.
   */
  forgetQueued(name: N): void {
    const wait = this.#nameWaits.size === 0 ? undefined : this.#nameWaits.get(name);
    if (wait === undefined) return;
    this.#nameWaits.delete(name);
    wait.laterCount--;
    if (this.#waits.has(wait)) this.#laterCount--;
  }

  /** Returns the waiters that require no further names. A canary written now would be valid for them. */
  due(): readonly WriteWait[] {
    if (this.#waits.size === 0) return NONE;
    const due: WriteWait[] = [];
    let required = this.#unfinished() - this.#laterCount;
    for (const wait of this.#waits) {
      if (required > 0) break; // later waiters require more
      due.push(wait);
      required += wait.laterCount;
    }
    return due;
  }

  /**
   * Resolves the waiters of `due` that require no further names. Returns false if there is no such waiter: the canary
   * was then written too early.
   */
  complete(due: readonly WriteWait[]): boolean {
    if (due.length === 0) return false;
    const candidates = new Set(due);
    const complete = this.due().filter((wait) => candidates.has(wait));
    for (const wait of complete) {
      this.#waits.delete(wait);
      this.#laterCount -= wait.laterCount;
      wait.resolve();
    }
    if (this.#waits.size === 0) {
      this.#newest = undefined;
      this.#nameWaits.clear();
    }
    return complete.length > 0;
  }
}
