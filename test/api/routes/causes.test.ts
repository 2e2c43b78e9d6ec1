import { describe, expect, it, vi } from 'vitest';
import { recordDocuments } from '../../../src/agent/recorded-documents.ts';
import type { CausesDocument } from '../../../src/api/history-documents.ts';
import { createBackend, createEndpointSlice } from '../../../src/servicecache/backend.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { TestModel } from '../support/model.ts';
import { testApp } from '../support/test-app.ts';

const WRITER = { source: 'clustermesh', owner: 'baltic' } as const;
const NODE = { cluster: 'baltic', name: 'node-7', source: 'clustermesh' } as const;
const HOST = '192.168.7.1';
const PODS = 110;

function pod(i: number, hostIP: string): Parameters<TestModel['ipcache']['upsert']>[1] {
  return { ...WRITER, identity: 5000 + i, hostIP, k8s: { namespace: 'shop', podName: `cart-${i}` } };
}

describe('/v1/history/around', () => {
  it('names the node that died first, and the service that lost its last backend', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    model.nodes.nodeUpdated({ ...NODE, addresses: [{ type: 'InternalIP', ip: HOST }] });
    for (let i = 0; i < PODS; i++) model.ipcache.upsert(`10.2.0.${i}`, pod(i, HOST));
    const id = { namespace: 'shop', name: 'cart' };
    model.services.updateService(createService({ id, addressing: 'assigned', clusterIPs: ['172.16.0.10'] }));
    const slice = (addresses: readonly string[]): void => {
      const backends = addresses.map((address) => createBackend({ address, ports: [] }));
      model.services.updateEndpoints(createEndpointSlice({ service: id, name: 's', backends }));
    };
    slice(['10.2.0.1']);
    model.services.markSynced();
    recordDocuments(model.history, model);
    await model.clock.advance(60_000);
    // The incident: other changes, then the node dies, its pods move one by one, and the service loses its backend.
    for (let i = 0; i < 30; i++)
      model.ipcache.upsert(`10.9.0.${i}`, { identity: 9, source: 'k8s', hostIP: '192.168.9.9' });
    model.nodes.nodeDeleted(NODE);
    for (let i = 0; i < PODS; i++) {
      await model.clock.advance(20);
      model.history.setCause({ store: 'baltic', revision: String(900 + i) });
      model.ipcache.delete(`10.2.0.${i}`, WRITER);
      model.ipcache.upsert(`10.3.0.${i}`, pod(i, '192.168.7.2'));
      model.history.setCause(undefined);
    }
    slice([]);
    await model.clock.advance(1000);
    const at = encodeURIComponent(new Date(model.clock.wallTime() - 3000).toISOString());
    const answer = await app.request(`/v1/history/around?at=${at}&window=5`);
    expect(answer.status).toBe(200);
    const { groups } = (await answer.json()) as CausesDocument;
    expect(groups[0]).toMatchObject({
      store: 'baltic',
      node: 'baltic/node-7',
      deleted: PODS,
      revisions: { first: '900', last: String(900 + PODS - 1) },
    });
    expect(groups.flatMap(({ emptied }) => emptied)).toEqual(['shop/cart']);
    expect(groups.map(({ node, host }) => node ?? host)).toContain('192.168.9.9');
  });

  it('reads the addresses of the nodes in steps (regression: all in one turn)', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    model.nodes.nodeUpdated({ ...NODE, addresses: [{ type: 'InternalIP', ip: HOST }] });
    const [node] = model.nodes.nodes();
    let inTurn = 0;
    let most = 0;
    Object.assign(model.nodes, {
      *nodes() {
        for (let i = 0; i < 50_000; i++) {
          if (inTurn++ === 0) setImmediate(() => (inTurn = 0));
          most = Math.max(most, inTurn);
          yield node;
        }
      },
    });
    expect((await app.request('/v1/history/around')).status).toBe(200);
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThan(20_000);
  });

  it('names a host by the last node that had its address, if none has it now', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    recordDocuments(model.history, model);
    for (const name of ['node-1', 'node-2', 'node-0']) {
      await model.clock.advance(1000);
      model.nodes.nodeUpdated({ ...NODE, name, addresses: [{ type: 'InternalIP', ip: HOST }] });
      model.nodes.nodeDeleted({ ...NODE, name });
    }
    model.ipcache.upsert('10.2.0.1', pod(1, HOST));
    const groupsNow = async (): Promise<readonly unknown[]> => {
      const { groups } = (await (await app.request('/v1/history/around?window=60')).json()) as CausesDocument;
      return groups.flatMap(({ kinds, node }) => (kinds['prefix'] === undefined ? [] : (node ?? [])));
    };
    expect(await groupsNow()).toEqual(['baltic/node-0']);
    model.nodes.nodeUpdated({ ...NODE, name: 'node-3', addresses: [{ type: 'InternalIP', ip: HOST }] });
    expect(await groupsNow()).toEqual(['baltic/node-3']);
  });

  it('lets other work run between slices of 60,000 records', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    for (let i = 0; i < 60_000; i++) {
      if (i % 10_000 === 0) await model.clock.advance(1000);
      model.ipcache.upsert('10.2.0.1', pod(i % 2, HOST));
    }
    const { recordsInMemory } = model.history.status();
    expect(recordsInMemory).toBeGreaterThan(30_000);
    let turns = 0;
    let ended = false;
    const turn = (): void => {
      turns++;
      if (!ended) setImmediate(turn);
    };
    setImmediate(turn);
    const reads = vi.spyOn(model.history.past, 'records');
    const answer = await app.request('/v1/history/around?window=60');
    ended = true;
    const { groups } = (await answer.json()) as CausesDocument;
    const sum = groups.reduce((all, { added, changed }) => all + added + changed, 0);
    expect(sum).toBe(60_000);
    const end = model.clock.wallTime();
    const [first] = groups;
    expect([first?.at, first?.until]).toEqual([end - 5000, end].map((ms) => new Date(ms).toISOString()));
    expect(reads).toHaveBeenCalledTimes(1); // regression: the window was read twice
    // The records are read and grouped in turns of 4,096.
    expect(turns).toBeGreaterThan((0.75 * recordsInMemory) / 4096);
  });

  it('refuses a fifth concurrent request (regression: 50 were not answered for minutes)', async () => {
    const { app } = testApp();
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => app.request('/v1/history/around?window=60')),
    );
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 429)).toHaveLength(46);
    expect(statuses.filter((status) => status === 200)).toHaveLength(4);
    expect((await app.request('/v1/history/around?window=60')).status).toBe(200);
  });

  it('is served over the unix socket while clients over TCP use all places (regression: 429)', async () => {
    const { app } = testApp();
    const ask = (isUnixSocket: boolean): Promise<Response> =>
      Promise.resolve(app.request('/v1/history/around', undefined, { incoming: {}, isUnixSocket } as object));
    const overTCP = Array.from({ length: 5 }, () => ask(false));
    expect((await ask(true)).status).toBe(200);
    expect((await Promise.all(overTCP)).map(({ status }) => status).sort()).toEqual([
      200, 200, 200, 200, 429,
    ]);
  });

  it('ends the reads of clients that disconnect (regression: four of them caused 429 until they had read all)', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    for (let i = 0; i < 20_000; i++) model.ipcache.upsert('10.2.0.1', pod(i % 2, HOST));
    const reads = vi.spyOn(model.history.past, 'records');
    const leaving = new AbortController();
    const answers = Array.from({ length: 4 }, () =>
      app.request('/v1/history/around?window=60', { signal: leaving.signal }),
    );
    await vi.waitUntil(() => reads.mock.calls.length === 4);
    leaving.abort();
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(400);
    expect(reads).toHaveBeenCalledTimes(4); // the first of several reads
    expect((await app.request('/v1/history/around?window=60')).status).toBe(200);
  });

  it('has the largest groups of the changes up to one window before and after the moment', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    const begun = model.clock.wallTime();
    for (const source of ['k8s', 'kvstore', 'k8s', 'kvstore', 'k8s', 'kvstore'] as const) {
      await model.clock.advance(1000);
      model.ipcache.upsert('10.0.0.1', { identity: model.clock.wallTime() % 1_000_000, source });
    }
    const iso = (ms: number): string => new Date(begun + ms).toISOString();
    const groupsOf = async (query: string): Promise<unknown> => {
      const answer = await app.request(`/v1/history/around?at=${encodeURIComponent(iso(3000))}&${query}`);
      const { at, retained, groups } = (await answer.json()) as CausesDocument;
      expect([at, retained]).toEqual([iso(3000), { from: iso(0), to: iso(6000) }]);
      return groups.map((group) => [group.store, group.at, group.until, group.added + group.changed]);
    };
    const kvstore = ['kvstore', iso(2000), iso(4000), 2];
    expect(await groupsOf('window=1')).toEqual([kvstore, ['k8s', iso(3000), iso(3000), 1]]);
    expect(await groupsOf('window=1&limit=1')).toEqual([kvstore]);
    expect(await groupsOf('window=0.999')).toEqual([['k8s', iso(3000), iso(3000), 1]]);
    expect(await groupsOf('window=2')).toEqual([['k8s', iso(1000), iso(5000), 3], kvstore]);
  });

  it('of a service without backends at the end of the window, but before it, names the service', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    const id = { namespace: 'shop', name: 'cart' };
    model.services.updateService(createService({ id, addressing: 'assigned', clusterIPs: ['172.16.0.10'] }));
    const serve = (count: number): void => {
      const addresses = Array.from({ length: count }, (_, host) => `10.0.0.${host}`);
      const backends = addresses.map((address) => createBackend({ address, ports: [] }));
      model.services.updateEndpoints(createEndpointSlice({ service: id, name: 's', backends }));
    };
    model.services.markSynced();
    recordDocuments(model.history, model);
    const begun = model.clock.wallTime();
    for (const count of [2, 1, 0, 1, 0]) {
      await model.clock.advance(1000);
      serve(count);
    }
    await model.clock.advance(1000);
    const emptiedAround = async (ms: number, window: number): Promise<readonly string[]> => {
      const at = encodeURIComponent(new Date(begun + ms).toISOString());
      const answer = await app.request(`/v1/history/around?at=${at}&window=${window}`);
      return ((await answer.json()) as CausesDocument).groups.flatMap(({ emptied }) => emptied);
    };
    const reads = vi.spyOn(model.history.past, 'documentAt');
    expect(await emptiedAround(3000, 0.5)).toEqual(['shop/cart']);
    expect(await emptiedAround(2000, 0.5)).toEqual([]); // one is left
    expect(await emptiedAround(4000, 0.5)).toEqual([]); // there was none before
    expect(await emptiedAround(3000, 1)).toEqual([]); // one is back at the end
    expect(await emptiedAround(4000, 2)).toEqual(['shop/cart']);
    // Read once if it has lost backends in the window (regression: twice if it had changed).
    expect(reads).toHaveBeenCalledTimes(4);
  });

  it('names the services that a withdrawal left without backends (regression: none)', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    const id = { namespace: 'shop', name: 'cart' };
    const serve = (addresses: readonly string[]): void => {
      const backends = addresses.map((address) => createBackend({ address, ports: [] }));
      model.services.updateEndpoints(createEndpointSlice({ service: id, name: 's', backends }));
    };
    model.services.updateService(createService({ id, addressing: 'assigned', clusterIPs: ['172.16.0.10'] }));
    serve(['10.2.0.1']);
    model.services.markSynced();
    recordDocuments(model.history, model);
    await model.clock.advance(1000);
    model.history.setCause({ store: 'baltic', revision: '', withdrawal: true });
    serve([]);
    model.history.setCause(undefined);
    const answer = await app.request('/v1/history/around?window=0.5');
    const { groups } = (await answer.json()) as CausesDocument;
    expect(groups).toMatchObject([{ store: 'baltic', withdrawal: true, emptied: ['shop/cart'] }]);
  });

  it('of a time that is not retained is 410', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    expect((await app.request('/v1/history/around?at=2020-01-01T00:00:00Z')).status).toBe(410);
  });
});
