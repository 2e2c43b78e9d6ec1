/** Somebody who waits for a canary, and the names that are missing for it to be true. */
export interface CanaryWait {
  readonly names: Set<string>;
  resolve(): void;
}

/** Those who wait for a {@link SyncStore}'s canary, and what each of them waits for. */
export class CanaryWaits {
  readonly #waits = new Set<CanaryWait>();

  get size(): number {
    return this.#waits.size;
  }

  /** Resolves when a canary has landed that was written after all these names had settled. */
  add(names: Iterable<string>): Promise<void> {
    return new Promise((resolve) => this.#waits.add({ names: new Set(names), resolve }));
  }

  /** The kvstore has what was wanted of this name. */
  settled(name: string): void {
    for (const { names } of this.#waits) names.delete(name);
  }

  /** What the kvstore has of this name is not known any more: all wait for it (again). */
  touched(name: string): void {
    for (const { names } of this.#waits) names.add(name);
  }

  /** Those for whom a canary that was written now would be true. */
  due(): readonly CanaryWait[] {
    return [...this.#waits].filter(({ names }) => names.size === 0);
  }

  /** Resolves those of `due` that do not wait for more by now. False when there is none: the canary was premature. */
  landed(due: readonly CanaryWait[]): boolean {
    const over = due.filter(({ names }) => names.size === 0);
    for (const wait of over) {
      this.#waits.delete(wait);
      wait.resolve();
    }
    return over.length > 0;
  }
}
