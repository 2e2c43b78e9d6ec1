import type { RejectionStatus } from '../base/rejection.ts';
import type { ServiceState } from './service-state.ts';

/** How much a cache holds. */
export interface ServiceCounts {
  /** Services that are served, announced or not. */
  readonly services: number;
  readonly announced: number;
  /** Effective backends over all announced services. */
  readonly backends: number;
  /** Addresses with more than one claim. */
  readonly contested: number;
  /** Local slices, also for services that are not known here. */
  readonly slices: number;
  /** Offers of remote clusters, also for services that are not known here. */
  readonly remoteServices: number;
  /** Services of which only endpoints or offers of remote clusters are known. */
  readonly unknown: number;
}

/** What the cache holds, in numbers, and what has gone wrong. */
export interface ServiceCacheStatus extends ServiceCounts {
  readonly synced: boolean;
  readonly listeners: number;
  readonly listenerFaults: number;
  readonly rejections: RejectionStatus;
}

/** Counts in one pass over the services. */
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
