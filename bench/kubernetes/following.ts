import type { FollowerTask } from './protocol.ts';

/** Follows CiliumEndpoints, services and their slices. */
export interface Following {
  /** Resolves when all that there is has been applied. `onIP` is told the address of each endpoint, as it comes. */
  sync(onIP: (ip: string) => void): Promise<void>;
  /** CiliumEndpoints, services and slices that it has. */
  counts(): readonly [endpoints: number, services: number, slices: number];
}

/** Makes one; each is in a file of its own, so that a process loads no other's code. */
export type Follow = (task: FollowerTask) => Following;

/** What is followed, as an API server of 1.20 has it. */
export const KINDS = {
  endpoints: { group: 'cilium.io', version: 'v2', plural: 'ciliumendpoints' },
  services: { group: '', version: 'v1', plural: 'services' },
  slices: { group: 'discovery.k8s.io', version: 'v1beta1', plural: 'endpointslices' },
} as const;
