/** A waiter for a canary, and the names that must settle before it. */
export interface CanaryWait {
  readonly names: Set<string>;
  resolve(): void;
}

/** The waiters for the canary of a {@link SyncStore}, with the names that each requires. */
export class CanaryWaits {
  readonly #waits = new Set<CanaryWait>();

  get size(): number {
    return this.#waits.size;
  }

  /** Resolves when a canary has landed that was written after all these names had settled. */
  add(names: Iterable<string>): Promise<void> {
    return new Promise((resolve) => this.#waits.add({ names: new Set(names), resolve }));
  }

  /** Records that the kvstore has the wanted value of this name. */
  settled(name: string): void {
    for (const { names } of this.#waits) names.delete(name);
  }

  /** Records that the value of this name in the kvstore is unknown, so all waiters must wait for it (again). */
  touched(name: string): void {
    for (const { names } of this.#waits) names.add(name);
  }

  /** Returns the waiters for which a canary written now would be true. */
  due(): readonly CanaryWait[] {
    return [...this.#waits].filter(({ names }) => names.size === 0);
  }

  /**
   * Resolves the waiters of `due` that require no further names. Returns false if there are none, because the canary was premature.
   */
  landed(due: readonly CanaryWait[]): boolean {
    const over = due.filter(({ names }) => names.size === 0);
    for (const wait of over) {
      this.#waits.delete(wait);
      wait.resolve();
    }
    return over.length > 0;
  }
}
