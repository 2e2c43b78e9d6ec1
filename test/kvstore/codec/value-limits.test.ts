import { describe, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { decodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import { decodeClusterService } from '../../../src/kvstore/codec/cluster-service.ts';
import { decodeIdentity, decodeIdentityNumber } from '../../../src/kvstore/codec/identity.ts';
import { decodeIPIdentityPair } from '../../../src/kvstore/codec/ip-identity-pair.ts';
import { decodeNode } from '../../../src/kvstore/codec/node.ts';
import { decodeTimestamp } from '../../../src/kvstore/codec/timestamp.ts';
import { decodeInPieces, VALUE_LIMITS, type ValueLimits } from '../../../src/kvstore/codec/value.ts';
import type { Decoded } from '../../../src/net/fields.ts';
import { cpuTime, leastCpuTime } from '../../base/support/cpu-time.ts';

const SERVICE = { cluster: 'c', namespace: 'n', name: 's' };
const NODE = { cluster: 'c', name: 'n' };

const ip = (index: number): string => `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`;

function repeat<T>(count: number, make: (index: number) => readonly [string, T]): Record<string, T> {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => make(index)));
}

const bytes = (value: unknown): Uint8Array =>
  bytesOfText(typeof value === 'string' ? value : JSON.stringify(value));

const service = (fields: object, limits?: ValueLimits): Decoded<unknown> =>
  decodeClusterService(SERVICE, bytes({ ...SERVICE, ...fields }), 'key', limits);
const node = (fields: object, limits?: ValueLimits): Decoded<unknown> =>
  decodeNode(NODE, bytes({ Name: 'n', Cluster: 'c', ...fields }), 'key', limits);
const pair = (fields: object, limits?: ValueLimits): Decoded<unknown> =>
  decodeIPIdentityPair('10.0.0.1', bytes({ IP: '10.0.0.1', ...fields }), 'key', limits);
const identity = (count: number, limits?: ValueLimits): Decoded<unknown> =>
  decodeIdentity(
    '70000',
    bytes(Array.from({ length: count }, (_, i) => `k8s:l${i}=v;`).join('')),
    'key',
    limits,
  );

/** Returns reason and field of a rejection, or `taken`. */
const outcome = (decoded: Decoded<unknown>): string =>
  decoded.ok ? 'taken' : `${decoded.rejection.reason} ${decoded.rejection.field}`;

const PORT = { Protocol: 'TCP', Port: 80 };
const addresses = (count: number): Record<string, object> => repeat(count, (i) => [ip(i), {}]);
const ports = (count: number): Record<string, object> => repeat(count, (i) => [`p${i}`, PORT]);
const labels = (count: number): Record<string, string> => repeat(count, (i) => [`l${i}`, 'v']);
const zones = (count: number): object[] => Array.from({ length: count }, (_, i) => ({ name: `z${i}` }));

describe('a value with the maximum number of parts is accepted, one with more is rejected', () => {
  const few: ValueLimits = { ...VALUE_LIMITS, serviceEntries: 10, podPorts: 3, labels: 3, nodeAddresses: 3 };

  it.each<[string, (count: number) => Decoded<unknown>, number, string]>([
    ['backends', (n) => service({ backends: addresses(n) }, few), 10, 'too-many backends'],
    ['frontends', (n) => service({ frontends: addresses(n) }, few), 10, 'too-many frontends'],
    [
      'host names',
      (n) => service({ hostnames: repeat(n, (i) => [ip(i), 'h']) }, few),
      10,
      'too-many hostnames',
    ],
    ['zones', (n) => service({ zones: addresses(n) }, few), 10, 'too-many zones'],
    ['ports', (n) => service({ backends: { '10.0.0.1': ports(n) } }, few), 9, 'too-many backends.10.0.0.1'],
    [
      'hinted zones',
      (n) => service({ zones: { '10.0.0.1': { forZones: zones(n) } } }, few),
      9,
      'too-many zones.10.0.0.1.forZones',
    ],
    [
      'parts together',
      (n) =>
        service(
          { frontends: addresses(3), backends: repeat(3, (i) => [ip(i), { p: PORT }]), zones: addresses(n) },
          few,
        ),
      1,
      'too-many zones',
    ],
    ['labels', (n) => service({ labels: labels(n) }, few), 3, 'too-many labels'],
    ['selector', (n) => service({ selector: labels(n) }, few), 3, 'too-many selector'],
    ['node labels', (n) => node({ Labels: labels(n) }, few), 3, 'too-many Labels'],
    ['annotations', (n) => node({ Annotations: labels(n) }, few), 3, 'too-many Annotations'],
    [
      'node addresses',
      (n) =>
        node({ IPAddresses: Array.from({ length: n }, (_, i) => ({ Type: 'InternalIP', IP: ip(i) })) }, few),
      3,
      'too-many IPAddresses',
    ],
    [
      'CIDRs',
      (n) =>
        node(
          {
            IPv4SecondaryAllocCIDRs: Array.from({ length: n }, () => ({ IP: '10.0.0.0', Mask: '/wAAAA==' })),
          },
          few,
        ),
      3,
      'too-many IPv4SecondaryAllocCIDRs',
    ],
    [
      'named ports',
      (n) => pair({ NamedPorts: Array.from({ length: n }, (_, i) => ({ Name: `p${i}`, ...PORT })) }, few),
      3,
      'too-many NamedPorts',
    ],
    ['identity labels', (n) => identity(n, few), 3, 'too-many value'],
  ])('%s', (_name, decode, most, rejection) => {
    expect(outcome(decode(most))).toBe('taken');
    expect(outcome(decode(most + 1))).toBe(rejection);
  });

  it('by default far more than Cilium writes', () => {
    const backends = repeat(12_000, (i) => [ip(i), { http: PORT }]);
    const zones = repeat(12_000, (i) => [ip(i), { zone: 'a', forZones: null }]);
    const hostnames = repeat(12_000, (i) => [ip(i), 'h']);
    expect(outcome(service({ backends, zones, hostnames, labels: labels(1024) }))).toBe('taken');
    expect(outcome(identity(1024))).toBe('taken');
    expect(outcome(pair({ NamedPorts: Array.from({ length: 1024 }, () => ({ Name: 'p', ...PORT })) }))).toBe(
      'taken',
    );
  });
});

