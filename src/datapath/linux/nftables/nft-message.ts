import {
  Attributes,
  NetlinkFormatError,
  type NetlinkMessage,
  readAttributes,
} from '../netlink/message-reader.ts';
import { type MessageWriter, NLM_F } from '../netlink/message-writer.ts';
import type { NetlinkRequest } from '../netlink/netlink-socket.ts';

/** Families of tables (`NFPROTO_*`). */
export const NFPROTO = { ipv4: 2, netdev: 5, ipv6: 10 } as const;

/** Hooks in the path of packets (`NF_INET_*`). */
export const HOOK = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4 } as const;

/** The multicast group that reports changes of tables (`NFNLGRP_NFTABLES`). */
export const NFTABLES_GROUP = 7;

const SUBSYSTEM = 10;
const BATCH = { begin: 0x10, end: 0x11 } as const;
const NFT = {
  newTable: 0,
  deleteTable: 2,
  newChain: 3,
  getChain: 4,
  deleteChain: 5,
  newRule: 6,
  getRule: 7,
  deleteRule: 8,
  newSet: 9,
  getSet: 10,
  newElement: 12,
  getElement: 13,
  deleteElement: 14,
} as const;
/**
 * Number of the first register of 4 bytes. Registers of 16 bytes have numbers 1 to 4 and consist of four short ones.
 * The kernel reports the first short register of a long one by the number of the long one.
 */
const SHORT_REGISTER = 8;
const HEADER_BYTES = 4;
// Types of attributes, numbered as in `linux/netfilter/nf_tables.h`.
const LIST_ELEMENT = 1;
const TABLE_NAME = 1; // the first attribute of every message
const CHAIN = { name: 3, hook: 4, type: 7 } as const;
const CHAIN_HOOK = { number: 1, priority: 2, device: 3 } as const;
const RULE = { chain: 2, expressions: 4 } as const;
const EXPRESSION = { name: 1, data: 2 } as const;
const SET = {
  name: 2,
  flags: 3,
  keyType: 4,
  keyBytes: 5,
  dataType: 6,
  dataBytes: 7,
  id: 10,
  userData: 13,
} as const;
const ELEMENTS = { set: 2, list: 3 } as const;
const ELEMENT = { key: 1, data: 2 } as const;
const DATA = { value: 1, verdict: 2 } as const;
const VERDICT = { code: 1, chain: 2 } as const;
/** Types of the attributes that contain `set` and `verdict` of {@link NftExpression}. */
const EXPRESSION_DATA = { set: 1, verdict: 2 } as const;
const MAP_FLAG = 8;
const VERDICT_DATA = 0xffffff00;
const GOTO = -4;

export interface NftTable {
  readonly family: number;
  readonly name: string;
}

/** A set, or a map if it has `data`. */
export interface NftSet {
  readonly name: string;
  /** Types of the parts of a key, six bits each. `nft` needs them to print a key; the kernel ignores them. */
  readonly keyType: number;
  readonly keyBytes: number;
  readonly data?: { readonly type: number; readonly bytes: number } | 'verdict' | undefined;
  /** User data from which `nft` prints the `typeof` of the set, in its format. The kernel only stores it. */
  readonly typeOf?: Uint8Array | undefined;
}

/** An element of a set. In a map, it has a value, or the chain to go to. */
export interface NftElement {
  readonly key: Uint8Array;
  readonly value?: Uint8Array | undefined;
  readonly chain?: string | undefined;
}

/** A step of a rule: its name and its attributes. Records have the types of the attributes as keys. */
export interface NftExpression {
  readonly name: string;
  /** Attributes of 32 bits. */
  readonly numbers?: Readonly<Record<number, number>> | undefined;
  /** Attributes that contain a register. The kernel may report another number of it: see {@link SHORT_REGISTER}. */
  readonly registers?: Readonly<Record<number, number>> | undefined;
  /** The name of the set that the expression searches. */
  readonly set?: string | undefined;
  /** An attribute of 8 bits. */
  readonly byte?: readonly [type: number, value: number] | undefined;
  /** Attributes that contain data, such as the operand of a comparison. */
  readonly values?: Readonly<Record<number, Uint8Array>> | undefined;
  /** The code of the verdict that the expression stores. */
  readonly verdict?: number | undefined;
}

/** An expression as reported by the kernel. Some of its attributes are defaults. */
export interface FoundExpression {
  readonly name: string;
  readonly attributes: Attributes;
}

/** A chain. With `base`, it receives packets from a hook; otherwise only from other chains. */
export interface NftChain {
  readonly name: string;
  readonly base?:
    | {
        readonly type: 'nat' | 'filter';
        readonly hook: number;
        readonly priority: number;
        /** The name of the interface, in the family `netdev`. */
        readonly device?: string | undefined;
      }
    | undefined;
  readonly rules: readonly (readonly NftExpression[])[];
}

