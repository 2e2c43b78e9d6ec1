import {
  Attributes,
  NetlinkFormatError,
  type NetlinkMessage,
  readAttributes,
} from '../netlink/message-reader.ts';
import { type MessageWriter, NLM_F } from '../netlink/message-writer.ts';
import type { NetlinkRequest } from '../netlink/netlink-socket.ts';

/** Families of tables (`NFPROTO_*`). */
export const NFPROTO = { ipv4: 2, ipv6: 10 } as const;

/** Where packets pass by (`NF_INET_*`). */
export const HOOK = { prerouting: 0, input: 1, forward: 2, output: 3 } as const;

const SUBSYSTEM = 10;
const BATCH = { begin: 0x10, end: 0x11 } as const;
const NFT = {
  ...{ newTable: 0, getTable: 1, deleteTable: 2, newChain: 3, getChain: 4, newRule: 6, newSet: 9 },
  ...{ newElement: 12, getElement: 13, deleteElement: 14 },
} as const;
const HEADER_BYTES = 4;
const LIST_ELEMENT = 1;
const MAP_FLAG = 8;
/** The type of data that are verdicts. */
const VERDICT_DATA = 0xffffff00;
const GOTO = -4;

/** A table, by family and name. */
export interface NftTable {
  readonly family: number;
  readonly name: string;
}

/** A set, or with `data` a map. Types are numbers that only people's tools read: six bits for each part. */
export interface NftSet {
  readonly name: string;
  readonly keyType: number;
  readonly keyBytes: number;
  readonly data?: { readonly type: number; readonly bytes: number } | 'verdict' | undefined;
}

/** An element of a set; of a map with the value, or the chain to go to. */
export interface NftElement {
  readonly key: Uint8Array;
  readonly value?: Uint8Array | undefined;
  readonly chain?: string | undefined;
}

/** A step of a rule: its name, and its numbers by attribute. */
export interface NftExpression {
  readonly name: string;
  readonly numbers?: Readonly<Record<number, number>> | undefined;
  /** The name of a set, which is its first attribute. */
  readonly set?: string | undefined;
  /** An attribute of one byte. */
  readonly byte?: readonly [type: number, value: number] | undefined;
}

/** A chain; one with a hook sees packets by itself. */
export interface NftChain {
  readonly name: string;
  readonly base?:
    | { readonly type: 'nat' | 'filter'; readonly hook: number; readonly priority: number }
    | undefined;
  readonly rules: readonly (readonly NftExpression[])[];
}

function request(
  what: string,
  message: number,
  flags: number,
  family: number,
  write: (writer: MessageWriter) => void,
): NetlinkRequest {
  const type = (SUBSYSTEM << 8) | message;
  return { what, type, flags, write: (writer) => write(writer.u8(family).u8(0).be16(0)) };
}

/** One transaction: all of it happens, or nothing. */
export function nftBatch(requests: readonly NetlinkRequest[]): readonly NetlinkRequest[] {
  const edge = (type: number): NetlinkRequest => ({
    ...{ what: 'nftables', type, flags: 0, write: (writer) => writer.u8(0).u8(0).be16(SUBSYSTEM) },
  });
  return [edge(BATCH.begin), ...requests, edge(BATCH.end)];
}

export function addTable({ family, name }: NftTable): NetlinkRequest {
  return request(`add table ${name}`, NFT.newTable, NLM_F.create, family, (writer) =>
    writer.attributeText(1, name),
  );
}

export function deleteTable({ family, name }: NftTable): NetlinkRequest {
  return request(`delete table ${name}`, NFT.deleteTable, 0, family, (writer) =>
    writer.attributeText(1, name),
  );
}

/** Asks for all chains of a table. */
export function dumpChains(table: NftTable): Omit<NetlinkRequest, 'flags'> {
  return request('chains', NFT.getChain, 0, table.family, (writer) => writer.attributeText(1, table.name));
}

/** The name of the chain in a message, if it is of this table; `undefined` when not. Throws `NetlinkFormatError`. */
export function readChain({ type, body }: NetlinkMessage, table: NftTable): string | undefined {
  if (type !== ((SUBSYSTEM << 8) | NFT.newChain)) return undefined;
  const chain = new Attributes(body, HEADER_BYTES);
  return body[0] === table.family && chain.text(1) === table.name ? chain.text(3) : undefined;
}

