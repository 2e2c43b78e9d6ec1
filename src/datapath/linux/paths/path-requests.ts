import { NLM_F } from '../netlink/message-writer.ts';
import { type Neighbor, RTM_NEIGHBOR, writeNeighbor } from '../netlink/neighbor.ts';
import type { NetlinkRequest } from '../netlink/netlink-socket.ts';
import { RTM_RULE, type Rule, writeRule } from '../netlink/rule.ts';
import { OWN_PROTOCOL, type PathItem, splitKey } from './path-item.ts';
import type { LenientRequest } from './route-ledger.ts';

/**
 * Returns a request that adds or replaces the neighbour or FDB entry of a key, or that deletes the known one if there is no
 * item.
 */
export function neighborRequest(
  key: string,
  item: PathItem | undefined,
  known: PathItem | undefined,
  index: number,
): LenientRequest {
  const [kind, name] = splitKey(key);
  const of = item ?? known;
  const neighbor: Neighbor =
    kind === 'fdb'
      ? {
          kind,
          interface: index,
          address: of?.kind === 'fdb' ? of.host : undefined,
          mac: name,
          permanent: true,
          protocol: 0,
        }
      : {
          kind: 'neighbor',
          interface: index,
          address: name,
          permanent: true,
          protocol: OWN_PROTOCOL,
          mac: of?.kind === 'neighbor' ? of.mac : undefined,
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

/** Returns a request that adds the rule of a key, or that deletes the known one if there is no item. */
export function ruleRequest(
  key: string,
  item: PathItem | undefined,
  known: PathItem | undefined,
  table: number,
): LenientRequest {
  const [, source] = splitKey(key);
  const of = item ?? known;
  const priority = of?.kind === 'rule' ? of.priority : 0;
  const rule: Rule = { source, table, priority, protocol: OWN_PROTOCOL };
  const write: NetlinkRequest['write'] = (writer) => writeRule(writer, rule);
  return item === undefined
    ? { operation: `delete ${key}`, type: RTM_RULE.delete, flags: 0, write, needless: ['ENOENT'] }
    : {
        operation: `add ${key}`,
        type: RTM_RULE.add,
        flags: NLM_F.create | NLM_F.exclusive,
        write,
        needless: [],
      };
}
