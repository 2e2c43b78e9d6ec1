import { describe, expect, it } from 'vitest';
import {
  type EndpointClaim,
  type EndpointRank,
  outranks,
  readPortsByName,
  SharedParts,
  sameEndpointClaim,
} from '../../src/k8s/endpoint-claim.ts';
import * as ciliumEndpoint from '../../src/k8s/parse-cilium-endpoint.ts';
import { readCiliumIdentity } from '../../src/k8s/parse-cilium-identity.ts';
import { readCiliumNode, readNode } from '../../src/k8s/parse-nodes.ts';
import {
  isName,
  type ObjectFields,
  parseObject,
  readStringMap,
  readTime,
} from '../../src/k8s/parse-object.ts';
import * as podParser from '../../src/k8s/parse-pod.ts';
import {
  readCIDRGroup,
  readCiliumPolicyCIDRs,
  readNetworkPolicyCIDRs,
} from '../../src/k8s/parse-policy-cidrs.ts';

interface Outcome<T> {
  readonly value: T | undefined;
  /** Reason and field of each rejection. */
  readonly why: readonly string[];
}

function read<T>(object: unknown, reader: (fields: ObjectFields) => T | undefined): Outcome<T> {
  const { value, rejections } = parseObject('Thing', object, {}, reader);
  return { value, why: rejections.map(({ reason, field }) => `${reason} ${field}`) };
}

const readPod = (fields: ObjectFields, key: number) => podParser.readPod(fields, key, new SharedParts());
const readCiliumEndpoint = (fields: ObjectFields) =>
  ciliumEndpoint.readCiliumEndpoint(fields, new SharedParts());
const readCiliumEndpointSlice = (fields: ObjectFields) =>
  ciliumEndpoint.readCiliumEndpointSlice(fields, new SharedParts());

const CLUSTER = { clusterName: 'c', clusterID: 3 };
const named = (name: string, more: object = {}): object => ({ metadata: { name, ...more } });

describe('a CiliumEndpoint', () => {
  const spec = (status: object, metadata: object = {}): object => ({
    metadata: {
      name: 'web',
      namespace: 'shop',
      uid: 'u',
      creationTimestamp: '2026-11-22T00:00:00Z',
      ...metadata,
    },
    status: {
      networking: { node: '192.168.0.1', addressing: [{ ipv4: '10.0.0.1', ipv6: 'fd00::1' }] },
      ...status,
    },
  });

  it('claims all of its addresses, with its key and the named ports', () => {
    const status = {
      identity: { id: 4_294_967_295 },
      encryption: { key: 255 },
      'named-ports': [{ name: 'http', port: 80, protocol: 'TCP' }, { port: 81 }, { name: '', port: 82 }],
    };
    const { value, why } = read(spec(status), readCiliumEndpoint);
    expect(why).toEqual([]);
    expect(value).toEqual({
      ips: ['10.0.0.1', 'fd00::1'],
      source: 'custom-resource',
      identity: 4_294_967_295,
      hostIP: '192.168.0.1',
      encryptKey: 255,
      k8s: {
        namespace: 'shop',
        podName: 'web',
        namedPorts: new Map([['http', { port: 80, protocol: 6 }]]),
      },
      deleting: false,
      createdAt: Date.parse('2026-11-22T00:00:00Z'),
      uid: 'u',
    });
    const { value: bare } = read(spec({}, { uid: undefined, deletionTimestamp: 'now' }), readCiliumEndpoint);
    expect(bare).toMatchObject({ deleting: true, uid: '', encryptKey: 0, identity: 3 });
  });

  it.each([
    [{ networking: undefined }, []],
    [{ networking: { node: '192.168.0.1' } }, []],
    [
      { networking: { node: '192.168.0.1', addressing: [1, {}] } },
      ['wrong-type status.networking.addressing[0]'],
    ],
    [{ networking: { addressing: [{ ipv4: '10.0.0.1' }] } }, []],
    [{ identity: { id: 2 ** 32 } }, ['out-of-range status.identity.id']],
    [{ encryption: { key: 256 } }, ['out-of-range status.encryption.key']],
  ])('claims nothing with %j', (status, why) => {
    expect(read(spec(status), readCiliumEndpoint)).toEqual({ value: undefined, why });
  });

  it('without a name claims nothing', () => {
    expect(read(spec({}, { name: '' }), readCiliumEndpoint)).toEqual({
      value: undefined,
      why: ['invalid-name metadata.name'],
    });
  });
});

