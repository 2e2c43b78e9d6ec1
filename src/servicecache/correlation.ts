import { Map as ImmutableMap } from 'immutable';
import { assert } from '../base/assert.ts';
import { lowerBound } from '../base/sorted-map.ts';
import { isOnSide, type PreferredSide } from './affinity.ts';
import {
  type Backend,
  type Backends,
  backendOf,
  equalBackends,
  NO_BACKENDS,
  type OfferedBackends,
} from './backend.ts';
import { everyDifference, isImmutable } from './offer-difference.ts';
import { compareOrigins, type Origin, type OriginChange, OriginIndex, type Origins } from './origin-index.ts';

/** The claim of one origin on one address. */
export interface BackendClaim {
  readonly origin: Origin;
  readonly backend: Backend;
}

/**
 * The backends of a service over all its origins (SEMANTICS 3.2). Immutable.
 *
 *     origins:    slice a-1    slice a-2    cluster c2
 *                 10.0.0.1     10.0.0.2     10.0.0.2          both claim 10.0.0.2:
 *                       \         |         /                 the slice wins; the cluster's claim is kept
 *     backends:    10.0.0.1   10.0.0.2
 *     contested:              10.0.0.2 → [a-2, c2]
 *
 * If several slices of a cluster claim an address, the first by name wins and gets the ports of the others as well.
 * Only addresses with more than one claim are in `contested`, so the common case stores nothing extra.
 */
export interface Correlation {
  /** The winner of each address, with the ports of all slices of its cluster that claim it. */
  readonly backends: Backends;
  /** All claims of each address with more than one claim, the winner first. */
  readonly contested: ImmutableMap<string, readonly BackendClaim[]>;
  /** The winners on the side that the service prefers; undefined without affinity. */
  readonly preferred: PreferredSide | undefined;
}

export const NO_CORRELATION: Correlation = {
  backends: NO_BACKENDS,
  contested: ImmutableMap(),
  preferred: undefined,
};

/**
 * Returns the winner's backend with the ports that all slices of its cluster have for its address, because a pod can be
 * in several slices of a service, each with other ports. If several slices have a port of the same name, that of the
 * strongest claim is used.
 *
 * @param portSources backends that together have all port names of the result, if they are known. The loop over the
 *   claims then ends when it has found all these names
 */
function withMergedPorts(
  winner: BackendClaim,
  claims: readonly BackendClaim[],
  portSources: readonly Backend[] | undefined,
): Backend {
  let { ports } = winner.backend;
  for (const { origin, backend } of claims) {
    if (origin.cluster !== winner.origin.cluster) break;
    for (const [name, port] of backend.ports) if (!ports.has(name)) ports = ports.set(name, port);
    if (portSources?.every((source) => source.ports.every((_, name) => ports.has(name))) === true) break;
  }
  return ports === winner.backend.ports ? winner.backend : backendOf({ ...winner.backend, ports });
}

/** Returns the immutable result of `draft`, or `original` if it was not changed. */
function immutableResult<T>(
  draft: ImmutableMap<string, T>,
  original: ImmutableMap<string, T>,
): ImmutableMap<string, T> {
  return draft.wasAltered() ? draft.asImmutable() : original;
}

/** Returns the constant `NO_BACKENDS` for an empty map, because callers compare maps of backends by reference. */
function sharedIfEmpty(backends: Backends): Backends {
  return backends.size === 0 ? NO_BACKENDS : backends;
}

/** A mutable draft of the preferred side of a correlation. */
class SideDraft {
  readonly #original: PreferredSide;
  readonly #backends: Backends;
  #activeCount: number;

  constructor(original: PreferredSide) {
    this.#original = original;
    this.#backends = original.backends.asMutable();
    this.#activeCount = original.activeCount;
  }

  replace(address: string, old: Backend | undefined, next: Backend | undefined): void {
    const { remote } = this.#original;
    const before = old !== undefined && isOnSide(old, remote) ? old : undefined;
    const after = next !== undefined && isOnSide(next, remote) ? next : undefined;
    if (before?.state === 'active') this.#activeCount--;
    if (after?.state === 'active') this.#activeCount++;
    if (after !== undefined) this.#backends.set(address, after);
    else if (before !== undefined) this.#backends.delete(address);
  }

