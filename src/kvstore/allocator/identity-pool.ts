import type { Random } from '../../base/clock.ts';
import type { IdentityRange, NumericIdentity } from '../../model/numeric-identity.ts';

// Number of random attempts before a linear search, which finds the last free numbers of a nearly full range.
const TRIES = 32;

/**
 * Returns numbers believed to be free: not used in the cluster, and not reserved by a running
 * allocation. The numbers are random, so that nodes that allocate at the same time rarely collide.
 */
export class IdentityPool {
  readonly #range: IdentityRange;
  readonly #random: Random;
  readonly #reserved = new Set<number>();

  constructor(range: IdentityRange, random: Random) {
    this.#range = range;
    this.#random = random;
  }

  /**
   * Returns a number for which `isUsed` is false, and reserves it until {@link release}. Returns undefined if none is
   * left.
   */
  reserve(isUsed: (id: number) => boolean): NumericIdentity | undefined {
    const { min, max } = this.#range;
    const size = max - min + 1;
    const isFree = (id: number): boolean => !this.#reserved.has(id) && !isUsed(id);
    const randomOffset = (): number => Math.floor(this.#random() * size);
    for (let i = 0; i < TRIES; i++) {
      const id = min + randomOffset();
      if (isFree(id)) return this.#add(id);
    }
    const start = randomOffset();
    for (let i = 0; i < size; i++) {
      const id = min + ((start + i) % size);
      if (isFree(id)) return this.#add(id);
    }
    return undefined;
  }

  /** Ends the reservation after an allocation, successful or not. */
  release(id: number): void {
    this.#reserved.delete(id);
  }

  #add(id: number): NumericIdentity {
    this.#reserved.add(id);
    return id as NumericIdentity; // the range contains only identities
  }
}
