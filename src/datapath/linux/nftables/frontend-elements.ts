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
const ELEMENTS_A_MESSAGE = 256;

const NONE: ReadonlySet<number> = new Set();

/** Takes the place of a backend whose element another process deleted. */
export const EMPTY_SLOT = '';

/** State in the kernel of a frontend. */
export interface KernelFrontend {
  /** See {@link isAnyPort}. Such a frontend has no backends. */
  readonly isAny: boolean;
  /** Number of backends to select from. 0: connections are refused. `undefined`: no set of frontends contains it. */
  backends: number | undefined;
  readonly slots: string[];
  /** Slot numbers of foreign elements, if too large for `slots`. */
  readonly foreignSlots: number[];
  /** Protocols whose masquerade set or set of cluster IPs contains it. */
  readonly listed: Set<number>;
}

/** Returns the state of a frontend without elements. */
export function emptyFrontend(endpoint: Endpoint): KernelFrontend {
  return { isAny: isAnyPort(endpoint), backends: undefined, slots: [], foreignSlots: [], listed: new Set() };
}

/** Returns the state of a frontend as an item. An incomplete one equals no desired item. */
export function itemOf({ isAny, backends, slots, foreignSlots, listed }: KernelFrontend): ServiceItem {
  const hasAllElements = isAny ? listed.size === PROTOCOLS.length : backends === slots.length;
  const isComplete = hasAllElements && foreignSlots.length === 0;
  const masquerade = !isAny && listed.size > 0;
  return { backends: isComplete ? slots : [EMPTY_SLOT, ...slots], affinitySeconds: 0, masquerade };
}

/** Returns the state of a frontend after `item` was written. */
export function changedFrontend(
  endpoint: Endpoint,
  previous: KernelFrontend | undefined,
  item: ServiceItem,
): KernelFrontend {
  const slots = assignSlots(previous?.slots ?? [], item.backends);
  const isAny = isAnyPort(endpoint);
  const backends = isAny ? undefined : slots.length;
  return { isAny, backends, slots, foreignSlots: [], listed: new Set(listedOf(endpoint, item)) };
}

/**
 * Returns the requests that change the elements of a frontend, in steps. `item` is undefined if the frontend is
 * deleted. Each step must be in one transaction, because it replaces backends, or the frontend itself. New backends are
 * added before the frontend refers to their slots, and surplus ones are deleted last.
 */
export function changeRequests(
  table: NftTable,
  frontend: Endpoint,
  known: KernelFrontend | undefined,
  item: ServiceItem | undefined,
): readonly (readonly NetlinkRequest[])[] {
  const listed = listedRequests(table, frontend, known?.listed ?? NONE, listedOf(frontend, item));
  if (isAnyPort(frontend)) return [listed];
  const before = known?.slots ?? [];
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
    listed,
    frontendRequests(table, frontend, known?.backends, item && after.length),
    ...inSteps([...surplus, ...(known?.foreignSlots ?? [])], remove),
  ];
}

/** Returns the protocols whose masquerade set, or set of cluster IPs, must contain an item. */
function listedOf(endpoint: Endpoint, item: ServiceItem | undefined): readonly number[] {
  if (item === undefined) return [];
  if (isAnyPort(endpoint)) return PROTOCOLS.map(({ number }) => number);
  return item.masquerade === true ? [endpoint.protocol] : [];
}

function listedRequests(
  table: NftTable,
  endpoint: Endpoint,
  previous: ReadonlySet<number>,
  after: readonly number[],
): readonly NetlinkRequest[] {
  const isAny = isAnyPort(endpoint);
  const setOf = (protocol: number): string => (isAny ? SETS.clusterIPs : masqueradeOf(protocol));
  const keyOf = (protocol: number): Uint8Array =>
    isAny ? clusterIPKey(endpoint.ip, protocol) : portKey(endpoint);
  return [
    ...after
      .filter((protocol) => !previous.has(protocol))
      .map((protocol) => addElements(table, setOf(protocol), [{ key: keyOf(protocol) }])),
    ...[...previous]
      .filter((protocol) => !after.includes(protocol))
      .map((protocol) => deleteElements(table, setOf(protocol), [keyOf(protocol)])),
  ];
}

/**
 * Returns the requests that change the number of backends of a frontend from `previous` to `after`. `undefined`: the
 * frontend does not exist. 0: it refuses connections.
 */
function frontendRequests(
  table: NftTable,
  frontend: Endpoint,
  previous: number | undefined,
  after: number | undefined,
): readonly NetlinkRequest[] {
  if (previous === after) return [];
  const key = frontendKey(frontend);
  const setOf = (backends: number): string => (backends === 0 ? SETS.refused : SETS.services);
  const chain = after === undefined || after === 0 ? undefined : pickName(after);
  return [
    ...(previous === undefined ? [] : [deleteElements(table, setOf(previous), [key])]),
    ...(after === undefined ? [] : [addElements(table, setOf(after), [{ key, chain }])]),
  ];
}

/** Returns the steps for all elements, at most {@link ELEMENTS_A_MESSAGE} in each. */
function inSteps<T>(
  all: readonly T[],
  requests: (some: readonly T[]) => readonly NetlinkRequest[],
): readonly (readonly NetlinkRequest[])[] {
  const steps: (readonly NetlinkRequest[])[] = [];
  for (let at = 0; at < all.length; at += ELEMENTS_A_MESSAGE)
    steps.push(requests(all.slice(at, at + ELEMENTS_A_MESSAGE)));
  return steps;
}
