import { messageOf } from '../../base/failure.ts';
import { parseJsonInPieces } from '../../base/json-pieces.ts';
import { type Decoded, decodeWith, Fields, rejectInput } from '../../net/fields.ts';
import { textOfBytes } from '../bytes.ts';

/**
 * Whose fields a value has: `1.8` is what Cilium 1.8 writes, `1.17` has more, which readers of 1.8 ignore.
 */
export type FormatVersion = '1.8' | '1.17';

/** How large a value, and each of its parts, may be. What is larger is rejected: one value must not hold up all others. */
export interface ValueLimits {
  /** Bytes of a value. Default 1.5 MiB: more, and an etcd with default settings does not accept the write. */
  readonly bytes: number;
  /** Addresses, ports, host names and zones of a service, together. Default 49,152: 12,288 backends with one of each. */
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

/** The result of parsing a large value piece by piece. */
export type ParsedJson = { readonly json: unknown } | { readonly syntaxError: string };

/** A value as the kvstore holds it, or JSON that was parsed in turns. */
export type EncodedValue = Uint8Array | ParsedJson;

/** Decodes the value of a key; `name` is the key below its prefix, `at` the whole key. */
export type ValueDecoder<T> = (name: string, value: EncodedValue, at: string) => Decoded<T>;

/** From this size on a value is parsed in pieces: below, it takes at most some 7 ms. */
const LARGE = 32 * 1024;

const OPENING_BRACE = 0x7b;

/** Parses a large value, and yields after each piece of it. */
function* parseInPieces(value: Uint8Array): Generator<undefined, EncodedValue> {
  const text = textOfBytes(value);
  if (text === undefined) return value; // its decoder says what is wrong
  try {
    return { json: yield* parseJsonInPieces(text) };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { syntaxError: error.message };
  }
}

/**
 * The same decoder in steps, for large values that are JSON; `undefined` for other ones. For `decodeLarge` of
 * `WatchStoreOptions`.
 */
export function decodeInPieces<T>(
  decode: ValueDecoder<T>,
  { bytes }: ValueLimits = VALUE_LIMITS,
): (name: string, value: Uint8Array, at: string) => Generator<undefined, Decoded<T>> | undefined {
  function* steps(name: string, value: Uint8Array, at: string): Generator<undefined, Decoded<T>> {
    const parsed = yield* parseInPieces(value);
    yield;
    return decode(name, parsed, at);
  }
  return (name, value, at) =>
    value.length > LARGE && value.length <= bytes && value[0] === OPENING_BRACE
      ? steps(name, value, at)
      : undefined;
}

/** The text of a value that has to be UTF-8, for `decodeWith`. */
export function readText(value: EncodedValue, { bytes }: ValueLimits): string {
  if (!(value instanceof Uint8Array)) return rejectInput('wrong-type', 'value', {}, 'must be text, not JSON');
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

/** Decodes a value that has to be a JSON object: `read` checks its fields. */
export function decodeJson<T>(
  value: EncodedValue,
  at: string,
  limits: ValueLimits,
  read: (fields: Fields<never>) => T,
): Decoded<T> {
  return decodeWith(at, () => read(Fields.of(readJson(value, limits), rejectInput, 'value')));
}
