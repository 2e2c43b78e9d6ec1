import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { currentDocument, recordDocuments } from '../../src/agent/recorded-documents.ts';
import { serviceDocument } from '../../src/api/documents.ts';
import { History } from '../../src/history/history.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService } from '../../src/servicecache/service.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../base/support/manual-clock.ts';
import { itemsOf } from '../history/support/past-lists.ts';

const ID = { namespace: 'shop', name: 'cart' };
const PORTS = [['http', { port: 80, protocol: 6 }]] as const;

type Step =
  | { readonly do: 'service'; readonly ip: string; readonly global: boolean }
  | { readonly do: 'no-service' }
  | { readonly do: 'slice'; readonly addresses: readonly string[]; readonly node: string }
  | { readonly do: 'offer'; readonly cluster: string; readonly addresses: readonly string[] }
  | { readonly do: 'no-offer'; readonly cluster: string };

const addresses = fc.uniqueArray(fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.0.3', 'fd00::1'));
const cluster = fc.constantFrom('baltic', 'caspian');
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    do: fc.constant('service' as const),
    ip: fc.constantFrom('172.16.0.1', '172.16.0.2'),
    global: fc.boolean(),
  }),
  fc.record({ do: fc.constant('no-service' as const) }),
  fc.record({ do: fc.constant('slice' as const), addresses, node: fc.constantFrom('n1', 'n2') }),
  fc.record({ do: fc.constant('offer' as const), cluster, addresses }),
  fc.record({ do: fc.constant('no-offer' as const), cluster }),
);

function apply(services: ServiceCache, one: Step): void {
  if (one.do === 'service') {
    const { ip, global } = one;
    const ports = [['http', { port: 80, protocol: 6, nodePort: 0 }]] as const;
    services.updateService(
      createService({ id: ID, addressing: 'assigned', clusterIPs: [ip], global, ports }),
    );
  } else if (one.do === 'no-service') services.deleteService(ID);
  else if (one.do === 'slice') {
    const backends = one.addresses.map((address) =>
      createBackend({ address, ports: PORTS, nodeName: one.node }),
    );
    services.updateEndpoints(createEndpointSlice({ service: ID, name: 's', backends }));
  } else if (one.do === 'offer') {
    const backends = new Map(one.addresses.map((address) => [address, new Map(PORTS)]));
    services.mergeExternalServiceUpdate({
      cluster: one.cluster,
      namespace: ID.namespace,
      name: ID.name,
      clusterID: 3,
      frontends: new Map(),
      backends,
      hostnames: new Map(),
      zones: new Map(),
      labels: new Map(),
      selector: new Map(),
      includeExternal: true,
      shared: true,
    });
  } else services.mergeExternalServiceDelete({ cluster: one.cluster, ...ID });
}

/** The document of the service now, as text. */
function now(services: ServiceCache): string | undefined {
  const announced = services.get(ID);
  return announced && JSON.stringify(serviceDocument(announced, { services, restoredOf: () => undefined }));
}

function sorted(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  const fields = value as Readonly<Record<string, unknown>>;
  return JSON.stringify(Object.fromEntries(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1))));
}

