import type { Label, Labels } from '../../identity/labels.ts';
import type { Source } from '../../identity/source.ts';

/**
 * Where labels of prefixes go that several resources may say: they are merged, get an identity, and become a claim in the
 * IPCache. What one resource says of a prefix replaces what it said of it before.
 */
export interface PrefixMetadata {
  /** `prefix` is a CIDR in canonical form, `resource` names who says so: `cnp/shop/allow-office`. */
  upsertMetadata(prefix: string, source: Source, resource: string, labels: Labels): unknown;
  /** The resource says nothing of the prefix any more. */
  removeMetadata(prefix: string, resource: string): unknown;
}

/** Which words mean the world: with both families, each has its own (K 50, 51). */
export type WorldLabels = 'single-stack' | 'dual-stack';

function reserved(key: string): Label {
  return { source: 'reserved', key, value: '' };
}

/**
 * The labels of a CIDR (K 50, as in 1.17): itself and the world; `/0` is the world alone. A label has no `:` in it, and
 * neither begins nor ends with `-`: `fd00::/8` is `fd00--0/8`.
 */
export function cidrLabels(cidr: string, world: WorldLabels): Labels {
  const isIPv6 = cidr.includes(':');
  const worldLabel = reserved(world === 'single-stack' ? 'world' : isIPv6 ? 'world-ipv6' : 'world-ipv4');
  if (cidr.endsWith('/0')) return [worldLabel];
  const [address = '', length = ''] = cidr.split('/');
  const start = address.startsWith(':') ? '0' : '';
  const end = address.endsWith(':') ? '0' : '';
  const key = `${start}${address}${end}/${length}`.replaceAll(':', '-');
  return [{ source: 'cidr', key, value: '' }, worldLabel];
}
