import type { RejectionStatus } from '../base/rejection.ts';
import type { ServiceState } from './service-state.ts';

/** Counts of a service cache. */
export interface ServiceCounts {
  /** Served services, announced or not. */
  readonly services: number;
  readonly announced: number;
  /** Effective backends over all announced services. */
  readonly backends: number;
  /** Addresses with more than one claim. */
  readonly contested: number;
  /** Local slices, also of unknown services. */
  readonly slices: number;
  /** Offers of remote clusters, also for unknown services. */
  readonly remoteServices: number;
  /** Services with endpoints or remote offers but without a service object. */
  readonly unknown: number;
}

/** Counts, faults and rejections of a service cache. */
export interface ServiceCacheStatus extends ServiceCounts {
  readonly synced: boolean;
  readonly listeners: number;
  readonly listenerFaults: number;
  readonly rejections: RejectionStatus;
}

/** Returns the counts, in one pass over the services. */
export function countServices(states: Iterable<ServiceState>): ServiceCounts {
  const count = {
    services: 0,
    announced: 0,
    backends: 0,
    contested: 0,
    slices: 0,
    remoteServices: 0,
    unknown: 0,
  };
  for (const state of states) {
    if (state.service === undefined) count.unknown++;
    else count.services++;
    if (state.announced) {
      count.announced++;
      count.backends += state.endpoints.backends.size;
    }
    count.contested += state.correlation.contested.size;
    count.slices += state.slices.size;
    count.remoteServices += state.remotes.size;
  }
  return count;
}
