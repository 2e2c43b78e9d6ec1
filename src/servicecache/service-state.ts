import { Map as ImmutableMap } from 'immutable';
import { preferenceOf, preferredSide, selectSide } from './affinity.ts';
import {
  type Backend,
  type Backends,
  type EndpointSlice,
  type Endpoints,
  NO_BACKENDS,
  NO_ENDPOINTS,
  type OfferedBackends,
} from './backend.ts';
import {
  applyOriginChange,
  type Correlation,
  compareOrigins,
  type HolderLookup,
  NO_CORRELATION,
  type Origin,
} from './correlation.ts';
import { equalBackendMaps } from './offer-difference.ts';
import type { Service } from './service.ts';
import { formatServiceID, type ServiceID } from './service-id.ts';

/**
 * The state of one service: its inputs, and the values derived from them. Immutable; a change creates a new state that shares
 * the unchanged parts.
 *
 *     service ─┬───────────────────────────────────────┐ global? publish not-ready? affinity?
 *     slices  ─┼─► correlation (a winner per address) ─┴─► endpoints (after affinity)
 *     remotes ─┘
 */
export interface ServiceState {
  readonly id: ServiceID;
  /** The result of {@link formatServiceID}. */
  readonly key: string;
  /** Undefined if only endpoints or offers of remote clusters are known. */
  readonly service: Service | undefined;
  /** Local endpoints by slice name. */
  readonly slices: ImmutableMap<string, EndpointSlice>;
  /** Offers of remote clusters by cluster name, used or not. */
  readonly remotes: ImmutableMap<string, readonly Backend[]>;
  readonly correlation: Correlation;
  readonly endpoints: Endpoints;
  /** True if listeners have received the service (SEMANTICS 3.3). */
  readonly announced: boolean;
  /** Parts from a checkpoint that no source has confirmed, by {@link partName}. */
  readonly restored: ReadonlySet<string>;
}

const NONE_RESTORED: ReadonlySet<string> = new Set();

/** Returns the name of a part of a service: the service itself, a slice, or the offer of a remote cluster. */
export function partName(kind: 'service' | 'slice' | 'offer', name: string = ''): string {
  return kind === 'service' ? kind : `${kind}/${name}`;
}

function withoutPart(restored: ReadonlySet<string>, part: string): ReadonlySet<string> {
  if (!restored.has(part)) return restored;
  const rest = new Set(restored);
  rest.delete(part);
  return rest.size === 0 ? NONE_RESTORED : rest;
}

/** Returns the state with a part marked as restored or confirmed. */
export function withRestored(
  state: ServiceState,
  part: string,
  standing: 'restored' | 'confirmed',
): ServiceState {
  const restored =
    standing === 'restored' ? new Set(state.restored).add(part) : withoutPart(state.restored, part);
  return restored === state.restored ? state : change(state, { restored });
}

/** Returns the state of an unknown service. */
export function emptyState(id: ServiceID): ServiceState {
  return {
    id,
    key: formatServiceID(id),
    service: undefined,
    slices: ImmutableMap(),
    remotes: ImmutableMap(),
    correlation: NO_CORRELATION,
    endpoints: NO_ENDPOINTS,
    announced: false,
    restored: NONE_RESTORED,
  };
}

/** Returns true if the state has no input, so that it can be deleted. */
export function isEmptyState(state: ServiceState): boolean {
  return state.service === undefined && state.slices.size === 0 && state.remotes.size === 0;
}

/** Returns true if the service is *ready* (SEMANTICS 3.2): it has a local slice, even an empty one, or at least one backend. */
export function isReady(state: ServiceState): boolean {
  return state.slices.size > 0 || state.correlation.backends.size > 0;
}

/** Returns the backends of a slice for this service, with those that are not ready if the service publishes them. */
export function offeredBySlice(slice: EndpointSlice | undefined, service: Service | undefined): Backends {
  if (slice === undefined) return NO_BACKENDS;
  if (service?.publishNotReady !== true || slice.notReady.size === 0) return slice.backends;
  return slice.backends.size === 0 ? slice.notReady : slice.notReady.merge(slice.backends);
}

/** Returns the backend of a slice for this service at one address. */
function offeredAt(slice: EndpointSlice, address: string, service: Service | undefined): Backend | undefined {
  const backend = slice.backends.get(address);
  if (backend !== undefined || service?.publishNotReady !== true) return backend;
  return slice.notReady.get(address);
}

/** Returns the backends of a remote cluster for this service: none unless the service is global. */
function offeredByCluster(
  offered: readonly Backend[] | undefined,
  service: Service | undefined,
): OfferedBackends {
  return service?.global === true ? (offered ?? NO_BACKENDS) : NO_BACKENDS;
}

/** Returns the lookup of the claim of an uncontested address. See {@link applyOriginChange}. */
function holderIn(state: ServiceState): HolderLookup {
  let remote: Origin = { cluster: '', slice: '' };
  return (winner, except) => {
    const { address, cluster } = winner;
    if (cluster !== '') {
      // Most backends have the same origin, so its object is reused.
      if (remote.cluster !== cluster) remote = { cluster, slice: '' };
      return { origin: remote, backend: winner };
    }
    for (const [slice, value] of state.slices) {
      const origin = { cluster: '', slice };
      if (compareOrigins(origin, except) === 0) continue;
      const backend = offeredAt(value, address, state.service);
      if (backend !== undefined) return { origin, backend };
    }
    return undefined;
  };
}