  finish(): PreferredSide {
    const backends = sharedIfEmpty(immutableResult(this.#backends, this.#original.backends));
    return { remote: this.#original.remote, backends, activeCount: this.#activeCount };
  }
}

/** A mutable draft of a correlation, to which the change of one origin, the *changed origin*, is applied. */
class Correlator {
  readonly #original: Correlation;
  readonly #change: OriginChange;
  readonly #backends: Backends;
  readonly #side: SideDraft | undefined;
  readonly #origins: Origins;
  readonly #index: OriginIndex;
  readonly #contested: Correlation['contested'];

  constructor(original: Correlation, change: OriginChange, origins: Origins, index: OriginIndex) {
    this.#original = original;
    this.#backends = original.backends.asMutable();
    this.#side = original.preferred && new SideDraft(original.preferred);
    this.#contested = original.contested.asMutable();
    this.#change = change;
    this.#origins = origins;
    this.#index = index;
  }

  /** Sets the changed origin's claim on the address of `backend`. `isNew` is true if it had none. */
  claim(backend: Backend, isNew: boolean): void {
    const { address } = backend;
    const claims = this.#contested.get(address);
    const replacesOnlyClaim = !isNew && claims === undefined;
    // The lookup is needed only if several claims are compared, or if the preferred side is updated.
    const winner = replacesOnlyClaim && !this.#side ? undefined : this.#backends.get(address);
    const claim: BackendClaim = { origin: this.#change.origin, backend };
    if (claims !== undefined) this.#replaceClaim(address, winner, claims, !isNew, claim);
    else if (isNew && winner !== undefined)
      this.#replaceClaim(address, winner, [this.#onlyClaim(winner)], false, claim);
    else {
      if (isNew) this.#index.set(address, this.#change.origin);
      this.#setWinner(address, winner, backend);
    }
  }

  /** Removes the changed origin's claim on an address. */
  release(address: string): void {
    const claims = this.#contested.get(address);
    const winner = this.#side || claims ? this.#backends.get(address) : undefined;
    if (claims !== undefined) {
      this.#replaceClaim(address, winner, claims, true, undefined);
      return;
    }
    this.#index.delete(address);
    this.#side?.replace(address, winner, undefined);
    this.#backends.delete(address);
  }

  finish(): Correlation {
    return {
      backends: sharedIfEmpty(immutableResult(this.#backends, this.#original.backends)),
      contested: immutableResult(this.#contested, this.#original.contested),
      preferred: this.#side?.finish(),
    };
  }

  /** Returns the only claim on the address of `winner`, which is that of another origin. */
  #onlyClaim(winner: Backend): BackendClaim {
    const origin = this.#index.find(winner, this.#change, this.#origins);
    assert(origin !== undefined, `no claim on the backend ${winner.address}`);
    return { origin, backend: winner };
  }

  /**
   * Updates the claims on an address: removes the changed origin's claim if `hasClaim`, inserts `added` if defined.
   * Sets the winner only if it differs (I3).
   */
  #replaceClaim(
    address: string,
    winnerSoFar: Backend | undefined,
    claims: readonly BackendClaim[],
    hasClaim: boolean,
    added: BackendClaim | undefined,
  ): void {
    const place = lowerBound(claims, ({ origin }) => compareOrigins(origin, this.#change.origin) < 0);
    const next = claims.toSpliced(place, hasClaim ? 1 : 0, ...(added ? [added] : []));
    const [first, second] = next;
    assert(first !== undefined, `no claim is left on the backend ${address}`);
    if (second === undefined) {
      this.#contested.delete(address);
      this.#index.set(address, first.origin);
    } else this.#contested.set(address, next);
    const { cluster } = first.origin;
    // The winner so far has the ports of all claims of its cluster. If the cluster still wins, only `added` can have
    // further ports.
    const addedSources = added?.origin.cluster === cluster ? [added.backend] : [];
    const isSameCluster = claims[0]?.origin.cluster === cluster;
    const portSources = winnerSoFar && isSameCluster ? [winnerSoFar, ...addedSources] : undefined;
    const winner = withMergedPorts(first, next, portSources);
    if (winnerSoFar === undefined || !equalBackends(winnerSoFar, winner))
      this.#setWinner(address, winnerSoFar, winner);
  }

  #setWinner(address: string, winnerSoFar: Backend | undefined, winner: Backend): void {
    this.#side?.replace(address, winnerSoFar, winner);
    this.#backends.set(address, winner);
  }
}

/**
 * Returns the correlation of all origins of a service, without a preferred side. The cost is linear in their backends,
 * even if many origins claim the same addresses. {@link applyOriginChange} for each origin would copy the claims on
 * such an address each time.
 */
export function correlate(origins: Iterable<readonly [Origin, OfferedBackends]>): Correlation {
  const strongestFirst = [...origins].sort(([a], [b]) => compareOrigins(a, b));
  const firstClaims = new Map<string, BackendClaim>();
  const contested = new Map<string, BackendClaim[]>();
  for (const [origin, offered] of strongestFirst) {
    for (const backend of offered.values()) {
      const { address } = backend;
      const first = firstClaims.get(address);
      if (first === undefined) {
        firstClaims.set(address, { origin, backend });
        continue;
      }
      const claims = contested.get(address);
      if (claims === undefined) contested.set(address, [first, { origin, backend }]);
      else claims.push({ origin, backend });
    }
  }
  const backends = NO_BACKENDS.withMutations((draft) => {
    for (const [address, first] of firstClaims) {
      const claims = contested.get(address);
      draft.set(address, claims === undefined ? first.backend : withMergedPorts(first, claims, undefined));
    }
  });
  return { backends, contested: ImmutableMap(contested), preferred: undefined };
}

/** The index that belongs to the latest correlation of a service. A change moves it to the new correlation. */
const indexes = new WeakMap<Correlation, OriginIndex>();

/**
 * Returns the correlation after a change of one origin. The result depends on the claims only, not on their order (I2).
 * Its `backends` are the same object if no winner changed. `before` and `after` must be the same object if they are
 * equal. The cost is linear in the origin's backends before and after, independent of the size of the service.
 */
export function applyOriginChange(current: Correlation, change: OriginChange, origins: Origins): Correlation {
  const { before, after } = change;
  if (before === after) return current;
  // If no other origin has backends, `current.backends` is the object `before`.
  const isOnlyOrigin = current.backends === before && current.contested.size === 0;
  if (isOnlyOrigin && current.preferred === undefined && isImmutable(after)) {
    return { backends: sharedIfEmpty(after), contested: current.contested, preferred: undefined };
  }
  const index = indexes.get(current) ?? new OriginIndex();
  indexes.delete(current);
  index.beginChange(change, origins);
  const correlator = new Correlator(current, change, origins, index);
  everyDifference(before, after, (old, next) => {
    if (next !== undefined) correlator.claim(next, old === undefined);
    else if (old !== undefined) correlator.release(old.address);
    return true;
  });
  const next = correlator.finish();
  if (index.endChange()) indexes.set(next, index);
  return next;
}
