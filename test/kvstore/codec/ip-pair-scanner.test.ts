import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import {
  decodeIPIdentityPair,
  encodeIPIdentityPair,
  type IPIdentityPair,
  parseIPIdentityPair,
} from '../../../src/kvstore/codec/ip-identity-pair.ts';
import { scanIdentity, scanIPIdentityPair } from '../../../src/kvstore/codec/ip-pair-scanner.ts';
import { VALUE_LIMITS } from '../../../src/kvstore/codec/value.ts';

const LIMITS = { ...VALUE_LIMITS, podPorts: 3 };

const address = fc.oneof(
  fc.ipV4(),
  fc.constantFrom(
    '10.1.2.3',
    '0.0.0.0',
    '255.255.255.255',
    'fd00::1',
    '::',
    '2001:db8::1:0:0:1',
    '::fffe:0:a',
  ),
);
const name = fc.oneof(
  address,
  fc.constantFrom(
    '10.1.0.0/16',
    '0.0.0.0/0',
    '10.1.2.3/32',
    'fd00::/64',
    '::/0',
    'fd00::1/128',
    '10.0.0.0/8',
  ),
);
const ascii = fc.string({ minLength: 0, maxLength: 12 });
const anyText = fc.oneof(ascii, ascii, fc.string({ unit: 'grapheme', maxLength: 6 }));
const ports = fc
  .array(
    fc.tuple(
      fc.constantFrom('http', 'metrics', '', '__proto__', 'ü', 'a"b'),
      fc.record({ port: fc.integer({ min: 0, max: 65_535 }), protocol: fc.constantFrom(6, 17, 0, 132) }),
    ),
    { maxLength: 4 },
  )
  .map((list) => new Map(list));

const pair: fc.Arbitrary<IPIdentityPair> = fc.record({
  key: name,
  identity: fc.oneof(fc.constantFrom(0, 1, 0xffff_ffff, 65_536), fc.nat(0xffff_ffff)),
  hostIP: fc.option(address, { nil: undefined }),
  encryptKey: fc.constantFrom(0, 1, 9, 10, 255),
  k8s: fc.option(
    fc.record({ namespace: anyText, podName: anyText, serviceAccount: anyText, namedPorts: ports }),
    { nil: undefined },
  ),
});

const podUID = fc.constantFrom('', 'f2c7', '570d3fd1-93db-4862-ba99-6a3c2c10c38f');

/** Returns the value of Cilium 1.21, without a mask that is not set and with the UID of the pod. */
function newerValue(whole: IPIdentityPair, uid: string): Uint8Array {
  const text = textOfBytes(encodeIPIdentityPair(whole)) ?? '';
  const after = [',"K8sServiceAccount":', ',"NamedPorts":'].find((part) => text.includes(part));
  const at = after === undefined ? text.length - 1 : text.indexOf(after);
  const newer = `${text.slice(0, at)},"K8sPodUID":"${uid}"${text.slice(at)}`;
  return bytesOfText(newer.replace('"Mask":null,', ''));
}

/** Replacements of a piece of a value: near misses of numbers, addresses, names and the syntax. */
const PIECES = [
  ...[
    '',
    '"',
    '\\',
    '\\"',
    '\\u0041',
    ',',
    ':',
    '{',
    '}',
    '[',
    ']',
    'null',
    'true',
    ' ',
    '\n',
    '\u007f',
    '\u0000',
    'é',
  ],
  ...['0', '00', '01', '-1', '1.0', '1e3', '255', '256', '4294967295', '4294967296', '99999999999999999999'],
  ...[
    '10.1.2.3',
    '010.1.2.3',
    '10.1.2.3/16',
    '::ffff:10.1.2.3',
    'FD00::1',
    '//8AAA==',
    '/wD/AA==',
    'TCP',
    'tcp',
    'XYZ',
  ],
  ...[
    '"Mask":null',
    '"Mask":"//8AAA=="',
    '"Metadata":"x"',
    '"Extra":1',
    '"ID":7',
    ',"NamedPorts":null',
    ',"K8sPodUID":"u"',
    ',"K8sPodUID":null',
    '"IP"',
    '[]',
  ],
];

interface Mutation {
  readonly at: number;
  readonly length: number;
  readonly piece: string | number;
}

const mutation: fc.Arbitrary<Mutation> = fc.record({
  at: fc.nat(400),
  length: fc.oneof(fc.constantFrom(0, 1, 1, 2), fc.nat(12)),
  piece: fc.oneof(fc.constantFrom(...PIECES), fc.nat(255)),
});

function mutated(bytes: Uint8Array, { at, length, piece }: Mutation): Uint8Array {
  const from = at % (bytes.length + 1);
  const inserted = typeof piece === 'number' ? Uint8Array.of(piece) : bytesOfText(piece);
  return Buffer.concat([bytes.subarray(0, from), inserted, bytes.subarray(from + length)]);
}

/** Swaps the values at two quotes, so that a field has the content of another one. */
function swapped(bytes: Uint8Array, { at, length }: Mutation): Uint8Array {
  const parts = (textOfBytes(bytes) ?? '').split('"');
  const [a, b] = [at % parts.length, (at + length) % parts.length];
  [parts[a], parts[b]] = [parts[b] ?? '', parts[a] ?? ''];
  return bytesOfText(parts.join('"'));
}

