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
import { addElements, deleteElements, type NftTable } from './nft-message.ts';

/**
 * Maximum number of elements in a message, so that a message of IPv6 elements stays below the size limit of netlink.
 */
const ELEMENTS_PER_MESSAGE = 256;

const NONE: ReadonlySet<number> = new Set();

/** Takes the place of a backend whose element another process deleted. */
export const EMPTY_SLOT = '';

/** State in the kernel of a frontend. */
export interface KernelFrontend {
  /** True if it refuses all ports without a service ({@link isAnyPort}). It has no backends. */
  readonly isAny: boolean;
  /** Number of backends to select from. 0: connections are refused. `undefined`: no set of frontends contains it. */
  backends: number | undefined;
  readonly slots: string[];
  /** Slot numbers of `MAX_SLOTS` or more: foreign elements. */
  readonly foreignSlots: number[];
  /** Protocols with which the masquerade sets or `clusterIPs` contain it. */
  readonly listedProtocols: Set<number>;
}

/** Returns the state of a frontend without elements. */
export function emptyFrontend(endpoint: Endpoint): KernelFrontend {
  const isAny = isAnyPort(endpoint);
  return { isAny, backends: undefined, slots: [], foreignSlots: [], listedProtocols: new Set() };
}

/** Returns the state of a frontend as an item. An incomplete one equals no desired item. */
export function itemOf({
  isAny,
  backends,
  slots,
  foreignSlots,
  listedProtocols,
}: KernelFrontend): ServiceItem {
  const hasAllElements = isAny ? listedProtocols.size === PROTOCOLS.length : backends === slots.length;
  const isComplete = hasAllElements && foreignSlots.length === 0;
  const masquerade = !isAny && listedProtocols.size > 0;
  return { backends: isComplete ? slots : [EMPTY_SLOT, ...slots], affinitySeconds: 0, masquerade };
}

/** Returns the state of a frontend after `item` was written over its current state. */
export function changedFrontend(
  endpoint: Endpoint,
  current: KernelFrontend | undefined,
  item: ServiceItem,
): KernelFrontend {
  const slots = assignSlots(current?.slots ?? [], item.backends);
  const isAny = isAnyPort(endpoint);
  const backends = isAny ? undefined : slots.length;
  return { isAny, backends, slots, foreignSlots: [], listedProtocols: new Set(protocolsOf(endpoint, item)) };
}

/**
 * Returns the requests that change a frontend from its current state to `item`, in steps; undefined deletes it. Each
 * step must be in one transaction, because it replaces backends, or the frontend itself. New backends are added before
 * the frontend refers to their slots, and surplus ones are deleted last.
 */
export function changeRequests(
  table: NftTable,
  frontend: Endpoint,
  current: KernelFrontend | undefined,
  item: ServiceItem | undefined,
): readonly (readonly NetlinkRequest[])[] {
  const protocols = protocolsOf(frontend, item);
  const listing = listingRequests(table, frontend, current?.listedProtocols ?? NONE, protocols);
  if (isAnyPort(frontend)) return [listing];
  const before = current?.slots ?? [];
  const after = item ? assignSlots(before, item.backends) : [];
  const isUsed = (slot: number): boolean => (before[slot] ?? EMPTY_SLOT) !== EMPTY_SLOT;
  const added = after.flatMap((backend, slot) => (before[slot] === backend ? [] : [{ backend, slot }]));
  const surplus = [...before.keys()].filter((slot) => slot >= after.length && isUsed(slot));
  const keyOf = (slot: number): Uint8Array => slotKey(frontend, slot);
  const backends = backendsOf(frontend.protocol);
  const remove = (slots: readonly number[]): readonly NetlinkRequest[] =>
    slots.length === 0 ? [] : [deleteElements(table, backends, slots.map(keyOf))];
  return [
    ...inSteps(added, (slots) => [
      ...remove(slots.map(({ slot }) => slot).filter(isUsed)),
      addElements(
        table,
        backends,
        slots.map(({ backend, slot }) => ({ key: keyOf(slot), value: portKey(parseEndpoint(backend)) })),
      ),
    ]),
    listing,
    frontendRequests(table, frontend, current?.backends, item && after.length),
    ...inSteps([...surplus, ...(current?.foreignSlots ?? [])], remove),
  ];
}

/** Returns the protocols with which the masquerade sets or `clusterIPs` must contain an item. */
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

/**
 * Returns the requests that change the number of backends of a frontend. `undefined`: there is no frontend. 0: it
 * refuses connections.
 */
function frontendRequests(
  table: NftTable,
  frontend: Endpoint,
  current: number | undefined,
  desired: number | undefined,
): readonly NetlinkRequest[] {
  if (current === desired) return [];
  const key = frontendKey(frontend);
  const setOf = (backends: number): string => (backends === 0 ? SETS.refused : SETS.services);
  const chain = desired === undefined || desired === 0 ? undefined : pickName(desired);
  return [
    ...(current === undefined ? [] : [deleteElements(table, setOf(current), [key])]),
    ...(desired === undefined ? [] : [addElements(table, setOf(desired), [{ key, chain }])]),
  ];
}

/** Returns the steps for all elements, at most {@link ELEMENTS_PER_MESSAGE} in each. */
function inSteps<T>(
  all: readonly T[],
  requests: (some: readonly T[]) => readonly NetlinkRequest[],
): readonly (readonly NetlinkRequest[])[] {
  const steps: (readonly NetlinkRequest[])[] = [];
  for (let at = 0; at < all.length; at += ELEMENTS_PER_MESSAGE)
    steps.push(requests(all.slice(at, at + ELEMENTS_PER_MESSAGE)));
  return steps;
}
