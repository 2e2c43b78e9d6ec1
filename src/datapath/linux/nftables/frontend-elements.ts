import type { NetlinkRequest } from '../netlink/netlink-socket.ts';
import { isAnyPort, type ServiceItem } from '../services/desired-services.ts';
import { assignSlots, type Endpoint, parseEndpoint } from '../services/service-layout.ts';
import {
  backendsOf,
  clusterIPKey,
  frontendKey,
  masqueradeOf,
  PROTOCOLS,
  pickName,
  portKey,
  SETS,
  slotKey,
} from './nft-layout.ts';
import {
  addElements,
  deleteElements,
  inSteps,
  type NftPlace,
  type NftSteps,
  type NftTable,
  replaceElement,
} from './nft-message.ts';
import { policyOf, sourceChainName } from './source-chains.ts';
import { sourceSteps } from './source-elements.ts';

/** Takes the place of a backend whose element another process deleted. */
export const EMPTY_SLOT = '';

/** The elements of a frontend in the kernel. */
export interface KernelFrontend {
  /** True if it refuses all ports without a service ({@link isAnyPort}). It has no backends. */
  readonly isAny: boolean;
  /** Number of backends to select from. 0: connections are refused. `undefined`: no set of frontends contains it. */
  backendCount: number | undefined;
  /** Its backends, by slot. */
  readonly slots: string[];
  /** Elements that we do not write: slots from `MAX_SLOTS` on, other verdicts, and its element in a second set. */
  readonly foreign: { readonly set: string; readonly key: Uint8Array }[];
  /** The protocols of the masquerade sets that contain it; if `isAny`, of its elements in `clusterIPs`. */
  readonly listedProtocols: Set<number>;
  /** The chain that admits clients. `undefined`: all clients are admitted. */
  sourceChain: string | undefined;
  /** The ranges of clients that `sourceChain` finds for it. */
  readonly ranges: Set<string>;
}

/** Returns the state of a frontend without elements. */
export function emptyFrontend(endpoint: Endpoint): KernelFrontend {
  return {
    isAny: isAnyPort(endpoint),
    backendCount: undefined,
    slots: [],
    foreign: [],
    listedProtocols: new Set(),
    sourceChain: undefined,
    ranges: new Set(),
  };
}

/** Returns the state of a frontend as an item. An incomplete one equals no desired item. */
export function itemOf({
  isAny,
  backendCount,
  slots,
  foreign,
  listedProtocols,
  sourceChain,
  ranges,
}: KernelFrontend): ServiceItem {
  const sources =
    sourceChain === undefined ? undefined : { policy: policyOf(sourceChain), ranges: [...ranges] };
  const hasAllRanges = sources === undefined ? ranges.size === 0 : sourceChainName(sources) === sourceChain;
  const hasAllElements = isAny ? listedProtocols.size === PROTOCOLS.length : backendCount === slots.length;
  const isComplete = hasAllElements && hasAllRanges && foreign.length === 0;
  const masquerade = !isAny && listedProtocols.size > 0;
  return { backends: isComplete ? slots : [EMPTY_SLOT, ...slots], affinitySeconds: 0, masquerade, sources };
}

/** Returns the state of a frontend after `item` was written over its current state. */
export function changedFrontend(
  endpoint: Endpoint,
  current: KernelFrontend | undefined,
  item: ServiceItem,
): KernelFrontend {
  const slots = assignSlots(current?.slots ?? [], item.backends);
  const isAny = isAnyPort(endpoint);
  return {
    isAny,
    backendCount: isAny ? undefined : slots.length,
    slots,
    foreign: [],
    listedProtocols: new Set(protocolsOf(endpoint, item)),
    sourceChain: item.sources && sourceChainName(item.sources),
    ranges: new Set(item.sources?.ranges),
  };
}