/** Returns a request about a table. `write` writes the attributes after its name. */
function request(
  operation: string,
  message: number,
  flags: number,
  { family, name }: NftTable,
  write?: (writer: MessageWriter) => void,
): NetlinkRequest {
  return {
    operation,
    type: (SUBSYSTEM << 8) | message,
    flags,
    write: (writer) => {
      writer.u8(family).u8(0).be16(0).attributeText(TABLE_NAME, name);
      write?.(writer);
    },
  };
}

/** Returns the requests of one transaction, which is applied completely or not at all. */
export function nftBatch(requests: readonly NetlinkRequest[]): readonly NetlinkRequest[] {
  const edge = (type: number): NetlinkRequest => ({
    operation: 'nftables',
    type,
    flags: 0,
    write: (writer) => writer.u8(0).u8(0).be16(SUBSYSTEM),
  });
  return [edge(BATCH.begin), ...requests, edge(BATCH.end)];
}

export function addTable(table: NftTable): NetlinkRequest {
  return request(`add table ${table.name}`, NFT.newTable, NLM_F.create, table);
}

export function deleteTable(table: NftTable): NetlinkRequest {
  return request(`delete table ${table.name}`, NFT.deleteTable, 0, table);
}

export function dumpChains(table: NftTable): NetlinkRequest {
  return request('chains', NFT.getChain, 0, table);
}

/** Returns the attributes of a message of this kind if it is about this table. */
function attributesOf(
  { type, body }: NetlinkMessage,
  message: number,
  table: NftTable,
): Attributes | undefined {
  if (type !== ((SUBSYSTEM << 8) | message) || body[0] !== table.family) return undefined;
  const attributes = new Attributes(body, HEADER_BYTES);
  return attributes.text(TABLE_NAME) === table.name ? attributes : undefined;
}

/** Returns the chain of this table in a message, without its rules. Throws `NetlinkFormatError`. */
export function readChain(message: NetlinkMessage, table: NftTable): Omit<NftChain, 'rules'> | undefined {
  const chain = attributesOf(message, NFT.newChain, table);
  const name = chain?.text(CHAIN.name);
  if (chain === undefined || name === undefined) return undefined;
  const hook = chain.nested(CHAIN.hook);
  const type = chain.text(CHAIN.type);
  if (hook === undefined || (type !== 'nat' && type !== 'filter')) return { name };
  const priority = (hook.be32(CHAIN_HOOK.priority) ?? 0) | 0;
  const device = hook.text(CHAIN_HOOK.device);
  return { name, base: { type, hook: hook.be32(CHAIN_HOOK.number) ?? -1, priority, device } };
}

export function dumpRules(table: NftTable): NetlinkRequest {
  return request('rules', NFT.getRule, 0, table);
}

/** Returns the rule in a message, with its chain, if it belongs to this table. Throws `NetlinkFormatError`. */
export function readRule(
  message: NetlinkMessage,
  table: NftTable,
): { readonly chain: string; readonly expressions: readonly FoundExpression[] } | undefined {
  const rule = attributesOf(message, NFT.newRule, table);
  if (rule === undefined) return undefined;
  const expressions = readAttributes(rule.bytes(RULE.expressions) ?? NO_BYTES).map((bytes) => {
    const expression = new Attributes(bytes);
    return {
      name: expression.text(EXPRESSION.name) ?? '',
      attributes: expression.nested(EXPRESSION.data) ?? new Attributes(NO_BYTES),
    };
  });
  return { chain: rule.text(RULE.chain) ?? '', expressions };
}

const NO_BYTES = new Uint8Array();

export function dumpSets(table: NftTable): NetlinkRequest {
  return request('sets', NFT.getSet, 0, table);
}

/** Returns the set in a message if it belongs to this table. Throws `NetlinkFormatError`. */
export function readSet(message: NetlinkMessage, table: NftTable): NftSet | undefined {
  const set = attributesOf(message, NFT.newSet, table);
  const name = set?.text(SET.name);
  if (set === undefined || name === undefined) return undefined;
  const keyType = set.be32(SET.keyType) ?? 0;
  const keyBytes = set.be32(SET.keyBytes) ?? 0;
  const type = set.be32(SET.dataType);
  const bytes = set.be32(SET.dataBytes) ?? 0;
  if (type === undefined || ((set.be32(SET.flags) ?? 0) & MAP_FLAG) === 0) return { name, keyType, keyBytes };
  return { name, keyType, keyBytes, data: type === VERDICT_DATA ? 'verdict' : { type, bytes } };
}

/** Returns true if a message reports a change of this table. Throws `NetlinkFormatError`. */
export function isAbout({ type, body }: NetlinkMessage, table: NftTable): boolean {
  if (type >> 8 !== SUBSYSTEM || body[0] !== table.family) return false;
  return new Attributes(body, HEADER_BYTES).text(TABLE_NAME) === table.name;
}

