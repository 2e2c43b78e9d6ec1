import { Map as ImmutableMap, isMap } from '#immutable';
import { assert } from '../base/assert.ts';
import { isOnSide, type PreferredSide } from './affinity.ts';
import { type Backend, type Backends, equalBackends, NO_BACKENDS, type OfferedBackends } from './backend.ts';
import { everyDifference } from './offer-difference.ts';

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
  /** The winners on the side that the service prefers; undefined when it prefers none. */
  readonly preferred: PreferredSide | undefined;
}

/** No origins, no backends. */
export const NO_CORRELATION: Correlation = {
  backends: NO_BACKENDS,
  contested: ImmutableMap(),
  preferred: undefined,
};

/** I4: this cluster first, then clusters by name, then slices by name, by UTF-16 code unit. */
export function compareOrigins(a: Origin, b: Origin): number {
  if (a.cluster !== b.cluster) return a.cluster < b.cluster ? -1 : 1;
  if (a.slice === b.slice) return 0;
  return a.slice < b.slice ? -1 : 1;
}

/** The claims on one address, the winner first, and `own` in its place among them. */
function withNew(claims: readonly BackendClaim[], own: BackendClaim): readonly BackendClaim[] {
  const place = claims.findIndex(({ origin }) => compareOrigins(own.origin, origin) < 0);
  return place < 0 ? [...claims, own] : claims.toSpliced(place, 0, own);
}

/** The claims with `own` instead of the one of its origin. */
function withOther(claims: readonly BackendClaim[], own: BackendClaim): readonly BackendClaim[] {
  return claims.map((claim) => (compareOrigins(claim.origin, own.origin) === 0 ? own : claim));
}

/** What one origin offered before and offers now. */
export interface OriginChange {
  readonly origin: Origin;
  readonly before: OfferedBackends;
  readonly after: OfferedBackends;
}

/**
 * Whose `winner` is, the one claim of an address that is not contested, and none of `except`. Asked only when a second
 * claim of an address comes up.
 */
export type HolderLookup = (winner: Backend, except: Origin) => BackendClaim | undefined;

/** What `draft` has become, or `original` when nothing has changed it. */
function finished<T>(
  draft: ImmutableMap<string, T>,
  original: ImmutableMap<string, T>,
): ImmutableMap<string, T> {
  return draft.wasAltered() ? draft.asImmutable() : original;
}

/** None are one object, also where they came from another copy of `immutable`: states are compared by identity. */
function withoutEmpty(backends: Backends): Backends {
  return backends.size === 0 ? NO_BACKENDS : backends;
}

/** The winners of the preferred side, being changed. */
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
    const was = old !== undefined && isOnSide(old, remote) ? old : undefined;
    const is = next !== undefined && isOnSide(next, remote) ? next : undefined;
    if (was?.state === 'active') this.#active--;
    if (is?.state === 'active') this.#active++;
    if (is !== undefined) this.#backends.set(address, is);
    else if (was !== undefined) this.#backends.delete(address);
  }

  finish(): PreferredSide {
    const backends = withoutEmpty(finished(this.#backends, this.#original.backends));
    return { remote: this.#original.remote, backends, active: this.#active };
  }
}

/** The correlation being changed; its maps are mutable until it is done. */
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

  /** This origin offers `backend` now; `isNew` when it has not offered that address before. */
  claim(backend: Backend, isNew: boolean): void {
    const { address } = backend;
    const claims = this.#contested.get(address);
    // The only claim, made anew, needs no look at what it was, but for the side that the service prefers.
    const current = isNew || claims || this.#side ? this.#backends.get(address) : undefined;
    const own: BackendClaim = { origin: this.#change.origin, backend };
    if (claims !== undefined) this.#contest(address, current, (isNew ? withNew : withOther)(claims, own));
    else if (isNew && current !== undefined)
      this.#contest(address, current, withNew([this.#holderOf(current)], own));
    else this.#setWinner(address, current, backend);
  }

  /** This origin offers nothing more at that address. */
  release(address: string): void {
    const claims = this.#contested.get(address);
    const current = this.#side || claims ? this.#backends.get(address) : undefined;
    if (claims !== undefined) {
      const { origin } = this.#change;
      const others = claims.filter((claim) => compareOrigins(claim.origin, origin) !== 0);
      this.#contest(address, current, others);
      return;
    }
    this.#side?.replace(address, current, undefined);
    this.#backends.delete(address);
  }

  finish(): Correlation {
    return {
      backends: withoutEmpty(finished(this.#backends, this.#current.backends)),
      contested: finished(this.#contested, this.#current.contested),
      preferred: this.#side?.finish(),
    };
  }

  /** The one claim of another origin on an uncontested address that this origin has not claimed before. */
  #holderOf(winner: Backend): BackendClaim {
    const holder = this.#findHolder(winner, this.#change.origin);
    assert(holder !== undefined, `no claim on the backend ${winner.address}`);
    return holder;
  }

  /** Keeps the claims of an address, and its winner where it says something new (I3) compared with the `current` one. */
  #contest(address: string, current: Backend | undefined, claims: readonly BackendClaim[]): void {
    const [winner, second] = claims;
    assert(winner !== undefined, `no claim is left on the backend ${address}`);
    if (second === undefined) this.#contested.delete(address);
    else this.#contested.set(address, claims);
    if (current === undefined || !equalBackends(current, winner.backend))
      this.#setWinner(address, current, winner.backend);
  }

  #setWinner(address: string, current: Backend | undefined, winner: Backend): void {
    this.#side?.replace(address, current, winner);
    this.#backends.set(address, winner);
  }
}

/** Whether an offer is an immutable map, so that it can be the backends of the service as it is. */
function isImmutable(offered: OfferedBackends): offered is Backends {
  return isMap(offered);
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
  const alone = current.backends === before && current.contested.size === 0;
  if (alone && current.preferred === undefined && isImmutable(after)) {
    return { backends: withoutEmpty(after), contested: current.contested, preferred: undefined };
  }
  const correlator = new Correlator(current, change, findHolder);
  everyDifference(before, after, (old, next) => {
    if (next !== undefined) correlator.claim(next, old === undefined);
    else if (old !== undefined) correlator.release(old.address);
    return true;
  });
  return correlator.finish();
}
