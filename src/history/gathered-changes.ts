import type { PrefixRegister } from '../net/prefix.ts';
import type { ClaimChange } from './record-reader.ts';
import type { Segment } from './segment.ts';
import type { ChangeCause } from './types.ts';

/** Number of changes that are encoded together. A higher number does not make records cheaper. */
const MAX_GATHERED = 64;

/** A change of a prefix that is not encoded yet. Claims are immutable, so they can be read later. */
export interface GatheredChange extends ClaimChange {
  readonly ms: number;
  readonly cause: ChangeCause | undefined;
  readonly key: PrefixRegister;
}

/**
 * The changes that have no record yet. They are encoded together, because the pods of different prefixes are far apart
 * in memory: in a loop whose steps do not depend on each other, cache misses overlap.
 */
export class GatheredChanges {
  #changes: GatheredChange[] = [];
  readonly #podNames: string[] = [];
  /** A sum of all reads. Storing it prevents the compiler from removing the reads. */
  #read = 0;

  get isEmpty(): boolean {
    return this.#changes.length === 0;
  }

  get isFull(): boolean {
    return this.#changes.length >= MAX_GATHERED;
  }

  add(change: GatheredChange): void {
    this.#changes.push(change);
  }

  /**
   * Removes and returns the changes, oldest first. Reads their pods and the buckets of their keys into the CPU cache.
   */
  take(segment: Segment): readonly GatheredChange[] {
    const [changes, podNames] = [this.#changes, this.#podNames];
    this.#changes = [];
    // Objects first, then their texts, because a text is found only through its object.
    for (let i = 0; i < changes.length; i++) {
      const { before, after } = changes[i] as GatheredChange; // below the length
      podNames[i] = (before ?? after)?.k8s?.podName ?? '';
    }
    let read = segment.prefetch(changes);
    for (let i = 0; i < changes.length; i++) read ^= (podNames[i] ?? '').charCodeAt(0);
    podNames.fill('');
    this.#read ^= read;
    return changes;
  }
}
