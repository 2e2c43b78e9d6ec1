import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { parseEndpointSlice } from '../../src/k8s/parse-endpoint-slice.ts';
import { parseEndpoints } from '../../src/k8s/parse-endpoints.ts';
import { parseService } from '../../src/k8s/parse-service.ts';
import { checkRejection } from '../base/support/check-rejection.ts';
import { spoiltJson } from '../base/support/spoilt-json.ts';
import { text } from '../servicecache/support/plain.ts';

const NAMES = [
  'metadata',
  'name',
  'namespace',
  'labels',
  'annotations',
  'spec',
  'type',
  'clusterIP',
  'clusterIPs',
  'ports',
  'port',
  'protocol',
  'nodePort',
  'externalIPs',
  'selector',
  'status',
  'loadBalancer',
  'ingress',
  'ip',
  'subsets',
  'addresses',
  'endpoints',
  'conditions',
  'ready',
  'hints',
  'forZones',
  'topology',
  'kubernetes.io/service-name',
  '__proto__',
  'constructor',
  'sessionAffinityConfig',
  'clientIP',
  'loadBalancerSourceRanges',
  'notReadyAddresses',
  'addressType',
] as const;

/** JSON with known field names in wrong places. */
const hostile = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'medium', withCrossShrink: true },
    fc.constantFrom<unknown>(
      null,
      true,
      0,
      -1,
      1e9,
      80,
      '',
      'a',
      '10.0.0.1',
      'fd00::1',
      'TCP',
      'None',
      '10.0.0.0/8',
    ),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom(...NAMES), tie('value'), { maxKeys: 6 }),
  ),
}));

/** Such JSON around a usable name, so that the rest is read. */
const named = fc.dictionary(fc.constantFrom(...NAMES), hostile.value, { maxKeys: 6 }).map((object) => ({
  ...object,
  metadata: { name: 'a', namespace: 'b', labels: { 'kubernetes.io/service-name': 'a' }, annotations: object },
}));

/** Objects as an API server stores them, including those of the example. */
const STORED: readonly object[] = [
  ...parseAllDocuments(readFileSync('examples/services.yaml', 'utf8')).map(
    (document) => document.toJS() as object,
  ),
  {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'a', namespace: 'b', labels: { app: 'a' } },
    spec: {
      type: 'LoadBalancer',
      clusterIP: '172.16.0.1',
      clusterIPs: ['172.16.0.1', 'fd00::1'],
      externalIPs: ['1.2.3.4'],
      loadBalancerSourceRanges: ['10.0.0.0/8'],
      selector: { app: 'a' },
      ports: [{ name: 'http', port: 80, protocol: 'TCP', nodePort: 30_080 }],
      sessionAffinity: 'ClientIP',
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 77 } },
      externalTrafficPolicy: 'Local',
      healthCheckNodePort: 31_000,
      trafficDistribution: 'PreferClose',
    },
    status: { loadBalancer: { ingress: [{ ip: '5.6.7.8', ipMode: 'VIP' }] } },
  },
  {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { name: 'a', namespace: 'b' },
    subsets: [
      {
        addresses: [{ ip: '10.0.0.1', nodeName: 'n1', hostname: 'a-0' }],
        notReadyAddresses: [{ ip: '10.0.0.2' }],
        ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
      },
    ],
  },
  {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    addressType: 'IPv4',
    metadata: { name: 'a-1', namespace: 'b', labels: { 'kubernetes.io/service-name': 'a' } },
    endpoints: [
      {
        addresses: ['10.0.0.1'],
        nodeName: 'n1',
        zone: 'z1',
        hostname: 'a-0',
        conditions: { ready: true, serving: true, terminating: false },
        hints: { forZones: [{ name: 'z1' }] },
      },
    ],
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
  },
];

describe.each([
  ['parseService', parseService],
  ['parseEndpoints', parseEndpoints],
  ['parseEndpointSlice', parseEndpointSlice],
] as const)('%s', (_name, parse) => {
  it('never throws, and each rejection names a field and a value', () => {
    fc.assert(
      fc.property(fc.oneof(hostile.value, named), (object) => {
        const { value, rejections } = parse(object);
        if (value === undefined && rejections.length === 0) throw new Error('rejected in silence');
        for (const { field, value: shown, message } of rejections) {
          if (field === '' || shown === '' || !message.includes(field)) throw new Error(message);
        }
      }),
    );
  });

  it('reads a damaged stored object without its invalid parts, with messages of limited length', () => {
    const spoilt = spoiltJson(STORED.map((object) => JSON.stringify(object)));
    fc.assert(
      fc.property(spoilt, ({ bytes }) => {
        const object = parsedOrNothing(bytes);
        const { value, rejections } = parse(object);
        expect(value !== undefined || rejections.length > 0).toBe(true);
        rejections.forEach(checkRejection);
        expect(text(parse(object).value)).toBe(text(value));
      }),
    );
  });
});

/** Returns what an API server would accept of it. */
function parsedOrNothing(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString());
  } catch {
    return undefined;
  }
}
