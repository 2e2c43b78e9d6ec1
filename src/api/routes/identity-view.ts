import { forEachInSteps, type TurnGate } from '../../base/turn-gate.ts';
import type { ClusterIdentity } from '../../model/identity-cache.ts';

/** Number of identities read and compared in one step. */
const IDENTITIES_PER_STEP = 2_048;

interface IdentityList {
  /** Changes only if the list changes. */
  readonly version: number;
  readonly known: readonly ClusterIdentity[];
}

/**
 * Reads the list of all identities in turns of the event loop. Reads one list after the other; requests that wait for
 * the same read share its list, because each list of 1,000,000 identities takes 55 MB.
 */
export class IdentityView {
  readonly #gate: TurnGate;
  readonly #identities: () => Iterable<ClusterIdentity>;
  #last: IdentityList = { version: 0, known: [] };
  #reading: Promise<unknown> = Promise.resolve();
  /** The next read, before it begins. */
  #next: Promise<IdentityList> | undefined;

  constructor(gate: TurnGate, identities: () => Iterable<ClusterIdentity>) {
    this.#gate = gate;
    this.#identities = identities;
  }

  /** Resolves to a list whose read begins after the call. */
  read(): Promise<IdentityList> {
    const begin = (): Promise<IdentityList> => {
      this.#next = undefined;
      return this.#read();
    };
    this.#next ??= this.#reading.then(begin, begin);
    this.#reading = this.#next;
    return this.#next;
  }

  async #read(): Promise<IdentityList> {
    const { version, known: previous } = this.#last;
    const known: ClusterIdentity[] = [];
    let isSame = true;
    const add = (item: ClusterIdentity): void => {
      isSame &&= isSameIdentity(item, previous[known.length]);
      known.push(item);
    };
    await this.#gate.runSteps(forEachInSteps(this.#identities(), IDENTITIES_PER_STEP, add));
    if (!isSame || known.length !== previous.length) this.#last = { version: version + 1, known };
    return this.#last;
  }
}

function isSameIdentity(
  { identity, labels, cluster }: ClusterIdentity,
  earlier: ClusterIdentity | undefined,
): boolean {
  return identity === earlier?.identity && labels === earlier.labels && cluster === earlier.cluster;
}
