import { type Check, oneOf } from '../base/arguments.ts';
import type { Label, Labels } from '../model/labels.ts';

/** `single-stack`: one label `world`. `dual-stack`: one label for each address family (KUBERNETES 50, 51). */
export type WorldLabels = 'single-stack' | 'dual-stack';

/** Accepts a {@link WorldLabels}. */
export const WORLD_LABELS: Check = oneOf('single-stack', 'dual-stack');

/** Returns the label of a reserved identity. */
export function reservedLabel(key: string): Label {
  return { source: 'reserved', key, value: '' };
}

/** Returns the key of the world label for the address family of a CIDR, which is also the name of its identity. */
export function worldName(cidr: string, world: WorldLabels): 'world' | 'world-ipv4' | 'world-ipv6' {
  if (world === 'single-stack') return 'world';
  return cidr.includes(':') ? 'world-ipv6' : 'world-ipv4';
}

/** Prefix of labels that only Cilium sets. */
const CILIUM_PREFIX = 'io.cilium.k8s';

/**
 * Returns the labels of the CIDRs of a CiliumCIDRGroup (KUBERNETES 50): the labels of the group and its name, both with
 * source `cidrgroup`, and the world label. As in 1.20, each label of a group is added twice, the second time with its
 * value in its key: if a CIDR is in several groups, only one value of each key is kept.
 */
export function cidrGroupLabels(
  name: string,
  labels: ReadonlyMap<string, string>,
  cidr: string,
  world: WorldLabels,
): Labels {
  const groupLabels = [...labels].filter(([key]) => !key.startsWith(CILIUM_PREFIX));
  return [
    ...groupLabels.flatMap(([key, value]) => [groupLabel(key, value), groupLabel(`${key}+${value}`, '')]),
    groupLabel(`io.cilium.policy.cidrgroupname/${name}`, ''),
    reservedLabel(worldName(cidr, world)),
  ];
}

function groupLabel(key: string, value: string): Label {
  return { source: 'cidrgroup', key, value };
}

/**
 * Returns the labels of a CIDR (KUBERNETES 50, as in 1.17): a `cidr` label and the world label; for `/0` only the world
 * label. Label keys contain no `:` and neither start nor end with `-`, so `fd00::/8` becomes `fd00--0/8`.
 */
export function cidrLabels(cidr: string, world: WorldLabels): Labels {
  const ofWorld = reservedLabel(worldName(cidr, world));
  if (cidr.endsWith('/0')) return [ofWorld];
  const [address = '', length = ''] = cidr.split('/');
  const start = address.startsWith(':') ? '0' : '';
  const end = address.endsWith(':') ? '0' : '';
  const key = `${start}${address}${end}/${length}`.replaceAll(':', '-');
  return [{ source: 'cidr', key, value: '' }, ofWorld];
}
