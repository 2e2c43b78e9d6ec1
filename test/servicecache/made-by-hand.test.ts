import { Map as ImmutableMap, Set as ImmutableSet, List } from 'immutable';
import { describe, expect, it } from 'vitest';
import { UsageError } from '../../src/base/arguments.ts';
import { type BackendState, createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService, equalServices } from '../../src/servicecache/service.ts';
import { cacheOf, transcript } from './support/scene.ts';

const id = { namespace: 'shop', name: 'checkout' };
const port = { port: 80, protocol: 6, nodePort: 0 };
const target = { port: 8080, protocol: 6 };

describe('values from own code', () => {
  it('may have ports without a node port', () => {
    const ports = [['http', { port: 80, protocol: 6 }]] as const;
    expect(equalServices(createService({ id, ports }), createService({ id, ports: [['http', port]] }))).toBe(
      true,
    );
  });

  it('are refused with a text as protocol, or with something else than ports or backends (regression: accepted)', () => {
    const refuse = (make: (fields: never) => unknown, fields: object, message: string): void =>
      expect(() => Reflect.apply(make, undefined, [fields])).toThrow(message);
    const ports = [['http', { port: 80, protocol: 'TCP' }]];
    const fault = '"http" must have a port and the number of a protocol, such as 6 for TCP, not {"port":80,';
    refuse(createService, { id, ports }, `createService: fields.ports ${fault}`);
    refuse(createBackend, { address: '10.0.0.1', ports }, `createBackend: fields.ports ${fault}`);
    refuse(createService, { id, ports: [['http', 5]] }, 'such as 6 for TCP, not 5');
    refuse(
      createEndpointSlice,
      { service: id, backends: [{ address: '10.0.0.1' }] },
      'fields.backends[0] must be a result of createBackend, not {"address":"10.0.0.1"}',
    );
  });

  it('have canonical addresses, and none that is invalid (regression: it was announced, and lost from the checkpoint)', () => {
    expect(createBackend({ address: 'FD00::1', ports: [] }).address).toBe('fd00::1');
    expect(createBackend({ address: '::ffff:10.0.0.1', ports: [] }).address).toBe('10.0.0.1');
    const addresses = {
      clusterIPs: ['FD00::1'],
      externalIPs: ['10.0.0.1', 'FD00::1'],
      ingressIPs: ['FD00::1'],
    };
    const { clusterIPs, externalIPs, ingressIPs, sourceRanges } = createService({
      id,
      ...addresses,
      sourceRanges: ['10.1.2.3/8', 'FD00::/16'],
    });
    expect([...clusterIPs, ...ingressIPs]).toEqual(['fd00::1', 'fd00::1']);
    expect([...externalIPs]).toEqual(['10.0.0.1', 'fd00::1']);
    expect([...(sourceRanges ?? [])]).toEqual(['10.0.0.0/8', 'fd00::/16']);
    const refuse = (make: () => unknown, field: string, rule: string): void => {
      expect(make).toThrow(new UsageError('invalid-argument', `${field} must be ${rule}`));
    };
    for (const [address, shown] of [
      ['db.example.com', '"db.example.com"'],
      ['10.0.0.1/32', '"10.0.0.1/32"'],
      [undefined, 'undefined'],
    ] as const) {
      const rule = `an IP address, not ${shown}`;
      const make = (): unknown => createBackend({ address: address as string, ports: [] });
      refuse(make, 'createBackend: fields.address', rule);
      for (const field of ['clusterIPs', 'externalIPs', 'ingressIPs'])
        refuse(
          () => createService({ id, [field]: ['10.0.0.1', address] }),
          `createService: fields.${field}`,
          rule,
        );
    }
    const sourceRange = (): unknown => createService({ id, sourceRanges: ['10.0.0.1'] });
    refuse(sourceRange, 'createService: fields.sourceRanges', 'a CIDR, not "10.0.0.1"');
  });

  it.each([-1, 65_536, 1.5, Number.NaN])('have no port %s', (port) => {
    const ports = [['http', { port, protocol: 6 }]] as const;
    const fault = 'fields.ports "http" must have a port and the number of a protocol';
    expect(() => createBackend({ address: '10.0.0.1', ports })).toThrow(fault);
    expect(() => createService({ id, ports: [['http', { port: 80, protocol: 256 }]] })).toThrow(fault);
  });

  it.each([-1, 65_536, 1.5, Number.NaN])(
    'have no node port %s (regression: the checkpoint lost the service)',
    (nodePort) => {
      const rule = 'must be an integer from 0 to 65535';
      const valid = ['a', { port: 80, protocol: 6 }] as const;
      expect(() =>
        createService({ id, ports: [valid, ['http', { port: 81, protocol: 6, nodePort }]] }),
      ).toThrow(`createService: fields.ports "http".nodePort ${rule}`);
      expect(() => createService({ id, healthCheckNodePort: nodePort })).toThrow(
        `createService: fields.healthCheckNodePort ${rule}`,
      );
    },
  );

  it.each([-1, 65_536, 1.5])('have no weight %s (regression: the checkpoint lost the slice)', (weight) => {
    expect(() => createBackend({ address: '10.0.0.1', ports: [], weight })).toThrow(
      `createBackend: fields.weight must be a number from 0 to 65535, not ${weight}`,
    );
    expect(createBackend({ address: '10.0.0.1', ports: [], weight: 65_535 }).weight).toBe(65_535);
  });

  it('may be native or immutable collections, with the same result', () => {
    const native = createService({
      id,
      clusterIPs: ['172.16.0.10'],
      ports: new Map([['http', port]]),
      externalIPs: new Set(['192.0.2.1']),
      ingressIPs: ['192.0.2.2'],
      sourceRanges: new Set<string>(),
      labels: [['app', 'checkout']],
      selector: new Map([['app', 'checkout']]),
    });
    const immutable = createService({
      id,
      clusterIPs: List(['172.16.0.10']),
      ports: ImmutableMap({ http: port }),
      externalIPs: ImmutableSet(['192.0.2.1']),
      ingressIPs: ImmutableSet(['192.0.2.2']),
      sourceRanges: ImmutableSet<string>(),
      labels: ImmutableMap({ app: 'checkout' }),
      selector: ImmutableMap({ app: 'checkout' }),
    });
    expect(equalServices(native, immutable)).toBe(true);
    expect(native.sourceRanges?.size).toBe(0);
    expect(createService({ id }).sourceRanges).toBeUndefined();
    const addressings = [{}, { clusterIPs: [] }, { clusterIPs: new Set(['172.16.0.10']) }].map(
      (fields) => createService({ id, ...fields }).addressing,
    );
    expect(addressings).toEqual(['unassigned', 'unassigned', 'assigned']);
  });

  it('have the same defaults for undefined as for omitted fields', () => {
    const service = createService({ id, type: undefined, shared: undefined, nodeSelector: undefined });
    expect(service).toEqual(createService({ id }));
    const fields = { address: '10.0.0.1', ports: [['http', target]] } as const;
    expect(createBackend({ ...fields, weight: undefined, cluster: undefined })).toEqual(
      createBackend(fields),
    );
  });

  it('are served like those of Kubernetes', () => {
    const cache = cacheOf();
    const told = transcript(cache);
    const backend = (address: string, state: BackendState = 'active') =>
      createBackend({ address, state, ports: new Map([['http', target]]) });
    expect(cache.updateService(createService({ id, clusterIPs: ['172.16.0.10'] }))).toBe('applied');
    const slice = createEndpointSlice({ service: id, backends: [backend('10.0.0.1'), backend('10.0.0.2')] });
    expect(slice.name).toBe('checkout');
    cache.updateEndpoints(slice);
    cache.updateEndpoints(
      createEndpointSlice({
        service: id,
        backends: new Set([
          backend('10.0.0.2'),
          backend('10.0.0.1', 'not-ready'),
          backend('10.0.0.2', 'not-ready'),
        ]),
      }),
    );
    expect(told).toEqual([
      'update shop/checkout 10.0.0.1:8080 10.0.0.2:8080',
      'update shop/checkout 10.0.0.2:8080',
    ]);
    expect(cache.explain(id)?.backends.map(({ address, verdict }) => `${address} ${verdict}`)).toEqual([
      '10.0.0.1 not-ready',
      '10.0.0.2 effective',
    ]);
  });
});
