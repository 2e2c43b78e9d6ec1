import { RESERVED_IDENTITIES } from '../../model/numeric-identity.ts';
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

/** Our nftables tables: of services in `ip` and `ip6`, of the tunnel in `netdev`. */
export const NFT_TABLE = 'dpcache';

/** The main table, which the kernel uses for packets from every source. */
export const ROUTE_TABLE = 254;
export const TUNNEL_DEVICE = 'dpcache_vxlan';
/** The port that Linux and Cilium use for VXLAN. */
export const TUNNEL_PORT = 8_472;
/**
 * The VNI of sent packets. Cilium reads it as the identity of the sender. If that is `remote-node`, it looks up the
 * identity by the source address (bpf/bpf_overlay.c, `handle_ipv4`).
 */
export const TUNNEL_VNI: number = RESERVED_IDENTITIES['remote-node'];
/**
 * The next hops in the tunnel. No host has these addresses: they stand for the other ends, whose addresses are in the
 * encapsulation of the routes. 192.0.0.8 is the dummy address of IPv4 (RFC 7600).
 */
export const TUNNEL_HOPS = { 4: '192.0.0.8', 6: 'fe80::1' } as const;
