import { expect, it } from 'vitest';
import { SharedParts } from '../../src/k8s/endpoint-claim.ts';
import { readEndpointSlice } from '../../src/k8s/parse-endpoint-slice.ts';
import { parseObject } from '../../src/k8s/parse-object.ts';
import { readService } from '../../src/k8s/parse-service.ts';
import { SharedValues } from '../../src/k8s/shared-values.ts';
import type { Ports } from '../../src/servicecache/backend.ts';
import type { Service } from '../../src/servicecache/service.ts';

it('returns the first of equal values, and remembers a limited number of them', () => {
  const shared = new SharedValues<object>();
  const first = {};
  expect(shared.share('a', first)).toBe(first);
  expect(shared.share('a', {})).toBe(first);
  for (let i = 0; i < 4096; i++) shared.share(String(i), {});
  const again = {};
  expect(shared.share('a', again)).toBe(again);
});

it('does not confuse ports, whatever their names are', () => {
  const shared = new SharedParts();
  const port = { port: 1, protocol: 6 };
  const all = [
    new Map([['a', port]]),
    new Map([['a', { port: 1, protocol: 17 }]]),
    new Map([['a', { port: 11, protocol: 6 }]]),
    new Map([['a:1/6,1:b', port]]),
    new Map([
      ['a', port],
      ['b', port],
    ]),
  ];
  for (const ports of all) expect(shared.ports(ports)).toBe(ports);
  for (const ports of all) expect(shared.ports(new Map(ports))).toBe(ports);
});

const TCP = { name: 'http', port: 80, protocol: 'TCP' };

it('shares the ports of services, unless one has another node port', () => {
  const ports = new SharedValues<Service['ports']>();
  const read = (name: string, nodePort: number): Service | undefined => {
    const spec = { type: 'NodePort', clusterIP: '10.0.0.1', ports: [{ ...TCP, nodePort }] };
    const object = { metadata: { namespace: 'shop', name }, spec };
    return parseObject('Service', object, {}, (fields) => readService(fields, ports)).value;
  };
  const first = read('a', 30_000);
  expect(read('b', 30_000)?.ports).toBe(first?.ports);
  expect(read('c', 30_001)?.ports.toJS()).toEqual({ http: { port: 80, protocol: 6, nodePort: 30_001 } });
});

it('shares the ports of slices', () => {
  const ports = new SharedValues<Ports>();
  const read = (address: string, port: number): Ports | undefined => {
    const labels = { 'kubernetes.io/service-name': 'a' };
    const object = {
      metadata: { namespace: 'shop', name: 'a-1', labels },
      addressType: 'IPv4',
      endpoints: [{ addresses: [address] }],
      ports: [{ ...TCP, port }],
    };
    const slice = parseObject('EndpointSlice', object, {}, (fields) =>
      readEndpointSlice(fields, ports),
    ).value;
    return slice?.backends.get(address)?.ports;
  };
  expect(read('10.0.0.2', 80)).toBe(read('10.0.0.1', 80));
  expect(read('10.0.0.2', 81)?.toJS()).toEqual({ http: { port: 81, protocol: 6 } });
});

it.each([
  { name: 'equal', selector: { app: 'a', tier: 'b' } },
  { name: 'smaller', selector: { app: 'a' } },
  { name: 'different', selector: { app: 'a', tier: 'c' } },
  { name: 'other names', selector: { app: 'a', zone: 'b' } },
])('reads labels and a selector: $name', ({ name, selector }) => {
  const labels = { app: 'a', tier: 'b' };
  const object = { metadata: { namespace: 'shop', name: 'a', labels }, spec: { selector } };
  const service = parseObject('Service', object, {}, (fields) => readService(fields)).value;
  expect(service?.labels.toJS()).toEqual(labels);
  expect(service?.selector.toJS()).toEqual(selector);
  expect(service?.selector === service?.labels).toBe(name === 'equal');
});
