import { prefixLength } from '../netlink/address-bytes.ts';
import type { NetlinkRequest } from '../netlink/netlink-socket.ts';
import type { SourceRanges } from '../services/desired-services.ts';
import type { Endpoint } from '../services/service-layout.ts';
import type { KernelFrontend } from './frontend-elements.ts';
import { frontendKey, SETS } from './nft-layout.ts';
import {
  addElements,
  deleteElements,
  inSteps,
  type NftPlace,
  type NftSteps,
  type NftTable,
  replaceElement,
} from './nft-message.ts';
import { CLOSED_CHAIN, policyOf, rangeKey, rangeSetName, sourceChainName } from './source-chains.ts';

/** The requests that change which clients a frontend admits: before, with and after the change of the frontend. */
export interface SourceSteps {
  readonly before: NftSteps;
  /** Requests for the transaction that changes the frontend. */
  readonly withFrontend: readonly NetlinkRequest[];
  readonly after: NftSteps;
}

type KernelSources = Pick<KernelFrontend, 'sourceChain' | 'ranges'>;

/** Returns the chains that must exist before the steps of {@link sourceSteps}. */
export function neededSourceChains(
  current: KernelSources | undefined,
  sources: SourceRanges | undefined,
): readonly string[] {
  if (sources === undefined) return [];
  return [sourceChainName(sources), ...(isReversed(current, sources) ? [CLOSED_CHAIN] : [])];
}

/** Returns true if `sources` has another policy than the current chain. */
function isReversed(current: KernelSources | undefined, sources: SourceRanges | undefined): boolean {
  const chain = current?.sourceChain;
  return chain !== undefined && sources !== undefined && policyOf(chain) !== sources.policy;
}

/**
 * Returns the steps from the current sources to `sources`; undefined admits all clients. Between the steps, a client is
 * admitted only if the current or the new ranges admit it.
 */
export function sourceSteps(
  table: NftTable,
  frontend: Endpoint,
  current: KernelSources,
  sources: SourceRanges | undefined,
): SourceSteps {
  const { added, deleted } = rangeChanges(table, frontend, current.ranges, new Set(sources?.ranges));
  const from = current.sourceChain;
  const to = sources && sourceChainName(sources);
  // Both policies use the same sets, in which a mixture of ranges could admit a client that both refuse.
  if (isReversed(current, sources))
    return {
      before: [moveToChain(table, frontend, from, CLOSED_CHAIN), ...deleted, ...added],
      withFrontend: moveToChain(table, frontend, CLOSED_CHAIN, to),
      after: [],
    };
  const withFrontend = moveToChain(table, frontend, from, to);
  // Without a chain, no rule uses the current ranges. They are deleted first, because the new chain would use them.
  if (from === undefined) return { before: [...deleted, ...added], withFrontend, after: [] };
  return { before: added, withFrontend, after: deleted };
}

/** Returns the requests that move a frontend between two chains. `undefined`: no chain, which admits all clients. */
function moveToChain(
  table: NftTable,
  frontend: Endpoint,
  from: string | undefined,
  to: string | undefined,
): readonly NetlinkRequest[] {
  const placeOf = (chain: string | undefined): NftPlace | undefined =>
    chain === undefined ? undefined : [SETS.limited, chain];
  return replaceElement(table, frontendKey(frontend), placeOf(from), placeOf(to));
}

/** Returns the steps that add the missing ranges of a frontend, and those that delete the surplus ones. */
function rangeChanges(
  table: NftTable,
  frontend: Endpoint,
  current: ReadonlySet<string>,
  desired: ReadonlySet<string>,
): { readonly added: NftSteps; readonly deleted: NftSteps } {
  const missing = [...desired].filter((range) => !current.has(range));
  const surplus = [...current].filter((range) => !desired.has(range));
  const add = (set: string, keys: readonly Uint8Array[]): NetlinkRequest => {
    const elements = keys.map((key) => ({ key }));
    return addElements(table, set, elements);
  };
  return {
    added: rangeSteps(frontend, missing, add),
    deleted: rangeSteps(frontend, surplus, (set, keys) => deleteElements(table, set, keys)),
  };
}

/** Returns the requests for ranges in steps, one request for each length in a step. */
function rangeSteps(
  frontend: Endpoint,
  ranges: readonly string[],
  request: (set: string, keys: readonly Uint8Array[]) => NetlinkRequest,
): NftSteps {
  return inSteps(ranges, (some) => {
    const keys = new Map<string, Uint8Array[]>();
    for (const range of some) {
      const set = rangeSetName(prefixLength(range));
      const ofLength = keys.get(set);
      const key = rangeKey(frontend, range);
      if (ofLength === undefined) keys.set(set, [key]);
      else ofLength.push(key);
    }
    return [...keys].map(([set, ofLength]) => request(set, ofLength));
  });
}
