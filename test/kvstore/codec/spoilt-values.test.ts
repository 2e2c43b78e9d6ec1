import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { decodeClusterConfig, encodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import { decodeClusterService, encodeClusterService } from '../../../src/kvstore/codec/cluster-service.ts';
import {
  decodeIdentity,
  decodeIdentityNumber,
  encodeIdentity,
  encodeIdentityNumber,
} from '../../../src/kvstore/codec/identity.ts';
import { decodeIPIdentityPair, encodeIPIdentityPair } from '../../../src/kvstore/codec/ip-identity-pair.ts';
import { type ParsedKey, parseKvstoreKey } from '../../../src/kvstore/codec/keys.ts';
import { decodeNode, encodeNode } from '../../../src/kvstore/codec/node.ts';
import { decodeTimestamp, encodeTimestamp } from '../../../src/kvstore/codec/timestamp.ts';
import { decodeInPieces, type EncodedValue } from '../../../src/kvstore/codec/value.ts';
import type { Decoded } from '../../../src/net/fields.ts';
import { checkRejection } from '../../base/support/check-rejection.ts';
import { spoiltBytes, spoiltJson } from '../../base/support/spoilt-json.ts';

type Kind = ParsedKey['kind'];

/** A codec, and the key of its values, with name. */
interface Codec<T> {
  readonly decode: (key: ParsedKey, value: EncodedValue, at: string) => Decoded<T>;
  readonly encode: (value: T) => Uint8Array;
}

function codec<K extends Kind, T>(
  kind: K,
  decode: (key: Extract<ParsedKey, { kind: K }>, value: EncodedValue, at: string) => Decoded<T>,
  encode: (value: T) => Uint8Array,
): readonly [K, Codec<unknown>] {
  const isOfKind = (key: ParsedKey): key is Extract<ParsedKey, { kind: K }> => key.kind === kind;
  return [
    kind,
    {
      decode: (key, value, at) => {
        if (!isOfKind(key)) throw new Error(`${key.kind} is not ${kind}`);
        return decode(key, value, at);
      },
      encode: (value) => encode(value as T),
    },
  ];
}

/** Returns the bytes of a value. */
function bytesOf(value: EncodedValue): Uint8Array {
  if (value instanceof Uint8Array) return value;
  throw new Error('this codec takes bytes only');
}

const CODECS: readonly (readonly [Kind, Codec<unknown>])[] = [
  codec('node', decodeNode, encodeNode),
  codec('service', decodeClusterService, encodeClusterService),
  codec('ip', (key, value, at) => decodeIPIdentityPair(key.prefix, value, at), encodeIPIdentityPair),
  codec(
    'identity',
    (key, value, at) => decodeIdentity(key.id, value, at),
    ({ labels }) => encodeIdentity(labels),
  ),
  codec('identity-value', (_, value, at) => decodeIdentityNumber(bytesOf(value), at), encodeIdentityNumber),
  codec('cluster-config', (_, value, at) => decodeClusterConfig(bytesOf(value), at), encodeClusterConfig),
  codec('synced', (_, value, at) => decodeTimestamp(bytesOf(value), at), encodeTimestamp),
];

const recorded: readonly { readonly key: string; readonly value: string }[] = readFileSync(
  'examples/mesh.jsonl',
  'utf8',
)
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line));

/** A lone surrogate in JSON, which is written as U+FFFD (WIRE, "Differences from Go"). */
const LONE_SURROGATE = /\\ud[89a-f]/;

/**
 * Checks that an accepted value is encoded equally again after it was decoded from its encoding, and that both values
 * are equal if `isExact`.
 */
function checkStable<T>(codec: Codec<T>, key: ParsedKey, value: T, at: string, isExact: boolean): void {
  const written = codec.encode(value);
  const again = codec.decode(key, written, at);
  if (!again.ok) throw new Error(`what was written is rejected: ${again.rejection.message}`);
  if (isExact) expect(again.value).toEqual(value);
  expect(textOfBytes(codec.encode(again.value))).toBe(textOfBytes(written));
}

/** Kinds whose large values are decoded in turns. */
const IN_TURNS: ReadonlySet<Kind> = new Set(['node', 'service', 'ip']);

/** Returns the same object, so large that it is decoded in turns. */
function enlarged(bytes: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from(`{"Filler":"${'x'.repeat(40_000)}",`), bytes.subarray(1)]);
}

/**
 * Checks that decoding in turns gives the same result as in one turn; but large values must not be nested deeper
 * than 16.
 */
function checkInTurns<T>(codec: Codec<T>, key: ParsedKey, bytes: Uint8Array): void {
  const steps = decodeInPieces((_, parsed, at) => codec.decode(key, parsed, at))('name', bytes, 'at');
  let step = steps?.next();
  while (step?.done === false) step = steps?.next();
  const inTurns = step?.value;
  if (inTurns === undefined) throw new Error('decoded at once');
  if (!inTurns.ok && inTurns.rejection.message.includes('nested too deep')) return;
  const atOnce = codec.decode(key, bytes, 'at');
  const what = (decoded: Decoded<T>): unknown =>
    decoded.ok ? decoded.value : [decoded.rejection.reason, decoded.rejection.field];
  expect(what(inTurns)).toEqual(what(atOnce));
}

describe.each(CODECS)('a recorded value that was spoilt: %s', (kind, codec) => {
  const lines = recorded.filter(({ key }) => parseKvstoreKey(key)?.kind === kind);
  const keys = [...new Set(lines.map(({ key }) => key))].slice(0, 5);
  const texts = lines.filter(({ key }) => keys.includes(key)).map(({ value }) => value);
  const spoilt = texts[0]?.startsWith('{')
    ? fc.oneof(spoiltJson(texts), spoiltBytes(texts))
    : spoiltBytes(texts);

  it('is accepted, and then written stably, or rejected by field and value; in turns the same as directly', () => {
    fc.assert(
      fc.property(fc.constantFrom(...keys), spoilt, (at, { bytes }) => {
        const key = parseKvstoreKey(at);
        if (key === undefined) throw new Error(at);
        const decoded = codec.decode(key, bytes, at);
        const isExact = !LONE_SURROGATE.test(textOfBytes(bytes) ?? '');
        if (decoded.ok) checkStable(codec, key, decoded.value, at, isExact);
        else checkRejection(decoded.rejection);
        if (IN_TURNS.has(kind) && bytes[0] === 0x7b) checkInTurns(codec, key, enlarged(bytes));
      }),
    );
  });
});

it.each([
  ['[', ']'],
  ['{"a":', '}'],
])('a value with the deepest nesting for its length is rejected (%s)', (open, close) => {
  const depth = Math.floor(1_500_000 / (open.length + close.length));
  const value = Buffer.from(`{"Name":${open.repeat(depth)}0${close.repeat(depth)}}`);
  const decoded = decodeNode({ cluster: 'east', name: 'a' }, value, 'key');
  if (decoded.ok) throw new Error('it is taken');
  expect(decoded.rejection).toMatchObject({ reason: 'wrong-type', field: 'Name' });
  checkRejection(decoded.rejection);
});

it('a cluster config is a line of text: 64 kB at most (freeze: 1.5 MB of brackets took 0.5 s)', () => {
  const config = (bytes: number): Uint8Array => Buffer.from(`{"id":7${' '.repeat(bytes - 8)}}`);
  expect(decodeClusterConfig(config(64 * 1024), 'key')).toMatchObject({ ok: true, value: { id: 7 } });
  expect(decodeClusterConfig(config(64 * 1024 + 1), 'key')).toMatchObject({
    rejection: { reason: 'too-large', field: 'value' },
  });
});
