import { describe, expect, it } from 'vitest';
import { parseService, parseServiceID } from '../../src/k8s/parse-service.ts';
import { plain } from '../servicecache/support/plain.ts';

function manifest(spec: object, metadata: object = {}): object {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'checkout', namespace: 'shop', ...metadata },
    spec,
  };
}

const HTTP = { name: 'http', port: 80, protocol: 'TCP' };

function fieldsOf(object: object): Record<string, unknown> {
  return plain(parseService(object).value) as Record<string, unknown>;
}

function rejected(object: unknown): readonly string[] {
  return parseService(object).rejections.map(({ reason, field }) => `${reason} ${field}`);
}

describe('a service is parsed', () => {
  it('with all its fields', () => {
    const parsed = parseService({
      ...manifest(
        {
          type: 'LoadBalancer',
          clusterIP: '172.16.0.10',
          clusterIPs: ['172.16.0.10', 'FD02:0::1'],
          ports: [
            { ...HTTP, nodePort: 31080 },
            { name: 'sctp', port: 9000, protocol: 'SCTP' },
          ],
          externalIPs: ['1.2.3.4', '::ffff:1.2.3.4'],
          loadBalancerSourceRanges: [' 10.1.2.3/8 '],
          externalTrafficPolicy: 'Local',
          internalTrafficPolicy: 'Local',
          healthCheckNodePort: 31000,
          sessionAffinity: 'ClientIP',
          publishNotReadyAddresses: true,
          trafficDistribution: 'PreferClose',
          selector: { app: 'checkout' },
        },
        {
          labels: { team: 'shop' },
          annotations: { 'service.cilium.io/global': 'TRUE', 'service.cilium.io/affinity': 'Local' },
        },
      ),
      status: {
        loadBalancer: {
          ingress: [{ ip: '5.6.7.8' }, { hostname: 'lb.example' }, { ip: '5.6.7.9', ipMode: 'Proxy' }],
        },
      },
    });
    expect(parsed.rejections).toEqual([]);
    expect(plain(parsed.value)).toEqual({
      id: { namespace: 'shop', name: 'checkout' },
      type: 'LoadBalancer',
      addressing: 'assigned',
      clusterIPs: ['172.16.0.10', 'fd02::1'],
      ports: {
        http: { port: 80, protocol: 6, nodePort: 31080 },
        sctp: { port: 9000, protocol: 132, nodePort: 0 },
      },
      externalIPs: ['1.2.3.4'],
      ingressIPs: ['5.6.7.8'],
      sourceRanges: ['10.0.0.0/8'],
      sourceRangesPolicy: 'allow',
      externalTrafficPolicy: 'Local',
      internalTrafficPolicy: 'Local',
      healthCheckNodePort: 31000,
      sessionAffinitySeconds: 10_800,
      publishNotReady: true,
      global: true,
      shared: true,
      affinity: 'local',
      trafficDistribution: 'prefer-close',
      labels: { team: 'shop' },
      selector: { app: 'checkout' },
    });
  });

  it('with the defaults of an API server for absent fields', () => {
    const bare = {
      metadata: { name: 'checkout' },
      spec: { clusterIP: '172.16.0.10', ports: [{ port: 80 }] },
    };
    expect(fieldsOf(bare)).toMatchObject({
      id: { namespace: 'default', name: 'checkout' },
      type: 'ClusterIP',
      ports: { '': { port: 80, protocol: 6, nodePort: 0 } },
      externalTrafficPolicy: 'Cluster',
      internalTrafficPolicy: 'Cluster',
      sessionAffinitySeconds: 0,
      publishNotReady: false,
      global: false,
      shared: false,
      affinity: 'none',
    });
  });

  it.each([
    ['None', 'headless'],
    ['none', 'headless'],
    ['', 'unassigned'],
    [undefined, 'unassigned'],
    ['172.16.0.1', 'assigned'],
    ['garbage', 'assigned'],
  ])('with the cluster IP %j as %s', (clusterIP, addressing) => {
    expect(fieldsOf(manifest({ clusterIP, ports: [] }))).toMatchObject({ addressing });
  });

  it('as headless if it has the label, even with cluster IPs (regression: it had frontends)', () => {
    const labels = { 'service.kubernetes.io/headless': '' };
    const service = manifest({ clusterIP: '172.16.0.1', clusterIPs: ['172.16.0.1'] }, { labels });
    expect(fieldsOf(service)).toMatchObject({ addressing: 'headless', clusterIPs: [] });
  });

  it.each([
    [undefined, ['5.6.7.8']],
    [null, ['5.6.7.8']],
    ['VIP', ['5.6.7.8']],
    ['Proxy', []],
    ['Later', []],
  ])('with the addresses of a load balancer in mode %j: %j', (ipMode, ingressIPs) => {
    const status = { loadBalancer: { ingress: [{ ip: '5.6.7.8', ipMode }] } };
    expect(fieldsOf({ ...manifest({}), status })).toMatchObject({ ingressIPs });
  });

  it.each([
    ['true', true],
    ['TRUE', true],
    [' true', false],
    ['yes', false],
    ['1', false],
  ])('with annotations compared case-insensitively to true: %j', (value, set) => {
    const old = fieldsOf(manifest({}, { annotations: { 'io.cilium/global-service': value } }));
    expect(old).toMatchObject({ global: set, shared: set });
  });

  it("with the shared annotation over the default, and today's names over those of 1.8", () => {
    const annotations = {
      'io.cilium/global-service': 'true',
      'io.cilium/shared-service': 'true',
      'service.cilium.io/shared': 'false',
    };
    expect(fieldsOf(manifest({}, { annotations }))).toMatchObject({ global: true, shared: false });
  });

  it('with the shared annotation even if it is not global', () => {
    const annotations = { 'service.cilium.io/shared': 'True', 'service.cilium.io/affinity': 'Remote' };
    expect(fieldsOf(manifest({}, { annotations }))).toMatchObject({
      global: false,
      shared: true,
      affinity: 'remote',
    });
  });

  it.each<[object, readonly string[]]>([
    [{ clusterIP: '172.16.0.1' }, ['172.16.0.1']],
    [{ clusterIP: 'garbage' }, []],
    [{ clusterIPs: ['172.16.0.1', 'fd00::1'] }, ['172.16.0.1', 'fd00::1']],
    [{}, []],
    [{ clusterIP: 'None', clusterIPs: ['None'] }, []],
  ])('with the cluster IPs of %j', (spec, clusterIPs) => {
    expect(fieldsOf(manifest(spec))).toMatchObject({ clusterIPs });
  });

  it.each([
    [undefined, 10_800],
    [0, 10_800],
    [77, 77],
    [86_400, 86_400],
    [86_401, 10_800],
  ])('with the timeout of its session affinity: %j', (timeoutSeconds, seconds) => {
    const sessionAffinityConfig = { clientIP: { timeoutSeconds } };
    expect(fieldsOf(manifest({ sessionAffinity: 'ClientIP', sessionAffinityConfig }))).toMatchObject({
      sessionAffinitySeconds: seconds,
    });
    expect(fieldsOf(manifest({ sessionAffinityConfig }))).toMatchObject({ sessionAffinitySeconds: 0 });
  });

  it.each(['none', '', 'sideways'])(
    'trap: with the affinity %j as none, which must not turn traffic away',
    (value) => {
      const annotations = { 'service.cilium.io/affinity': value };
      expect(fieldsOf(manifest({}, { annotations }))).toMatchObject({ affinity: 'none' });
    },
  );

  it.each<[string, string | undefined, string]>([
    ['PreferClose', undefined, 'prefer-close'],
    ['PreferSameZone', undefined, 'prefer-same-zone'],
    ['PreferSameNode', undefined, 'prefer-same-node'],
    ['Sideways', undefined, 'none'],
    ['', 'Auto', 'prefer-close'],
    ['', 'auto', 'prefer-close'],
    ['', 'Disabled', 'none'],
    ['PreferSameNode', 'Auto', 'prefer-close'],
    ['PreferSameNode', 'Disabled', 'prefer-same-node'],
  ])('with trafficDistribution %j and topology mode %j as %s', (trafficDistribution, mode, distribution) => {
    for (const name of ['topology-mode', 'topology-aware-hints']) {
      const annotations = mode === undefined ? {} : { [`service.kubernetes.io/${name}`]: mode };
      const spec = trafficDistribution === '' ? {} : { trafficDistribution };
      expect(fieldsOf(manifest(spec, { annotations }))).toMatchObject({ trafficDistribution: distribution });
    }
  });

  it('with every name of one port, and the first port of one name', () => {
    const ports = [HTTP, { ...HTTP, name: 'web' }, { ...HTTP, port: 81 }];
    const { value } = parseService(manifest({ ports }));
    expect([...(value?.ports ?? [])].map(([name, { port }]) => [name, port])).toEqual([
      ['http', 80],
      ['web', 80],
    ]);
  });

  it('with node ports only if the type has them', () => {
    const ports = [{ ...HTTP, nodePort: 31080 }];
    expect(parseService(manifest({ type: 'ClusterIP', ports })).value?.ports.get('http')?.nodePort).toBe(0);
    expect(parseService(manifest({ type: 'NodePort', ports })).value?.ports.get('http')?.nodePort).toBe(
      31_080,
    );
  });
});

