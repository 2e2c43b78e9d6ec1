import { NFT_TABLE, TUNNEL_DEVICE } from '../kernel-names.ts';
import type { NetlinkSocket } from '../netlink/netlink-socket.ts';
import {
  addChain,
  addTable,
  deleteTable,
  dumpChains,
  dumpRules,
  type FoundExpression,
  matchesExpression,
  NFPROTO,
  type NftChain,
  type NftTable,
  nftBatch,
  readChain,
  readRule,
} from '../nftables/nft-message.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import type { FilterItem } from './path-item.ts';

type NftSocket = Pick<NetlinkSocket, 'dump' | 'transact'> & Disposable;

/** Errors of a kernel without nftables: of the socket, of a write and of a dump. */
const NO_NFTABLES: ReadonlySet<string> = new Set(['EPROTONOSUPPORT', 'EOPNOTSUPP', 'EINVAL']);

const TABLE: NftTable = { family: NFPROTO.netdev, name: NFT_TABLE };
/** `NF_NETDEV_INGRESS` */
const INGRESS = 0;
// Attributes of expressions, numbered as in `linux/netfilter/nf_tables.h`.
const IMMEDIATE = { register: 1, data: 2 } as const;
const META = { key: 2, source: 3 } as const;
const META_PACKET_TYPE = 19;
/** `PACKET_HOST` */
const TO_THIS_HOST = Uint8Array.of(0);
const REGISTER = 1;

/**
 * The chain `meta pkttype set host`. The inner frames that arrive have the hardware address of an interface of the
 * *sender* as the destination, whether Cilium or this project sends them. Without the chain, Linux drops such frames.
 */
const CHAIN: NftChain = {
  name: 'tunnel',
  base: { type: 'filter', hook: INGRESS, priority: 0, device: TUNNEL_DEVICE },
  rules: [
    [
      {
        name: 'immediate',
        registers: { [IMMEDIATE.register]: REGISTER },
        values: { [IMMEDIATE.data]: TO_THIS_HOST },
      },
      { name: 'meta', numbers: { [META.key]: META_PACKET_TYPE }, registers: { [META.source]: REGISTER } },
    ],
  ],
};

/** Returns the filter in the kernel; undefined if there is none, or no nftables. Throws `SyscallError`. */
export function readFilter(open: () => NftSocket): FilterItem | undefined {
  try {
    using socket = open();
    const chains = socket.dump(dumpChains(TABLE), (message) => readChain(message, TABLE));
    if (chains.length === 0) return undefined;
    const rules = socket.dump(dumpRules(TABLE), (message) => readRule(message, TABLE));
    const isWhole = isOurChain(chains) && areOurRules(rules.map(({ expressions }) => expressions));
    return isWhole ? { kind: 'filter' } : { kind: 'filter', defect: 'changed by others' };
  } catch (error) {
    if (error instanceof SyscallError && NO_NFTABLES.has(error.code)) return undefined;
    throw error;
  }
}

function isOurChain([found, ...others]: readonly Omit<NftChain, 'rules'>[]): boolean {
  const [a, b] = [found?.base, CHAIN.base];
  return (
    others.length === 0 &&
    found?.name === CHAIN.name &&
    a?.type === b?.type &&
    a?.hook === b?.hook &&
    a?.priority === b?.priority &&
    a?.device === b?.device
  );
}

function areOurRules(found: readonly (readonly FoundExpression[])[]): boolean {
  const [desired = []] = CHAIN.rules;
  const [rule = [], ...others] = found;
  return (
    others.length === 0 &&
    rule.length === desired.length &&
    desired.every((step, at) => matchesExpression(rule[at], step))
  );
}

/** Writes the filter, also if it exists, or deletes it. The interface must exist. Throws `SyscallError`. */
export function setFilter(open: () => NftSocket, item: FilterItem | undefined): void {
  // The table is added first, because the delete of a missing table fails.
  const requests = [addTable(TABLE), deleteTable(TABLE)];
  if (item !== undefined) requests.push(addTable(TABLE), ...addChain(TABLE, CHAIN));
  try {
    using socket = open();
    const error = socket.transact(nftBatch(requests)).find((one) => one !== undefined);
    if (error !== undefined) throw error;
  } catch (error) {
    if (!(error instanceof SyscallError) || !NO_NFTABLES.has(error.code)) throw error;
    const remedy = 'the kernel has no nftables for interfaces: load the module nf_tables';
    throw new SyscallError(`add filter ${TUNNEL_DEVICE}`, error.errno, remedy);
  }
}