/** Returns `state` with some fields replaced. All states have one hidden class, for the reason given at `backendOf`. */
function change(state: ServiceState, parts: Partial<Omit<ServiceState, 'id' | 'key'>>): ServiceState {
  return {
    id: state.id,
    key: state.key,
    service: 'service' in parts ? parts.service : state.service,
    slices: parts.slices ?? state.slices,
    remotes: parts.remotes ?? state.remotes,
    correlation: parts.correlation ?? state.correlation,
    endpoints: parts.endpoints ?? state.endpoints,
    announced: parts.announced ?? state.announced,
    restored: parts.restored ?? state.restored,
  };
}

/**
 * Returns the endpoints of a correlation; the same object if the same backends are selected. It compares with the previous
 * correlation instead of the endpoints, because these may hold an equal map that listeners have received.
 */
function endpointsOf(state: ServiceState, correlation: Correlation): Endpoints {
  const selected = selectSide(correlation);
  return selected === selectSide(state.correlation) ? state.endpoints : { backends: selected };
}

/** Like {@link endpointsOf}, for a rebuilt correlation: compares the content of the endpoints. */
function comparedEndpoints(state: ServiceState, correlation: Correlation): Endpoints {
  const endpoints = endpointsOf(state, correlation);
  return equalBackendMaps(endpoints.backends, state.endpoints.backends) ? state.endpoints : endpoints;
}

/** Returns the state with a slice replaced or removed. Linear in the slice before and after. */
export function withSlice(state: ServiceState, name: string, slice: EndpointSlice | undefined): ServiceState {
  const before = offeredBySlice(state.slices.get(name), state.service);
  const after = offeredBySlice(slice, state.service);
  const origin = { cluster: '', slice: name };
  const correlation = applyOriginChange(state.correlation, { origin, before, after }, holderIn(state));
  return change(state, {
    slices: slice === undefined ? state.slices.delete(name) : state.slices.set(name, slice),
    correlation,
    endpoints: endpointsOf(state, correlation),
    restored: withoutPart(state.restored, partName('slice', name)),
  });
}

/** Returns the state with the offer of a cluster replaced or removed. Linear in the offer before and after. */
export function withRemote(
  state: ServiceState,
  cluster: string,
  offered: readonly Backend[] | undefined,
): ServiceState {
  const before = offeredByCluster(state.remotes.get(cluster), state.service);
  const after = offeredByCluster(offered, state.service);
  const origin = { cluster, slice: '' };
  const correlation = applyOriginChange(state.correlation, { origin, before, after }, holderIn(state));
  return change(state, {
    remotes: offered === undefined ? state.remotes.delete(cluster) : state.remotes.set(cluster, offered),
    correlation,
    endpoints: endpointsOf(state, correlation),
    restored: withoutPart(state.restored, partName('offer', cluster)),
  });
}

/** Returns the correlation with the side that the service prefers. */
function withPreferredSide(correlation: Correlation, service: Service | undefined): Correlation {
  const { backends, contested } = correlation;
  const preference = preferenceOf(service);
  const preferred = preference === undefined ? undefined : preferredSide(backends, preference === 'remote');
  return { backends, contested, preferred };
}

/** Rebuilds the correlation. Linear in the whole service; needed if the service changes which origins are used. */
function correlateAll(state: ServiceState): Correlation {
  let fresh = change(emptyState(state.id), { service: state.service });
  for (const [name, slice] of state.slices) fresh = withSlice(fresh, name, slice);
  for (const [cluster, offered] of state.remotes) fresh = withRemote(fresh, cluster, offered);
  return fresh.correlation;
}

/** Returns the state with the service replaced or removed. The correlation is rebuilt only if necessary. */
export function withService(state: ServiceState, service: Service | undefined): ServiceState {
  const old = state.service;
  const next = change(state, { service, restored: withoutPart(state.restored, partName('service')) });
  const globalChanged = (old?.global ?? false) !== (service?.global ?? false) && state.remotes.size > 0;
  const publishChanged = (old?.publishNotReady ?? false) !== (service?.publishNotReady ?? false);
  const rebuild = globalChanged || publishChanged;
  if (!rebuild && preferenceOf(old) === preferenceOf(service)) return next;
  const correlation = withPreferredSide(rebuild ? correlateAll(next) : state.correlation, service);
  return change(next, { correlation, endpoints: comparedEndpoints(state, correlation) });
}

/** Returns the state with `announced` set. */
export function withAnnounced(state: ServiceState, announced: boolean): ServiceState {
  return announced === state.announced ? state : change(state, { announced });
}

/** Returns the state with service and endpoints replaced by equal objects that listeners have received. */
export function withAnnouncedParts(
  state: ServiceState,
  service: Service,
  endpoints: Endpoints,
): ServiceState {
  return change(state, { service, endpoints });
}