describe('invalid fields are rejected separately, with their path and value, and the service is kept', () => {
  it.each<[string, object, string]>([
    [
      'a source range',
      { loadBalancerSourceRanges: ['10.0.0.0/33', '10.0.0.0/8'] },
      'invalid-cidr spec.loadBalancerSourceRanges[0]',
    ],
    [
      'a source range without length',
      { loadBalancerSourceRanges: ['10.0.0.1'] },
      'invalid-cidr spec.loadBalancerSourceRanges[0]',
    ],
    ['an external IP', { externalIPs: ['bogus'] }, 'invalid-address spec.externalIPs[0]'],
    ['a cluster IP', { clusterIP: '172.16.0' }, 'invalid-address spec.clusterIP'],
    ['a port number', { ports: [{ ...HTTP, port: 70_000 }] }, 'out-of-range spec.ports[0].port'],
    ['port zero', { ports: [{ ...HTTP, port: 0 }] }, 'out-of-range spec.ports[0].port'],
    ['a port as text', { ports: [{ ...HTTP, port: '80' }] }, 'wrong-type spec.ports[0].port'],
    ['no port number', { ports: [{ name: 'http' }] }, 'missing spec.ports[0].port'],
    ['a protocol', { ports: [{ ...HTTP, protocol: 'tcp' }] }, 'unknown-value spec.ports[0].protocol'],
    ['a port name', { ports: [{ ...HTTP, name: 7 }] }, 'wrong-type spec.ports[0].name'],
    ['a port that is none', { ports: [7] }, 'wrong-type spec.ports[0]'],
    ['a port that is null', { ports: [null, HTTP] }, 'wrong-type spec.ports[0]'],
    ['ports that are no list', { ports: { http: 80 } }, 'wrong-type spec.ports'],
    ['a traffic policy', { externalTrafficPolicy: 'Global' }, 'unknown-value spec.externalTrafficPolicy'],
    ['a session affinity', { sessionAffinity: 7 }, 'wrong-type spec.sessionAffinity'],
    ['a selector', { selector: { app: 7 } }, 'wrong-type spec.selector.app'],
    ['an unknown type', { type: 'Weird' }, 'unknown-value spec.type'],
  ])('%s', (_what, spec, rejection) => {
    expect(rejected(manifest(spec))).toEqual([rejection]);
    expect(parseService(manifest(spec)).value?.id.name).toBe('checkout');
  });

  it.each([{ name: 7 }, { protocol: 'tcp' }, { port: 0 }])('a port with %j is none', (wrong) => {
    const { value } = parseService(manifest({ ports: [{ ...HTTP, ...wrong }] }));
    expect(value?.ports.size).toBe(0);
  });

  it('an invalid ingress point', () => {
    const status = { loadBalancer: { ingress: [null, 7, { ip: '5.6.7.8' }] } };
    expect(rejected({ ...manifest({}), status })).toEqual([
      'wrong-type status.loadBalancer.ingress[0]',
      'wrong-type status.loadBalancer.ingress[1]',
    ]);
    expect(fieldsOf({ ...manifest({}), status })).toMatchObject({ ingressIPs: ['5.6.7.8'] });
  });

  it('of source ranges the valid ones apply; if none is valid, no client is allowed', () => {
    const ranges = (loadBalancerSourceRanges: unknown): unknown =>
      plain(parseService(manifest({ loadBalancerSourceRanges })).value?.sourceRanges);
    expect(ranges(['10.0.0.0/33', '10.0.0.0/8'])).toEqual(['10.0.0.0/8']);
    expect(ranges(['10.0.0.0/33'])).toEqual([]);
    expect(ranges('10.0.0.0/8')).toEqual([]);
    expect(ranges([])).toBeUndefined();
    expect(ranges(undefined)).toBeUndefined();
  });

  it('names the source in one sentence', () => {
    const { rejections } = parseService(manifest({ externalIPs: ['bogus'] }), { at: 'services.yaml:12' });
    expect(rejections[0]?.message).toBe(
      'services.yaml:12 Service shop/checkout: spec.externalIPs[0] "bogus" is not a valid IP address',
    );
  });

  it.each<[object, string]>([
    [{ metadata: { name: 'a/b', namespace: 'shop' } }, 'Service shop/a/b: metadata.name "a/b": '],
    [{ metadata: { namespace: 'shop' } }, 'Service shop/?: metadata.name '],
    [{ metadata: { name: 'a', namespace: '' } }, 'Service /a: metadata.namespace "": '],
    [{ metadata: 7 }, 'Service ?: metadata.name '],
  ])('even if its name is invalid: %j', (object, beginning) => {
    for (const parse of [parseService, parseServiceID]) {
      const { value, rejections } = parse(object);
      const last = rejections.at(-1);
      expect([value, last?.reason, last?.message.slice(0, beginning.length)]).toEqual([
        undefined,
        'invalid-name',
        beginning,
      ]);
    }
  });

  it.each(['a b', 'a\n', 'a/b', '', 'a'.repeat(254)])(
    'with all requirements that a name must meet: %j',
    (name) => {
      const { rejections } = parseService({ metadata: { name, namespace: 'shop' } });
      expect(rejections[0]?.message).toMatch(
        /: must be a string of 1 to 253 characters, without spaces, control characters and \/$/,
      );
    },
  );

  it('an unknown type is a service that is not served', () => {
    expect(parseService(manifest({ type: 'Weird' })).value?.type).toBe('unknown');
  });
});

