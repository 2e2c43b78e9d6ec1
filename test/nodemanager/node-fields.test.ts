import fc from 'fast-check';
import { is } from 'immutable';
import { describe, expect, it } from 'vitest';
import type { Rejection } from '../../src/base/rejection.ts';
import { addressClaims, type NodeConfiguration } from '../../src/nodemanager/address-claims.ts';
import type { Node } from '../../src/nodemanager/node.ts';
import { type NodeSpec, sameNode } from '../../src/nodemanager/node-spec.ts';
import { parseNode } from '../../src/nodemanager/parse-node.ts';
import { type Maker, made, nearPairs, oneOf } from '../base/support/near-pairs.ts';
import { claimsOf } from './support/naive-nodes.ts';

const ZERO: Readonly<Record<string, unknown>> = {
  clusterID: 0,
  encryptionKey: 0,
  nodeIdentity: 0,
  wireguardPubKey: '',
  bootID: '',
  addresses: [],
  ipv4SecondaryAllocCIDRs: [],
  ipv6SecondaryAllocCIDRs: [],
  labels: [],
  annotations: [],
};

/** Returns all fields of a node as text; absent fields are zero. */
function words(spec: NodeSpec): string {
  const entries = Object.entries({ ...ZERO, ...withoutAbsent(spec) });
  const plain = entries.map(([name, value]) => [name, value instanceof Map ? [...value].sort() : value]);
  return JSON.stringify(plain.sort(([a], [b]) => (String(a) < String(b) ? -1 : 1)));
}

function withoutAbsent(spec: NodeSpec): object {
  return Object.fromEntries(Object.entries(spec).filter(([, value]) => value !== undefined));
}

const number = oneOf(undefined, 0, 1, 2);
const word = oneOf(undefined, '', 'a', 'b');
const ipv4 = oneOf(undefined, '10.0.0.1', '10.0.0.2');
const ipv6 = oneOf(undefined, 'fd00::1', 'fd00::2');
const strings = made<ReadonlyMap<string, string> | undefined>(
  () => undefined,
  () => new Map(),
  () => new Map([['a', '1']]),
  () => new Map([['a', '2']]),
  () => new Map([['b', '1']]),
  () =>
    new Map([
      ['a', '1'],
      ['b', '1'],
    ]),
  () =>
    new Map([
      ['b', '1'],
      ['a', '1'],
    ]),
);
const cidrs = (one: string, two: string): fc.Arbitrary<Maker<readonly string[] | undefined>> =>
  made<readonly string[] | undefined>(
    () => undefined,
    () => [],
    () => [one],
    () => [two],
    () => [one, two],
    () => [two, one],
  );

const pairOfNodes = nearPairs<NodeSpec>({
  name: oneOf('a', 'b'),
  cluster: oneOf('east', 'west'),
  source: oneOf<NodeSpec['source']>('kvstore', 'k8s'),
  clusterID: number,
  addresses: made<NodeSpec['addresses']>(
    () => undefined,
    () => [],
    () => [{ type: 'InternalIP', ip: '10.0.0.1' }],
    () => [{ type: 'ExternalIP', ip: '10.0.0.1' }],
    () => [{ type: 'InternalIP', ip: '10.0.0.2' }],
    () => [
      { type: 'InternalIP', ip: '10.0.0.1' },
      { type: 'InternalIP', ip: '10.0.0.2' },
    ],
    () => [
      { type: 'InternalIP', ip: '10.0.0.2' },
      { type: 'InternalIP', ip: '10.0.0.1' },
    ],
  ),
  ipv4AllocCIDR: oneOf(undefined, '10.0.0.0/16', '10.1.0.0/16'),
  ipv6AllocCIDR: oneOf(undefined, 'fd00::/64', 'fd01::/64'),
  ipv4SecondaryAllocCIDRs: cidrs('10.2.0.0/16', '10.3.0.0/16'),
  ipv6SecondaryAllocCIDRs: cidrs('fd02::/64', 'fd03::/64'),
  ipv4HealthIP: ipv4,
  ipv6HealthIP: ipv6,
  ipv4IngressIP: ipv4,
  ipv6IngressIP: ipv6,
  encryptionKey: number,
  labels: strings,
  annotations: strings,
  nodeIdentity: number,
  wireguardPubKey: word,
  bootID: word,
});

