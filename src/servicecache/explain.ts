import type { Source } from '../identity/source.ts';
import type { Backend } from './backend.ts';
import { type BackendClaim, compareOrigins, type Origin } from './correlation.ts';
import type { Service } from './service.ts';
import type { ServiceID } from './service-id.ts';
import { isReady, offeredBySlice, type ServiceState } from './service-state.ts';

/**
 * Why a claim on a backend is in or out.
 *
 * In: `effective`. Out: `overruled` (a stronger claim on the address: this cluster's, that of a smaller cluster
 * or slice name), `not-global` (a remote offer for a service that includes none), `not-ready` (and the service
 * does not publish such), `affinity` (the service prefers other clusters' backends).
 */
export type BackendVerdict = 'effective' | 'overruled' | 'not-global' | 'not-ready' | 'affinity';

/** One claim on a backend, from where, and what became of it. */
export interface ExplainedBackend {
  readonly address: string;
  /** Who says so: Kubernetes of its own slices, another cluster of what it offers. */
  readonly source: Extract<Source, 'k8s' | 'clustermesh'>;
  /** `''` is this cluster. */
  readonly cluster: string;
  /** `''` for a remote cluster. */
  readonly slice: string;
  readonly backend: Backend;
  readonly verdict: BackendVerdict;
}

/** A source of the service's backends, even if it names none. */
export interface ExplainedOrigin extends Origin {
  /** How many backends it names, counted in or not. */
  readonly backends: number;
}

/** All that is known of a service, and why it is as it is. */
export interface ServiceExplanation {
  readonly id: ServiceID;
  /** Undefined while no served service of that name is known. */
  readonly service: Service | undefined;
  readonly ready: boolean;
  readonly announced: boolean;
  /** The strongest first. */
  readonly origins: readonly ExplainedOrigin[];
  /** By address, the strongest claim first. */
  readonly backends: readonly ExplainedBackend[];
}

function verdictOf(state: ServiceState, claim: BackendClaim): BackendVerdict {
  const { origin, backend } = claim;
  if (origin.cluster !== '' && state.service?.global !== true) return 'not-global';
  if (origin.cluster === '') {
    const offered = offeredBySlice(state.slices.get(origin.slice), state.service);
    if (!offered.has(backend.address)) return 'not-ready';
  }
  const [winner] = state.correlation.contested.get(backend.address) ?? [claim];
  if (winner !== undefined && compareOrigins(winner.origin, origin) !== 0) return 'overruled';
  return state.endpoints.backends.has(backend.address) ? 'effective' : 'affinity';
}

/** Every claim of every origin, counted in or not. */
function* allClaims(state: ServiceState): Generator<BackendClaim> {
  for (const [slice, { backends, notReady }] of state.slices) {
    const origin: Origin = { cluster: '', slice };
    for (const backend of backends.values()) yield { origin, backend };
    for (const backend of notReady.values()) yield { origin, backend };
  }
  for (const [cluster, offered] of state.remotes) {
    const origin: Origin = { cluster, slice: '' };
    for (const backend of offered) yield { origin, backend };
  }
}

function originsOf(state: ServiceState): readonly ExplainedOrigin[] {
  const origins: ExplainedOrigin[] = [];
  for (const [slice, { backends, notReady }] of state.slices) {
    origins.push({ cluster: '', slice, backends: backends.size + notReady.size });
  }
  for (const [cluster, offered] of state.remotes) {
    origins.push({ cluster, slice: '', backends: offered.length });
  }
  return origins.sort(compareOrigins);
}

function compareClaims(a: BackendClaim, b: BackendClaim): number {
  if (a.backend.address !== b.backend.address) return a.backend.address < b.backend.address ? -1 : 1;
  return compareOrigins(a.origin, b.origin);
}

/** Explains one service. Costs the whole service: for people, not for the data path. */
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