describe('a CiliumEndpointSlice', () => {
  const endpoint = (name: unknown, more: object = {}): object => ({
    name,
    id: 300,
    networking: { node: '192.168.0.1', addressing: [{ ipv4: '10.0.0.1' }] },
    ...more,
  });

  it('contains endpoints by name, the last of one name, without unnamed ones', () => {
    const object = {
      ...named('slice', { creationTimestamp: '2026-11-22T00:00:00Z' }),
      namespace: 'shop',
      endpoints: [endpoint('a'), 1, endpoint('b/c'), endpoint('d', { id: 0 }), endpoint('e', { id: -1 })],
    };
    const { value, why } = read(object, readCiliumEndpointSlice);
    expect(why.toSorted()).toEqual([
      ...['invalid-name endpoints[2].name', 'out-of-range endpoints[4].id', 'wrong-type endpoints[1]'],
    ]);
    expect([value?.name, value?.createdAt]).toEqual(['slice', Date.parse('2026-11-22T00:00:00Z')]);
    expect([...(value?.endpoints.keys() ?? [])]).toEqual(['shop/a', 'shop/d', 'shop/e']);
    expect(value?.endpoints.get('shop/a')).toMatchObject({
      identity: 300,
      k8s: { namespace: 'shop', podName: 'a' },
      deleting: false,
      createdAt: value?.createdAt,
    });
    expect(value?.endpoints.get('shop/d')?.identity).toBe(3);
    expect(value?.endpoints.get('shop/e')).toBeUndefined();
  });

  it.each([
    [{ namespace: 'shop' }, ['invalid-name metadata.name']],
    [named('slice'), ['invalid-name namespace']],
    [{ ...named('slice'), namespace: 'a/b' }, ['invalid-name namespace']],
  ])('%j contains no endpoints', (object, why) => {
    expect(read(object, readCiliumEndpointSlice)).toEqual({ value: undefined, why });
  });
});