const parsed = (spec: NodeSpec): Node => {
  const node = parseNode(spec, ({ message }) => expect.fail(message));
  return node ?? expect.fail('no node');
};

describe('a node', () => {
  it('equals another if every word is equal; absent ones are zero', () => {
    fc.assert(
      fc.property(pairOfNodes, (pairs) => {
        for (const [a, b] of pairs) {
          const isSame = words(a) === words(b);
          expect(sameNode(a, b)).toBe(isSame);
          expect([sameNode(a, a), sameNode(b, b)]).toEqual([true, true]);
          const [one, other] = [parsed(a), parsed(b)];
          expect([one.equals(other), is(one, other), one.equals(one)]).toEqual([isSame, isSame, true]);
          if (isSame) expect(one.hashCode()).toBe(other.hashCode());
          expect(one.equals({ ...one })).toBe(false);
        }
      }),
      { numRuns: 100 }, // each run uses every field
    );
  });

  it('returns the fields of its source, in every form', () => {
    fc.assert(
      fc.property(pairOfNodes, ([[spec] = expect.fail('no pair')]) => {
        const node = parsed(spec);
        expect(words(node.fields)).toBe(words(spec));
        expect(parsed(JSON.parse(JSON.stringify(node))).equals(node)).toBe(true);
        const { labels, annotations, ...rest } = node.toJSON();
        const maps = {
          labels: new Map(Object.entries(labels)),
          annotations: new Map(Object.entries(annotations)),
        };
        expect(words({ ...rest, ...maps })).toBe(words(spec));
        const read = Object.fromEntries(
          Object.keys(node.fields).map((name) => [name, Reflect.get(node, name)]),
        );
        const { addresses, ipv4SecondaryAllocCIDRs, ipv6SecondaryAllocCIDRs } = node;
        const asSpec = {
          ...read,
          addresses: addresses.toArray(),
          labels: new Map(node.labels),
          annotations: new Map(node.annotations),
          ipv4SecondaryAllocCIDRs: ipv4SecondaryAllocCIDRs.toArray(),
          ipv6SecondaryAllocCIDRs: ipv6SecondaryAllocCIDRs.toArray(),
        };
        expect(words(asSpec as unknown as NodeSpec)).toBe(words(spec));
        expect(node.fullName).toBe(`${spec.cluster}/${spec.name}`);
        expect(node.addresses).toBe(addresses);
      }),
    );
  });

  it('is read in canonical form', () => {
    const node = parsed({
      name: 'a',
      cluster: 'east',
      source: 'kvstore',
      addresses: [
        { type: 'InternalIP', ip: 'FD00:0::1' },
        { type: 'ExternalIP', ip: '::ffff:10.0.0.1' },
      ],
      ipv4AllocCIDR: '10.0.0.7/16',
      ipv6AllocCIDR: 'FD00::7/64',
      ipv4SecondaryAllocCIDRs: ['10.2.0.1/16'],
      ipv6SecondaryAllocCIDRs: ['FD02::1/64'],
      ipv4HealthIP: '::ffff:10.0.0.9',
      ipv6HealthIP: 'FD00::9',
      ipv4IngressIP: '::ffff:10.0.0.8',
      ipv6IngressIP: 'FD00::8',
    });
    expect(node.fields).toMatchObject({
      addresses: [
        { type: 'InternalIP', ip: 'fd00::1' },
        { type: 'ExternalIP', ip: '10.0.0.1' },
      ],
      ipv4AllocCIDR: '10.0.0.0/16',
      ipv6AllocCIDR: 'fd00::/64',
      ipv4SecondaryAllocCIDRs: ['10.2.0.0/16'],
      ipv6SecondaryAllocCIDRs: ['fd02::/64'],
      ipv4HealthIP: '10.0.0.9',
      ipv6HealthIP: 'fd00::9',
      ipv4IngressIP: '10.0.0.8',
      ipv6IngressIP: 'fd00::8',
    });
  });
});