/** Returns true if an expression of the kernel has the desired attributes. Its other attributes are defaults. */
export function matchesExpression(found: FoundExpression | undefined, desired: NftExpression): boolean {
  if (found === undefined) return false;
  const { attributes } = found;
  const { numbers = {}, registers = {}, values = {}, set, byte, verdict } = desired;
  return (
    found.name === desired.name &&
    (set === undefined || attributes.text(EXPRESSION_DATA.set) === set) &&
    Object.entries(numbers).every(([type, number]) => attributes.be32(Number(type)) === number) &&
    Object.entries(registers).every(([type, number]) => {
      const other = attributes.be32(Number(type));
      return other !== undefined && longRegister(other) === longRegister(number);
    }) &&
    (byte === undefined || attributes.u8(byte[0]) === byte[1]) &&
    Object.entries(values).every(([type, value]) =>
      isEqual(attributes.nested(Number(type))?.bytes(DATA.value), value),
    ) &&
    (verdict === undefined || verdictCode(attributes.nested(EXPRESSION_DATA.verdict)) === verdict)
  );
}

function verdictCode(data: Attributes | undefined): number | undefined {
  return data?.nested(DATA.verdict)?.be32(VERDICT.code);
}

function isEqual(a: Uint8Array | undefined, b: Uint8Array): boolean {
  return a !== undefined && Buffer.compare(a, b) === 0;
}

function longRegister(register: number): number {
  const short = register - SHORT_REGISTER;
  return short >= 0 && short % 4 === 0 ? 1 + short / 4 : register;
}

/** Returns a request that deletes a chain with its rules. Nothing may refer to the chain. */
export function deleteChain(table: NftTable, name: string): NetlinkRequest {
  return request(`delete chain ${name}`, NFT.deleteChain, 0, table, (writer) =>
    writer.attributeText(CHAIN.name, name),
  );
}

export function replaceRules(table: NftTable, { name, rules }: NftChain): readonly NetlinkRequest[] {
  const flush = request(`flush chain ${name}`, NFT.deleteRule, 0, table, (writer) =>
    writer.attributeText(RULE.chain, name),
  );
  return [flush, ...rules.map((rule) => addRule(table, name, rule))];
}

export function addChain(table: NftTable, chain: NftChain): readonly NetlinkRequest[] {
  const { name, base, rules } = chain;
  const added = request(`add chain ${name}`, NFT.newChain, NLM_F.create, table, (writer) => {
    writer.attributeText(CHAIN.name, name);
    if (base === undefined) return;
    writer.nest(CHAIN.hook, () => {
      writer.attributeBE32(CHAIN_HOOK.number, base.hook).attributeBE32(CHAIN_HOOK.priority, base.priority);
      if (base.device !== undefined) writer.attributeText(CHAIN_HOOK.device, base.device);
    });
    writer.attributeText(CHAIN.type, base.type);
  });
  return [added, ...rules.map((rule) => addRule(table, name, rule))];
}

function addRule(table: NftTable, chain: string, rule: readonly NftExpression[]): NetlinkRequest {
  const flags = NLM_F.create | NLM_F.append;
  return request(`add rule to ${chain}`, NFT.newRule, flags, table, (writer) => {
    writer.attributeText(RULE.chain, chain).nest(RULE.expressions, () => {
      for (const expression of rule) writer.nest(LIST_ELEMENT, () => writeExpression(writer, expression));
    });
  });
}

function writeExpression(writer: MessageWriter, expression: NftExpression): void {
  const { name, numbers = {}, registers = {}, values = {}, set, byte, verdict } = expression;
  writer.attributeText(EXPRESSION.name, name);
  writer.nest(EXPRESSION.data, () => {
    if (set !== undefined) writer.attributeText(EXPRESSION_DATA.set, set);
    for (const [type, number] of Object.entries({ ...numbers, ...registers }))
      writer.attributeBE32(Number(type), number);
    if (byte !== undefined) writer.attributeU8(...byte);
    for (const [type, value] of Object.entries(values))
      writer.nest(Number(type), () => writer.attributeBytes(DATA.value, value));
    if (verdict === undefined) return;
    writer.nest(EXPRESSION_DATA.verdict, () =>
      writer.nest(DATA.verdict, () => writer.attributeBE32(VERDICT.code, verdict)),
    );
  });
}

/**
 * Returns a request that adds a set or map, unless an equal one exists. `id` is any number, unique in the transaction.
 */
