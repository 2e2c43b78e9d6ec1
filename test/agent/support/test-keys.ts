import type { TestKey } from './agent-under-test.ts';

/** The configuration of a cluster, in its own kvstore. */
export const config = (cluster: string, id: number): TestKey => [
  cluster,
  `cilium/cluster-config/${cluster}`,
  { id, capabilities: {} },
];

/** An IP of a pod, in the kvstore of its cluster. */
export const ip = (cluster: string, address: string, identity: number): TestKey => [
  cluster,
  `cilium/state/ip/v1/default/${address}`,
  { IP: address, Mask: null, HostIP: '192.168.0.1', ID: identity, Key: 0, Metadata: '' },
];
