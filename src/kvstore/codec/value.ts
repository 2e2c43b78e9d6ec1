import { checkArgument, FUNCTION, isObjectOrList, matching, OBJECT } from '../../base/arguments.ts';
import { messageOf } from '../../base/failure.ts';
import { parseJsonInPieces } from '../../base/json-pieces.ts';
import { type Decoded, decodeWith, Fields, type RejectField, rejectInput } from '../../net/fields.ts';
import { textOfBytes } from './bytes.ts';

/** Format of a value: `1.8` is the format of Cilium 1.8. `1.17` has more fields, which readers of 1.8 ignore. */
export type FormatVersion = '1.8' | '1.17';

/**
 * Limits on the size of a value and its parts. Larger values are rejected, because one value must not delay all others.
 */
export interface ValueLimits {
  /** Bytes of a value. Default 1.5 MiB, because an etcd with default settings rejects larger writes. */
  readonly bytes: number;
  /**
   * Addresses, ports, host names and zones of a service, together. Default 49,152: 12,288 backends with one of each.
   */
  readonly serviceEntries: number;
  /** Named ports of a pod. Default 1,024. */
  readonly podPorts: number;
  /** Labels of an identity; labels, annotations and selector of a node or service, each. Default 1,024. */
  readonly labels: number;
  /** Addresses of a node, and CIDRs of each family. Default 1,024. */
  readonly nodeAddresses: number;
}

/** The defaults of {@link ValueLimits}. */
export const VALUE_LIMITS: ValueLimits = {
  bytes: 1.5 * 1024 * 1024,
  serviceEntries: 49_152,
  podPorts: 1024,
  labels: 1024,
  nodeAddresses: 1024,
};

/**
 * Maximum size of a key and its value in a write. etcd limits the whole request, which also contains the fence and the
 * framing: less than 512 bytes.
 */
export const MAX_PUT_BYTES: number = VALUE_LIMITS.bytes - 512;

/** The result of incremental parsing of a large value. */
export type ParsedJson = { readonly json: unknown } | { readonly syntaxError: string };

/** The bytes of a value, or its JSON if it was parsed incrementally. */
export type EncodedValue = Uint8Array | ParsedJson;

/** Decodes the value of a key. `name` is the key without its prefix, `at` is the whole key. */
export type ValueDecoder<T> = (name: string, value: EncodedValue, at: string) => Decoded<T>;

/** Values with more bytes are parsed in pieces. Smaller ones take at most about 7 ms. */
const LARGE_BYTES = 32 * 1024;

const SPACE = 0x20;

/** Returns true if the first character that is not white space is `{` or `[`. Other JSON is parsed fast. */
function isContainer(value: Uint8Array): boolean {
  let at = 0;
  while (at < value.length && (value[at] as number) <= SPACE) at++;
  return value[at] === 0x7b || value[at] === 0x5b;
}

/** Parses a large value and yields after each piece. */
function* parseInPieces(value: Uint8Array): Generator<undefined, EncodedValue> {
  const text = textOfBytes(value);
  if (text === undefined) return value; // the decoder reports the error
  try {
    return { json: yield* parseJsonInPieces(text) };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { syntaxError: error.message };
  }
}

/**
 * Returns a function for `decodeLarge` of `WatchStoreOptions`: it decodes large JSON in steps and returns `undefined`
 * for other values.
 */
export function decodeInPieces<T>(
  decode: ValueDecoder<T>,
  limits: ValueLimits = VALUE_LIMITS,
): (name: string, value: Uint8Array, at: string) => Generator<undefined, Decoded<T>> | undefined {
  checkArgument('decodeInPieces: decode', decode, FUNCTION);
  checkArgument('decodeInPieces: limits', limits, OBJECT);
  const { bytes } = limits;
  function* steps(name: string, value: Uint8Array, at: string): Generator<undefined, Decoded<T>> {
    const parsed = yield* parseInPieces(value);
    yield;
    return decode(name, parsed, at);
  }
  return (name, value, at) =>
    value.length > LARGE_BYTES && value.length <= bytes && isContainer(value)
      ? steps(name, value, at)
      : undefined;
}

/** Returns the text of a UTF-8 value; rejects other values. For `decodeWith`. */
export function readText(value: EncodedValue, { bytes }: ValueLimits): string {
  if (!(value instanceof Uint8Array)) return rejectInput('wrong-type', 'value', {}, 'must be UTF-8 text');
  const size = `${value.length} bytes`;
  if (value.length > bytes)
    return rejectInput('too-large', 'value', size, `must have at most ${bytes} bytes`);
  return textOfBytes(value) ?? rejectInput('invalid-utf8', 'value', size, 'is not UTF-8');
}

function readJson(value: EncodedValue, limits: ValueLimits): unknown {
  if (value instanceof Uint8Array) {
    const text = readText(value, limits);
    try {
      return JSON.parse(text);
    } catch (error) {
      return rejectInput('invalid-json', 'value', text, messageOf(error));
    }
  }
  if ('json' in value) return value.json;
  return rejectInput('invalid-json', 'value', 'a large value', value.syntaxError);
}

/** Decodes a JSON object; rejects other values. `read` checks its fields, and calls `drop` for invalid parts. */
export function decodeJson<T>(
  value: EncodedValue,
  at: string,
  limits: ValueLimits,
  read: (fields: Fields<never>, drop: RejectField<undefined>) => T,
): Decoded<T> {
  checkArgument('decode: value', value, ENCODED);
  return decodeWith(at, (drop) => read(Fields.of(readJson(value, limits), rejectInput, 'value'), drop));
}

/** Returns a field; rejects it unless it equals a part of the key. */
export function readKeyPart(fields: Fields<never>, field: string, expected: string): string {
  const value = fields.text(field);
  if (value !== expected) fields.reject(field, 'key-mismatch', `must be ${expected}, as in the key`, value);
  return value;
}

const ENCODED = matching(
  'must be a Uint8Array or parsed JSON',
  (value) =>
    value instanceof Uint8Array || (isObjectOrList(value) && ('json' in value || 'syntaxError' in value)),
);
