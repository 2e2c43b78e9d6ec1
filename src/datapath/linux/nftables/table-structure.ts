import type { Family } from '../../../net/address-words.ts';
import type { NetlinkRequest, NetlinkSocket } from '../netlink/netlink-socket.ts';
import {
  baseChains,
  FORMER_LAYOUT_CHAIN,
  LAYOUT_CHAIN,
  pickChain,
  pickSizeOf,
  setsOf,
} from './nft-layout.ts';
import {
  addChain,
  addSet,
  deleteChain,
  dumpChains,
  dumpRules,
  dumpSets,
  type FoundExpression,
  isExpression,
  type NftChain,
  type NftSet,
  type NftSteps,
  type NftTable,
  readChain,
  readRule,
  readSet,
  replaceRules,
} from './nft-message.ts';
import { rangeLengthOf, rangeSet, sourceChain } from './source-chains.ts';

type Rules = readonly (readonly FoundExpression[])[];

/** The structure of a table of services, without the elements of its sets. */
export interface TableStructure {
  /**
   * `none`: the table must be created again because it is missing, has another layout, or a set or hook that cannot be
   * changed. `damaged`: rules, chains or sets of ours are missing or differ, and can be repaired in place.
   */
  readonly state: 'none' | 'damaged' | 'whole';
  /** The differences as text: `chain output: found 0 rules, expected 1`. */
  readonly defects: readonly string[];
  /** The chains that frontends refer to, by name. */
  readonly targets: ReadonlySet<string>;
  readonly sets: readonly string[];
  /** The requests that repair each defect of our sets and chains. */
  readonly repair: NftSteps;
  /** The requests that delete the foreign chains. They fail if other parts of the table refer to one of them. */
  readonly removal: NftSteps;
}

const NONE: TableStructure = {
  state: 'none',
  defects: [],
  targets: new Set(),
  sets: [],
  repair: [],
  removal: [],
};

/** Reads the sets, chains and rules of a table and compares them with the layout of services. Throws `SyscallError`. */
export function readStructure(socket: NetlinkSocket, table: NftTable, family: Family): TableStructure {
  const chains = new Map(
    socket
      .dump(dumpChains(table), (message) => readChain(message, table))
      .map((chain) => [chain.name, chain] as const),
  );
  if (!chains.has(LAYOUT_CHAIN) && !chains.has(FORMER_LAYOUT_CHAIN)) return NONE;
  const sets = socket.dump(dumpSets(table), (message) => readSet(message, table));
  if (!sets.every((set) => isDesiredSet(set, family))) return NONE;
  const rules = new Map<string, (readonly FoundExpression[])[]>();
  for (const { chain, expressions } of socket.dump(dumpRules(table), (message) => readRule(message, table)))
    rules.set(chain, [...(rules.get(chain) ?? []), expressions]);
  const defects: string[] = [];
  const repair: (readonly NetlinkRequest[])[] = [];
  const targets = new Set<string>();
  const foreign: string[] = [];
  const names = sets.map(({ name }) => name);
  for (const desired of setsOf(family)) {
    if (names.includes(desired.name)) continue;
    defects.push(`set ${desired.name} is missing`);
    repair.push([addSet(table, desired, repair.length + 1)]);
  }
  const compare = (desired: NftChain): void => {
    if (!chains.has(desired.name)) {
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
    const target = targetChain(family, name);
    if (target === undefined) {
      defects.push(`chain ${name} is foreign`);
      foreign.push(name);
    } else {
      targets.add(name);
      compare(target.chain);
    }
  }
  // Foreign chains may refer to each other.
  const removal = [
    ...foreign.flatMap((name) => replaceRules(table, { name, rules: [] })),
    ...foreign.map((name) => deleteChain(table, name)),
  ];
  return {
    state: repair.length === 0 ? 'whole' : 'damaged',
    defects,
    targets,
    sets: names,
    repair,
    removal: removal.length === 0 ? [] : [removal],
  };
}

/** Returns a chain that frontends refer to, and the sets that only such chains read; `undefined` if it is foreign. */
export function targetChain(
  family: Family,
  name: string,
): { readonly chain: NftChain; readonly sets: readonly NftSet[] } | undefined {
  const backends = pickSizeOf(name);
  if (backends === undefined) return sourceChain(family, name);
  if (!Number.isSafeInteger(backends) || backends <= 0) return undefined;
  return { chain: pickChain(family, backends), sets: [] };
}

/** Returns true if a set has the desired keys and values, or is foreign. */
function isDesiredSet({ name, keyType, keyBytes, data }: NftSet, family: Family): boolean {
  const length = rangeLengthOf(family, name);
  const desired =
    length === undefined ? setsOf(family).find((set) => set.name === name) : rangeSet(family, length);
  if (desired === undefined) return true;
  if (keyType !== desired.keyType || keyBytes !== desired.keyBytes) return false;
  if (typeof data !== 'object' || typeof desired.data !== 'object') return data === desired.data;
  return data.type === desired.data.type && data.bytes === desired.data.bytes;
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