/** A chain with its rules. */
export function addChain(table: NftTable, chain: NftChain): readonly NetlinkRequest[] {
  const { name, base, rules } = chain;
  const added = request(`add chain ${name}`, NFT.newChain, NLM_F.create, table.family, (writer) => {
    writer.attributeText(1, table.name).attributeText(3, name);
    if (base === undefined) return;
    writer.nest(4, () => writer.attributeBE32(1, base.hook).attributeBE32(2, base.priority));
    writer.attributeText(7, base.type);
  });
  return [added, ...rules.map((rule) => addRule(table, name, rule))];
}

function addRule(table: NftTable, chain: string, rule: readonly NftExpression[]): NetlinkRequest {
  const flags = NLM_F.create | NLM_F.append;
  return request(`add rule to ${chain}`, NFT.newRule, flags, table.family, (writer) => {
    writer.attributeText(1, table.name).attributeText(2, chain);
    writer.nest(4, () => {
      for (const expression of rule) writer.nest(LIST_ELEMENT, () => writeExpression(writer, expression));
    });
  });
}

function writeExpression(writer: MessageWriter, { name, numbers = {}, set, byte }: NftExpression): void {
  writer.attributeText(1, name);
  writer.nest(2, () => {
    if (set !== undefined) writer.attributeText(1, set);
    for (const [type, value] of Object.entries(numbers)) writer.attributeBE32(Number(type), value);
    if (byte !== undefined) writer.attributeU8(...byte);
  });
}

/** A set or map; `id` is any number that no other set of the transaction has. */
export function addSet(
  table: NftTable,
  { name, keyType, keyBytes, data }: NftSet,
  id: number,
): NetlinkRequest {
  return request(`add set ${name}`, NFT.newSet, NLM_F.create, table.family, (writer) => {
    writer.attributeText(1, table.name).attributeText(2, name);
    writer.attributeBE32(3, data === undefined ? 0 : MAP_FLAG);
    writer.attributeBE32(4, keyType).attributeBE32(5, keyBytes);
    if (data === 'verdict') writer.attributeBE32(6, VERDICT_DATA).attributeBE32(7, 0);
    else if (data !== undefined) writer.attributeBE32(6, data.type).attributeBE32(7, data.bytes);
    writer.attributeBE32(10, id);
  });
}

/** Elements to add to a set; there must be none with their keys. */
export function addElements(table: NftTable, set: string, elements: readonly NftElement[]): NetlinkRequest {
  return request(`add to ${set}`, NFT.newElement, NLM_F.create, table.family, (writer) =>
    writeElements(writer, table, set, elements),
  );
}

/** Elements to delete from a set; their keys must be there. */
export function deleteElements(table: NftTable, set: string, keys: readonly Uint8Array[]): NetlinkRequest {
  return request(`delete from ${set}`, NFT.deleteElement, 0, table.family, (writer) =>
    writeElements(
      writer,
      table,
      set,
      keys.map((key) => ({ key })),
    ),
  );
}

function writeElements(
  writer: MessageWriter,
  table: NftTable,
  set: string,
  elements: readonly NftElement[],
): void {
  writer.attributeText(1, table.name).attributeText(2, set);
  writer.nest(3, () => {
    for (const element of elements) writer.nest(LIST_ELEMENT, () => writeElement(writer, element));
  });
}

function writeElement(writer: MessageWriter, { key, value, chain }: NftElement): void {
  writer.nest(1, () => writer.attributeBytes(1, key));
  if (value !== undefined) writer.nest(2, () => writer.attributeBytes(1, value));
  if (chain !== undefined)
    writer.nest(2, () => writer.nest(2, () => writer.attributeBE32(1, GOTO).attributeText(2, chain)));
}

/** Asks for all elements of a set. */
export function dumpElements(table: NftTable, set: string): Omit<NetlinkRequest, 'flags'> {
  return request(`elements of ${set}`, NFT.getElement, 0, table.family, (writer) =>
    writer.attributeText(1, table.name).attributeText(2, set),
  );
}

/** The elements in a message; `undefined` when it is about something else. Throws `NetlinkFormatError`. */
export function readElements({ type, body }: NetlinkMessage): readonly NftElement[] | undefined {
  if (type !== ((SUBSYSTEM << 8) | NFT.newElement)) return undefined;
  const list = new Attributes(body, HEADER_BYTES).bytes(3);
  if (list === undefined) return undefined;
  return readAttributes(list).map((bytes) => readElement(new Attributes(bytes)));
}

function readElement(element: Attributes): NftElement {
  const key = element.nested(1)?.bytes(1);
  if (key === undefined) throw new NetlinkFormatError('an element without a key');
  const data = element.nested(2);
  return { key: key.slice(), value: data?.bytes(1)?.slice(), chain: data?.nested(2)?.text(2) };
}
