import type { FollowerTask } from './protocol.ts';

/** Follows CiliumEndpoints, services and their slices. */
export interface Following {
  /** Resolves when all existing objects are applied. `onIP` receives the address of each endpoint as it arrives. */
  sync(onIP: (ip: string) => void): Promise<void>;
  /** Number of CiliumEndpoints, services and slices in it. */
  counts(): readonly [endpoints: number, services: number, slices: number];
}

/** Creates one. Each is in a separate file, so that a process loads only its code. */
export type Follow = (task: FollowerTask) => Following;

/** The followed kinds, as served by an API server of 1.20. */
export const KINDS = {
  endpoints: { group: 'cilium.io', version: 'v2', plural: 'ciliumendpoints' },
  services: { group: '', version: 'v1', plural: 'services' },
  slices: { group: 'discovery.k8s.io', version: 'v1beta1', plural: 'endpointslices' },
} as const;
