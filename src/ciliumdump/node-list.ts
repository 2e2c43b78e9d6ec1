import { type Rejection, rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { canonicalAddress, canonicalCIDR } from '../net/prefix.ts';
import { parseOutputJson } from './output-json.ts';

/** A node that an agent knows. */
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

type Dictionary = Readonly<Record<string, unknown>>;

function objectIn(value: unknown, name: string): Dictionary {
  const inner = isObject(value) ? value[name] : undefined;
  return isObject(inner) ? inner : {};
}

function addressIn(value: Dictionary): readonly string[] {
  const ip = value['ip'];
  const address = typeof ip === 'string' ? canonicalAddress(ip) : undefined;
  return address === undefined ? [] : [address];
}

function podCIDRIn(value: Dictionary): readonly string[] {
  const range = value['alloc-range'];
  const cidr = typeof range === 'string' ? canonicalCIDR(range) : undefined;
  return cidr === undefined ? [] : [cidr];
}

/**
 * Reads `node list -o json`, or the `nodes-added` of `GET /v1/cluster/nodes`. Returns undefined if the text is no such
 * list. A node without a name is rejected without affecting the others. Unknown fields and invalid addresses are
 * ignored.
 */
export function readNodeList(
  text: string,
  at: string,
  onReject: (rejection: Rejection) => void,
): readonly ListedNode[] | undefined {
  const json = parseOutputJson(text);
  const list = 'value' in json ? listOf(json.value) : undefined;
  if (list === undefined) {
    const why = 'problem' in json ? json.problem : 'must be a list of nodes';
    onReject(rejection('invalid-json', 'node list', text.slice(0, 64), why, at));
    return undefined;
  }
  return list.flatMap((item, index) => {
    const node = listedNode(item);
    if (node === undefined) onReject(rejection('invalid-node', `[${index}]`, item, 'must have a name', at));
    return node ?? [];
  });
}

function listOf(value: unknown): readonly unknown[] | undefined {
  if (Array.isArray(value)) return value;
  if (value === null) return [];
  const added = isObject(value) ? value['nodes-added'] : undefined;
  return Array.isArray(added) ? added : undefined;
}

function listedNode(item: unknown): ListedNode | undefined {
  const name = isObject(item) ? item['name'] : undefined;
  if (!isObject(item) || typeof name !== 'string' || name === '') return undefined;
  const slash = name.indexOf('/');
  const primary = objectIn(item, 'primary-address');
  const families = [objectIn(primary, 'ipv4'), objectIn(primary, 'ipv6')];
  const secondary = Array.isArray(item['secondary-addresses']) ? item['secondary-addresses'] : [];
  const others = [objectIn(item, 'health-endpoint-address'), objectIn(item, 'ingress-address')];
  const main = families.flatMap(addressIn);
  return {
    cluster: slash < 0 ? '' : name.slice(0, slash),
    name: name.slice(slash + 1),
    source: typeof item['source'] === 'string' ? item['source'] : '',
    primary: main,
    addresses: [
      ...main,
      ...secondary.filter(isObject).flatMap(addressIn),
      ...others.flatMap((one) => [objectIn(one, 'ipv4'), objectIn(one, 'ipv6')].flatMap(addressIn)),
    ],
    podCIDRs: families.flatMap(podCIDRIn),
  };
}