describe('the history of services', () => {
  it('gives the document of every retained moment, as a copy after each change has it', async () => {
    const some = (maxLength: number) => fc.array(step, { maxLength });
    await fc.assert(
      fc.asyncProperty(some(4), some(20), async (before, steps) => {
        const clock = new ManualClock();
        const services = new ServiceCache({ clusterName: 'own' });
        services.markSynced();
        for (const one of before) apply(services, one);
        const ipcache = new IPCache();
        const nodes = new NodeManager({
          ipcache,
          clock,
          random: () => 0.5,
          clusterName: 'own',
          nodeName: 'n',
        });
        const history = new History({ ipcache, clock });
        history.start();
        recordDocuments(history, { services, nodes });
        const copies: { readonly at: number; readonly document: string | undefined }[] = [];
        copies.push({ at: clock.wallTime(), document: now(services) });
        for (const one of steps) {
          clock.advance(3);
          apply(services, one);
          copies.push({ at: clock.wallTime(), document: now(services) });
        }
        clock.advance(3);
        const announced = services.get(ID);
        const current = announced && {
          ...serviceDocument(announced, { services, restoredOf: () => undefined }),
        };
        expect(currentDocument({ services, nodes }, 'service', 'shop/cart')).toEqual(current);
        for (const { at, document } of copies) {
          const past = await history.past.documentAt('service', 'shop/cart', current, at + 1);
          expect(past.certain).toBe(true);
          expect(sorted(past.document)).toEqual(sorted(document && JSON.parse(document)));
        }
      }),
      { numRuns: 300 },
    );
  });

  it('records nodes with their fields before and after', async () => {
    const clock = new ManualClock();
    const ipcache = new IPCache();
    const nodes = new NodeManager({
      ipcache,
      clock,
      random: () => 0.5,
      clusterName: 'own',
      nodeName: 'n',
    });
    const history = new History({ ipcache, clock });
    history.start();
    const services = new ServiceCache({ clusterName: 'own' });
    recordDocuments(history, { services, nodes });
    const node = { cluster: 'baltic', name: 'node-1', source: 'clustermesh' } as const;
    clock.advance(10);
    nodes.nodeUpdated({ ...node, addresses: [{ type: 'InternalIP', ip: '192.168.7.1' }] });
    clock.advance(10);
    const current = currentDocument({ services, nodes }, 'node', 'baltic/node-1');
    nodes.nodeDeleted(node);
    expect(currentDocument({ services, nodes }, 'node', 'baltic/node-1')).toBeUndefined();
    clock.advance(10);
    const at = (when: number) =>
      history.past.documentAt('node', 'baltic/node-1', undefined, WALL_TIME_AT_0 + when);
    expect((await at(5)).document).toBeUndefined();
    expect((await at(15)).document).toMatchObject({ addresses: [{ ip: '192.168.7.1' }] });
    expect((await at(15)).document).toEqual(current);
    expect(await at(25)).toMatchObject({ document: undefined, since: WALL_TIME_AT_0 + 20, certain: true });
    const changes = await itemsOf(history.past.documentsOf('node', 'baltic/node-1'));
    expect(changes.map(({ at: when }) => when)).toEqual([20, 10].map((ms) => WALL_TIME_AT_0 + ms));
  });

  it.each<[string, readonly string[]]>([
    ['without backends', []],
    ['with backends', ['10.0.0.1', '10.0.0.2']],
  ])('records the begin and the end of a service %s with its whole document', async (_what, backends) => {
    const clock = new ManualClock();
    const ipcache = new IPCache();
    const nodes = new NodeManager({ ipcache, clock, clusterName: 'own', nodeName: 'n' });
    const services = new ServiceCache({ clusterName: 'own' });
    services.markSynced();
    const history = new History({ ipcache, clock });
    history.start();
    recordDocuments(history, { services, nodes });
    if (backends.length > 0) apply(services, { do: 'slice', addresses: backends, node: 'n1' });
    apply(services, { do: 'service', ip: '172.16.0.1', global: false });
    const document = JSON.parse(now(services) ?? '{}');
    expect(document.backends).toHaveLength(backends.length);
    clock.advance(10);
    apply(services, { do: 'no-service' });
    const records = await itemsOf(history.past.documentsOf('service', 'shop/cart'));
    expect(records).toMatchObject([
      { before: document, after: undefined },
      { before: undefined, after: document },
    ]);
  });

  /** A service whose history has 8 KiB for the JSON of one change. */
  function recordedInLittleMemory() {
    const clock = new ManualClock();
    const ipcache = new IPCache();
    const nodes = new NodeManager({ ipcache, clock, clusterName: 'own', nodeName: 'n' });
    const services = new ServiceCache({ clusterName: 'own' });
    services.markSynced();
    const history = new History({ ipcache, clock, memory: 256 << 10 });
    history.start();
    recordDocuments(history, { services, nodes });
    const updateSlice = (from: number, to: number): void => {
      const backends = Array.from({ length: to - from }, (_, at) =>
        createBackend({ address: `::${(from + at).toString(16)}`, ports: [] }),
      );
      services.updateEndpoints(createEndpointSlice({ service: ID, name: 's', backends }));
    };
    return { history, services, updateSlice, lost: () => history.status().lost.size };
  }

  it('counts a change of many backends as lost without encoding it (regression: 100,000 took 300 ms)', async () => {
    const { history, services, updateSlice, lost } = recordedInLittleMemory();
    const record = vi.spyOn(history, 'recordDocument');
    updateSlice(1, 200);
    apply(services, { do: 'service', ip: '172.16.0.1', global: false });
    updateSlice(300, 500); // replaces all backends
    apply(services, { do: 'no-service' });
    expect([record.mock.calls.length, lost()]).toEqual([0, 3]);
    expect(await itemsOf(history.past.records({ limit: 1 }))).toMatchObject([
      { kind: 'mark', mark: 'lost', subject: 'shop/cart' },
    ]);
  });

  it('loses no change that fits: its minimum length is not above its length', () => {
    for (let count = 140; count < 190; count++) {
      const { services, updateSlice, lost } = recordedInLittleMemory();
      updateSlice(1, 1 + count);
      apply(services, { do: 'service', ip: '172.16.0.1', global: false });
      expect(lost(), `${count} backends`).toBe((now(services) ?? '').length > 8192 ? 1 : 0);
    }
  });
});
