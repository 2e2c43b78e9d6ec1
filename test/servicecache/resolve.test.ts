import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService } from '../../src/servicecache/service.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { NaiveServiceCache } from './support/naive-service-cache.ts';
import { apply, history, IDS, OWN_CLUSTER } from './support/operations.ts';
import { nameOf, text } from './support/plain.ts';

interface PlainPort {
  readonly port: number;
  readonly protocol: number;
}

interface PlainService {
  readonly service: { readonly ports: Readonly<Record<string, PlainPort>> };
  readonly backends: Readonly<Record<string, { readonly ports: Readonly<Record<string, PlainPort>> }>>;
}

/** Returns the backends at a port, from the plain view of the model. */
function naiveResolve(announced: PlainService, wanted: string | number): readonly string[] | undefined {
  const names = Object.entries(announced.service.ports)
    .filter(([name, { port }]) => name === wanted || port === wanted)
    .map(([name]) => name);
  if (names.length === 0) return undefined;
  return Object.entries(announced.backends)
    .flatMap(([address, { ports }]) =>
      names.flatMap((name) => {
        const at = ports[name];
        return at === undefined ? [] : [`${address} ${name} ${at.port}/${at.protocol}`];
      }),
    )
    .sort();
}

describe('resolve', () => {
  it('returns the effective backends at a port, like the model', () => {
    fc.assert(
      fc.property(history, fc.boolean(), (operations, nodePorts) => {
        const nodePort = { enabled: nodePorts };
        const cache = new ServiceCache({ clusterName: OWN_CLUSTER, nodePort });
        const model = new NaiveServiceCache(OWN_CLUSTER, nodePorts);
        for (const operation of operations) {
          apply(cache, operation);
          apply(model, operation);
        }
        const view = model.view();
        for (const id of IDS) {
          const shown = view.get(nameOf(id));
          const announced: PlainService | undefined = shown && JSON.parse(shown);
          for (const port of ['http', 'dns', '', 'none', 80, 53, 1]) {
            const found = cache.resolve(id, port);
            const expected = announced && naiveResolve(announced, port);
            const lines = found?.map((at) => `${at.address} ${at.portName} ${at.port}/${at.protocol}`).sort();
            expect(lines).toEqual(expected);
            for (const at of found ?? [])
              expect(text(at.backend)).toBe(text(cache.get(id)?.endpoints.backends.get(at.address)));
          }
        }
      }),
    );
  });

  it('accepts a number for every protocol under it, and distinguishes "no such port" from "no backend"', () => {
    const id = { namespace: 'kube-system', name: 'dns' };
    const cache = new ServiceCache({ clusterName: 'a' });
    const port = { port: 53, nodePort: 0 };
    cache.updateService(
      createService({
        id,
        addressing: 'assigned',
        clusterIPs: ['172.16.0.10'],
        ports: [
          ['dns', { ...port, protocol: 17 }],
          ['dns-tcp', { ...port, protocol: 6 }],
          ['metrics', { ...port, port: 9153, protocol: 6 }],
        ],
      }),
    );
    expect(cache.resolve(id, 53)).toBeUndefined();
    const ports = new Map([
      ['dns', { port: 5353, protocol: 17 }],
      ['dns-tcp', { port: 5353, protocol: 6 }],
    ]);
    cache.updateEndpoints(
      createEndpointSlice({ service: id, backends: [createBackend({ address: '10.0.0.1', ports })] }),
    );
    expect(cache.resolve(id, 53)).toMatchObject([
      { address: '10.0.0.1', portName: 'dns', port: 5353, protocol: 17, backend: { cluster: '' } },
      { address: '10.0.0.1', portName: 'dns-tcp', port: 5353, protocol: 6 },
    ]);
    expect(cache.resolve(id, 'dns')).toHaveLength(1);
    expect(cache.resolve(id, 9153)).toEqual([]);
    expect(cache.resolve(id, 5353)).toBeUndefined();
    expect(cache.resolve({ ...id, name: 'other' }, 53)).toBeUndefined();
  });
});