/** Returns the rejections of fields with wrong types. */
function rejectionsOf(fields: object): {
  readonly node: Node | undefined;
  readonly rejected: readonly Rejection[];
} {
  const rejected: Rejection[] = [];
  const spec: object = { name: 'a', cluster: 'east', source: 'kvstore', ...fields };
  return { node: parseNode(spec as NodeSpec, (each) => rejected.push(each)), rejected };
}

describe('an invalid node', () => {
  it.each<[object, string]>([
    [{ name: '' }, 'missing-field name'],
    [{ name: undefined }, 'missing-field name'],
    [{ name: 7 }, 'wrong-type name'],
    [{ cluster: '' }, 'missing-field cluster'],
    [{ cluster: 'a/b' }, 'invalid-name cluster'],
    [{ source: 'nobody' }, 'unknown-source source'],
    [{ source: undefined }, 'unknown-source source'],
    [{ clusterID: -1 }, 'out-of-range clusterID'],
    [{ clusterID: 512 }, 'out-of-range clusterID'],
    [{ clusterID: '1' }, 'wrong-type clusterID'],
    [{ encryptionKey: 256 }, 'out-of-range encryptionKey'],
    [{ encryptionKey: 1.5 }, 'out-of-range encryptionKey'],
    [{ nodeIdentity: 2 ** 32 }, 'out-of-range nodeIdentity'],
    [{ nodeIdentity: '6' }, 'out-of-range nodeIdentity'],
  ])('in %j is rejected completely', (fields, expected) => {
    const { node, rejected } = rejectionsOf(fields);
    expect(node).toBeUndefined();
    expect(rejected.map(({ reason, field }) => `${reason} ${field}`)).toEqual([expected]);
  });

  it('is rejected with every invalid required field', () => {
    const { node, rejected } = rejectionsOf({ name: '', source: 'x', clusterID: 512, encryptionKey: 256 });
    expect(node).toBeUndefined();
    expect(rejected.map(({ field }) => field)).toEqual(['name', 'source', 'clusterID', 'encryptionKey']);
    expect(rejected[1]).toMatchObject({ at: 'node east/', value: '"x"' });
  });

  it.each([511, 0])('has a cluster id up to 511, and a key up to 255: %i', (clusterID) => {
    expect(rejectionsOf({ clusterID, encryptionKey: 255, nodeIdentity: 2 ** 32 - 1 }).node).toBeDefined();
  });

  it('that is not an object is rejected completely', () => {
    const rejected: Rejection[] = [];
    const spec: unknown = [];
    expect(parseNode(spec as NodeSpec, (each) => rejected.push(each))).toBeUndefined();
    expect(rejected.map(({ reason, field }) => [reason, field])).toEqual([['wrong-type', 'node']]);
  });

  it.each<[object, string, object]>([
    [{ ipv4AllocCIDR: '10.0.0.0' }, 'invalid-cidr ipv4AllocCIDR', { ipv4AllocCIDR: undefined }],
    [{ ipv6AllocCIDR: 'x' }, 'invalid-cidr ipv6AllocCIDR', { ipv6AllocCIDR: undefined }],
    [{ ipv4HealthIP: 'x' }, 'invalid-address ipv4HealthIP', { ipv4HealthIP: undefined }],
    [{ ipv6HealthIP: 7 }, 'wrong-type ipv6HealthIP', { ipv6HealthIP: undefined }],
    [{ ipv4IngressIP: 'x' }, 'invalid-address ipv4IngressIP', { ipv4IngressIP: undefined }],
    [{ ipv6IngressIP: 'x' }, 'invalid-address ipv6IngressIP', { ipv6IngressIP: undefined }],
    [
      { ipv4SecondaryAllocCIDRs: ['x', '10.0.0.0/8'] },
      'invalid-cidr ipv4SecondaryAllocCIDRs[0]',
      { ipv4SecondaryAllocCIDRs: ['10.0.0.0/8'] },
    ],
    [
      { ipv6SecondaryAllocCIDRs: 'fd00::/8' },
      'wrong-type ipv6SecondaryAllocCIDRs',
      { ipv6SecondaryAllocCIDRs: [] },
    ],
    [{ addresses: 'x' }, 'wrong-type addresses', { addresses: [] }],
    [{ addresses: [7] }, 'wrong-type addresses[0]', { addresses: [] }],
    [{ addresses: [null] }, 'wrong-type addresses[0]', { addresses: [] }],
    [{ addresses: [{ type: 'InternalIP', ip: 'x' }] }, 'invalid-address addresses[0].ip', { addresses: [] }],
    [{ addresses: [{ type: 'InternalIP', ip: '' }] }, 'missing-field addresses[0].ip', { addresses: [] }],
    [{ addresses: [{ type: 'InternalIP' }] }, 'missing-field addresses[0].ip', { addresses: [] }],
    [{ addresses: [{ type: 7, ip: 'FD00::1' }] }, 'wrong-type addresses[0].type', { addresses: [] }],
    [{ addresses: [{ type: 7, ip: 'fd00::1' }] }, 'wrong-type addresses[0].type', { addresses: [] }],
    [{ addresses: [{ type: '', ip: '10.0.0.1' }] }, 'missing-field addresses[0].type', { addresses: [] }],
  ])('in %j is kept without it', (fields, expected, left) => {
    const { node, rejected } = rejectionsOf(fields);
    expect(rejected.map(({ reason, field }) => `${reason} ${field}`)).toEqual([expected]);
    expect(node?.fields).toMatchObject(left);
  });

  it('keeps the other addresses', () => {
    const good = { type: 'InternalIP', ip: '10.0.0.1' };
    expect(
      rejectionsOf({ addresses: [good, { type: 'InternalIP', ip: 'x' }] }).node?.fields.addresses,
    ).toEqual([good]);
  });
});

