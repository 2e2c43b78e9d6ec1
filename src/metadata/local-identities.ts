import { assert } from '../base/assert.ts';
import { formatLabels, type Labels, sortLabels } from '../identity/labels.ts';
import { LOCAL_IDENTITY_SCOPE, type NumericIdentity } from '../identity/numeric-identity.ts';

/** An identity that only this node knows, and its labels. */
export interface LocalIdentity {
  readonly identity: number;
  readonly labels: Labels;
}

/** Upstream's range (pkg/identity, 1.17): what a policy map of the kernel has room for. */
const FIRST: number = LOCAL_IDENTITY_SCOPE + 1;
const LAST: number = LOCAL_IDENTITY_SCOPE + 0xffff;

interface Held extends LocalIdentity {
  readonly key: string;
  users: number;
}

/**
 * Allocates node-local identities (bit 24): one number for the same labels, for as long as it has users. Users are
 * counted. A number that has become free is given out again as late as possible: what still carries it must not come to mean
 * something else.
 *
 * Numbers of before a restart can be withheld (AGENT 19): they are given to the labels that had them, and to no others, until
 * {@link LocalIdentities.releaseWithheld}.
 */
export class LocalIdentities {
  readonly #last: number;
  readonly #byID = new Map<number, Held>();
  readonly #byLabels = new Map<string, Held>();
  readonly #withheld = new Map<number, string>();
  readonly #withheldByLabels = new Map<string, number>();
  #next = FIRST;
  #changes = 0;

  /** @param capacity so many may be in use at a time; default 65,535 */
  constructor(capacity: number = LAST - FIRST + 1) {
    assert(capacity >= 1 && capacity <= LAST - FIRST + 1, 'there are at most 65,535 local identities');
    this.#last = FIRST + capacity - 1;
  }

  /** Numbers in use. */
  get size(): number {
    return this.#byID.size;
  }

  /** Numbers that are withheld, and not in use. */
  get withheld(): number {
    return this.#withheld.size;
  }

  /** Goes up with every number that comes into use or becomes free. */
  get changes(): number {
    return this.#changes;
  }

  /** A number for the labels, and one user more; `undefined` when all are in use or withheld. Costs a map look-up as a rule. */
  allocate(labels: Labels): NumericIdentity | undefined {
    const key = formatLabels(labels);
    const known = this.#byLabels.get(key);
    if (known !== undefined) {
      known.users++;
      return numeric(known.identity);
    }
    const identity = this.#withheldByLabels.get(key) ?? this.#free();
    if (identity === undefined) return undefined;
    this.#withheld.delete(identity);
    this.#withheldByLabels.delete(key);
    const held: Held = { identity, labels: sortLabels(labels), key, users: 1 };
    this.#byID.set(identity, held);
    this.#byLabels.set(key, held);
    this.#changes++;
    return numeric(identity);
  }

  /** One user less; the last one frees the number. */
  release(identity: number): void {
    const held = this.#byID.get(identity);
    assert(held !== undefined, `the local identity ${identity} is not in use`);
    held.users--;
    if (held.users > 0) return;
    this.#byID.delete(identity);
    this.#byLabels.delete(held.key);
    this.#changes++;
  }

  /** The labels of a number in use. */
  labelsOf(identity: number): Labels | undefined {
    return this.#byID.get(identity)?.labels;
  }

  /** Numbers in use, in no order that is promised. */
  entries(): Iterable<LocalIdentity> {
    return this.#byID.values();
  }

  /** Withholds numbers from all labels but those that had them. What is no local identity, or in use, is left out. */
  withhold(known: Iterable<LocalIdentity>): void {
    for (const { identity, labels } of known) {
      const key = formatLabels(labels);
      const isFree = identity >= FIRST && identity <= this.#last && !this.#byID.has(identity);
      if (!isFree || this.#byLabels.has(key) || this.#withheldByLabels.has(key)) continue;
      if (this.#withheld.has(identity)) continue;
      this.#withheld.set(identity, key);
      this.#withheldByLabels.set(key, identity);
    }
  }

  /** What was not asked for again is free. */
  releaseWithheld(): void {
    this.#withheld.clear();
    this.#withheldByLabels.clear();
  }

  /** The next free number, in turn. */
  #free(): number | undefined {
    const count = this.#last - FIRST + 1;
    if (this.#byID.size + this.#withheld.size >= count) return undefined;
    for (;;) {
      const identity = this.#next;
      this.#next = identity === this.#last ? FIRST : identity + 1;
      if (!this.#byID.has(identity) && !this.#withheld.has(identity)) return identity;
    }
  }
}

function numeric(identity: number): NumericIdentity {
  return identity as NumericIdentity; // between FIRST and LAST
}
