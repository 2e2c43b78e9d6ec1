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
  matchesExpression,
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
   * `unusable`: the table must be created again because it is missing, has another layout, or a set or hook that cannot
   * be changed. `damaged`: rules, chains or sets of ours are missing or differ, and can be repaired in place.
   */
  readonly state: 'unusable' | 'damaged' | 'whole';
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

const UNUSABLE: TableStructure = {
  state: 'unusable',
  defects: [],
  targets: new Set(),
  sets: [],
  repair: [],
  removal: [],
};

type FoundChains = ReadonlyMap<string, Omit<NftChain, 'rules'>>;

/** Reads the sets, chains and rules of a table and compares them with the layout of services. Throws `SyscallError`. */
export function readStructure(socket: NetlinkSocket, table: NftTable, family: Family): TableStructure {
  const chains: FoundChains = new Map(
    socket
      .dump(dumpChains(table), (message) => readChain(message, table))
      .map((chain) => [chain.name, chain] as const),
  );
  if (!hasLayout(chains, family)) return UNUSABLE;
  const sets = socket.dump(dumpSets(table), (message) => readSet(message, table));
  if (!sets.every((set) => isDesiredSet(set, family))) return UNUSABLE;
  const setNames = sets.map(({ name }) => name);
  const missingSets = setsOf(family).filter(({ name }) => !setNames.includes(name));
  const bases = baseChains(family);
  const baseNames = new Set(bases.map(({ name }) => name));
  const others = [...chains.keys()].filter((name) => !baseNames.has(name));
  const targets = others.flatMap((name) => targetChain(family, name)?.chain ?? []);
  const targetNames = new Set(targets.map(({ name }) => name));
  const foreign = others.filter((name) => !targetNames.has(name));
  const rules = readRules(socket, table);
  const broken = [...bases, ...targets].flatMap((desired) => {
    const defect = chains.has(desired.name)
      ? rulesDefect(rules.get(desired.name) ?? [], desired)
      : `chain ${desired.name} is missing`;
    return defect === undefined ? [] : [{ desired, defect }];
  });
  const repair = [
    ...missingSets.map((set, at) => [addSet(table, set, at + 1)]),
    ...broken.map(({ desired }) =>
      chains.has(desired.name) ? replaceRules(table, desired) : addChain(table, desired),
    ),
  ];
  return {
    state: repair.length === 0 ? 'whole' : 'damaged',
    defects: [
      ...missingSets.map(({ name }) => `set ${name} is missing`),
      ...broken.map(({ defect }) => defect),
      ...foreign.map((name) => `chain ${name} is foreign`),
    ],
    targets: targetNames,
    sets: setNames,
    repair,
    removal: foreign.length === 0 ? [] : [removal(table, foreign)],
  };
}

/** Returns true if the chains are those of our layout. The hook of a chain cannot be changed. */
function hasLayout(chains: FoundChains, family: Family): boolean {
  if (!chains.has(LAYOUT_CHAIN) && !chains.has(FORMER_LAYOUT_CHAIN)) return false;
  return baseChains(family).every((desired) => {
    const found = chains.get(desired.name);
    return found === undefined || sameBase(found, desired);
  });
}

function readRules(socket: NetlinkSocket, table: NftTable): ReadonlyMap<string, Rules> {
  const rules = new Map<string, (readonly FoundExpression[])[]>();
  for (const { chain, expressions } of socket.dump(dumpRules(table), (message) => readRule(message, table))) {
    const ofChain = rules.get(chain);
    if (ofChain === undefined) rules.set(chain, [expressions]);
    else ofChain.push(expressions);
  }
  return rules;
}

/** Returns the requests that delete foreign chains, and first their rules, which may refer to other such chains. */
function removal(table: NftTable, foreign: readonly string[]): readonly NetlinkRequest[] {
  return [
    ...foreign.flatMap((name) => replaceRules(table, { name, rules: [] })),
    ...foreign.map((name) => deleteChain(table, name)),
  ];
}

/**
 * Returns the chain of this name, to which frontends refer, and the sets that it reads besides those of {@link setsOf}.
 * Returns `undefined` if the chain is foreign.
 */
export function targetChain(
  family: Family,
  name: string,
): { readonly chain: NftChain; readonly sets: readonly NftSet[] } | undefined {
  const backends = pickSizeOf(name);
  return backends === undefined
    ? sourceChain(family, name)
    : { chain: pickChain(family, backends), sets: [] };
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

function sameBase(found: Pick<NftChain, 'base'>, desired: Pick<NftChain, 'base'>): boolean {
  const { base: a } = found;
  const { base: b } = desired;
  return a?.type === b?.type && a?.hook === b?.hook && a?.priority === b?.priority;
}

/** Returns the difference of a chain's rules from the desired ones as text; undefined if there is none. */
function rulesDefect(found: Rules, { name, rules }: NftChain): string | undefined {
  if (found.length !== rules.length)
    return `chain ${name}: found ${found.length} rules, expected ${rules.length}`;
  const at = rules.findIndex((desired, index) => {
    const rule = found[index] ?? [];
    return (
      rule.length !== desired.length || !desired.every((each, step) => matchesExpression(rule[step], each))
    );
  });
  return at < 0 ? undefined : `chain ${name}: rule ${at + 1} was changed`;
}
