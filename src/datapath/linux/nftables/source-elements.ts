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

/** The requests that change the clients of a frontend, in steps as those of `changeRequests`. */
export interface SourceSteps {
  readonly before: NftSteps;
  /** In the transaction that changes the frontend. */
  readonly together: readonly NetlinkRequest[];
  readonly after: NftSteps;
}

/** The clients of a frontend in the kernel. */
type KernelSources = Pick<KernelFrontend, 'sourceChain' | 'ranges'>;

/** Returns the chains that a frontend with ranges needs, also while they are changed. */
export function sourceTargets(
  current: KernelSources | undefined,
  sources: SourceRanges | undefined,
): readonly string[] {
  if (sources === undefined) return [];
  return [sourceChainName(sources), ...(isReversed(current, sources) ? [CLOSED_CHAIN] : [])];
}

/** Returns true if the policy changes. No client is admitted then until the ranges are replaced. */
function isReversed(current: KernelSources | undefined, sources: SourceRanges | undefined): boolean {
  const chain = current?.sourceChain;
  return chain !== undefined && sources !== undefined && policyOf(chain) !== sources.policy;
}

/**
 * Returns the steps from the current clients to `sources`; undefined admits all. Between the steps, a client is
 * admitted only if the current or the new ranges admit it.
 */
export function sourceSteps(
  table: NftTable,
  frontend: Endpoint,
  current: KernelSources,
  sources: SourceRanges | undefined,
): SourceSteps {
  const { sourceChain, ranges } = current;
  const desired = new Set(sources?.ranges);
  const added = rangeSteps(
    frontend,
    [...desired].filter((range) => !ranges.has(range)),
    (set, keys) =>
      addElements(
        table,
        set,
        keys.map((key) => ({ key })),
      ),
  );
  const deleted = rangeSteps(
    frontend,
    [...ranges].filter((range) => !desired.has(range)),
    (set, keys) => deleteElements(table, set, keys),
  );
  const placeOf = (chain: string | undefined): NftPlace | undefined =>
    chain === undefined ? undefined : [SETS.limited, chain];
  const limit = (from: string | undefined, to: string | undefined): readonly NetlinkRequest[] =>
    replaceElement(table, frontendKey(frontend), placeOf(from), placeOf(to));
  const chain = sources && sourceChainName(sources);
  if (isReversed(current, sources))
    return {
      before: [limit(sourceChain, CLOSED_CHAIN), ...deleted, ...added],
      together: limit(CLOSED_CHAIN, chain),
      after: [],
    };
  const together = limit(sourceChain, chain);
  // Ranges without a chain are foreign.
  if (sourceChain === undefined) return { before: [...deleted, ...added], together, after: [] };
  return { before: added, together, after: deleted };
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