describe('a value with too many bytes is rejected before it is parsed', () => {
  const limits: ValueLimits = { ...VALUE_LIMITS, bytes: 100 };
  const padded = (size: number): Uint8Array => bytes(JSON.stringify(SERVICE).padEnd(size));

  it('whatever it contains', () => {
    expect(outcome(decodeClusterService(SERVICE, padded(100), 'key', limits))).toBe('taken');
    expect(outcome(decodeClusterService(SERVICE, padded(101), 'key', limits))).toBe('too-large value');
    const huge = bytes('x'.repeat(1.5 * 1024 * 1024 + 1));
    for (const decoded of [
      decodeNode(NODE, huge, 'key'),
      decodeIPIdentityPair('10.0.0.1', huge, 'key'),
      decodeIdentity('1', huge, 'key'),
      decodeIdentityNumber(huge, 'key'),
      decodeClusterConfig(huge, 'key'),
      decodeTimestamp(huge, 'key'),
    ]) {
      expect(outcome(decoded)).toBe('too-large value');
    }
  });

  it('also in pieces', () => {
    const decode = decodeInPieces(() => ({ ok: true, value: 1 }));
    expect(decode('s', bytes(`{${' '.repeat(1.5 * 1024 * 1024)}`), 'key')).toBeUndefined();
  });
});

describe('one value does not block others', () => {
  /** Returns the milliseconds of the longest step of decoding. */
  function longestStep(value: Uint8Array): number {
    const decode = decodeInPieces((_name, parsed, at) => decodeClusterService(SERVICE, parsed, at));
    const steps = decode('s', value, 'key');
    if (steps === undefined) throw new Error('a large value is decoded in pieces');
    let longest = 0;
    for (let done: boolean | undefined; done !== true; ) {
      const step = cpuTime(() => {
        done = steps.next().done;
      });
      longest = Math.max(longest, step);
    }
    return longest;
  }

  const manyLabels = JSON.stringify({ labels: labels(90_000) });

  it.each([
    ['60,000 backends', { backends: addresses(60_000) }],
    ['90,000 labels', { labels: labels(90_000) }],
    ['30,000 ports', { backends: { '10.0.0.1': ports(30_000) } }],
    ['12,000 backends of one port each', { backends: repeat(12_000, (i) => [ip(i), { http: PORT }]) }],
    ['a name of 1.4 MB', { name: 'x'.repeat(1_400_000) }],
    [
      '100,000 objects of other shapes',
      { junk: Array.from({ length: 90_000 }, (_, i) => ({ [`k${i}`]: 0 })) },
    ],
  ])('%s', async (_name, fields) => {
    const value = bytes({ ...SERVICE, ...fields });
    const parsing = await leastCpuTime(() => JSON.parse(manyLabels)); // of a value of the maximum size
    let longest = Number.POSITIVE_INFINITY;
    for (let attempt = 0; attempt < 10 && !(longest < 2 * parsing); attempt++)
      longest = Math.min(longest, longestStep(value)); // garbage collection can make a step longer
    expect(longest).toBeLessThan(2 * parsing); // at most a fifth of the time
  });

  it('an identity of 100,000 labels is rejected before they are split', async () => {
    const value = bytes('k8s:a=b;'.repeat(150_000));
    const decode = (limits?: ValueLimits): unknown => decodeIdentity('70000', value, 'key', limits);
    const limit = (await leastCpuTime(() => decode({ ...VALUE_LIMITS, labels: 200_000 }))) / 4;
    expect(await leastCpuTime(() => decode(), limit)).toBeLessThan(limit); // a twentieth of the time
  });
});
