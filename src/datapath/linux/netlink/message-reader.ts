import { HEADER_BYTES } from './message-writer.ts';

/** Bytes that are no netlink message. From a kernel they do not come. */
export class NetlinkFormatError extends Error {
  override readonly name: string = 'NetlinkFormatError';
}

/** A message; `body` is what follows the header, and shares the memory of what was read. */
export interface NetlinkMessage {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  readonly port: number;
  readonly body: Uint8Array;
}

/** Where the next message or attribute begins: on the next multiple of 4. */
function align(length: number): number {
  return (length + 3) & ~3;
}

/** A view on the same bytes, for numbers. */
export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** The messages that were received at once. Throws {@link NetlinkFormatError}, and never reads behind the end. */
export function readMessages(bytes: Uint8Array): readonly NetlinkMessage[] {
  const view = viewOf(bytes);
  const messages: NetlinkMessage[] = [];
  for (let at = 0; at < bytes.length; ) {
    const rest = bytes.length - at;
    const length = rest < HEADER_BYTES ? 0 : view.getUint32(at, true);
    if (length < HEADER_BYTES || length > rest)
      throw new NetlinkFormatError(`a message of ${length} bytes at ${at} of ${bytes.length}`);
    messages.push({
      type: view.getUint16(at + 4, true),
      flags: view.getUint16(at + 6, true),
      sequence: view.getUint32(at + 8, true),
      port: view.getUint32(at + 12, true),
      body: bytes.subarray(at + HEADER_BYTES, at + length),
    });
    at += align(length);
  }
  return messages;
}

/** Flags in the type of an attribute: nested, in the order of the network. */
const TYPE_MASK = 0x3fff;

/**
 * The attributes of a message, or of an attribute, by type; of two of a type the later one. What is missing is `undefined`, what
 * is shorter than the number that is asked for is malformed.
 */
export class Attributes {
  readonly #byType: (Uint8Array | undefined)[] = [];

  /** Throws {@link NetlinkFormatError} unless `bytes` are attributes from `from` on. */
  constructor(bytes: Uint8Array, from = 0) {
    for (const [type, value] of readAttributes(bytes, from)) this.#byType[type] = value;
  }

  bytes(type: number): Uint8Array | undefined {
    return this.#byType[type];
  }

  u8(type: number): number | undefined {
    return this.#view(type, 1)?.getUint8(0);
  }

  u16(type: number): number | undefined {
    return this.#view(type, 2)?.getUint16(0, true);
  }

  be16(type: number): number | undefined {
    return this.#view(type, 2)?.getUint16(0);
  }

  u32(type: number): number | undefined {
    return this.#view(type, 4)?.getUint32(0, true);
  }

  be32(type: number): number | undefined {
    return this.#view(type, 4)?.getUint32(0);
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

  #view(type: number, size: number): DataView | undefined {
    const bytes = this.#byType[type];
    if (bytes === undefined) return undefined;
    if (bytes.length < size)
      throw new NetlinkFormatError(`attribute ${type} has ${bytes.length} bytes instead of ${size}`);
    return viewOf(bytes);
  }
}

/** The attributes one by one, also those of the same type, as in a list. Throws {@link NetlinkFormatError}. */
export function readAttributes(bytes: Uint8Array, from = 0): readonly (readonly [number, Uint8Array])[] {
  const view = viewOf(bytes);
  const attributes: [number, Uint8Array][] = [];
  if (from > bytes.length) throw new NetlinkFormatError(`a fixed part of ${bytes.length} bytes, not ${from}`);
  for (let at = from; at < bytes.length; ) {
    const rest = bytes.length - at;
    const length = rest < 4 ? 0 : view.getUint16(at, true);
    if (length < 4 || length > rest)
      throw new NetlinkFormatError(`an attribute of ${length} bytes at ${at} of ${bytes.length}`);
    attributes.push([view.getUint16(at + 2, true) & TYPE_MASK, bytes.subarray(at + 4, at + length)]);
    at += align(length);
  }
  return attributes;
}
