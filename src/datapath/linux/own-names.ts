import type { IPCacheLayout } from './ipcache-map.ts';

/** Of pins by their layout: the sizes of both are the same, and what stands at which byte is not. A bpf file system takes no dots. */
export const IPCACHE_PINS: Readonly<Record<IPCacheLayout, string>> = {
  '1.17': 'ipcache',
  '1.8': 'ipcache-1_8',
};

/** What is added to the name of a map that is filled beside one of another size. */
export const BESIDE = '_new';

/** Our table of nftables, in each family. */
export const NFT_TABLE = 'dpcache';

/** The main table: pods are reached whatever a packet's source is. */
export const ROUTE_TABLE = 254;
export const TUNNEL_DEVICE = 'dpcache_vxlan';
/** The port that Linux has always had for VXLAN, and Cilium has; the network is ours. */
export const TUNNEL = { vni: 20_201, port: 8_472 } as const;
