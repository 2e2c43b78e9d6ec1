import { NLM_F } from '../netlink/message-writer.ts';
import { type Neighbor, RTM_NEIGHBOR, writeNeighbor } from '../netlink/neighbor.ts';
import type { NetlinkRequest } from '../netlink/netlink-socket.ts';
import { type PathItem, ROUTE_PROTOCOL, splitKey } from './path-item.ts';
import type { LenientRequest } from './route-ledger.ts';

/** Returns a request that writes the neighbour or FDB entry of a key, or deletes the known one without `item`. */
export function neighborRequest(
  key: string,
  item: PathItem | undefined,
  known: PathItem | undefined,
  index: number,
): LenientRequest {
  const [kind, name] = splitKey(key);
  const entry = item ?? known;
  const common = { interface: index, permanent: true };
  const host = entry?.kind === 'fdb' ? entry.host : undefined;
  const mac = entry?.kind === 'neighbor' ? entry.mac : undefined;
  const neighbor: Neighbor =
    kind === 'fdb'
      ? { kind, address: host, mac: name, protocol: 0, ...common }
      : { kind: 'neighbor', address: name, mac, protocol: ROUTE_PROTOCOL, ...common };
  const write: NetlinkRequest['write'] = (writer) => writeNeighbor(writer, neighbor);
  const flags = NLM_F.create | NLM_F.replace;
  return item === undefined
    ? {
        operation: `delete ${key}`,
        type: RTM_NEIGHBOR.delete,
        flags: 0,
        write,
        ignoredErrors: ['ENOENT', 'ESRCH'],
      }
    : { operation: `add ${key}`, type: RTM_NEIGHBOR.add, flags, write, ignoredErrors: [] };
}
