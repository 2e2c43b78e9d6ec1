import { addressBits, type Family } from '../../../net/address-words.ts';
import { protocolNumber } from '../../../net/port.ts';
import { formatFrontend } from '../../../servicecache/frontends.ts';
import type { MapShape } from '../bpf/info.ts';
import { readAddressAt } from '../netlink/address-bytes.ts';

export const FAMILIES: readonly Family[] = [4, 6];

/**
 * The maps of one family, by their names in the programs:
 * - `services`: frontends, and slots that refer to their backends
 * - `backends`: addresses of backends, by number
 * - `members`: the backends of frontends with session affinity
 * - `clients`: the backend of each client of such a frontend
 * - `peers`, `datagrams`: the frontend that a TCP or UDP socket uses, by socket and backend
 */
export const SERVICE_MAPS = ['services', 'backends', 'members', 'clients', 'peers', 'datagrams'] as const;

export type ServiceMapName = (typeof SERVICE_MAPS)[number];

export interface ServiceCapacity {
  /** Maximum number of frontends and slots together. */
  readonly slots: number;
  readonly backends: number;
  /** Clients that stay with their backend. The oldest are dropped. */
  readonly clients: number;
}

/**
 * Returns the capacity for a number of backends, with five times as many slots. The default has room for 10,000
 * services of 10 distinct backends each, with five frontends: 100,000 backends and 10,000 × 5 × (10 + 1) = 550,000
 * slots.
 */
export function serviceCapacity(backends = 131_072): ServiceCapacity {
  return { slots: 5 * backends, backends, clients: Math.ceil(backends / 2) };
}

/** Flag of a frontend with session affinity (`SVC_FLAG_AFFINITY`). */
export const AFFINITY_FLAG = 0x10;

/** Slots are 16-bit numbers, and 0 is the frontend. */
export const MAX_BACKENDS_OF_FRONTEND = 65_535;

/** Returns the shapes of the maps of a family. Those of services and backends are as in Cilium 1.17. */
export function serviceMapShapes(
  family: Family,
  capacity: ServiceCapacity,
): Readonly<Record<ServiceMapName, MapShape>> {
  const address = addressBits(family) / 8;
  const { slots, backends, clients } = capacity;
  const perClient = { type: 'lruHash', keySize: family === 4 ? 24 : 32, maxEntries: clients } as const;
  return {
    services: { type: 'hash', keySize: address + 8, valueSize: 12, maxEntries: slots },
    backends: { type: 'hash', keySize: 4, valueSize: address + 8, maxEntries: backends },
    members: { type: 'hash', keySize: address + 8, valueSize: 4, maxEntries: slots },
    clients: { ...perClient, valueSize: 16 },
    peers: { ...perClient, valueSize: address + 4 },
    datagrams: { ...perClient, valueSize: address + 4 },
  };
}

const FRONTEND = /^(?:\[(.+)\]|([^[\]]+)):(\d+)\/(\w+)$/;

/** An address, port and protocol. */
export interface Endpoint {
  readonly ip: string;
  readonly port: number;
  readonly protocol: number;
}

/** Parses the output of `formatFrontend`. Throws `RangeError` for other text. */
export function parseEndpoint(text: string): Endpoint {
  const [, ipv6, ipv4, port, protocol = ''] = FRONTEND.exec(text) ?? [];
  const ip = ipv6 ?? ipv4;
  if (ip === undefined) throw new RangeError(`${text} is not a frontend`);
  return { ip, port: Number(port), protocol: protocolNumber(protocol) ?? Number(protocol) };
}

/**
 * Returns the text of a protocol and the address and port at `at`. Keys of services and values of backends begin with
 * an address and a port.
 */
export function endpointText(view: DataView, at: number, family: Family, protocol: number): string {
  const port = view.getUint16(at + addressBits(family) / 8);
  return formatFrontend({ ip: readAddressAt(view, at, family), port, protocol });
}

/** Returns the texts of a sorted list which another sorted list lacks. */
export function without(list: readonly string[], others: readonly string[]): readonly string[] {
  const rest: string[] = [];
  let at = 0;
  for (const text of list) {
    let other = others[at];
    while (other !== undefined && other < text) other = others[++at];
    if (other !== text) rest.push(text);
  }
  return rest;
}

/**
 * Returns the slots that change from `previous`, with their new backends; see {@link assignSlots}. `backends` are
 * sorted. `former` are the backends in `previous`, sorted. If they are given, only backends that differ are hashed.
 */
export function changedSlots(
  previous: readonly (string | undefined)[],
  backends: readonly string[],
  former?: readonly string[],
): readonly (readonly [index: number, backend: string])[] {
  const changes: (readonly [number, string])[] = [];
  if (former === undefined) {
    for (const [index, text] of assignSlots(previous, backends).entries())
      if (previous[index] !== text) changes.push([index, text]);
    return changes;
  }
  const removed = new Set(without(former, backends));
  const isFree = (text: string | undefined): boolean => text === undefined || removed.has(text);
  // Backends of slots beyond the new count move to free slots, like the added ones.
  const moved = previous.slice(backends.length).filter((text) => !isFree(text));
  const rest = [...without(backends, former), ...moved].values();
  for (let index = 0; index < backends.length; index++)
    if (isFree(previous[index])) changes.push([index, rest.next().value ?? '']);
  return changes;
}

/** Assigns backends to slots. Remaining backends keep their slots, because fewer entries change then. */
export function assignSlots(
  previous: readonly (string | undefined)[],
  backends: readonly string[],
): string[] {
  const desired = new Set(backends);
  const slots = backends.map((_, slot) => {
    const backend = previous[slot];
    return backend !== undefined && desired.delete(backend) ? backend : undefined;
  });
  const rest = desired.values();
  return slots.map((backend) => backend ?? rest.next().value ?? '');
}