describe('the endpoint that owns an address', () => {
  const rank = (deleting: boolean, createdAt: number, uid: string): EndpointRank => ({
    deleting,
    createdAt,
    uid,
  });

  it('is decided by deletion, then age, then namespace, name and uid', () => {
    const endpoint = (of: EndpointRank, namespace = 'a', podName = 'b'): EndpointClaim => ({
      source: 'k8s',
      identity: 3,
      k8s: { namespace, podName },
      ips: ['10.0.0.1'],
      ...of,
    });
    const ascending = [
      endpoint(rank(true, 9, 'b'), 'z'),
      endpoint(rank(false, 1, 'z'), 'z'),
      endpoint(rank(false, 2, 'a')),
      endpoint(rank(false, 2, 'b')),
      endpoint(rank(false, 2, 'a'), 'a', 'c'),
      endpoint(rank(false, 2, 'a'), 'b'),
    ];
    for (const [i, a] of ascending.entries())
      for (const [k, b] of ascending.entries()) expect([i, k, outranks(a, b)]).toEqual([i, k, i > k]);
  });

  it('two are equal only if all fields are equal', () => {
    const base: EndpointClaim = {
      ips: ['10.0.0.1', '10.0.0.2'],
      source: 'k8s',
      identity: 3,
      hostIP: '192.168.0.1',
      encryptKey: 1,
      k8s: { namespace: 'a', podName: 'b' },
      ...rank(false, 1, 'c'),
    };
    expect(
      sameEndpointClaim(base, { ...base, ips: [...base.ips], k8s: { namespace: 'a', podName: 'b' } }),
    ).toBe(true);
    for (const other of [
      { ...base, ips: ['10.0.0.1'] },
      { ...base, ips: ['10.0.0.1', '10.0.0.3'] },
      { ...base, ips: ['10.0.0.1', '10.0.0.2', '10.0.0.3'] },
      { ...base, identity: 4 },
      { ...base, hostIP: '192.168.0.2' },
      { ...base, encryptKey: 2 },
      { ...base, k8s: { namespace: 'a', podName: 'x' } },
      { ...base, ...rank(true, 1, 'c') },
      { ...base, ...rank(false, 2, 'c') },
      { ...base, ...rank(false, 1, 'd') },
    ])
      expect([sameEndpointClaim(base, other), sameEndpointClaim(other, base)]).toEqual([false, false]);
  });

  it('ports by name are limited to 1,024; more ports of a known name do not count', () => {
    const ports = (count: number, more: object[]): Outcome<unknown> =>
      read(
        { p: [...Array.from({ length: count }, (_, i) => ({ name: `p${i}`, port: 1 })), ...more] },
        (fields) => readPortsByName([fields.list('p')], 'port'),
      );
    const again = ports(1024, [{ name: 'p7', port: 9 }]);
    expect([again.why, (again.value as Map<string, object>).get('p7')]).toEqual([
      [],
      { port: 9, protocol: 6 },
    ]);
    const more = ports(1024, [{ name: 'more', port: 9 }]);
    expect([more.why, (more.value as Map<string, object>).size]).toEqual([['too-many p[1024]'], 1024]);
  });
});

describe('a CiliumIdentity', () => {
  const identity = (name: string, labels: object | undefined, more: object = {}): object => ({
    ...named(name, more),
    'security-labels': labels,
  });

  it('is its number and its labels', () => {
    const labels = { 'k8s:b': '2', 'k8s:a': '1', plain: '', 'x:y:z': '3' };
    const { value, why } = read(identity('70000', labels), readCiliumIdentity);
    expect(why).toEqual([]);
    expect(value).toMatchObject({ id: 70_000, createdAt: 0, marked: false });
    expect(value?.labels.map(({ source, key }) => `${source}:${key}`).sort()).toEqual([
      ...['k8s:a', 'k8s:b', 'unspec:plain', 'x:y:z'],
    ]);
    const annotations = { 'io.cilium.heartbeat': '' };
    expect(read(identity('7', labels, { annotations }), readCiliumIdentity).value?.marked).toBe(true);
  });

  it.each([
    ['x1', { a: '1' }, 'invalid-name metadata.name'],
    ['1x', { a: '1' }, 'invalid-name metadata.name'],
    ['01', { a: '1' }, 'invalid-name metadata.name'],
    ['4294967296', { a: '1' }, 'invalid-name metadata.name'],
    ['', { a: '1' }, 'invalid-name metadata.name'],
    ['7', {}, 'missing-field security-labels'],
    ['7', undefined, 'missing-field security-labels'],
    ['7', { a: '1', ':b': '2' }, 'invalid-labels security-labels.:b'],
    ['7', { a: '1', 'k8s:': '2' }, 'invalid-labels security-labels.k8s:'],
    ['7', { a: '1', b: 2 }, 'wrong-type security-labels.b'],
  ])('named %j with %j is rejected: %s', (name, labels, why) => {
    expect(read(identity(name, labels), readCiliumIdentity)).toEqual({ value: undefined, why: [why] });
  });
});