describe('an invalid service is rejected completely', () => {
  it.each([
    undefined,
    null,
    7,
    'text',
    [],
    {},
    { metadata: 'x' },
    { metadata: {} },
    { metadata: { name: '' } },
    { metadata: { name: 7 } },
    { metadata: { name: 'a/b' } },
    { metadata: { name: 'a', namespace: 7 } },
  ])('%j', (object) => {
    const parsed = parseService(object);
    expect(parsed.value).toBeUndefined();
    expect(parsed.rejections.length).toBeGreaterThan(0);
    expect(parseServiceID(object).value).toBeUndefined();
  });
});

describe('trap: keys such as __proto__ and constructor in JSON from outside', () => {
  it('are ordinary labels, and reach no prototype', () => {
    const object: unknown = JSON.parse(
      '{"metadata":{"name":"a","namespace":"b","labels":{"__proto__":"x","constructor":"y"}},' +
        '"spec":{"__proto__":{"clusterIP":"1.2.3.4"},"ports":[{"name":"__proto__","port":80}]}}',
    );
    const { value, rejections } = parseService(object);
    expect(rejections).toEqual([]);
    expect([...(value?.labels ?? [])]).toEqual([
      ['__proto__', 'x'],
      ['constructor', 'y'],
    ]);
    expect(value?.addressing).toBe('unassigned');
    expect(value?.ports.get('__proto__')?.port).toBe(80);
    expect(Object.prototype).not.toHaveProperty('clusterIP');
  });

  it('no inherited property is read as a field', () => {
    const object = Object.create({ metadata: { name: 'a', namespace: 'b' } });
    expect(parseService(object).value).toBeUndefined();
  });
});

