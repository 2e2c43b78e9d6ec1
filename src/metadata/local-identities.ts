import { requireArgument } from '../base/arguments.ts';
import { assert } from '../base/assert.ts';
import { KeyedQueue } from '../base/keyed-queue.ts';
import { formatLabels, type Labels, sortLabels } from '../model/labels.ts';
import { LOCAL_IDENTITY_SCOPE, type NumericIdentity } from '../model/numeric-identity.ts';

/** A node-local identity and its labels. */
export interface LocalIdentity {
  readonly identity: number;
  readonly labels: Labels;
}

// The range of Cilium 1.17 (pkg/identity): 65,535 numbers.
const FIRST_IDENTITY: number = LOCAL_IDENTITY_SCOPE + 1;
const LAST_IDENTITY: number = LOCAL_IDENTITY_SCOPE + 0xffff;

interface CountedIdentity extends LocalIdentity {
  /** The labels as text, by {@link formatLabels}. */
  readonly labelsText: string;
  users: number;
}

/**
 * Allocates node-local identities (bit 24 is set). Equal labels share one number while it has users, which are counted.
 * Free numbers are reused as late as possible, because entries may still refer to them.
 *
 * Numbers from before a restart can be withheld (AGENT 19): until {@link LocalIdentities.releaseWithheld} they are
 * allocated only to the labels that had them.
 */
export class LocalIdentities {
  readonly #last: number;
  readonly #byID = new Map<number, CountedIdentity>();
  readonly #byLabels = new Map<string, CountedIdentity>();
  /** The labels of each withheld identity as text; `#withheldByLabels` is the reverse. */
  readonly #withheld = new Map<number, string>();
  readonly #withheldByLabels = new Map<string, number>();
  /** The lowest number that was not yet considered for an allocation. */
  #next = FIRST_IDENTITY;
  /** Free numbers below `#next`, the one freed first at the front. */
  readonly #freed = new KeyedQueue<number>();
  #changes = 0;

  /** @param capacity maximum number of identities in use; default 65,535 */
  constructor(capacity: number = LAST_IDENTITY - FIRST_IDENTITY + 1) {
    const isInRange = capacity >= 1 && capacity <= LAST_IDENTITY - FIRST_IDENTITY + 1;
    requireArgument(isInRange, `new LocalIdentities: capacity must be from 1 to 65,535, not ${capacity}`);
    this.#last = FIRST_IDENTITY + capacity - 1;
  }

  /** Number of identities in use. */
  get size(): number {
    return this.#byID.size;
  }

  /** Number of withheld identities, which are not in use. */
  get withheld(): number {
    return this.#withheld.size;
  }

  /**
   * Number of identities which are neither in use nor withheld.
   * @internal
   */
  get free(): number {
    return this.#last - FIRST_IDENTITY + 1 - this.#byID.size - this.#withheld.size;
  }

  /** Increases with every allocation and every freed identity. */
  get changes(): number {
    return this.#changes;
  }

  /** Returns the identity of the labels and adds a user. Returns `undefined` if all numbers are in use or withheld. */
  allocate(labels: Labels): NumericIdentity | undefined {
    const labelsText = formatLabels(labels);
    const known = this.#byLabels.get(labelsText);
    if (known !== undefined) {
      known.users++;
      return asNumericIdentity(known.identity);
    }
    const identity = this.#withheldByLabels.get(labelsText) ?? this.#takeFree();
    if (identity === undefined) return undefined;
    this.#withheld.delete(identity);
    this.#withheldByLabels.delete(labelsText);
    const counted: CountedIdentity = { identity, labels: sortLabels(labels), labelsText, users: 1 };
    this.#byID.set(identity, counted);
    this.#byLabels.set(labelsText, counted);
    this.#changes++;
    return asNumericIdentity(identity);
  }

  /** Removes a user. Returns true if it was the last one, so that the identity is free. */
  release(identity: number): boolean {
    const counted = this.#byID.get(identity);
    assert(counted !== undefined, `the local identity ${identity} is not in use`);
    counted.users--;
    if (counted.users > 0) return false;
    this.#byID.delete(identity);
    this.#byLabels.delete(counted.labelsText);
    this.#addFreed(counted.identity);
    this.#changes++;
    return true;
  }

  /** Returns the labels of an identity in use. */
  labelsOf(identity: number): Labels | undefined {
    return this.#byID.get(identity)?.labels;
  }

  /** Returns the identities in use, unordered. */
  entries(): Iterable<LocalIdentity> {
    return this.#byID.values();
  }

  /**
   * Reserves identities for the labels which had them. Skips identities outside the range of this allocator, and
   * identities or labels in use or already withheld.
   */
  withhold(known: Iterable<LocalIdentity>): void {
    for (const { identity, labels } of known) {
      const labelsText = formatLabels(labels);
      const isFree = identity >= FIRST_IDENTITY && identity <= this.#last && !this.#byID.has(identity);
      if (!isFree || this.#byLabels.has(labelsText) || this.#withheldByLabels.has(labelsText)) continue;
      if (this.#withheld.has(identity)) continue;
      this.#freed.delete(identity);
      this.#withheld.set(identity, labelsText);
      this.#withheldByLabels.set(labelsText, identity);
    }
  }

  /** Frees the identities which are still withheld. */
  releaseWithheld(): void {
    for (const identity of this.#withheld.keys()) this.#addFreed(identity);
    this.#withheld.clear();
    this.#withheldByLabels.clear();
  }

  #addFreed(identity: number): void {
    if (identity < this.#next) this.#freed.set(identity, undefined);
  }

  /** Returns a number which was never in use, or the one freed first. */
  #takeFree(): number | undefined {
    while (this.#next <= this.#last) {
      const identity = this.#next;
      this.#next++;
      if (!this.#byID.has(identity) && !this.#withheld.has(identity)) return identity;
    }
    return this.#freed.shift()?.[0];
  }
}

function asNumericIdentity(identity: number): NumericIdentity {
  return identity as NumericIdentity; // allocated between FIRST_IDENTITY and LAST_IDENTITY
}