describe('a CiliumNode', () => {
  const readOwn = (fields: ObjectFields) => readCiliumNode(fields, CLUSTER);

  it('has all fields of a node of a cluster', () => {
    const object = {
      ...named('n', {
        labels: { zone: 'a' },
        annotations: { 'network.cilium.io/wg-pub-key': 'new', 'io.cilium.network.wg-pub-key': 'old' },
      }),
      spec: {
        addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }, 1, { ip: '10.0.0.1' }, { type: 'Hostname' }],
        ipam: {
          podCIDRs: ['10.1.0.0/24', 'x'],
          pools: { allocated: [{ cidrs: ['10.2.0.0/24', 'fd00::/64'] }, 1] },
        },
        health: { ipv4: '10.1.0.2', ipv6: 'fd00::2' },
        ingress: { ipv4: '10.1.0.3', ipv6: 'fd00::3' },
        encryption: { key: 255 },
        nodeidentity: 4_294_967_295,
        bootid: 'b',
      },
    };
    const { value, why } = read(object, readOwn);
    expect(value).toEqual({
      name: 'n',
      cluster: 'c',
      clusterID: 3,
      source: 'custom-resource',
      encryptionKey: 255,
      addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }],
      ipv4AllocCIDR: '10.1.0.0/24',
      ipv4SecondaryAllocCIDRs: ['10.2.0.0/24'],
      ipv6AllocCIDR: 'fd00::/64',
      ipv6SecondaryAllocCIDRs: [],
      ipv4HealthIP: '10.1.0.2',
      ipv6HealthIP: 'fd00::2',
      ipv4IngressIP: '10.1.0.3',
      ipv6IngressIP: 'fd00::3',
      labels: new Map([['zone', 'a']]),
      annotations: new Map(
        Object.entries({ 'network.cilium.io/wg-pub-key': 'new', 'io.cilium.network.wg-pub-key': 'old' }),
      ),
      nodeIdentity: 4_294_967_295,
      wireguardPubKey: 'new',
      bootID: 'b',
    });
    expect(why.toSorted()).toEqual([
      ...['invalid-cidr spec.ipam.podCIDRs[1]', 'missing-field spec.addresses[2].type'],
      ...['wrong-type spec.addresses[1]', 'wrong-type spec.ipam.pools.allocated[1]'],
    ]);
  });

  it('has zero values for absent fields, and the key of an old annotation', () => {
    const annotations = { 'io.cilium.network.wg-pub-key': 'old' };
    expect(read(named('n', { annotations }), readOwn).value).toMatchObject({ wireguardPubKey: 'old' });
    expect(read(named('n'), readOwn).value).toMatchObject({
      encryptionKey: 0,
      nodeIdentity: 0,
      wireguardPubKey: '',
      bootID: '',
      addresses: [],
    });
  });

  it.each([
    [{ spec: {} }, 'invalid-name metadata.name'],
    [{ ...named('n'), spec: { encryption: { key: 256 } } }, 'out-of-range spec.encryption.key'],
    [{ ...named('n'), spec: { nodeidentity: -1 } }, 'out-of-range spec.nodeidentity'],
  ])('%j is rejected', (object, why) => {
    expect(read(object, readOwn)).toEqual({ value: undefined, why: [why] });
  });
});