/** Checks that the scanner gives the result of the general decoder, or none. Returns true if it gave one. */
function checkAgreement(at: string, value: Uint8Array): boolean {
  const scanned = scanIPIdentityPair(at, value, 0, value.length, LIMITS);
  expect(scanIdentity(at, value, LIMITS)).toBe(scanned?.identity ?? -1);
  if (scanned === undefined) return false;
  expect({ ok: true, value: scanned }).toStrictEqual(parseIPIdentityPair(at, value, at, LIMITS));
  return true;
}

describe('the scanner of IPs', () => {
  it('agrees with the general decoder on values of Go and on spoilt ones', () => {
    fc.assert(
      fc.property(
        pair,
        fc.array(mutation, { minLength: 24, maxLength: 24 }),
        name,
        podUID,
        (whole, mutations, other, uid) => {
          for (const bytes of [encodeIPIdentityPair(whole), newerValue(whole, uid)]) {
            checkAgreement(whole.key, bytes);
            checkAgreement(other, bytes);
            for (const each of mutations) {
              checkAgreement(whole.key, mutated(bytes, each));
              checkAgreement(whole.key, swapped(bytes, each));
            }
          }
        },
      ),
    );
  });

  it('reads every ASCII value of Go itself', () => {
    fc.assert(
      fc.property(pair, (whole) => {
        const bytes = encodeIPIdentityPair(whole);
        const text = textOfBytes(bytes) ?? '';
        const isPlain = /^[ -~]*$/.test(text) && !text.includes('\\');
        fc.pre(isPlain && (whole.k8s?.namedPorts?.size ?? 0) <= LIMITS.podPorts);
        expect(checkAgreement(whole.key, bytes)).toBe(true);
      }),
    );
  });

  it('reads values without a mask, and with the UID of a pod, as Cilium 1.21 writes them (regression: only the general decoder did)', () => {
    fc.assert(
      fc.property(pair, podUID, (whole, uid) => {
        const bytes = newerValue(whole, uid);
        const text = textOfBytes(bytes) ?? '';
        fc.pre(/^[ -~]*$/.test(text) && !text.includes('\\'));
        fc.pre((whole.k8s?.namedPorts?.size ?? 0) <= LIMITS.podPorts);
        expect(checkAgreement(whole.key, bytes)).toBe(true);
      }),
    );
  });

  it('leaves values to the general decoder that are too large or have too many ports', () => {
    const bytes = encodeIPIdentityPair({ key: '10.1.2.3', identity: 7, encryptKey: 0 });
    const scan = (limit: number) =>
      scanIPIdentityPair('10.1.2.3', bytes, 0, bytes.length, { ...LIMITS, bytes: limit });
    expect(scan(bytes.length)).toBeDefined();
    expect(scan(bytes.length - 1)).toBeUndefined();
    const repeated = bytesOfText(
      '{"IP":"10.1.2.3","Mask":null,"HostIP":"","ID":1,"Key":0,"Metadata":"","NamedPorts":[' +
        '{"Name":"a","Port":1,"Protocol":"TCP"},{"Name":"a","Port":2,"Protocol":"TCP"}]}',
    );
    const two = decodeIPIdentityPair('10.1.2.3', repeated, 'key', { ...LIMITS, podPorts: 2 });
    expect(two).toMatchObject({
      ok: true,
      value: { k8s: { namedPorts: new Map([['a', { port: 2, protocol: 6 }]]) } },
    });
    const one = decodeIPIdentityPair('10.1.2.3', repeated, 'key', { ...LIMITS, podPorts: 1 });
    expect(one).toMatchObject({ ok: false, rejection: { reason: 'too-many' } });
  });

  it.each([
    ['0', '0', true],
    ['4294967295', '255', true],
    ['4294967296', '0', false],
    ['7', '256', false],
    ['007', '0', false],
    ['7', '01', false],
    ['00', '0', false],
    ['', '0', false],
    ['-1', '0', false],
    ['7.5', '0', false],
  ])('reads the identity %s with the key %s only if both are integers of JSON', (identity, key, isRead) => {
    const value = bytesOfText(
      `{"IP":"10.1.2.3","Mask":null,"HostIP":"","ID":${identity},"Key":${key},"Metadata":""}`,
    );
    expect(checkAgreement('10.1.2.3', value)).toBe(isRead);
  });

  it('gives equal hosts, namespaces and ports as one object', () => {
    const k8s = {
      namespace: 'shop',
      podName: 'a',
      namedPorts: new Map([['http', { port: 80, protocol: 6 }]]),
    };
    const [first, second] = ['10.1.2.3', '10.1.2.4'].map((key) => {
      const value = encodeIPIdentityPair({ key, identity: 7, encryptKey: 0, hostIP: '10.0.0.1', k8s });
      return scanIPIdentityPair(key, value, 0, value.length, LIMITS);
    });
    expect(first?.k8s?.namedPorts).toBeDefined();
    expect(second?.k8s?.namedPorts).toBe(first?.k8s?.namedPorts);
  });
});
