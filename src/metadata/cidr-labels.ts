import type { Label, Labels } from '../identity/labels.ts';

/** Which words mean the world: with both families, each has its own (K 50, 51). */
export type WorldLabels = 'single-stack' | 'dual-stack';

/** A label of a reserved identity. */
export function reservedLabel(key: string): Label {
  return { source: 'reserved', key, value: '' };
}

/** What lies outside of all clusters, in the family of a CIDR. */
export function worldLabel(cidr: string, world: WorldLabels): Label {
  if (world === 'single-stack') return reservedLabel('world');
  return reservedLabel(cidr.includes(':') ? 'world-ipv6' : 'world-ipv4');
}

/**
 * The labels of a CIDR (K 50, as in 1.17): itself and the world; `/0` is the world alone. A label has no `:` in it, and
 * neither begins nor ends with `-`: `fd00::/8` is `fd00--0/8`.
 */
export function cidrLabels(cidr: string, world: WorldLabels): Labels {
  const ofWorld = worldLabel(cidr, world);
  if (cidr.endsWith('/0')) return [ofWorld];
  const [address = '', length = ''] = cidr.split('/');
  const start = address.startsWith(':') ? '0' : '';
  const end = address.endsWith(':') ? '0' : '';
  const key = `${start}${address}${end}/${length}`.replaceAll(':', '-');
  return [{ source: 'cidr', key, value: '' }, ofWorld];
}