describe('the restriction of a service to nodes', () => {
  const SELECTOR = 'service.cilium.io/node-selector';
  const LABEL = 'service.cilium.io/node';
  const read = (annotations: Readonly<Record<string, string>>) =>
    parseService({
      metadata: { namespace: 'shop', name: 'web', annotations },
      spec: { clusterIP: '10.9.0.1' },
    });

  it.each([
    [{}, undefined, undefined],
    [{ [LABEL]: 'Beefy' }, undefined, 'Beefy'],
    [{ [SELECTOR]: 'a in (B)' }, 'a in (B)', undefined],
    [{ [SELECTOR]: '', [LABEL]: 'beefy' }, '', undefined],
  ])('of %j', (annotations, nodeSelector, nodeLabel) => {
    expect(read(annotations).rejections).toEqual([]);
    expect(read(annotations).value).toMatchObject({ nodeSelector, nodeLabel });
  });

  it('by an invalid selector is rejected, and restricts nothing', () => {
    const { value, rejections } = read({ [SELECTOR]: 'a in b', [LABEL]: 'beefy' });
    expect(value).toMatchObject({ nodeSelector: undefined, nodeLabel: undefined });
    expect(rejections).toMatchObject([
      { field: `metadata.annotations.${SELECTOR}`, reason: 'invalid-selector', value: '"a in b"' },
    ]);
    expect(rejections[0]?.message).toContain('expected ( instead of "b"');
  });
});

describe('annotations of load balancing', () => {
  const read = (annotations: Readonly<Record<string, string>>) =>
    parseService({
      metadata: { namespace: 'shop', name: 'web', annotations },
      spec: { clusterIP: '10.9.0.1', loadBalancerSourceRanges: ['10.0.0.0/8'] },
    });

  it.each([
    [{}, undefined, 'allow'],
    [{ 'service.cilium.io/type': 'LoadBalancer' }, 'LoadBalancer', 'allow'],
    [{ 'service.cilium.io/src-ranges-policy': 'Deny' }, undefined, 'deny'],
    [{ 'service.cilium.io/src-ranges-policy': 'none' }, undefined, 'allow'],
  ])('of %j', (annotations, exposedType, sourceRangesPolicy) => {
    expect(read(annotations).rejections).toEqual([]);
    expect(read(annotations).value).toMatchObject({ exposedType, sourceRangesPolicy });
  });

  it('an unsupported exposed type is rejected, and restricts nothing', () => {
    const { value, rejections } = read({ 'service.cilium.io/type': 'ExternalName' });
    expect(value).toMatchObject({ exposedType: undefined });
    expect(rejections).toMatchObject([{ field: 'metadata.annotations.service.cilium.io/type' }]);
  });
});
