import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
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
import { applyOriginChange, type Correlation, correlate, NO_CORRELATION } from './correlation.ts';
import { everyMapDifference } from './map-difference.ts';
import { equalBackendMaps } from './offer-difference.ts';
import type { Origin, OriginChange, Origins } from './origin-index.ts';
import type { Service } from './service.ts';
import { formatServiceID, type ServiceID } from './service-id.ts';

/**
 * The state of one service: its inputs, and the values derived from them. Immutable; a change creates a new state that
 * shares the unchanged parts.
 *
 *     slices, remotes ─► correlation: one winner per address ─► endpoints: the side that the affinity selects
 *
 * The service decides whether `remotes` are used, whether backends that are not ready are used, and which side has
 * preference.
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
  readonly remotes: ImmutableMap<string, Offer>;
  readonly correlation: Correlation;
  readonly endpoints: Endpoints;
  /** True if listeners have received the service (SEMANTICS 3.3). */
  readonly announced: boolean;
  /** The names of parts from a checkpoint that no source has confirmed. */
  readonly restored: ImmutableSet<string>;
}

/**
 * The offer of a remote cluster: either whole, as one value (`services/v1`), or as slices. It has both only while the
 * cluster changes its format, because the old form is withdrawn after the new one is complete.
 */
export interface Offer {
  readonly whole: readonly Backend[] | undefined;
  readonly slices: ImmutableMap<string, EndpointSlice>;
}

/** An empty offer. */
const NO_OFFER: Offer = { whole: undefined, slices: ImmutableMap() };

const NONE_RESTORED: ImmutableSet<string> = ImmutableSet();

/**
 * Returns the name of a part of a service. The parts are the service, a slice of the local cluster (`name`), the whole
 * offer of a remote cluster (`name`), and a slice of a remote cluster (cluster `name`, slice `slice`).
 */
export function partName(
  kind: 'service' | 'slice' | 'offer' | 'remote-slice',
  name: string = '',
  slice: string = '',
): string {
  if (kind === 'service') return kind;
  return kind === 'remote-slice' ? `${kind}/${name}/${slice}` : `${kind}/${name}`;
}

/** Returns the state with a part marked as restored or confirmed. */
export function withPartStatus(
  state: ServiceState,
  part: string,
  status: 'restored' | 'confirmed',
): ServiceState {
  const restored = status === 'restored' ? state.restored.add(part) : state.restored.delete(part);
  return restored === state.restored ? state : withFields(state, { restored });
}