/**
 * Returns the requests that change a frontend from its current state to `item`, in steps; undefined deletes it. Each
 * step must be in one transaction, because it replaces backends, or the frontend itself. Foreign elements are deleted
 * first, because they may have the key of the frontend. New backends are added before the frontend refers to their
 * slots, and surplus ones are deleted last.
 */
export function changeRequests(
  table: NftTable,
  frontend: Endpoint,
  current: KernelFrontend | undefined,
  item: ServiceItem | undefined,
): NftSteps {
  const state = current ?? emptyFrontend(frontend);
  const listing = listingRequests(table, frontend, state.listedProtocols, protocolsOf(frontend, item));
  const sources = sourceSteps(table, frontend, state, item?.sources);
  const slots = item ? assignSlots(state.slots, item.backends) : [];
  const isUsed = (slot: number): boolean => (state.slots[slot] ?? EMPTY_SLOT) !== EMPTY_SLOT;
  const added = slots.flatMap((backend, slot) => (state.slots[slot] === backend ? [] : [{ backend, slot }]));
  const surplus = [...state.slots.keys()].filter((slot) => slot >= slots.length && isUsed(slot));
  const keyOf = (slot: number): Uint8Array => slotKey(frontend, slot);
  const set = backendsOf(frontend.protocol);
  const count = item === undefined || isAnyPort(frontend) ? undefined : slots.length;
  const remove = (some: readonly number[]): readonly NetlinkRequest[] =>
    some.length === 0 ? [] : [deleteElements(table, set, some.map(keyOf))];
  return [
    ...inSteps(state.foreign, (some) => some.map((one) => deleteElements(table, one.set, [one.key]))),
    ...sources.before,
    ...inSteps(added, (some) => [
      ...remove(some.map(({ slot }) => slot).filter(isUsed)),
      addElements(
        table,
        set,
        some.map(({ backend, slot }) => ({ key: keyOf(slot), value: portKey(parseEndpoint(backend)) })),
      ),
    ]),
    [...listing, ...sources.withFrontend, ...frontendRequests(table, frontend, state.backendCount, count)],
    ...inSteps(surplus, remove),
    ...sources.after,
  ];
}

/** Returns the `listedProtocols` that a frontend must have for an item. */
function protocolsOf(endpoint: Endpoint, item: ServiceItem | undefined): readonly number[] {
  if (item === undefined) return [];
  if (isAnyPort(endpoint)) return PROTOCOLS.map(({ number }) => number);
  return item.masquerade === true ? [endpoint.protocol] : [];
}

/** Returns the requests that change the `listedProtocols` of a frontend. */
function listingRequests(
  table: NftTable,
  endpoint: Endpoint,
  current: ReadonlySet<number>,
  desired: readonly number[],
): readonly NetlinkRequest[] {
  const isAny = isAnyPort(endpoint);
  const setOf = (protocol: number): string => (isAny ? SETS.clusterIPs : masqueradeOf(protocol));
  const keyOf = (protocol: number): Uint8Array =>
    isAny ? clusterIPKey(endpoint.ip, protocol) : portKey(endpoint);
  return [
    ...desired
      .filter((protocol) => !current.has(protocol))
      .map((protocol) => addElements(table, setOf(protocol), [{ key: keyOf(protocol) }])),
    ...[...current]
      .filter((protocol) => !desired.includes(protocol))
      .map((protocol) => deleteElements(table, setOf(protocol), [keyOf(protocol)])),
  ];
}

/** Returns the requests that change the number of backends of a frontend; `undefined`: none; 0: it refuses. */
function frontendRequests(
  table: NftTable,
  frontend: Endpoint,
  current: number | undefined,
  desired: number | undefined,
): readonly NetlinkRequest[] {
  const placeOf = (backends: number | undefined): NftPlace | undefined => {
    if (backends === undefined) return undefined;
    return backends === 0 ? [SETS.refused] : [SETS.services, pickName(backends)];
  };
  return replaceElement(table, frontendKey(frontend), placeOf(current), placeOf(desired));
}
