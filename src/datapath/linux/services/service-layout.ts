import { addressBits, type Family } from '../../../net/address-words.ts';
import { formatAddress } from '../../../net/format-address.ts';
import { protocolNumber } from '../../../net/port.ts';
import { parsePrefix, prefixRegister } from '../../../net/prefix.ts';
import { formatFrontend } from '../../../servicecache/frontends.ts';
import type { MapShape } from '../bpf/info.ts';

/** The maps of one family, as the programs name them. */
export const SERVICE_MAPS = ['services', 'backends', 'members', 'clients', 'peers'] as const;

/** A map of one family. */
export type ServiceMapName = (typeof SERVICE_MAPS)[number];

/** How many there is room for in the maps of a family. */
export interface ServiceRoom {
  /** Frontends and the slots of their backends together. */
  readonly slots: number;
  readonly backends: number;
  /** Clients that stay with their backend; the oldest are forgotten. */
  readonly clients: number;
}

/** Room for so many backends, by default as many as Cilium has (`bpf-lb-map-max`), and for ten times as many slots. */
export function serviceRoom(backends = 65_536): ServiceRoom {
  return { slots: 10 * backends, backends, clients: backends };
}

/** The flag of a frontend whose clients stay with their backend (`SVC_FLAG_AFFINITY`). */
export const AFFINITY_FLAG = 0x10;

/** Slots are numbers of 16 bits, and 0 is the frontend. */
export const MAX_BACKENDS_OF_FRONTEND = 65_535;

/** What the maps of a family are like: those of services and backends as in Cilium 1.17. */
export function serviceMapShapes(
  family: Family,
  room: ServiceRoom,
): Readonly<Record<ServiceMapName, MapShape>> {
  const address = addressBits(family) / 8;
  const isSix = family === 6;
  return {
    services: { type: 'hash', keySize: address + 8, valueSize: 12, maxEntries: room.slots },
    backends: { type: 'hash', keySize: 4, valueSize: address + 8, maxEntries: room.backends },
    members: { type: 'hash', keySize: address + 8, valueSize: 4, maxEntries: room.slots },
    clients: { type: 'lruHash', keySize: isSix ? 32 : 24, valueSize: 16, maxEntries: room.clients },
    peers: { type: 'lruHash', keySize: isSix ? 32 : 24, valueSize: address + 4, maxEntries: room.clients },
  };
}

const register = prefixRegister();
const FRONTEND = /^(?:\[(.+)\]|([^[\]]+)):(\d+)\/(\w+)$/;

/** An address, port and protocol. */
export interface Endpoint {
  readonly ip: string;
  readonly port: number;
  readonly protocol: number;
}

/** Reads what `formatFrontend` has written. Throws `RangeError` for anything else. */
export function parseEndpoint(text: string): Endpoint {
  const [, six, four, port, protocol = ''] = FRONTEND.exec(text) ?? [];
  const ip = six ?? four;
  if (ip === undefined) throw new RangeError(`${text} is no frontend`);
  return { ip, port: Number(port), protocol: protocolNumber(protocol) ?? Number(protocol) };
}

/** Writes an address in network order, 4 or 16 bytes. */
export function writeAddress(view: DataView, at: number, ip: string): void {
  if (!parsePrefix(ip, register)) throw new RangeError(`${ip} is no address`);
  view.setInt32(at, register.w0);
  if (register.family === 4) return;
  view.setInt32(at + 4, register.w1);
  view.setInt32(at + 8, register.w2);
  view.setInt32(at + 12, register.w3);
}

/** The address there, as text. */
export function readAddress(view: DataView, at: number, family: Family): string {
  const isSix = family === 6;
  return formatAddress({
    family,
    w0: view.getInt32(at),
    w1: isSix ? view.getInt32(at + 4) : 0,
    w2: isSix ? view.getInt32(at + 8) : 0,
    w3: isSix ? view.getInt32(at + 12) : 0,
  });
}

/** Address, port, two bytes between, protocol: how keys of services and values of backends begin. */
export function endpointText(view: DataView, at: number, family: Family, protocolAt: number): string {
  const bytes = addressBits(family) / 8;
  return formatFrontend({
    ip: readAddress(view, at, family),
    port: view.getUint16(at + bytes),
    protocol: view.getUint8(at + protocolAt),
  });
}
