/** The protocol number of our routes, neighbours and rules: it tells them apart from those of others. */
export const OWN_PROTOCOL = 201;

/** The interface of tunnels, whatever its index is. */
export const TUNNEL = 'tunnel';

/** The VXLAN interface. Its key is its name. */
export interface DeviceItem {
  readonly kind: 'device';
  /** The network identifier. */
  readonly vni: number;
  readonly port: number;
  /** The own address under the tunnel. */
  readonly local: string;
  readonly mtu: number;
  readonly mac: string;
  /** What somebody has made of it that it is not to be: another name, or down. Never desired. */
  readonly amiss?: string | undefined;
}

/** Behind which host a hardware address is, which is its key. */
export interface FdbItem {
  readonly kind: 'fdb';
  readonly host: string;
}

/** The hardware address of a next hop in the tunnel, whose address is its key. */
export interface NeighborItem {
  readonly kind: 'neighbor';
  readonly mac: string;
}

/** The next hop to a pod CIDR, which is its key. */
export interface RouteItem {
  readonly kind: 'route';
  readonly gateway: string | undefined;
  /** The index of an interface. An index survives that the interface is renamed. */
  readonly interface: number | typeof TUNNEL;
}

/** Packets from a pod CIDR, which is its key, use the table of our routes. */
export interface RuleItem {
  readonly kind: 'rule';
  readonly priority: number;
}

/** What is kept in the kernel so that pods of other nodes are reached; the kind is also the first word of its key. */
export type PathItem = DeviceItem | FdbItem | NeighborItem | RouteItem | RuleItem;

/** What others need comes first. */
const ORDER: Readonly<Record<PathItem['kind'], number>> = {
  device: 0,
  fdb: 1,
  neighbor: 1,
  route: 2,
  rule: 3,
};

function isKind(word: string): word is PathItem['kind'] {
  return Object.hasOwn(ORDER, word);
}

/** `route 10.1.0.0/24`: the kind, and what it is about. */
export function pathKey(kind: PathItem['kind'], what: string): string {
  return `${kind} ${what}`;
}

/** The parts of a {@link pathKey}. */
export function splitKey(key: string): readonly [kind: PathItem['kind'], what: string] {
  const space = key.indexOf(' ');
  const kind = key.slice(0, space);
  if (!isKind(kind)) throw new RangeError(`${key} is no key of a path`);
  return [kind, key.slice(space + 1)];
}

/** When a key has its turn. */
export function pathOrder(key: string): number {
  return ORDER[splitKey(key)[0]];
}

/** Whether two items under one key are the same. */
export function equalItems(a: PathItem, b: PathItem): boolean {
  if (a.kind === 'route') return b.kind === 'route' && a.gateway === b.gateway && a.interface === b.interface;
  return printItem(a) === printItem(b);
}

/** An item in words; `nameOf` gives the name of an interface. */
export function printItem(item: PathItem, nameOf: (index: number) => string = String): string {
  switch (item.kind) {
    case 'device':
      return (
        `vxlan id ${item.vni} port ${item.port} local ${item.local} mtu ${item.mtu} address ${item.mac}` +
        (item.amiss === undefined ? '' : ` ${item.amiss}`)
      );
    case 'fdb':
      return `dst ${item.host}`;
    case 'neighbor':
      return `lladdr ${item.mac}`;
    case 'rule':
      return `priority ${item.priority}`;
    case 'route': {
      const dev = item.interface === TUNNEL ? TUNNEL : nameOf(item.interface);
      return item.gateway === undefined ? `dev ${dev}` : `via ${item.gateway} dev ${dev}`;
    }
  }
}
