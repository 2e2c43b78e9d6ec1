import type { Source } from '../model/source.ts';
import type { Backend, EndpointSlice } from './backend.ts';
import type { BackendClaim } from './correlation.ts';
import { compareOrigins, type Origin } from './origin-index.ts';
import type { Service } from './service.ts';
import type { ServiceID } from './service-id.ts';
import { isReady, offeredAt, type ServiceState } from './service-state.ts';

/**
 * The verdict on a claim on a backend. `effective`: used. `merged`: a stronger claim on the address is in another slice
 * of the same cluster; its backend has the ports of this claim, too. `overruled`: a stronger claim on the address is in
 * another cluster (the local cluster, or a smaller name). `not-global`: a remote offer, but the service is not
 * global. `not-ready`: not ready, and the service does not publish such backends. `affinity`: the service prefers other
 * backends. `maintenance`: its weight is 0.
 */
export type BackendVerdict =
  | 'effective'
  | 'merged'
  | 'overruled'
  | 'not-global'
  | 'not-ready'
  | 'affinity'
  | 'maintenance';

/** One claim on a backend with its origin and verdict. */
export interface ExplainedBackend {
  readonly address: string;
  /** `k8s` for slices of the local cluster, `clustermesh` for offers of other clusters. */
  readonly source: Extract<Source, 'k8s' | 'clustermesh'>;
  /** Empty for the local cluster. */
  readonly cluster: string;
  /** Empty for a remote cluster that offers the whole service (`services/v1`). */
  readonly slice: string;
  readonly backend: Backend;
  readonly verdict: BackendVerdict;
}

/** An origin of the service, also if it has no backends. */
export interface ExplainedOrigin extends Origin {
  /** Number of its backends, effective or not. */
  readonly backends: number;
}

/** The state of a service with all claims and verdicts. */
export interface ServiceExplanation {
  readonly id: ServiceID;
  /** Undefined if there is no Service object of that name, or if it is not served (SEMANTICS 3.1). */
  readonly service: Service | undefined;
  readonly ready: boolean;
  readonly announced: boolean;
  /** Strongest first. */
  readonly origins: readonly ExplainedOrigin[];
  /** By address, the strongest claim first. */
  readonly backends: readonly ExplainedBackend[];
}

/** Returns the slice of an origin; undefined if it is a whole offer. */
function sliceOf({ slices, remotes }: ServiceState, { cluster, slice }: Origin): EndpointSlice | undefined {
  return (cluster === '' ? slices : remotes.get(cluster)?.slices)?.get(slice);
}

function verdictOf(state: ServiceState, claim: BackendClaim): BackendVerdict {
  const { origin, backend } = claim;
  if (origin.cluster !== '' && state.service?.global !== true) return 'not-global';
  const slice = sliceOf(state, origin);
  if (slice !== undefined && offeredAt(slice, backend.address, state.service) === undefined)
    return 'not-ready';
  const [winner = claim] = state.correlation.contested.get(backend.address) ?? [];
  if (winner.origin.cluster !== origin.cluster) return 'overruled';
  if (compareOrigins(winner.origin, origin) !== 0) return 'merged';
  if (!state.endpoints.backends.has(backend.address)) return 'affinity';
  return backend.state === 'maintenance' ? 'maintenance' : 'effective';
}

/** Yields all origins with their backends, effective or not. */
function* allOrigins(state: ServiceState): Generator<readonly [Origin, readonly Backend[]]> {
  const all = ({ backends, notReady }: EndpointSlice): readonly Backend[] => [
    ...backends.values(),
    ...notReady.values(),
  ];
  for (const [name, slice] of state.slices) yield [{ cluster: '', slice: name }, all(slice)];
  for (const [cluster, { whole, slices }] of state.remotes) {
    if (whole !== undefined) yield [{ cluster, slice: '' }, whole];
    for (const [name, slice] of slices) yield [{ cluster, slice: name }, all(slice)];
  }
}

/** Yields all claims of all origins, effective or not. */
function* allClaims(state: ServiceState): Generator<BackendClaim> {
  for (const [origin, backends] of allOrigins(state))
    for (const backend of backends) yield { origin, backend };
}

function originsOf(state: ServiceState): readonly ExplainedOrigin[] {
  const origins = Array.from(allOrigins(state), ([origin, { length }]) => ({ ...origin, backends: length }));
  return origins.sort(compareOrigins);
}

function compareClaims(a: BackendClaim, b: BackendClaim): number {
  if (a.backend.address !== b.backend.address) return a.backend.address < b.backend.address ? -1 : 1;
  return compareOrigins(a.origin, b.origin);
}

/** Explains one service. The cost is linear in the whole service; it is meant for people, not for the data path. */
export function explainState(state: ServiceState): ServiceExplanation {
  const claims = [...allClaims(state)].sort(compareClaims);
  return {
    id: state.id,
    service: state.service,
    ready: isReady(state),
    announced: state.announced,
    origins: originsOf(state),
    backends: claims.map((claim) => ({
      address: claim.backend.address,
      source: claim.origin.cluster === '' ? 'k8s' : 'clustermesh',
      cluster: claim.origin.cluster,
      slice: claim.origin.slice,
      backend: claim.backend,
      verdict: verdictOf(state, claim),
    })),
  };
}
