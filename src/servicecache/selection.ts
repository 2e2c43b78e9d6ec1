import type { Backend, Backends } from './backend.ts';
import type { FrontendKind } from './frontends.ts';
import type { Service, TrafficPolicy } from './service.ts';

/** For whom backends are selected: which frontend the traffic came to, and where this node is. */
export interface SelectionContext {
  readonly service: Service;
  /** A cluster IP is governed by the internal traffic policy, everything else by the external one. */
  readonly frontend: FrontendKind;
  /** The own node, `''` when it has no name. */
  readonly nodeName: string;
  /** The own zone, `''` when it is not known. */
  readonly zone: string;
}

/** Which of a service's backends a node sends traffic to. Pure: the same arguments give the same backends. */
export type BackendSelection = (backends: Backends, context: SelectionContext) => Backends;

function policyOf({ service, frontend }: SelectionContext): TrafficPolicy {
  return frontend === 'cluster-ip' ? service.internalTrafficPolicy : service.externalTrafficPolicy;
}

function isOnNode(backend: Backend, nodeName: string): boolean {
  return nodeName !== '' && backend.cluster === '' && backend.nodeName === nodeName;
}

/** Those that take new connections; the terminating ones when there is no other. */
function usable(backends: Backends): Backends {
  const serving = backends.filter((backend) => backend.state !== 'terminating');
  return serving.size > 0 ? serving : backends;
}

/** `preferred` unless it is empty. */
function preferring(preferred: Backends, all: Backends): Backends {
  return preferred.size > 0 ? preferred : all;
}

/** Those whose hints name the zone, provided that every backend has hints and some name it. */
function inZone(backends: Backends, zone: string): Backends {
  if (zone === '' || backends.some((backend) => backend.forZones.size === 0)) return backends;
  return preferring(
    backends.filter((backend) => backend.forZones.has(zone)),
    backends,
  );
}

/**
 * The default selection, as Kubernetes' own proxies do it, in this order:
 *
 * 1. **Traffic policy.** `Local`: only backends on the own node, even if that leaves none: then traffic is to be
 *    dropped. `Cluster`: all.
 * 2. **State.** Backends that are active, or published before they are ready; only where there are none,
 *    terminating ones, which still serve.
 * 3. **Traffic distribution**, only with policy `Cluster`. `prefer-same-node`: those on the own node, if any;
 *    otherwise, and for `prefer-close` and `prefer-same-zone`: those whose topology hints name the own zone. Hints
 *    count only if every backend left has some and one of them names the own zone: else all are used.
 *
 * It does not promise an even spread over zones, does not look at a backend's own zone (the hints are made from
 * it, with the load in mind), and knows nothing of health beyond the state. Service affinity has been applied
 * before. Costs one pass over the backends.
 */
export const selectBackends: BackendSelection = (backends, context) => {
  const { service, nodeName, zone } = context;
  if (policyOf(context) === 'Local') {
    return usable(backends.filter((backend) => isOnNode(backend, nodeName)));
  }
  const candidates = usable(backends);
  if (service.trafficDistribution === 'none') return candidates;
  if (service.trafficDistribution === 'prefer-same-node') {
    const near = candidates.filter((backend) => isOnNode(backend, nodeName));
    if (near.size > 0) return near;
  }
  return inZone(candidates, zone);
};
