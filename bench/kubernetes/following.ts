import type { FollowerTask } from './protocol.ts';

/** Follows CiliumEndpoints, services and their slices. */
export interface Following {
  /** Resolves when all existing objects are applied. `onIP` receives the address of each endpoint as it arrives. */
  sync(onIP: (ip: string) => void): Promise<void>;
  /** Returns the number of followed CiliumEndpoints, services and slices. */
  counts(): readonly [endpoints: number, services: number, slices: number];
}

/** Creates a follower. Each follower is in a separate file, so that a process loads only its own code. */
export type Follow = (task: FollowerTask) => Following;

/** The followed kinds, as served by an API server of 1.20. */
export const KINDS = {
  endpoints: { group: 'cilium.io', version: 'v2', plural: 'ciliumendpoints' },
  services: { group: '', version: 'v1', plural: 'services' },
  slices: { group: 'discovery.k8s.io', version: 'v1beta1', plural: 'endpointslices' },
} as const;
