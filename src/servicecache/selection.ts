import { checkArgument, FUNCTION, OBJECT, objectWith } from '../base/arguments.ts';
import { type Backend, type BackendState, type Backends, filterBackends } from './backend.ts';
import type { FrontendKind } from './frontends.ts';
import type { Service, TrafficPolicy } from './service.ts';

/**
 * The input of a selection: the frontend that received the traffic, the location of the client, and the name and zone
 * of this node.
 */
export interface SelectionContext {
  readonly service: Service;
  /** The internal traffic policy applies to cluster IPs; the external one to all others, for clients outside. */
  readonly frontend: FrontendKind;
  /** Location of the client, default `outside`. The external policy does not apply to clients inside the cluster. */
  readonly client?: 'inside' | 'outside' | undefined;
  /** Name of the local node; empty if unknown. */
  readonly nodeName: string;
  /** The local zone; empty if unknown. */
  readonly zone: string;
}

/** Returns the backends that receive traffic from a node. It must be pure. */
export type BackendSelection = (backends: Backends, context: SelectionContext) => Backends;

function policyOf({ service, frontend, client = 'outside' }: SelectionContext): TrafficPolicy {
  if (frontend === 'cluster-ip') return service.internalTrafficPolicy;
  return client === 'inside' ? 'Cluster' : service.externalTrafficPolicy;
}

function isOnNode(backend: Backend, nodeName: string): boolean {
  return nodeName !== '' && backend.cluster === '' && backend.nodeName === nodeName;
}

function withoutStates(backends: Backends, ...states: readonly BackendState[]): Backends {
  return filterBackends(backends, ({ state }) => !states.includes(state));
}

/** The results of {@link usableBackends}, because each frontend of a service selects from the same backends. */
const usable = new WeakMap<Backends, Backends>();

/** Returns the backends that accept new connections; if there are none, the terminating ones. Omits maintenance. */
function usableBackends(backends: Backends): Backends {
  const known = usable.get(backends);
  if (known !== undefined) return known;
  const serving = withoutStates(backends, 'terminating', 'maintenance');
  const result = serving.size > 0 ? serving : withoutStates(backends, 'maintenance');
  usable.set(backends, result);
  return result;
}

/**
 * Returns the backends whose hints name the zone, if every backend has hints and at least one names it; otherwise all.
 */
function inZone(backends: Backends, zone: string): Backends {
  if (zone === '' || backends.some((backend) => backend.forZones.size === 0)) return backends;
  const hinted = filterBackends(backends, (backend) => backend.forZones.has(zone));
  return hinted.size > 0 ? hinted : backends;
}

const BACKENDS = objectWith({ filter: FUNCTION });
const CONTEXT = objectWith({ service: OBJECT });

/**
 * The default selection, equivalent to kube-proxy. It applies, in this order:
 *
 * 1. **Traffic policy.** `Local`: only backends on the local node; if there are none, traffic is dropped. `Cluster`:
 *    all.
 * 2. **State.** Active backends and published not-ready ones. If there are none, terminating ones. Never backends in
 *    maintenance.
 * 3. **Traffic distribution**, only with policy `Cluster`. `prefer-same-node`: backends on the local node, if any. If
 *    there are none, or with `prefer-close` or `prefer-same-zone`: backends whose topology hints name the local zone.
 *    Hints are used only if every remaining backend has some and at least one names the local zone.
 *
 * A weight has no effect here: a backend with weight 0 is in maintenance, and Cilium uses other weights only for
 * Maglev, which has no counterpart here.
 *
 * It does not balance over zones and ignores a backend's own zone, because the hints already consider zones and load.
 * Service affinity was applied before. Costs one pass over the backends.
 */
export const selectBackends: BackendSelection = (backends, context) => {
  checkArgument('selectBackends: backends', backends, BACKENDS);
  checkArgument('selectBackends: context', context, CONTEXT);
  const { service, nodeName, zone } = context;
  if (policyOf(context) === 'Local') {
    return usableBackends(filterBackends(backends, (backend) => isOnNode(backend, nodeName)));
  }
  const candidates = usableBackends(backends);
  if (service.trafficDistribution === 'none') return candidates;
  if (service.trafficDistribution === 'prefer-same-node') {
    const near = filterBackends(candidates, (backend) => isOnNode(backend, nodeName));
    if (near.size > 0) return near;
  }
  return inZone(candidates, zone);
};