/** Returns the state of an unknown service. `key` is the result of {@link formatServiceID}. */
export function emptyState(id: ServiceID, key: string = formatServiceID(id)): ServiceState {
  return {
    id,
    key,
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

/** Returns true if the service is *ready* (SEMANTICS 3.2): it has a backend, or a local slice, even empty. */
export function isReady(state: ServiceState): boolean {
  return state.slices.size > 0 || state.correlation.backends.size > 0;
}

/** Returns the backends of a slice for this service, with those that are not ready if the service publishes them. */
export function offeredBySlice(slice: EndpointSlice | undefined, service: Service | undefined): Backends {
  if (slice === undefined) return NO_BACKENDS;
  if (service?.publishNotReady !== true || slice.notReady.size === 0) return slice.backends;
  // Shares the structure of `slice.backends`, so that a comparison of both costs only the backends that are not ready.
  return slice.backends.mergeWith((ready) => ready, slice.notReady);
}

/** Returns the backend of a slice for this service at one address. */
export function offeredAt(
  slice: EndpointSlice,
  address: string,
  service: Service | undefined,
): Backend | undefined {
  const backend = slice.backends.get(address);
  if (backend !== undefined || service?.publishNotReady !== true) return backend;
  return slice.notReady.get(address);
}

/** Returns the backends of a remote cluster's whole offer; none unless the service is global. */
function offeredByWhole(
  whole: readonly Backend[] | undefined,
  service: Service | undefined,
): OfferedBackends {
  return service?.global === true ? (whole ?? NO_BACKENDS) : NO_BACKENDS;
}

/** Returns the backends of a remote cluster's slice, like {@link offeredBySlice}; none unless the service is global. */
function offeredByRemoteSlice(slice: EndpointSlice | undefined, service: Service | undefined): Backends {
  return service?.global === true ? offeredBySlice(slice, service) : NO_BACKENDS;
}

/** Yields the origins whose backends are used, with these backends. */
function* usedOrigins({
  service,
  slices,
  remotes,
}: ServiceState): Generator<readonly [Origin, OfferedBackends], void, void> {
  for (const [slice, value] of slices) yield [{ cluster: '', slice }, offeredBySlice(value, service)];
  if (service?.global !== true) return;
  for (const [cluster, offer] of remotes) {
    yield [{ cluster, slice: '' }, offer.whole ?? NO_BACKENDS];
    for (const [slice, value] of offer.slices) yield [{ cluster, slice }, offeredBySlice(value, service)];
  }
}

/** Returns the functions with which an {@link OriginIndex} reads the origins of a state. */
function originsOf(state: ServiceState): Origins {
  const slicesOf = (cluster: string): ServiceState['slices'] =>
    cluster === '' ? state.slices : (state.remotes.get(cluster) ?? NO_OFFER).slices;
  let whole: Origin = { cluster: '', slice: '' };
  return {
    all: () => usedOrigins(state),
    sliceCount: (cluster) => slicesOf(cluster).size,
    search: ({ address, cluster }) => {
      for (const [slice, value] of slicesOf(cluster))
        if (offeredAt(value, address, state.service) !== undefined) return { cluster, slice };
      // Most backends of whole offers have the same origin, so its object is reused.
      if (whole.cluster !== cluster) whole = { cluster, slice: '' };
      return cluster === '' ? undefined : whole;
    },
  };
}

/** Returns `state` with some fields replaced. All states have one hidden class (see `backendOf`). */
function withFields(state: ServiceState, fields: Partial<Omit<ServiceState, 'id' | 'key'>>): ServiceState {
  return {
    id: state.id,
    key: state.key,
    service: 'service' in fields ? fields.service : state.service,
    slices: fields.slices ?? state.slices,
    remotes: fields.remotes ?? state.remotes,
    correlation: fields.correlation ?? state.correlation,
    endpoints: fields.endpoints ?? state.endpoints,
    announced: fields.announced ?? state.announced,
    restored: fields.restored ?? state.restored,
  };
}

/**
 * Returns the endpoints of a correlation; `state.endpoints` if the old correlation selects the same map. Does not
 * compare the map in `state.endpoints`, which may be an equal map of an earlier state ({@link withAnnouncedParts}).
 */
function endpointsOf(state: ServiceState, correlation: Correlation): Endpoints {
  const selected = selectSide(correlation); // the preferred side if it has an active backend, else all
  return selected === selectSide(state.correlation) ? state.endpoints : { backends: selected };
}

/** Like {@link endpointsOf}, but compares the content of the endpoints. */
function comparedEndpoints(state: ServiceState, correlation: Correlation): Endpoints {
  const endpoints = endpointsOf(state, correlation);
  return equalBackendMaps(endpoints.backends, state.endpoints.backends) ? state.endpoints : endpoints;
}

/** Returns the state after a change of one origin. `inputs` has the changed input, whose part name is `part`. */
function withChange(
  state: ServiceState,
  change: OriginChange,
  inputs: Partial<Pick<ServiceState, 'slices' | 'remotes'>>,
  part: string,
): ServiceState {
  const correlation = applyOriginChange(state.correlation, change, originsOf(state));
  const endpoints = endpointsOf(state, correlation);
  const { slices = state.slices, remotes = state.remotes } = inputs;
  const restored = state.restored.delete(part);
  return withFields(state, { slices, remotes, correlation, endpoints, restored });
}

/** Returns `slices` with a slice replaced or deleted. */
function withNamed(
  slices: ServiceState['slices'],
  name: string,
  slice: EndpointSlice | undefined,
): ServiceState['slices'] {
  return slice === undefined ? slices.delete(name) : slices.set(name, slice);
}

/** Returns the state with a slice replaced or removed. Linear in the slice before and after. */
export function withSlice(state: ServiceState, name: string, slice: EndpointSlice | undefined): ServiceState {
  const before = offeredBySlice(state.slices.get(name), state.service);
  const after = offeredBySlice(slice, state.service);
  const change = { origin: { cluster: '', slice: name }, before, after };
  return withChange(state, change, { slices: withNamed(state.slices, name, slice) }, partName('slice', name));
}

/** Returns `remotes` with the offer of a cluster replaced, or deleted if the new offer is empty. */
function withOffer({ remotes }: ServiceState, cluster: string, offer: Offer): ServiceState['remotes'] {
  const isEmpty = offer.whole === undefined && offer.slices.size === 0;
  return isEmpty ? remotes.delete(cluster) : remotes.set(cluster, offer);
}

/** Returns the state with the whole offer of a cluster replaced or removed. Linear in the offer before and after. */
export function withWholeOffer(
  state: ServiceState,
  cluster: string,
  whole: readonly Backend[] | undefined,
): ServiceState {
  const offer = state.remotes.get(cluster) ?? NO_OFFER;
  const before = offeredByWhole(offer.whole, state.service);
  const after = offeredByWhole(whole, state.service);
  const remotes = withOffer(state, cluster, { whole, slices: offer.slices });
  const change = { origin: { cluster, slice: '' }, before, after };
  return withChange(state, change, { remotes }, partName('offer', cluster));
}

/** Returns the state with a slice of a cluster's offer replaced or removed. Linear in the slice before and after. */
export function withRemoteSlice(
  state: ServiceState,
  cluster: string,
  name: string,
  slice: EndpointSlice | undefined,
): ServiceState {
  const { whole, slices } = state.remotes.get(cluster) ?? NO_OFFER;
  const before = offeredByRemoteSlice(slices.get(name), state.service);
  const after = offeredByRemoteSlice(slice, state.service);
  const remotes = withOffer(state, cluster, { whole, slices: withNamed(slices, name, slice) });
  const change = { origin: { cluster, slice: name }, before, after };
  return withChange(state, change, { remotes }, partName('remote-slice', cluster, name));
}

/** Returns the state without the offer of a cluster. Linear in the offer. */
export function withoutCluster(state: ServiceState, cluster: string): ServiceState {
  let next = withWholeOffer(state, cluster, undefined);
  for (const name of state.remotes.get(cluster)?.slices.keys() ?? [])
    next = withRemoteSlice(next, cluster, name, undefined);
  return next;
}

/**
 * Returns the state without the backends on a node of a remote cluster, or of the local one (''). Linear in the slices
 * of the cluster. Backends of its whole offer stay, because their nodes are unknown.
 */
export function withoutNode(state: ServiceState, cluster: string, nodeName: string): ServiceState {
  const isElsewhere = (backend: Backend): boolean => backend.nodeName !== nodeName;
  let next = state;
  for (const [name, slice] of cluster === '' ? state.slices : (state.remotes.get(cluster)?.slices ?? [])) {
    if (slice.backends.every(isElsewhere) && slice.notReady.every(isElsewhere)) continue;
    const { backends, notReady } = slice;
    const rest = { ...slice, backends: backends.filter(isElsewhere), notReady: notReady.filter(isElsewhere) };
    next = cluster === '' ? withSlice(next, name, rest) : withRemoteSlice(next, cluster, name, rest);
  }
  return next;
}

/** Returns the correlation with the side that a service prefers, if it prefers one. */
function withPreferredSide(correlation: Correlation, service: Service | undefined): Correlation {
  const { backends, contested } = correlation;
  const preference = preferenceOf(service);
  const preferred = preference === undefined ? undefined : preferredSide(backends, preference === 'remote');
  return { backends, contested, preferred };
}

type Inputs = Pick<ServiceState, 'slices' | 'remotes'>;

/** Returns the state with its slices and offers replaced one by one by `inputs`. Linear in those that differ. */
function withInputs(state: ServiceState, inputs: Inputs): ServiceState {
  let next = state;
  everyMapDifference(state.slices, inputs.slices, (old, slice) => {
    next = withSlice(next, (slice ?? old)?.name ?? '', slice);
    return true;
  });
  for (const cluster of new Set([...state.remotes.keys(), ...inputs.remotes.keys()])) {
    const before = state.remotes.get(cluster) ?? NO_OFFER;
    const after = inputs.remotes.get(cluster) ?? NO_OFFER;
    if (before.whole !== after.whole) next = withWholeOffer(next, cluster, after.whole);
    everyMapDifference(before.slices, after.slices, (old, slice) => {
      next = withRemoteSlice(next, cluster, (slice ?? old)?.name ?? '', slice);
      return true;
    });
  }
  return next;
}

function withoutNotReady(slices: ServiceState['slices']): ServiceState['slices'] {
  return slices.map((slice) => (slice.notReady.size === 0 ? slice : { ...slice, notReady: NO_BACKENDS }));
}

/** Which of the fields have changed that decide which inputs a service uses. */
interface UseChange {
  readonly globalChanged: boolean;
  readonly publishChanged: boolean;
}

/** Returns the number of backends that a change of the service adds and removes. */
function countChanged(
  { slices, remotes }: ServiceState,
  { globalChanged, publishChanged }: UseChange,
): number {
  const notReadyIn = (some: ServiceState['slices']): number =>
    some.reduce((sum, { notReady }) => sum + notReady.size, 0);
  const readyIn = ({ whole, slices: some }: Offer): number =>
    some.reduce((sum, { backends }) => sum + backends.size, whole?.length ?? 0);
  let changed = publishChanged ? notReadyIn(slices) : 0;
  for (const offer of remotes.values()) {
    if (globalChanged) changed += readyIn(offer);
    if (globalChanged || publishChanged) changed += notReadyIn(offer.slices);
  }
  return changed;
}

/**
 * Returns the state with the service replaced. First removes the inputs that only the old one uses, then adds the new.
 */
function withUsedInputs(
  state: ServiceState,
  service: Service | undefined,
  { globalChanged, publishChanged }: UseChange,
): ServiceState {
  const commonSlices = (slices: Inputs['slices']): Inputs['slices'] =>
    publishChanged ? withoutNotReady(slices) : slices;
  const commonRemotes = globalChanged
    ? state.remotes.clear()
    : state.remotes.map(({ whole, slices }) => ({ whole, slices: commonSlices(slices) }));
  const common = withInputs(state, { slices: commonSlices(state.slices), remotes: commonRemotes });
  return withInputs(withFields(common, { service }), state);
}

/**
 * Returns the state with the service replaced or removed. Linear in the inputs that only one of both services uses. If
 * these are many compared with the others, or if the preference changes, linear in the backends of the new service.
 */
export function withService(state: ServiceState, service: Service | undefined): ServiceState {
  const old = state.service;
  const fields = { service, restored: state.restored.delete(partName('service')) };
  const globalChanged = (old?.global ?? false) !== (service?.global ?? false) && state.remotes.size > 0;
  const publishChanged = (old?.publishNotReady ?? false) !== (service?.publishNotReady ?? false);
  const preferenceChanged = preferenceOf(old) !== preferenceOf(service);
  if (!globalChanged && !publishChanged && !preferenceChanged) return withFields(state, fields);
  const change = { globalChanged, publishChanged };
  const isRebuilt = countChanged(state, change) > state.correlation.backends.size / 2;
  const complete = isRebuilt
    ? correlate(usedOrigins(withFields(state, { service })))
    : withUsedInputs(state, service, change).correlation;
  const correlation = isRebuilt || preferenceChanged ? withPreferredSide(complete, service) : complete;
  return withFields(state, { ...fields, correlation, endpoints: comparedEndpoints(state, correlation) });
}

/** Returns the state with `announced` set. */
export function withAnnounced(state: ServiceState, announced: boolean): ServiceState {
  return announced === state.announced ? state : withFields(state, { announced });
}

/** Returns the state with the objects that listeners have for its service and endpoints, which are equal. */
export function withAnnouncedParts(
  state: ServiceState,
  service: Service,
  endpoints: Endpoints,
): ServiceState {
  return withFields(state, { service, endpoints });
}
