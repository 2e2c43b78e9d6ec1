import fc from 'fast-check';
import { describe, it } from 'vitest';
import { parseEndpointSlice } from '../../src/k8s/parse-endpoint-slice.ts';
import { parseEndpoints } from '../../src/k8s/parse-endpoints.ts';
import { parseService } from '../../src/k8s/parse-service.ts';

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

/** JSON that uses the right words in wrong places. */
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

/** Such JSON around a usable name, so that the rest is looked at. */
const named = fc.dictionary(fc.constantFrom(...NAMES), hostile.value, { maxKeys: 6 }).map((object) => ({
  ...object,
  metadata: { name: 'a', namespace: 'b', labels: { 'kubernetes.io/service-name': 'a' }, annotations: object },
}));

describe.each([
  ['parseService', parseService],
  ['parseEndpoints', parseEndpoints],
  ['parseEndpointSlice', parseEndpointSlice],
] as const)('%s', (_name, parse) => {
  it('never throws, and names a field and a value with everything it rejects', () => {
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
});
