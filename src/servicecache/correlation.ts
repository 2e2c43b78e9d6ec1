import { Map as ImmutableMap } from 'immutable';
import { assert } from '../base/assert.ts';
import { lowerBound } from '../base/sorted-map.ts';
import { isOnSide, type PreferredSide } from './affinity.ts';
import { type Backend, type Backends, backendOf, equalBackends, NO_BACKENDS } from './backend.ts';
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

/** No origins, no backends. */
export const NO_CORRELATION: Correlation = {
  backends: NO_BACKENDS,
  contested: ImmutableMap(),
  preferred: undefined,
};

/**
 * Returns the winner's backend with the ports that all slices of its cluster have for its address, because a pod can be
 * in several slices of a service, each with other ports. If several slices have a port of the same name, that of the
 * strongest claim is used. If `known` is given, the scan ends when the names of all its ports have been found.
 */
function withMergedPorts(
  winner: BackendClaim,
  claims: readonly BackendClaim[],
  known: readonly Backend[] | undefined,
): Backend {
  let { ports } = winner.backend;
  for (const { origin, backend } of claims) {
    if (origin.cluster !== winner.origin.cluster) break;
    for (const [name, port] of backend.ports) if (!ports.has(name)) ports = ports.set(name, port);
    if (known?.every((each) => each.ports.every((_, name) => ports.has(name))) === true) break;
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

/**
 * Returns `NO_BACKENDS` for an empty map, because states are compared by reference and another copy of `immutable` has
 * another empty map.
 */
function sharedIfEmpty(backends: Backends): Backends {
  return backends.size === 0 ? NO_BACKENDS : backends;
}

/** A mutable draft of the preferred side. */
class SideDraft {
  readonly #original: PreferredSide;
  readonly #backends: Backends;
  #active: number;

  constructor(original: PreferredSide) {
    this.#original = original;
    this.#backends = original.backends.asMutable();
    this.#active = original.active;
  }

  replace(address: string, old: Backend | undefined, next: Backend | undefined): void {
    const { remote } = this.#original;
    const before = old !== undefined && isOnSide(old, remote) ? old : undefined;
    const after = next !== undefined && isOnSide(next, remote) ? next : undefined;
    if (before?.state === 'active') this.#active--;
    if (after?.state === 'active') this.#active++;
    if (after !== undefined) this.#backends.set(address, after);
    else if (before !== undefined) this.#backends.delete(address);
  }

  finish(): PreferredSide {
    const backends = sharedIfEmpty(immutableResult(this.#backends, this.#original.backends));
    return { remote: this.#original.remote, backends, active: this.#active };
  }
}

/** A mutable draft of a correlation. */
class Correlator {
  readonly #current: Correlation;
  readonly #change: OriginChange;
  readonly #backends: Backends;
  readonly #side: SideDraft | undefined;
  readonly #origins: Origins;
  readonly #index: OriginIndex;
  readonly #contested: Correlation['contested'];

  constructor(current: Correlation, change: OriginChange, origins: Origins, index: OriginIndex) {
    this.#current = current;
    this.#backends = current.backends.asMutable();
    this.#side = current.preferred && new SideDraft(current.preferred);
    this.#contested = current.contested.asMutable();
    this.#change = change;
    this.#origins = origins;
    this.#index = index;
  }

  /** Sets this origin's claim on the address of `backend`. `isNew` is true if it had none. */
  claim(backend: Backend, isNew: boolean): void {
    const { address } = backend;
    const claims = this.#contested.get(address);
    // Replacing the only claim does not need the current winner, unless the service has an affinity.
    const current = isNew || claims || this.#side ? this.#backends.get(address) : undefined;
    const claim: BackendClaim = { origin: this.#change.origin, backend };
    if (claims !== undefined) this.#contest(address, current, claims, isNew ? 0 : 1, claim);
    else if (isNew && current !== undefined)
      this.#contest(address, current, [this.#holderOf(current)], 0, claim);
    else {
      if (isNew) this.#index.set(address, this.#change.origin);
      this.#setWinner(address, current, backend);
    }
  }

  /** Removes this origin's claim on an address. */
  release(address: string): void {
    const claims = this.#contested.get(address);
    const current = this.#side || claims ? this.#backends.get(address) : undefined;
    if (claims !== undefined) {
      this.#contest(address, current, claims, 1);
      return;
    }
    this.#index.delete(address);
    this.#side?.replace(address, current, undefined);
    this.#backends.delete(address);
  }

  finish(): Correlation {
    return {
      backends: sharedIfEmpty(immutableResult(this.#backends, this.#current.backends)),
      contested: immutableResult(this.#contested, this.#current.contested),
      preferred: this.#side?.finish(),
    };
  }

  /** Returns the claim of another origin on an uncontested address. */
  #holderOf(winner: Backend): BackendClaim {
    const origin = this.#index.find(winner, this.#change, this.#origins);
    assert(origin !== undefined, `no claim on the backend ${winner.address}`);
    return { origin, backend: winner };
  }

  /**
   * Replaces `removed` claims of this origin on an address, 0 or 1, by `added`. Sets the winner if it differs from
   * `current` (I3).
   */
  #contest(
    address: string,
    current: Backend | undefined,
    before: readonly BackendClaim[],
    removed: number,
    ...added: BackendClaim[]
  ): void {
    const place = lowerBound(before, ({ origin }) => compareOrigins(origin, this.#change.origin) < 0);
    const claims = before.toSpliced(place, removed, ...added);
    const [winner, second] = claims;
    assert(winner !== undefined, `no claim is left on the backend ${address}`);
    if (second === undefined) {
      this.#contested.delete(address);
      this.#index.set(address, winner.origin);
    } else this.#contested.set(address, claims);
    const { cluster } = winner.origin;
    const merged = added.filter(({ origin }) => origin.cluster === cluster).map(({ backend }) => backend);
    const known = current && before[0]?.origin.cluster === cluster ? [current, ...merged] : undefined;
    const effective = withMergedPorts(winner, claims, known);
    if (current === undefined || !equalBackends(current, effective))
      this.#setWinner(address, current, effective);
  }

  #setWinner(address: string, current: Backend | undefined, winner: Backend): void {
    this.#side?.replace(address, current, winner);
    this.#backends.set(address, winner);
  }
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
  // The backends of the only origin with backends are those of the service.
  const isOnlyOrigin = current.backends === before && current.contested.size === 0;
  if (isOnlyOrigin && current.preferred === undefined && isImmutable(after)) {
    return { backends: sharedIfEmpty(after), contested: current.contested, preferred: undefined };
  }
  const index = indexes.get(current) ?? new OriginIndex();
  indexes.delete(current);
  const correlator = new Correlator(current, change, origins, index);
  everyDifference(before, after, (old, next) => {
    if (next !== undefined) correlator.claim(next, old === undefined);
    else if (old !== undefined) correlator.release(old.address);
    return true;
  });
  const next = correlator.finish();
  if (index.wasUsed()) indexes.set(next, index);
  return next;
}