describe('a Node', () => {
  const node = (annotations: object, spec: object = {}, addresses: object[] = []): object => ({
    ...named('n', { annotations }),
    spec,
    status: { addresses },
  });
  const readOwn = (object: object, withAnnotations = true) =>
    read(object, (fields) => readNode(fields, CLUSTER, withAnnotations));

  it.each(['network.cilium.io/', 'io.cilium.network.'])(
    'says by annotations %s what it does not say itself',
    (prefix) => {
      const said = {
        'ipv4-pod-cidr': '10.1.0.0/24',
        'ipv6-pod-cidr': 'fd00::/64',
        'ipv4-health-ip': '10.1.0.2',
        'ipv6-health-ip': 'fd00::2',
        'ipv4-Ingress-ip': '10.1.0.3',
        'ipv6-Ingress-ip': 'fd00::3',
        'ipv4-cilium-host': '10.1.0.1',
        'ipv6-cilium-host': 'fd00::1',
        'encryption-key': '255',
      };
      const annotations = Object.fromEntries(
        Object.entries(said).map(([name, text]) => [prefix + name, text]),
      );
      const { value, why } = readOwn(node(annotations));
      expect(why).toEqual([]);
      expect(value).toEqual({
        name: 'n',
        cluster: 'c',
        clusterID: 3,
        source: 'k8s',
        encryptionKey: 255,
        labels: new Map(),
        addresses: [
          { type: 'CiliumInternalIP', ip: '10.1.0.1' },
          { type: 'CiliumInternalIP', ip: 'fd00::1' },
        ],
        ipv4AllocCIDR: '10.1.0.0/24',
        ipv6AllocCIDR: 'fd00::/64',
        ipv4SecondaryAllocCIDRs: [],
        ipv6SecondaryAllocCIDRs: [],
        ipv4HealthIP: '10.1.0.2',
        ipv6HealthIP: 'fd00::2',
        ipv4IngressIP: '10.1.0.3',
        ipv6IngressIP: 'fd00::3',
      });
      expect(readOwn(node(annotations), false).value).toMatchObject({ addresses: [], encryptionKey: 0 });
      expect(readOwn(node(annotations), false).value?.ipv4AllocCIDR).toBeUndefined();
      const own = { podCIDRs: ['fd00:9::/64', '10.9.0.0/24', '10.8.0.0/24'] };
      expect(readOwn(node(annotations, own)).value).toMatchObject({
        ipv4AllocCIDR: '10.9.0.0/24',
        ipv6AllocCIDR: 'fd00:9::/64',
        ipv4SecondaryAllocCIDRs: [],
      });
      expect(readOwn(node(annotations, { podCIDR: '10.7.0.0/24' })).value).toMatchObject({
        ipv4AllocCIDR: '10.7.0.0/24',
        ipv6AllocCIDR: undefined,
      });
    },
  );

  it('has the first of its addresses of each family and type, and no other types', () => {
    const addresses = [
      ...[
        { type: 'Hostname', address: 'n' },
        { type: 'InternalIP', address: '192.168.0.1' },
      ],
      ...[
        { type: 'InternalIP', address: '192.168.0.2' },
        { type: 'InternalIP', address: 'fd00::1' },
      ],
      ...[{ type: 'ExternalIP', address: '203.0.113.1' }, { type: 'InternalIP' }],
    ];
    const { value, why } = readOwn(node({}, {}, addresses));
    expect(why).toEqual([]);
    expect(value?.addresses?.map(({ ip }) => ip)).toEqual(['192.168.0.1', 'fd00::1', '203.0.113.1']);
  });

  it.each(['256', '1000', 'x1', '1x', '-1'])(
    'with the encryption key %j has none, and that is said',
    (key) => {
      const { value, why } = readOwn(node({ 'network.cilium.io/encryption-key': key }));
      expect([value?.encryptionKey, why]).toEqual([
        0,
        ['out-of-range metadata.annotations.network.cilium.io/encryption-key'],
      ]);
    },
  );

  it('without a name is rejected, and one without annotations is valid', () => {
    expect(readOwn({ metadata: {} }).value).toBeUndefined();
    expect(readOwn(named('n'))).toMatchObject({ value: { encryptionKey: 0 }, why: [] });
  });
});

