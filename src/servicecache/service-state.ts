import { Map as ImmutableMap } from '#immutable';
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
 * All that is known of one service: its inputs, and what follows from them. Immutable; every change makes a new
 * one that shares what is the same.
 *
 *     service ─┬───────────────────────────────────────┐ global? publish not-ready? affinity?
 *     slices  ─┼─► correlation (a winner per address) ─┴─► endpoints (after affinity)
 *     remotes ─┘
 */
export interface ServiceState {
  readonly id: ServiceID;
  /** Its {@link formatServiceID}, made once. */
  readonly key: string;
  /** Undefined while only endpoints or offers of remote clusters are known. */
  readonly service: Service | undefined;
  /** Local endpoints by slice name. */
  readonly slices: ImmutableMap<string, EndpointSlice>;
  /** Offers of remote clusters by cluster name, counted in or not. */
  readonly remotes: ImmutableMap<string, readonly Backend[]>;
  readonly correlation: Correlation;
  readonly endpoints: Endpoints;
  /** Whether listeners know of the service (SEMANTICS 3.3). */
  readonly announced: boolean;
  /** Parts that a checkpoint said and no source has confirmed yet, by {@link partName}. */
  readonly restored: ReadonlySet<string>;
}

const NONE_RESTORED: ReadonlySet<string> = new Set();

/** Names a part of a service: the service itself, a slice, or the offer of a remote cluster. */
export function partName(kind: 'service' | 'slice' | 'offer', name: string = ''): string {
  return kind === 'service' ? kind : `${kind}/${name}`;
}

function withoutPart(restored: ReadonlySet<string>, part: string): ReadonlySet<string> {
  if (!restored.has(part)) return restored;
  const rest = new Set(restored);
  rest.delete(part);
  return rest.size === 0 ? NONE_RESTORED : rest;
}

/** The state with a part that is only restored, or, with `confirmed`, one that its source has said. */
export function withRestored(
  state: ServiceState,
  part: string,
  standing: 'restored' | 'confirmed',
): ServiceState {
  const restored =
    standing === 'restored' ? new Set(state.restored).add(part) : withoutPart(state.restored, part);
  return restored === state.restored ? state : change(state, { restored });
}

/** A service of which nothing is known yet. */
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

/** Whether nothing is known of it any more, so that it need not be kept. */
export function isEmptyState(state: ServiceState): boolean {
  return state.service === undefined && state.slices.size === 0 && state.remotes.size === 0;
}

/** *Ready* (SEMANTICS 3.2): there is a local endpoints object, even an empty one, or at least one backend. */
export function isReady(state: ServiceState): boolean {
  return state.slices.size > 0 || state.correlation.backends.size > 0;
}

/** What a slice offers to this service: also what is not ready, where the service publishes that. */
export function offeredBySlice(slice: EndpointSlice | undefined, service: Service | undefined): Backends {
  if (slice === undefined) return NO_BACKENDS;
  if (service?.publishNotReady !== true || slice.notReady.size === 0) return slice.backends;
  return slice.backends.size === 0 ? slice.notReady : slice.notReady.merge(slice.backends);
}

/** What a slice offers to this service at one address. */
function offeredAt(slice: EndpointSlice, address: string, service: Service | undefined): Backend | undefined {
  const backend = slice.backends.get(address);
  if (backend !== undefined || service?.publishNotReady !== true) return backend;
  return slice.notReady.get(address);
}

/** What a remote cluster offers to this service: nothing unless the service is global. */
function offeredByCluster(
  offered: readonly Backend[] | undefined,
  service: Service | undefined,
): OfferedBackends {
  return service?.global === true ? (offered ?? NO_BACKENDS) : NO_BACKENDS;
}

/** Finds the one other claim of an uncontested address; see {@link applyOriginChange}. */
function holderIn(state: ServiceState): HolderLookup {
  let remote: Origin = { cluster: '', slice: '' };
  return (winner, except) => {
    const { address, cluster } = winner;
    if (cluster !== '') {
      // Most have the same holder: one object for all of them.
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

/** `state` with some parts replaced; always in one shape, as `createBackend`, for the same reason. */
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
 * The endpoints that follow from a correlation: the same object while the same backends are selected. Asks the
 * correlation before, not the endpoints: they may hold an equal map, kept because it is the one that listeners have.
 */
function endpointsOf(state: ServiceState, correlation: Correlation): Endpoints {
  const selected = selectSide(correlation);
  return selected === selectSide(state.correlation) ? state.endpoints : { backends: selected };
}

/** As {@link endpointsOf}, for a correlation that was made anew: compares what the endpoints say. */
function comparedEndpoints(state: ServiceState, correlation: Correlation): Endpoints {
  const endpoints = endpointsOf(state, correlation);
  return equalBackendMaps(endpoints.backends, state.endpoints.backends) ? state.endpoints : endpoints;
}

/** The state with another slice of that name, or without it. Costs what the slice held and holds. */
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

/** The state with another offer of that cluster, or without it. Costs what the offer held and holds. */
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

/** The correlation with the side that the service prefers set apart. */
function steered(correlation: Correlation, service: Service | undefined): Correlation {
  const { backends, contested } = correlation;
  const preference = preferenceOf(service);
  const preferred = preference === undefined ? undefined : preferredSide(backends, preference === 'remote');
  return { backends, contested, preferred };
}

/** Correlates all over again. Costs the whole service; needed when the service changes what counts. */
function correlateAll(state: ServiceState): Correlation {
  let fresh = change(emptyState(state.id), { service: state.service });
  for (const [name, slice] of state.slices) fresh = withSlice(fresh, name, slice);
  for (const [cluster, offered] of state.remotes) fresh = withRemote(fresh, cluster, offered);
  return fresh.correlation;
}

/** The state with another service object, or without it. Recounts only what the change makes necessary. */
export function withService(state: ServiceState, service: Service | undefined): ServiceState {
  const old = state.service;
  const next = change(state, { service, restored: withoutPart(state.restored, partName('service')) });
  const globalChanged = (old?.global ?? false) !== (service?.global ?? false) && state.remotes.size > 0;
  const publishChanged = (old?.publishNotReady ?? false) !== (service?.publishNotReady ?? false);
  const recount = globalChanged || publishChanged;
  if (!recount && preferenceOf(old) === preferenceOf(service)) return next;
  const correlation = steered(recount ? correlateAll(next) : state.correlation, service);
  return change(next, { correlation, endpoints: comparedEndpoints(state, correlation) });
}

/** The state, announced or not. */
export function withAnnounced(state: ServiceState, announced: boolean): ServiceState {
  return announced === state.announced ? state : change(state, { announced });
}

/** The state with what it announces replaced by equal objects, so that they stay the ones that listeners have. */
export function withAnnouncedParts(
  state: ServiceState,
  service: Service,
  endpoints: Endpoints,
): ServiceState {
  return change(state, { service, endpoints });
}
