import { NLM_F } from '../netlink/message-writer.ts';
import { type Neighbor, RTM_NEIGHBOR, writeNeighbor } from '../netlink/neighbor.ts';
import type { NetlinkRequest } from '../netlink/netlink-socket.ts';
import { type PathItem, ROUTE_PROTOCOL, splitKey } from './path-item.ts';
import type { LenientRequest } from './route-ledger.ts';

/**
 * Returns a request that adds or replaces the neighbour or FDB entry of a key. If `item` is undefined, the request
 * deletes the known entry.
 */
export function neighborRequest(
  key: string,
  item: PathItem | undefined,
  known: PathItem | undefined,
  index: number,
): LenientRequest {
  const [kind, name] = splitKey(key);
  const entry = item ?? known;
  const neighbor: Neighbor =
    kind === 'fdb'
      ? {
          kind,
          interface: index,
          address: entry?.kind === 'fdb' ? entry.host : undefined,
          mac: name,
          permanent: true,
          protocol: 0,
        }
      : {
          kind: 'neighbor',
          interface: index,
          address: name,
          permanent: true,
          protocol: ROUTE_PROTOCOL,
          mac: entry?.kind === 'neighbor' ? entry.mac : undefined,
        };
  const write: NetlinkRequest['write'] = (writer) => writeNeighbor(writer, neighbor);
  return item === undefined
    ? {
        operation: `delete ${key}`,
        type: RTM_NEIGHBOR.delete,
        flags: 0,
        write,
        needless: ['ENOENT', 'ESRCH'],
      }
    : {
        operation: `add ${key}`,
        type: RTM_NEIGHBOR.add,
        flags: NLM_F.create | NLM_F.replace,
        write,
        needless: [],
      };
}
