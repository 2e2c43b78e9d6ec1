import { rejection } from '../base/rejection.ts';
import type { Fields } from '../net/fields.ts';
import { fieldsOf, type OutputContext, parseOutputList } from './output-json.ts';

/** A node known to an agent. */
export interface ListedNode {
  readonly cluster: string;
  readonly name: string;
  /** `local` for the node of the agent itself. */
  readonly source: string;
  /** Primary addresses, IPv4 first. */
  readonly primary: readonly string[];
  /** All addresses: primary, secondary, health and ingress. */
  readonly addresses: readonly string[];
  readonly podCIDRs: readonly string[];
}

/**
 * Reads `node list -o json`, or the `nodes-added` of `GET /v1/cluster/nodes`. Returns undefined if the text is no such
 * list. A node without a name is rejected without affecting the others. Unknown fields and invalid addresses are
 * ignored.
 */
export function readNodeList(text: string, context: OutputContext): readonly ListedNode[] | undefined {
  const { at, onReject } = context;
  const list = parseOutputList(text, 'node list', context, 'nodes-added');
  return list?.flatMap((item, index) => {
    const node = listedNode(item);
    if (node === undefined) onReject(rejection('invalid-node', `[${index}]`, item, 'must have a name', at));
    return node ?? [];
  });
}

function listedNode(item: unknown): ListedNode | undefined {
  const node = fieldsOf(item);
  const name = node?.text('name');
  if (node === undefined || name === undefined) return undefined;
  const slash = name.indexOf('/');
  const families = familiesOf(node, 'primary-address');
  const secondary = node.list('secondary-addresses').items((list, index) => list.item(index));
  const primary = families.flatMap((one) => one.address('ip') ?? []);
  const others = [
    ...secondary,
    ...familiesOf(node, 'health-endpoint-address'),
    ...familiesOf(node, 'ingress-address'),
  ];
  return {
    cluster: slash < 0 ? '' : name.slice(0, slash),
    name: name.slice(slash + 1),
    source: node.string('source') ?? '',
    primary,
    addresses: [...primary, ...others.flatMap((one) => one.address('ip') ?? [])],
    podCIDRs: families.flatMap((one) => one.cidr('alloc-range') ?? []),
  };
}

/** Returns the existing IPv4 and IPv6 parts of an address field. */
function familiesOf(node: Fields<undefined>, name: string): readonly Fields<undefined>[] {
  const address = node.object(name);
  return [address?.object('ipv4'), address?.object('ipv6')].filter((family) => family !== undefined);
}