describe('a Pod', () => {
  const pod = (status: object, spec: object = {}): object => ({
    ...named('web', { namespace: 'shop', uid: 'u' }),
    spec,
    status: { hostIP: '192.168.0.1', ...status },
  });
  const claimOf = (object: object): EndpointClaim | undefined =>
    read(object, (fields) => readPod(fields, 7)).value?.claim;

  it('has each of its IPs once, the first one first', () => {
    const both = { podIP: '10.0.0.1', podIPs: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }] };
    expect(claimOf(pod(both))).toMatchObject({ ips: ['10.0.0.1', 'fd00::1'], encryptKey: 7 });
    expect(claimOf(pod({ podIP: '10.0.0.9', podIPs: [{ ip: 'fd00::1' }] }))?.ips).toEqual([
      ...['10.0.0.9', 'fd00::1'],
    ]);
    expect(claimOf(pod({ podIP: '10.0.0.9' }))?.ips).toEqual(['10.0.0.9']);
    expect(claimOf(pod({ podIPs: [{ ip: 'fd00::1' }] }))?.ips).toEqual(['fd00::1']);
    expect([claimOf(pod({})), claimOf(pod({ podIP: '10.0.0.1', hostIP: undefined }))]).toEqual([
      ...[undefined, undefined],
    ]);
  });

  it('has the named ports of all containers', () => {
    const containers = [
      1,
      { ports: [{ name: 'a', containerPort: 1 }] },
      { ports: [{ name: 'b', containerPort: 2 }] },
    ];
    expect(claimOf(pod({ podIP: '10.0.0.1' }, { containers }))?.k8s?.namedPorts).toEqual(
      new Map([
        ['a', { port: 1, protocol: 6 }],
        ['b', { port: 2, protocol: 6 }],
      ]),
    );
  });

  it('has its fields, and none for absent ones', () => {
    const says = (object: object) => read(object, (fields) => readPod(fields, 0)).value;
    expect(says(pod({}, { nodeName: 'n', serviceAccountName: 's' }))).toMatchObject({
      namespace: 'shop',
      name: 'web',
      uid: 'u',
      nodeName: 'n',
      serviceAccount: 's',
    });
    expect(says(named('web'))).toMatchObject({
      namespace: 'default',
      uid: '',
      nodeName: '',
      serviceAccount: '',
    });
    expect([says({}), says(pod({ phase: 'Failed' })), says(pod({ phase: 'Succeeded' }))]).toEqual([
      ...[undefined, undefined, undefined],
    ]);
    expect(says(pod({}, { hostNetwork: true }))).toBeUndefined();
  });
});

describe('the CIDRs of policies', () => {
  const text = (outcome: ReturnType<typeof readCiliumPolicyCIDRs>): unknown =>
    outcome && { id: outcome.id, cidrs: outcome.cidrs.map(String) };

  it('of Cilium are those of all rules, and their exceptions', () => {
    const object = {
      ...named('p', { namespace: 'shop' }),
      spec: { ingress: [{ fromCIDR: [' 10.0.0.1 ', 'x'] }], egressDeny: [{ toCIDR: ['10.1.0.0/16'] }] },
      specs: [
        {
          egress: [
            {
              toCIDRSet: [
                { cidr: ' 10.2.0.0/16 ', except: ['10.2.1.0/24'] },
                { cidr: '10.3.0.0/16', except: ['x'] },
                { cidr: '10.4.0.0/16', except: {} },
                { cidr: '10.5.0.0/16', except: [] },
                { cidrGroupRef: 'g', except: ['10.6.0.0/16'] },
                { cidrGroupRef: '' },
                { cidr: 'y' },
              ],
            },
          ],
        },
      ],
    };
    const { value, why } = read(object, readCiliumPolicyCIDRs);
    expect(text(value)).toEqual({
      id: 'shop/p',
      cidrs: ['10.0.0.1/32', '10.1.0.0/16', '10.2.0.0/16', '10.2.1.0/24', '10.5.0.0/16', '10.6.0.0/16'],
    });
    expect(why).toEqual([
      'invalid-cidr spec.ingress[0].fromCIDR[1]',
      'invalid-cidr specs[0].egress[0].toCIDRSet[1].except[0]',
      'wrong-type specs[0].egress[0].toCIDRSet[2].except',
      'invalid-cidr specs[0].egress[0].toCIDRSet[6].cidr',
    ]);
    expect(text(read(named('p'), readCiliumPolicyCIDRs).value)).toEqual({ id: 'p', cidrs: [] });
    expect(read(named('p', { namespace: 'a/b' }), readCiliumPolicyCIDRs).value).toBeUndefined();
  });

  it('of Cilium are absent if the name is invalid, which is rejected once (regression: twice)', () => {
    const { value, why } = read(named('', { namespace: 'shop' }), readCiliumPolicyCIDRs);
    expect(value).toBeUndefined();
    expect(why).toEqual(['invalid-name metadata.name']);
  });

  it('of Kubernetes are its blocks of addresses', () => {
    const spec = {
      ingress: [{ from: [{ ipBlock: { cidr: '10.0.0.0/8' } }, {}] }],
      egress: [{ to: [{ ipBlock: { cidr: 'fd00::/8' } }] }],
    };
    const { value } = read({ ...named('p'), spec }, readNetworkPolicyCIDRs);
    expect(text(value)).toEqual({ id: 'default/p', cidrs: ['10.0.0.0/8', 'fd00::/8'] });
    expect(read({ spec }, readNetworkPolicyCIDRs).value).toBeUndefined();
  });

  it('of a group are the valid ones', () => {
    const { value, why } = read({ ...named('g'), spec: { externalCIDRs: ['10.0.0.0/8', 7] } }, readCIDRGroup);
    expect([value?.name, value?.cidrs.map(String), why]).toEqual([
      ...['g', ['10.0.0.0/8'], ['wrong-type spec.externalCIDRs[1]']],
    ]);
    expect(read({}, readCIDRGroup).value).toBeUndefined();
  });
});

