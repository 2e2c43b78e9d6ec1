import { HEADER_BYTES } from './message-writer.ts';

/** Bytes that are not a netlink message. The kernel never sends such bytes. */
export class NetlinkFormatError extends Error {
  override readonly name: string = 'NetlinkFormatError';
}

/** A message. `body` follows the header and shares memory with the received bytes. */
export interface NetlinkMessage {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  readonly port: number;
  readonly body: Uint8Array;
}

/** Returns the offset of the next message or attribute: the next multiple of 4. */
export function align(length: number): number {
  return (length + 3) & ~3;
}

/** Returns a view on the same bytes, for numbers. */
export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Returns the messages of one receive. Throws {@link NetlinkFormatError}, and never reads past the end. */
export function readMessages(bytes: Uint8Array): readonly NetlinkMessage[] {
  const messages: NetlinkMessage[] = [];
  for (let at = 0; at < bytes.length; ) {
    const rest = bytes.length - at;
    const length = rest < HEADER_BYTES ? 0 : readU32(bytes, at);
    if (length < HEADER_BYTES || length > rest)
      throw new NetlinkFormatError(`invalid message length ${length} at offset ${at} of ${bytes.length}`);
    messages.push({
      type: readU16(bytes, at + 4),
      flags: readU16(bytes, at + 6),
      sequence: readU32(bytes, at + 8),
      port: readU32(bytes, at + 12),
      body: bytes.subarray(at + HEADER_BYTES, at + length),
    });
    at += align(length);
  }
  return messages;
}

/** Masks the flags in the type of an attribute: nested, network order. */
const TYPE_MASK = 0x3fff;

/**
 * The attributes of a message or of an attribute, by type. If a type occurs twice, the later attribute counts. A
 * missing attribute is `undefined`. An attribute that is shorter than the requested number is malformed.
 */
export class Attributes {
  readonly #byType: (Uint8Array | undefined)[] = [];

  /** Throws {@link NetlinkFormatError} if `bytes` from `from` on are not attributes. */
  constructor(bytes: Uint8Array, from = 0) {
    walkAttributes(bytes, from, (type, value) => {
      this.#byType[type] = value;
    });
  }

  bytes(type: number): Uint8Array | undefined {
    return this.#byType[type];
  }

  u8(type: number): number | undefined {
    return this.#number(type, 1)?.[0];
  }

  u16(type: number): number | undefined {
    const bytes = this.#number(type, 2);
    return bytes && readU16(bytes, 0);
  }

  be16(type: number): number | undefined {
    const bytes = this.#number(type, 2);
    return bytes && viewOf(bytes).getUint16(0);
  }

  be32(type: number): number | undefined {
    const bytes = this.#number(type, 4);
    return bytes && viewOf(bytes).getUint32(0);
  }

  /** Returns a number of 64 bits, exact below 2^53. */
  be64(type: number): number | undefined {
    const bytes = this.#number(type, 8);
    return bytes && Number(viewOf(bytes).getBigUint64(0));
  }

  u32(type: number): number | undefined {
    const bytes = this.#number(type, 4);
    return bytes && readU32(bytes, 0);
  }

  text(type: number): string | undefined {
    const bytes = this.#byType[type];
    if (bytes === undefined) return undefined;
    const end = bytes.indexOf(0);
    return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
  }

  nested(type: number): Attributes | undefined {
    const bytes = this.#byType[type];
    return bytes && new Attributes(bytes);
  }

  #number(type: number, size: number): Uint8Array | undefined {
    const bytes = this.#byType[type];
    if (bytes !== undefined && bytes.length < size)
      throw new NetlinkFormatError(`attribute ${type} has ${bytes.length} bytes, expected ${size}`);
    return bytes;
  }
}

/**
 * Returns a 16-bit number in processor order. Uses no `DataView`, because a large dump would create a million of them.
 */
export function readU16(bytes: Uint8Array, at: number): number {
  return (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8);
}

/** Returns a 32-bit number in processor order. */
export function readU32(bytes: Uint8Array, at: number): number {
  return (readU16(bytes, at) | (readU16(bytes, at + 2) << 16)) >>> 0;
}

/** Returns the values of all attributes in order, as in a list. Throws {@link NetlinkFormatError}. */
export function readAttributes(bytes: Uint8Array): readonly Uint8Array[] {
  const attributes: Uint8Array[] = [];
  walkAttributes(bytes, 0, (_, value) => attributes.push(value));
  return attributes;
}

function walkAttributes(
  bytes: Uint8Array,
  from: number,
  visit: (type: number, value: Uint8Array) => void,
): void {
  if (from > bytes.length)
    throw new NetlinkFormatError(`message header has ${bytes.length} bytes, expected ${from}`);
  for (let at = from; at < bytes.length; ) {
    const rest = bytes.length - at;
    const length = rest < 4 ? 0 : readU16(bytes, at);
    if (length < 4 || length > rest)
      throw new NetlinkFormatError(`invalid attribute length ${length} at offset ${at} of ${bytes.length}`);
    visit(readU16(bytes, at + 2) & TYPE_MASK, bytes.subarray(at + 4, at + length));
    at += align(length);
  }
}
