import { Map as ImmutableMap } from 'immutable';
import { assert } from '../base/assert.ts';
import { type Backend, type Backends, equalBackends, NO_BACKENDS } from './backend.ts';

/** Who claims a backend: a slice of this cluster (`cluster` is `''`), or a remote cluster (`slice` is `''`). */
export interface Origin {
  readonly cluster: string;
  readonly slice: string;
}

/** One origin's word on one address. */
export interface BackendClaim {
  readonly origin: Origin;
  readonly backend: Backend;
}

/**
 * The backends of a service over all its origins (SEMANTICS 3.2). Immutable.
 *
 *     origins:    slice a-1    slice a-2    cluster c2
 *                 10.0.0.1     10.0.0.2     10.0.0.2          both claim 10.0.0.2:
 *                       \         |         /                 the slice wins, the cluster's claim is kept
 *     backends:    10.0.0.1   10.0.0.2
 *     contested:              10.0.0.2 → [a-2, c2]
 *
 * Only addresses with more than one claim are `contested`, so the common case keeps nothing extra.
 */
export interface Correlation {
  /** The winner of each address. */
  readonly backends: Backends;
  /** All claims of each address that has several, the winner first. */
  readonly contested: ImmutableMap<string, readonly BackendClaim[]>;
}

/** No origins, no backends. */
export const NO_CORRELATION: Correlation = { backends: NO_BACKENDS, contested: ImmutableMap() };

/** I4: this cluster first, then clusters by name, then slices by name, by UTF-16 code unit. */
export function compareOrigins(a: Origin, b: Origin): number {
  if (a.cluster !== b.cluster) return a.cluster < b.cluster ? -1 : 1;
  if (a.slice === b.slice) return 0;
  return a.slice < b.slice ? -1 : 1;
}

/** What one origin offered before and offers now. */
export interface OriginChange {
  readonly origin: Origin;
  readonly before: Backends;
  readonly after: Backends;
}

/**
 * Who else than `except` claims an address that is not contested, so that there is one such claim. Asked only
 * when a second claim of an address comes up.
 */
export type HolderLookup = (address: string, except: Origin) => BackendClaim | undefined;

/** The correlation being changed; its maps are mutable until it is done. */
class Correlator {
  readonly #current: Correlation;
  readonly #change: OriginChange;
  readonly #backends: Backends;
  readonly #findHolder: HolderLookup;
  #contested: Correlation['contested'];

  constructor(current: Correlation, change: OriginChange, findHolder: HolderLookup) {
    this.#current = current;
    this.#backends = current.backends.asMutable();
    this.#contested = current.contested;
    this.#change = change;
    this.#findHolder = findHolder;
  }

  /** This origin offers `backend` now, and may have offered another one at that address before. */
  claim(address: string, backend: Backend): void {
    const claims = this.#contested.get(address) ?? this.#rivalOf(address);
    if (claims === undefined) {
      this.#backends.set(address, backend);
      return;
    }
    const others = claims.filter((claim) => compareOrigins(claim.origin, this.#change.origin) !== 0);
    const own: BackendClaim = { origin: this.#change.origin, backend };
    this.#contest(
      address,
      [...others, own].sort((a, b) => compareOrigins(a.origin, b.origin)),
    );
  }

  /** This origin offers nothing more at that address. */
  release(address: string): void {
    const claims = this.#contested.get(address);
    if (claims === undefined) {
      this.#backends.delete(address);
      return;
    }
    this.#contest(
      address,
      claims.filter((claim) => compareOrigins(claim.origin, this.#change.origin) !== 0),
    );
  }

  finish(): Correlation {
    const backends = this.#backends.wasAltered() ? this.#backends.asImmutable() : this.#current.backends;
    return { backends, contested: this.#contested };
  }

  /** The one claim of another origin on an address that this origin has not claimed before. */
  #rivalOf(address: string): readonly BackendClaim[] | undefined {
    const { before, origin } = this.#change;
    if (before.has(address) || !this.#backends.has(address)) return undefined;
    const holder = this.#findHolder(address, origin);
    assert(holder !== undefined, `nobody claims the backend ${address}`);
    return [holder];
  }

  /** Keeps the claims of an address, and its winner where it says something new (I3). */
  #contest(address: string, claims: readonly BackendClaim[]): void {
    const [winner, second] = claims;
    assert(winner !== undefined, `no claim is left on the backend ${address}`);
    this.#contested =
      second === undefined ? this.#contested.delete(address) : this.#contested.set(address, claims);
    const current = this.#backends.get(address);
    if (current === undefined || !equalBackends(current, winner.backend)) {
      this.#backends.set(address, winner.backend);
    }
  }
}

/**
 * The correlation after one origin has changed. The result depends on the claims alone, never on their order
 * (I2); its `backends` are the same object when no winner has changed. `before` and `after` must be the same
 * object when they say the same. Costs what the origin held and holds, whatever the size of the service.
 */
export function applyOriginChange(
  current: Correlation,
  change: OriginChange,
  findHolder: HolderLookup,
): Correlation {
  const { before, after } = change;
  if (before === after) return current;
  // The only origin that offers anything: what it offers is the whole service.
  if (current.backends === before && current.contested.size === 0)
    return { ...NO_CORRELATION, backends: after };
  const correlator = new Correlator(current, change, findHolder);
  before.forEach((_backend, address) => {
    if (!after.has(address)) correlator.release(address);
  });
  after.forEach((backend, address) => {
    const old = before.get(address);
    if (old === undefined || !equalBackends(old, backend)) correlator.claim(address, backend);
  });
  return correlator.finish();
}
