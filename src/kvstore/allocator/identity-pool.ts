import type { Random } from '../../base/clock.ts';
import type { IdentityRange, NumericIdentity } from '../../identity/numeric-identity.ts';

// So many random tries; in a range that is nearly full it is then searched from a random place on.
const TRIES = 32;

/**
 * Picks numbers that are free, as far as this node knows: not in use in the cluster, and not about to be used
 * by an allocation under way here. Random, so that nodes that allocate at the same time seldom collide.
 */
export class IdentityPool {
  readonly #range: IdentityRange;
  readonly #random: Random;
  readonly #leased = new Set<number>();

  constructor(range: IdentityRange, random: Random) {
    this.#range = range;
    this.#random = random;
  }

  /** A number for which `isUsed` is false; it is not given again until it was returned. Undefined: none is left. */
  lease(isUsed: (id: number) => boolean): NumericIdentity | undefined {
    const { min, max } = this.#range;
    const size = max - min + 1;
    const isFree = (id: number): boolean => !this.#leased.has(id) && !isUsed(id);
    const random = (): number => min + Math.floor(this.#random() * size);
    for (let i = 0; i < TRIES; i++) {
      const id = random();
      if (isFree(id)) return this.#take(id);
    }
    const start = random() - min;
    for (let i = 0; i < size; i++) {
      const id = min + ((start + i) % size);
      if (isFree(id)) return this.#take(id);
    }
    return undefined;
  }

  /** The allocation has ended, one way or the other. */
  giveBack(id: number): void {
    this.#leased.delete(id);
  }

  #take(id: number): NumericIdentity {
    this.#leased.add(id);
    return id as NumericIdentity; // a range holds identities
  }
}