describe('metadata', () => {
  it.each([
    ['a', true],
    ['', false],
    ['a/b', false],
    ['a b', false],
    ['a\u007f', false],
    ['a'.repeat(253), true],
    ['a'.repeat(254), false],
    [7, false],
  ])('%j can be a name: %s', (value, expected) => {
    expect(isName(value)).toBe(expected);
  });

  it.each([
    ['2026-11-22T01:02:03Z', true],
    ['2026-11-22t01:02:03.123456789z', true],
    ['2026-11-22T01:02:03.5+01:30', true],
    ['2026-11-22T01:02:03.1234567890Z', true], // regression: rejected, although valid in the kvstore
    ['2028-02-29T00:00:00Z', true],
    ['2026-02-29T00:00:00Z', false], // regression: accepted as March 1
    ['2026-11-22T24:00:00Z', false], // regression: accepted as the next day
    ['x2026-11-22T01:02:03Z', false],
    ['2026-11-22T01:02:03Zx', false],
    ['2026-11-22T01:02:03.Z', false],
    ['2026-11-22T01:02:03.xZ', false],
    ['2026-11-22T01:02:03', false],
    ['2026-11-22T01:02:03+1:30', false],
    ['2026-11-22T01:02:03+01:3', false],
    ['2026-11-22', false],
    ['2026-13-22T01:02:03Z', false],
  ])('%s is a time: %s', (text, isTime) => {
    const { value, why } = read({ at: text }, (fields) => readTime(fields, 'at'));
    expect([value !== 0, why]).toEqual([isTime, isTime ? [] : ['invalid-time at']]);
  });

  it('has at most 256 kB of annotations', () => {
    const texts = (length: number) =>
      read({ a: { k: 'x'.repeat(length - 1) } }, (fields) => readStringMap(fields, 'a'));
    expect(texts(256 * 1024)).toMatchObject({ why: [] });
    expect(texts(256 * 1024).value?.size).toBe(1);
    expect(texts(256 * 1024 + 1)).toEqual({ value: new Map(), why: ['too-large a'] });
  });

  it('names the object in a rejection, or its kind if it has no name', () => {
    expect(parseObject('Thing', 7, {}, () => 1).rejections).toMatchObject([
      { reason: 'wrong-type', field: 'object', at: 'Thing ?' },
    ]);
    const { rejections } = parseObject('Thing', named('n', { namespace: 's' }), { at: 'file' }, (fields) =>
      fields.map('metadata').integer('name', 0, 1),
    );
    expect(rejections).toMatchObject([{ at: 'file Thing s/n' }]);
    expect(parseObject('Thing', {}, {}, () => 1).rejections).toBe(
      parseObject('Other', {}, {}, () => 2).rejections,
    );
  });
});
