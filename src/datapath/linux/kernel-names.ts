import type { IPCacheLayout } from './ipcache-map.ts';

/**
 * Names of pins by layout. With the same name for all layouts, a map of another layout could not be recognized, because
 * two layouts have keys and values of the same sizes, with fields at different offsets. A bpf file system allows no
 * dots in names.
 */
export const IPCACHE_PINS: Readonly<Record<IPCacheLayout, string>> = {
  '1.18': 'ipcache-1_18',
  '1.17': 'ipcache',
  '1.8': 'ipcache-1_8',
};

export const IPCACHE_LAYOUTS: readonly IPCacheLayout[] = ['1.18', '1.17', '1.8'];

/** Our nftables table, in each family. */
export const NFT_TABLE = 'dpcache';

/** The main table, which the kernel uses for packets from every source. */
export const ROUTE_TABLE = 254;
export const TUNNEL_DEVICE = 'dpcache_vxlan';
/** The port that Linux and Cilium use for VXLAN. The VNI is ours. */
export const VXLAN_TUNNEL = { vni: 20_201, port: 8_472 } as const;
