import type { Family } from '../../../net/address-words.ts';
import { addressBytes, familyOf, readAddress } from '../netlink/address-bytes.ts';
import { NetlinkFormatError, viewOf } from '../netlink/message-reader.ts';
import type { Endpoint } from '../services/service-layout.ts';
import {
  HOOK,
  NFPROTO,
  type NftChain,
  type NftExpression,
  type NftSet,
  type NftTable,
} from './nft-message.ts';

/** Types of keys and values, as `nft` knows them. */
const TYPE = { ipv4: 7, ipv6: 8, protocol: 12, service: 13, mark: 19 } as const;
const TYPE_BITS = 6;

// Registers of 32 bits. A key of several parts is in those that follow each other.
const REGISTER = 8;
const VERDICT_REGISTER = 0;
const NETWORK_HEADER = 1;
const TRANSPORT_HEADER = 2;
const META_L4PROTO = 16;
const DNAT = 1;
const NAT_PRIORITY = -100;
const PORT_UNREACHABLE = { 4: 3, 6: 4 } as const;

/** Names the version of the layout: a table without this chain is of another one. */
export const LAYOUT_CHAIN = 'layout-1';

/** The sets of a table. */
export const SETS = {
  services: 'services',
  backends: 'backends',
  refused: 'refused',
} as const;

/** The table of a family. */
export function tableOf(family: Family, name: string): NftTable {
  return { family: family === 4 ? NFPROTO.ipv4 : NFPROTO.ipv6, name };
}

function words(family: Family): number {
  return family === 4 ? 1 : 4;
}

function typeOf(family: Family, ...parts: readonly number[]): number {
  return parts.reduce((type, part) => (type << TYPE_BITS) | part, family === 4 ? TYPE.ipv4 : TYPE.ipv6);
}

/** The sets, empty. */
export function setsOf(family: Family): readonly NftSet[] {
  const frontend = { keyType: typeOf(family, TYPE.protocol, TYPE.service), keyBytes: 4 * words(family) + 8 };
  const slot = {
    keyType: typeOf(family, TYPE.protocol, TYPE.service, TYPE.mark),
    keyBytes: 4 * words(family) + 12,
  };
  return [
    { name: SETS.services, ...frontend, data: 'verdict' },
    {
      name: SETS.backends,
      ...slot,
      data: { type: typeOf(family, TYPE.service), bytes: 4 * words(family) + 4 },
    },
    { name: SETS.refused, ...frontend },
  ];
}

/** Destination, protocol and port of a packet, in registers side by side. */
function loadFrontend(family: Family): readonly NftExpression[] {
  const at = REGISTER + words(family);
  const [offset, bytes] = family === 4 ? [16, 4] : [24, 16];
  return [
    { name: 'payload', numbers: { 1: REGISTER, 2: NETWORK_HEADER, 3: offset, 4: bytes } },
    { name: 'meta', numbers: { 1: at, 2: META_L4PROTO } },
    { name: 'payload', numbers: { 1: at + 1, 2: TRANSPORT_HEADER, 3: 2, 4: 2 } },
  ];
}

/** The chains that packets come to, and the mark of the layout. */
export function baseChains(family: Family): readonly NftChain[] {
  const find: readonly NftExpression[] = [
    ...loadFrontend(family),
    { name: 'lookup', set: SETS.services, numbers: { 2: REGISTER, 3: VERDICT_REGISTER } },
  ];
  const refuse: readonly NftExpression[] = [
    ...loadFrontend(family),
    { name: 'lookup', set: SETS.refused, numbers: { 2: REGISTER } },
    { name: 'reject', numbers: { 1: 0 }, byte: [2, PORT_UNREACHABLE[family]] },
  ];
  const nat = { type: 'nat', priority: NAT_PRIORITY } as const;
  const filter = { type: 'filter', priority: 0 } as const;
  return [
    { name: 'prerouting', base: { ...nat, hook: HOOK.prerouting }, rules: [find] },
    { name: 'output', base: { ...nat, hook: HOOK.output }, rules: [find] },
    { name: 'refuse-input', base: { ...filter, hook: HOOK.input }, rules: [refuse] },
    { name: 'refuse-forward', base: { ...filter, hook: HOOK.forward }, rules: [refuse] },
    { name: 'refuse-output', base: { ...filter, hook: HOOK.output }, rules: [refuse] },
    { name: LAYOUT_CHAIN, rules: [] },
  ];
}

const PICK = 'pick-';

/** The name of the chain of services with this many backends. */
export function pickName(backends: number): string {
  return `${PICK}${backends}`;
}

/** How many backends the chain with this name picks one of; `undefined` when it is another. */
export function pickedOf(chain: string): number | undefined {
  return chain.startsWith(PICK) ? Number(chain.slice(PICK.length)) : undefined;
}

/** The chain of all services with this many backends: picks one of them. */
export function pickChain(family: Family, backends: number): NftChain {
  const slot = REGISTER + words(family) + 2;
  return {
    name: pickName(backends),
    rules: [
      [
        ...loadFrontend(family),
        { name: 'numgen', numbers: { 1: slot, 2: backends, 3: 1 } },
        { name: 'lookup', set: SETS.backends, numbers: { 2: REGISTER, 3: REGISTER } },
        {
          name: 'nat',
          numbers: {
            ...{ 1: DNAT, 2: family === 4 ? NFPROTO.ipv4 : NFPROTO.ipv6, 3: REGISTER },
            5: REGISTER + words(family),
          },
        },
      ],
    ],
  };
}

/** The key of a frontend; with `slot` that of one of its backends. */
export function frontendKey({ ip, port, protocol }: Endpoint, slot?: number): Uint8Array {
  const at = 4 * words(familyOf(ip));
  const bytes = new Uint8Array(at + (slot === undefined ? 8 : 12));
  bytes.set(addressBytes(ip));
  const view = viewOf(bytes);
  view.setUint8(at, protocol);
  view.setUint16(at + 4, port);
  // A number of the rule's own: in the order of the processor.
  if (slot !== undefined) view.setUint32(at + 8, slot, true);
  return bytes;
}

/** A backend as a value of the map. */
export function backendValue({ ip, port }: Endpoint): Uint8Array {
  const at = 4 * words(familyOf(ip));
  const bytes = new Uint8Array(at + 4);
  bytes.set(addressBytes(ip));
  viewOf(bytes).setUint16(at, port);
  return bytes;
}

/** The frontend that a key begins with, and the slot behind it if there is one. Throws `NetlinkFormatError`. */
export function readKey(bytes: Uint8Array, family: Family): Endpoint & { readonly slot: number | undefined } {
  const at = 4 * words(family);
  if (bytes.length < at + 8) throw new NetlinkFormatError(`a frontend of ${bytes.length} bytes`);
  const view = viewOf(bytes);
  return {
    ...{
      ip: readAddress(bytes.subarray(0, at)) ?? '',
      port: view.getUint16(at + 4),
      protocol: view.getUint8(at),
    },
    slot: bytes.length < at + 12 ? undefined : view.getUint32(at + 8, true),
  };
}

/** The backend in a value. Throws `NetlinkFormatError`. */
export function readBackend(bytes: Uint8Array, family: Family): Omit<Endpoint, 'protocol'> {
  const at = 4 * words(family);
  if (bytes.length < at + 2) throw new NetlinkFormatError(`a backend of ${bytes.length} bytes`);
  return { ip: readAddress(bytes.subarray(0, at)) ?? '', port: viewOf(bytes).getUint16(at) };
}
