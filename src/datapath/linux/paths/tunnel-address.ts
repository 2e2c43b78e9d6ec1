import { formatAddress } from '../../../net/format-address.ts';
import { addressBytes, formatMAC, parseMAC } from '../netlink/address-bytes.ts';

// The hardware address of a node in the tunnel is a convention between agents. Each agent computes those of the others
// from their addresses, so no agent has to announce its own.
const MAC_PREFIX_IPV4 = [0x02, 0xdc];
const MAC_PREFIX_IPV6 = [0x02, 0xd6];

const FNV_BASIS = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/**
 * Returns the hardware address of the node with this tunnel address, locally administered: `02:dc` and the four octets
 * of an IPv4 address, or `02:d6` and the FNV-1a hash of an IPv6 address. Among 10,000 nodes with IPv6, the probability
 * that two have the same hardware address is 1 %. One of the two is then overruled.
 */
export function tunnelMAC(address: string): string {
  const octets = addressBytes(address);
  let hash = FNV_BASIS;
  for (const octet of octets) hash = Math.imul(hash ^ octet, FNV_PRIME);
  const hashed = [hash >>> 24, (hash >>> 16) & 255, (hash >>> 8) & 255, hash & 255];
  const all = octets.length === 4 ? [...MAC_PREFIX_IPV4, ...octets] : [...MAC_PREFIX_IPV6, ...hashed];
  return formatMAC(Uint8Array.from(all));
}

/** Returns the link-local address of an interface with this hardware address (RFC 4291, appendix A). */
export function linkLocal(mac: string): string {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = parseMAC(mac);
  const upper = ((a ^ 2) << 24) | (b << 16) | (c << 8) | 0xff;
  const lower = (0xfe << 24) | (d << 16) | (e << 8) | f;
  return formatAddress({ family: 6, w0: 0xfe80 << 16, w1: 0, w2: upper, w3: lower });
}
