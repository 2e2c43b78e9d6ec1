import type { Family } from '../../../net/address-words.ts';
import type { NetlinkRequest, NetlinkSocket } from '../netlink/netlink-socket.ts';
import { baseChains, LAYOUT_CHAIN, pickChain, pickSizeOf, setsOf } from './nft-layout.ts';
import {
  addChain,
  deleteChain,
  dumpChains,
  dumpRules,
  dumpSets,
  type FoundExpression,
  isExpression,
  type NftChain,
  type NftTable,
  readChain,
  readRule,
  readSet,
  replaceRules,
} from './nft-message.ts';

type Rules = readonly (readonly FoundExpression[])[];

/** The structure of a table of services, without the elements of its sets. */
export interface TableStructure {
  /**
   * `none`: the table must be created again because it is missing, has another layout, or lacks a part that cannot be
   * added. `damaged`: rules or chains differ, and can be replaced in place.
   */
  readonly state: 'none' | 'damaged' | 'whole';
  /** The differences as text: `chain output: found 0 rules, expected 1`. */
  readonly defects: readonly string[];
  /** The numbers N of backends for which a chain `pick-N` exists. */
  readonly pickSizes: ReadonlySet<number>;
  /** The requests that repair each defect. */
  readonly repair: readonly (readonly NetlinkRequest[])[];
}

const NONE: TableStructure = { state: 'none', defects: [], pickSizes: new Set(), repair: [] };

/** Reads the sets, chains and rules of a table and compares them with the layout of services. Throws `SyscallError`. */
export function readStructure(socket: NetlinkSocket, table: NftTable, family: Family): TableStructure {
  const chains = new Map(
    socket
      .dump(dumpChains(table), (message) => readChain(message, table))
      .map((chain) => [chain.name, chain] as const),
  );
  if (!chains.has(LAYOUT_CHAIN) || !hasSets(socket, table, family)) return NONE;
  const rules = new Map<string, (readonly FoundExpression[])[]>();
  for (const { chain, expressions } of socket.dump(dumpRules(table), (message) => readRule(message, table)))
    rules.set(chain, [...(rules.get(chain) ?? []), expressions]);
  const defects: string[] = [];
  const repair: (readonly NetlinkRequest[])[] = [];
  const pickSizes = new Set<number>();
  const compare = (desired: NftChain): void => {
    const found = chains.get(desired.name);
    if (found === undefined) {
      defects.push(`chain ${desired.name} is missing`);
      repair.push(addChain(table, desired));
      return;
    }
    const why = rulesDefect(rules.get(desired.name) ?? [], desired);
    if (why === undefined) return;
    defects.push(`chain ${desired.name}: ${why}`);
    repair.push(replaceRules(table, desired));
  };
  for (const desired of baseChains(family)) {
    const found = chains.get(desired.name);
    // The hook of a chain cannot be changed.
    if (found !== undefined && !hasBase(found, desired)) return NONE;
    compare(desired);
  }
  const baseNames = new Set(baseChains(family).map(({ name }) => name));
  for (const name of chains.keys()) {
    if (baseNames.has(name)) continue;
    const backends = pickSizeOf(name);
    if (backends !== undefined && Number.isSafeInteger(backends) && backends > 0) {
      pickSizes.add(backends);
      compare(pickChain(family, backends));
    } else {
      defects.push(`chain ${name} is foreign`);
      repair.push([deleteChain(table, name)]);
    }
  }
  return { state: defects.length === 0 ? 'whole' : 'damaged', defects, pickSizes, repair };
}

/** Returns true if all sets exist with these keys and values. Other sets are ignored. */
function hasSets(socket: NetlinkSocket, table: NftTable, family: Family): boolean {
  const found = new Map(
    socket.dump(dumpSets(table), (message) => readSet(message, table)).map((set) => [set.name, set] as const),
  );
  return setsOf(family).every(({ name, keyType, keyBytes, data }) => {
    const set = found.get(name);
    if (set === undefined || set.keyType !== keyType || set.keyBytes !== keyBytes) return false;
    if (typeof data !== 'object' || typeof set.data !== 'object') return data === set.data;
    return data.type === set.data.type && data.bytes === set.data.bytes;
  });
}

function hasBase(found: Pick<NftChain, 'base'>, desired: Pick<NftChain, 'base'>): boolean {
  const { base: a } = found;
  const { base: b } = desired;
  return a?.type === b?.type && a?.hook === b?.hook && a?.priority === b?.priority;
}

/** Returns the difference of rules from the desired ones as text; undefined if there is none. */
function rulesDefect(found: Rules, { rules }: NftChain): string | undefined {
  if (found.length !== rules.length) return `found ${found.length} rules, expected ${rules.length}`;
  const at = rules.findIndex((desired, index) => {
    const rule = found[index] ?? [];
    return rule.length !== desired.length || !desired.every((each, step) => isExpression(rule[step], each));
  });
  return at < 0 ? undefined : `rule ${at + 1} was changed`;
}
