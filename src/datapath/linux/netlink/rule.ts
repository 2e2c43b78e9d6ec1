import {
  familyNumber,
  familyOf,
  familyWithNumber,
  prefixLength,
  readPrefix,
  writeAddress,
} from './address-bytes.ts';
import { Attributes, NetlinkFormatError, type NetlinkMessage } from './message-reader.ts';
import type { MessageWriter } from './message-writer.ts';

/** Types of messages about rules. */
export const RTM_RULE = { add: 32, delete: 33, get: 34 } as const;

const FIXED_BYTES = 12;
const TO_TABLE = 1;
const FRA = { destination: 1, source: 2, priority: 6, table: 15, protocol: 21 } as const;

/** A rule that packets from a prefix use a given routing table. */
export interface Rule {
  /** Canonical prefix. */
  readonly source: string;
  readonly table: number;
  /** Rules with smaller priority are evaluated first. */
  readonly priority: number;
  readonly protocol: number;
}

/** Writes the body of a message that adds or deletes a rule. */
export function writeRule(writer: MessageWriter, { source, table, priority, protocol }: Rule): void {
  writer
    .u8(familyNumber(familyOf(source)))
    .u8(0)
    .u8(prefixLength(source))
    .u8(0);
  writer
    .u8(table < 256 ? table : 0)
    .u16(0)
    .u8(TO_TABLE)
    .u32(0);
  writeAddress(writer, FRA.source, source);
  writer.attributeU32(FRA.priority, priority).attributeU32(FRA.table, table);
  writer.attributeU8(FRA.protocol, protocol);
}

/** Writes the body of a request for all rules of a family. */
export function writeRuleDump(writer: MessageWriter, family: 4 | 6): void {
  writer.u8(familyNumber(family)).u8(0).u16(0).u32(0).u32(0);
}

/**
 * Returns the rule in a message; `undefined` if it has another action or is about something else. Throws `NetlinkFormatError`.
 */
export function readRule({ type, body }: NetlinkMessage): Rule | undefined {
  if (type !== RTM_RULE.add && type !== RTM_RULE.delete) return undefined;
  if (body.length < FIXED_BYTES) throw new NetlinkFormatError(`invalid rule message: ${body.length} bytes`);
  const [number = 0, , length = 0, , table = 0, , , action = 0] = body;
  const family = familyWithNumber(number);
  const attributes = new Attributes(body, FIXED_BYTES);
  if (family === undefined || action !== TO_TABLE || attributes.bytes(FRA.destination) !== undefined)
    return undefined;
  return {
    source: readPrefix(attributes.bytes(FRA.source), length, family),
    table: attributes.u32(FRA.table) ?? table,
    priority: attributes.u32(FRA.priority) ?? 0,
    protocol: attributes.u8(FRA.protocol) ?? 0,
  };
}