describe('the claims of a node', () => {
  const configuration: fc.Arbitrary<NodeConfiguration> = fc.record({
    remoteNodeIdentities: fc.boolean(),
    encryption: fc.boolean(),
    nodeEncryption: fc.boolean(),
    hostFirewall: fc.boolean(),
    underlay: fc.constantFrom('ipv4' as const, 'ipv6' as const),
  });
  const ip = fc.nat(39).map((n) => (n % 4 === 0 ? `fd00::${n + 1}` : `10.0.0.${n}`));
  const type = fc.constantFrom('InternalIP', 'ExternalIP', 'CiliumInternalIP', 'Hostname');
  const node = fc.record({
    name: fc.constant('a'),
    cluster: fc.constant('east'),
    source: fc.constantFrom('local' as const, 'kvstore' as const),
    addresses: fc.array(fc.record({ type, ip }), { maxLength: 50, size: 'max' }),
    ipv4HealthIP: fc.constantFrom(undefined, '10.0.0.5', '10.0.0.99'),
    ipv6HealthIP: fc.constantFrom(undefined, 'fd00::5', 'fd00::99'),
    encryptionKey: fc.constantFrom(0, 3),
  });

  it('follow the rules, one claim for each of few or many addresses, however often it lists them', () => {
    fc.assert(
      fc.property(node, configuration, (spec, config) => {
        const claims = addressClaims(parsed(spec), config);
        const expected = [...claimsOf(spec, config)].map(([address, claim]) => ({ ip: address, ...claim }));
        expect([...claims].map((claim) => ({ ...claim }))).toEqual(expected);
        expect(claims.size).toBe(expected.length);
        for (const [at, claim] of [...claims].entries()) {
          expect([claims.at(at), claims.find(claim.ip)]).toEqual([claim, claim]);
          expect(claims.find(claim.ip)).toBe(claim);
        }
        expect([claims.at(claims.size), claims.find('192.168.0.1')]).toEqual([undefined, undefined]);
      }),
    );
  });

  it('are equal if all of their fields are', () => {
    fc.assert(
      fc.property(node, node, configuration, configuration, (one, other, config, changed) => {
        const [a, b] = [addressClaims(parsed(one), config), addressClaims(parsed(other), changed)];
        for (const claim of a) {
          for (const candidate of b) {
            expect(claim.equals(candidate)).toBe(JSON.stringify(claim) === JSON.stringify(candidate));
          }
        }
      }),
      { numRuns: 100 },
    );
  });
});
