import { forEachInSteps } from '../base/turn-gate.ts';
import type { Family } from '../net/address-words.ts';
import { protocolName } from '../net/port.ts';
import { canonicalAddress, Prefix } from '../net/prefix.ts';
import type { NodeFields } from '../nodemanager/node-spec.ts';
import type { FrontendKind } from '../servicecache/frontends.ts';
import { formatServiceID } from '../servicecache/service-id.ts';
import type { ReadModel } from './read-model.ts';

/** The role of an IP address in a service or a node. */
export interface AddressRoleDocument {
  readonly kind: 'service' | 'node';
  /** `namespace/name` of the service, `cluster/name` of the node. */
  readonly name: string;
  /**
   * The kind of the address: of a service `cluster-ip`, `external-ip`, `ingress-ip` or `node-port`, of a node
   * `health IP`, `ingress IP`, or a type such as `InternalIP`; `pod-cidr` if the address is only in a pod CIDR of the
   * node.
   */
  readonly as: string;
  /** The ports of a service on this address: `80/TCP`. */
  readonly ports?: readonly string[] | undefined;
  /** One phrase: `cluster IP of shop/checkout (80/TCP)`. */
  readonly text: string;
}

const FRONTEND_TEXTS: Readonly<Record<FrontendKind, string>> = {
  'cluster-ip': 'cluster IP',
  'node-port': 'address of node ports',
  'external-ip': 'external IP',
  'ingress-ip': 'load balancer IP',
};

/** Number of services or nodes read per step: about a millisecond. */
const ITEMS_PER_STEP = 1_024;

/**
 * Appends the services and nodes with this IP (in any spelling) to `roles`, in steps. If the IP has no entry of its
 * own, appends also the nodes with a pod CIDR that contains it. Costs one pass over the nodes, about 0.5 µs each.
 */
export function* addressRoles(
  { ipcache, services, nodes }: Pick<ReadModel, 'ipcache' | 'services' | 'nodes'>,
  ip: string,
  roles: AddressRoleDocument[],
): Generator<void, void, void> {
  yield* addServiceRoles(services, ip, roles);
  const canonical = canonicalAddress(ip);
  const address = Prefix.parse(ip);
  const hasEntry = address !== undefined && ipcache.lookupByPrefix(address.toString()) !== undefined;
  const podCIDRRoles: AddressRoleDocument[] = [];
  yield* forEachInSteps(nodes.nodes(), ITEMS_PER_STEP, ({ fields, fullName: name }) => {
    const as = nodeAddressType(fields, canonical);
    if (as !== undefined) roles.push({ kind: 'node', name, as, text: `${as} of node ${name}` });
    const cidr = hasEntry ? undefined : podCIDROf(fields, address);
    if (cidr !== undefined)
      podCIDRRoles.push({ kind: 'node', name, as: 'pod-cidr', text: `in pod CIDR ${cidr} of node ${name}` });
  });
  for (const role of podCIDRRoles) roles.push(role);
}

/** Appends the services with this IP, each with its ports, in steps. */
function* addServiceRoles(
  services: ReadModel['services'],
  ip: string,
  roles: AddressRoleDocument[],
): Generator<void, void, void> {
  const frontends = new Map<
    string,
    { readonly kind: FrontendKind; readonly name: string; ports: string[] }
  >();
  yield* forEachInSteps(services.lookupAddress(ip), ITEMS_PER_STEP, ({ id, frontend }) => {
    const { kind } = frontend;
    const name = formatServiceID(id);
    const ports: string[] = frontends.get(`${kind} ${name}`)?.ports ?? [];
    ports.push(`${frontend.port}/${protocolName(frontend.protocol)}`);
    frontends.set(`${kind} ${name}`, { kind, name, ports });
  });
  yield* forEachInSteps(frontends.values(), ITEMS_PER_STEP, ({ kind, name, ports }) => {
    const text = `${FRONTEND_TEXTS[kind]} of ${name} (${ports.join(', ')})`;
    roles.push({ kind: 'service', name, as: kind, ports, text });
  });
}

/** Returns the pod CIDR of a node that contains an address; `undefined` if there is none. */
function podCIDROf(fields: NodeFields, address: Prefix | undefined): string | undefined {
  if (address === undefined) return undefined;
  return podCIDRsOf(fields, address.family).find((text) => Prefix.parse(text)?.contains(address));
}

function podCIDRsOf(fields: NodeFields, family: Family): readonly string[] {
  const [first, others] =
    family === 4
      ? [fields.ipv4AllocCIDR, fields.ipv4SecondaryAllocCIDRs]
      : [fields.ipv6AllocCIDR, fields.ipv6SecondaryAllocCIDRs];
  return first === undefined ? others : [first, ...others];
}

/** Returns the type of an address of a node; `undefined` if the node does not have it. */
function nodeAddressType(fields: NodeFields, ip: string | undefined): string | undefined {
  if (ip === undefined) return undefined;
  for (const address of fields.addresses) if (address.ip === ip) return address.type;
  if (ip === fields.ipv4HealthIP || ip === fields.ipv6HealthIP) return 'health IP';
  return ip === fields.ipv4IngressIP || ip === fields.ipv6IngressIP ? 'ingress IP' : undefined;
}
