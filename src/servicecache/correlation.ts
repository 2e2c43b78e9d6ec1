import { Map as ImmutableMap, isMap } from 'immutable';
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
import { everyDifference } from './offer-difference.ts';

/**
 * The origin of a backend: a slice of the local cluster (`cluster` is empty), a slice of a remote cluster, or a remote
 * service that is not in slices (`slice` is empty).
 */
export interface Origin {
  readonly cluster: string;
  readonly slice: string;
}

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

/** Compares origins (I4): the local cluster first, then clusters by name, then slices by name, by UTF-16 code unit. */
export function compareOrigins(a: Origin, b: Origin): number {
  if (a.cluster !== b.cluster) return a.cluster < b.cluster ? -1 : 1;
  if (a.slice === b.slice) return 0;
  return a.slice < b.slice ? -1 : 1;
}

/**
 * Returns the winner's backend with the ports that all slices of its cluster have for its address, because a pod can be
 * in several slices of a service, each with other ports. If several slices have a port of the same name, that of the
 * strongest claim is used. The scan ends when all ports of `known` have been found, if it is given.
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

/** The backends of one origin before and after a change. */
export interface OriginChange {
  readonly origin: Origin;
  readonly before: OfferedBackends;
  readonly after: OfferedBackends;
}

/**
 * Returns the claim of an origin other than `except` on the address of `winner`, which has no other claim. Called only
 * when an address gets a second claim.
 */
export type HolderLookup = (winner: Backend, except: Origin) => BackendClaim | undefined;

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
  readonly #findHolder: HolderLookup;
  readonly #contested: Correlation['contested'];

  constructor(current: Correlation, change: OriginChange, findHolder: HolderLookup) {
    this.#current = current;
    this.#backends = current.backends.asMutable();
    this.#side = current.preferred && new SideDraft(current.preferred);
    this.#contested = current.contested.asMutable();
    this.#change = change;
    this.#findHolder = findHolder;
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
    else this.#setWinner(address, current, backend);
  }

  /** Removes this origin's claim on an address. */
  release(address: string): void {
    const claims = this.#contested.get(address);
    const current = this.#side || claims ? this.#backends.get(address) : undefined;
    if (claims !== undefined) {
      this.#contest(address, current, claims, 1);
      return;
    }
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
    const holder = this.#findHolder(winner, this.#change.origin);
    assert(holder !== undefined, `no claim on the backend ${winner.address}`);
    return holder;
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
    if (second === undefined) this.#contested.delete(address);
    else this.#contested.set(address, claims);
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

/** Returns true if an offer is an immutable map, which can be used directly as the service's backends. */
function isImmutable(offered: OfferedBackends): offered is Backends {
  return isMap(offered);
}

/**
 * Returns the correlation after a change of one origin. The result depends on the claims only, not on their order (I2).
 * Its `backends` are the same object if no winner changed. `before` and `after` must be the same object if they are
 * equal. The cost is linear in the origin's backends before and after, independent of the size of the service.
 */
export function applyOriginChange(
  current: Correlation,
  change: OriginChange,
  findHolder: HolderLookup,
): Correlation {
  const { before, after } = change;
  if (before === after) return current;
  // The backends of the only origin with backends are those of the service.
  const isOnlyOrigin = current.backends === before && current.contested.size === 0;
  if (isOnlyOrigin && current.preferred === undefined && isImmutable(after)) {
    return { backends: sharedIfEmpty(after), contested: current.contested, preferred: undefined };
  }
  const correlator = new Correlator(current, change, findHolder);
  everyDifference(before, after, (old, next) => {
    if (next !== undefined) correlator.claim(next, old === undefined);
    else if (old !== undefined) correlator.release(old.address);
    return true;
  });
  return correlator.finish();
}
