import { ENCAP_CHECKSUM, type Encap, equalEncaps } from '../netlink/route.ts';

/** Protocol number of our routes, which distinguishes them from those of others. */
export const ROUTE_PROTOCOL = 201;

/** The tunnel interface, whatever its index. */
export const TUNNEL = 'tunnel';

/** The VXLAN interface. Its key is its name. */
export interface DeviceItem {
  readonly kind: 'device';
  /** `any`: it receives all network identifiers; routes contain those of sent packets. A number is never desired. */
  readonly vni: number | 'any';
  readonly port: number;
  readonly mtu: number;
  /** An unwanted change by others: the interface has another name, or is down. Never set in a desired item. */
  readonly defect?: string | undefined;
}

/** The filter that accepts frames from the tunnel to any hardware address. Its key is the name of the interface. */
export interface FilterItem {
  readonly kind: 'filter';
  /** An unwanted change by others. Never set in a desired item. */
  readonly defect?: string | undefined;
}

/** The next hop to the pod CIDR in the key. */
export interface RouteItem {
  readonly kind: 'route';
  readonly gateway: string | undefined;
  /** The index of an interface, which does not change if the interface is renamed. */
  readonly interface: number | typeof TUNNEL;
  /** The outer header of packets through the tunnel, with the address of the node. */
  readonly encap?: Encap | undefined;
  /**
   * All next hops, if the kernel has joined the IPv6 route with foreign routes of the same metric to a multipath route.
   * Never in a desired item.
   */
  readonly joined?: readonly RouteItem[] | undefined;
}

/** An item in the kernel, needed to reach pods of other nodes. Its kind is the first word of its key. */
export type PathItem = DeviceItem | FilterItem | RouteItem;

/** Order of writes: an item comes before those depending on it. */
const ORDER: Readonly<Record<PathItem['kind'], number>> = {
  device: 0,
  filter: 1,
  route: 2,
};

function isKind(word: string): word is PathItem['kind'] {
  return Object.hasOwn(ORDER, word);
}

/** Returns a key such as `route 10.1.0.0/24`: the kind and the object. */
export function pathKey(kind: PathItem['kind'], name: string): string {
  return `${kind} ${name}`;
}

/** Returns the parts of a {@link pathKey}. */
export function splitKey(key: string): readonly [kind: PathItem['kind'], name: string] {
  const space = key.indexOf(' ');
  const kind = key.slice(0, space);
  if (!isKind(kind)) throw new RangeError(`${key} is not a path key`);
  return [kind, key.slice(space + 1)];
}

export function pathOrder(key: string): number {
  return ORDER[splitKey(key)[0]];
}

/** Returns true if a next hop of `route` has the gateway, the interface and the encapsulation of `hop`. */
function leadsTo(route: RouteItem, hop: RouteItem): boolean {
  return (route.joined ?? [route]).some(
    (one) =>
      one.gateway === hop.gateway && one.interface === hop.interface && equalEncaps(one.encap, hop.encap),
  );
}

/** Returns true if two items of one key are equal. A joined route equals each of its next hops. */
export function equalItems(a: PathItem, b: PathItem): boolean {
  if (a.kind === 'route') return b.kind === 'route' && (leadsTo(a, b) || leadsTo(b, a));
  return printItem(a) === printItem(b);
}

/** Returns an item as text. `nameOf` returns the name of an interface. */
export function printItem(item: PathItem, nameOf: (index: number) => string = String): string {
  switch (item.kind) {
    case 'device':
      return (
        `vxlan vni ${item.vni} port ${item.port} mtu ${item.mtu}` +
        (item.defect === undefined ? '' : ` ${item.defect}`)
      );
    case 'filter':
      return item.defect ?? 'accept frames to any hardware address';
    case 'route': {
      if (item.joined !== undefined) return item.joined.map((one) => printItem(one, nameOf)).join(', ');
      const dev = item.interface === TUNNEL ? TUNNEL : nameOf(item.interface);
      const hop = item.gateway === undefined ? `dev ${dev}` : `via ${item.gateway} dev ${dev}`;
      return item.encap === undefined ? hop : `encap ${printEncap(item.encap)} ${hop}`;
    }
  }
}

function printEncap({ id, source, destination, ttl, tos, flags }: Encap): string {
  const others = [...(ttl === 0 ? [] : [`ttl ${ttl}`]), ...(tos === 0 ? [] : [`tos ${tos}`])];
  const checksum = flags === ENCAP_CHECKSUM ? [] : [`flags ${flags}`];
  return [`id ${id} src ${source} dst ${destination}`, ...others, ...checksum].join(' ');
}