export function addSet(
  table: NftTable,
  { name, keyType, keyBytes, data, typeOf }: NftSet,
  id: number,
): NetlinkRequest {
  return request(`add set ${name}`, NFT.newSet, NLM_F.create, table, (writer) => {
    writer.attributeText(SET.name, name).attributeBE32(SET.flags, data === undefined ? 0 : MAP_FLAG);
    writer.attributeBE32(SET.keyType, keyType).attributeBE32(SET.keyBytes, keyBytes);
    const valueType = data === 'verdict' ? { type: VERDICT_DATA, bytes: 0 } : data;
    if (valueType !== undefined)
      writer.attributeBE32(SET.dataType, valueType.type).attributeBE32(SET.dataBytes, valueType.bytes);
    writer.attributeBE32(SET.id, id);
    if (typeOf !== undefined) writer.attributeBytes(SET.userData, typeOf);
  });
}

/** Returns a request that adds elements to a set. Their keys must not exist. */
export function addElements(table: NftTable, set: string, elements: readonly NftElement[]): NetlinkRequest {
  return request(`add to ${set}`, NFT.newElement, NLM_F.create, table, (writer) =>
    writeElements(writer, set, elements),
  );
}

/** Returns a request that deletes elements from a set. Their keys must exist. */
export function deleteElements(table: NftTable, set: string, keys: readonly Uint8Array[]): NetlinkRequest {
  const elements = keys.map((key) => ({ key }));
  return request(`delete from ${set}`, NFT.deleteElement, 0, table, (writer) =>
    writeElements(writer, set, elements),
  );
}

/** The set that contains an element, and in a map the chain to go to. */
export type NftPlace = readonly [set: string, chain?: string];

/** Returns the requests that move the element with a key. */
export function replaceElement(
  table: NftTable,
  key: Uint8Array,
  from: NftPlace | undefined,
  to: NftPlace | undefined,
): readonly NetlinkRequest[] {
  if (from?.[0] === to?.[0] && from?.[1] === to?.[1]) return [];
  return [
    ...(from === undefined ? [] : [deleteElements(table, from[0], [key])]),
    ...(to === undefined ? [] : [addElements(table, to[0], [{ key, chain: to[1] }])]),
  ];
}

/**
 * Maximum number of elements in a message, so that a message of IPv6 elements stays below the size limit of netlink.
 */
const ELEMENTS_PER_MESSAGE = 256;

/** Requests in steps. All requests of a step must be in one transaction. */
export type NftSteps = readonly (readonly NetlinkRequest[])[];

/** Returns the steps for all elements, at most {@link ELEMENTS_PER_MESSAGE} in each. */
export function inSteps<T>(
  all: readonly T[],
  requests: (some: readonly T[]) => readonly NetlinkRequest[],
): NftSteps {
  const steps: (readonly NetlinkRequest[])[] = [];
  for (let at = 0; at < all.length; at += ELEMENTS_PER_MESSAGE)
    steps.push(requests(all.slice(at, at + ELEMENTS_PER_MESSAGE)));
  return steps;
}

function writeElements(writer: MessageWriter, set: string, elements: readonly NftElement[]): void {
  writer.attributeText(ELEMENTS.set, set).nest(ELEMENTS.list, () => {
    for (const element of elements) writer.nest(LIST_ELEMENT, () => writeElement(writer, element));
  });
}

function writeElement(writer: MessageWriter, { key, value, chain }: NftElement): void {
  writer.nest(ELEMENT.key, () => writer.attributeBytes(DATA.value, key));
  if (value !== undefined) writer.nest(ELEMENT.data, () => writer.attributeBytes(DATA.value, value));
  if (chain === undefined) return;
  writer.nest(ELEMENT.data, () =>
    writer.nest(DATA.verdict, () =>
      writer.attributeBE32(VERDICT.code, GOTO).attributeText(VERDICT.chain, chain),
    ),
  );
}

export function dumpElements(table: NftTable, set: string): NetlinkRequest {
  return request(`elements of ${set}`, NFT.getElement, 0, table, (writer) =>
    writer.attributeText(ELEMENTS.set, set),
  );
}

/** Returns the elements in a message; `undefined` if it is about something else. Throws `NetlinkFormatError`. */
export function readElements({ type, body }: NetlinkMessage): readonly NftElement[] | undefined {
  if (type !== ((SUBSYSTEM << 8) | NFT.newElement)) return undefined;
  const list = new Attributes(body, HEADER_BYTES).bytes(ELEMENTS.list);
  if (list === undefined) return undefined;
  return readAttributes(list).map((bytes) => readElement(new Attributes(bytes)));
}

function readElement(element: Attributes): NftElement {
  const key = element.nested(ELEMENT.key)?.bytes(DATA.value);
  if (key === undefined) throw new NetlinkFormatError('set element has no key');
  const data = element.nested(ELEMENT.data);
  const chain = data?.nested(DATA.verdict)?.text(VERDICT.chain);
  return { key: key.slice(), value: data?.bytes(DATA.value)?.slice(), chain };
}
