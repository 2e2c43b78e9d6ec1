import { expect, it, vi } from 'vitest';
import { ALL_TYPES } from '../../../src/api/change-types.ts';
import { MonitorParts, monitorEvents } from '../../../src/api/routes/monitor-stream.ts';
import { OPEN_GATE, TurnGate } from '../../../src/base/turn-gate.ts';
import { createBackend, createEndpointSlice } from '../../../src/servicecache/backend.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { TestModel } from '../support/model.ts';
import { testApp } from '../support/test-app.ts';

it('the part after one with a long text continues after its last change', async () => {
  const { model, feed } = testApp();
  const parts = new MonitorParts({ model, feed, instance: 'abc', gate: OPEN_GATE });
  const begin = feed.revision;
  const keys = Array.from({ length: 5 }, (_, at) => `10.9.0.${at}`);
  for (const key of keys)
    model.ipcache.upsert(key, {
      identity: 7,
      source: 'kvstore',
      k8s: { namespace: 'shop', podName: 'x'.repeat(40_000) },
    });
  const sent: string[] = [];
  let count = 0;
  for (let revision = begin; revision < feed.revision; count++) {
    const part = await parts.after(revision, ALL_TYPES);
    for (const [, key = ''] of new TextDecoder().decode(part.bytes).matchAll(/"key":"([\d.]+)\/32"/g))
      sent.push(key);
    ({ revision } = part);
  }
  expect([sent, count]).toEqual([keys, 3]);
});

it('events name the changed key, and its value unless it was deleted', async () => {
  const { model, feed } = testApp(new TestModel());
  model.services.markSynced();
  const parts = new MonitorParts({ model, feed, instance: 'abc', gate: OPEN_GATE });
  const claim = { identity: 1234, source: 'k8s' } as const;
  for (const key of ['10.9.0.1', '10.9.0.2']) model.ipcache.upsert(key, claim);
  const shop = { namespace: 'shop', name: 'cart' };
  for (const name of ['cart', 'gone']) model.addService({ ...shop, name }, '172.16.0.10');
  const node = { cluster: 'baltic', source: 'clustermesh' } as const;
  for (const name of ['n', 'gone']) model.nodes.nodeUpdated({ ...node, name });
  model.ipcache.delete('10.9.0.2', { source: 'k8s' });
  model.services.deleteService({ ...shop, name: 'gone' });
  model.nodes.nodeDeleted({ ...node, name: 'gone' });
  const at = new Date(model.clock.wallTime()).toISOString();
  const event = (revision: number, change: object): string =>
    `event: change\nid: abc.${revision}\ndata: ${JSON.stringify({ revision, at, ...change })}\n\n`;
  const upsert = (type: string, key: string, value: object): object => ({ type, kind: 'upsert', key, value });
  const part = await parts.after(0, ALL_TYPES);
  expect(new TextDecoder().decode(part.bytes)).toBe(
    [
      event(
        1,
        upsert('ip', '10.9.0.1/32', {
          ...{ prefix: '10.9.0.1/32', identity: 1234, labels: ['k8s:app=checkout'] },
          ...{ encryptKey: 0, source: 'k8s' },
        }),
      ),
      event(
        3,
        upsert('service', 'shop/cart', {
          ...{ ...shop, type: 'ClusterIP', clusterIPs: ['172.16.0.10'], ports: { http: '80/TCP' } },
          ...{ global: true, shared: false, affinity: 'none', backends: [] },
        }),
      ),
      event(
        5,
        upsert('node', 'baltic/n', {
          ...{ cluster: 'baltic', name: 'n', clusterID: 0, source: 'clustermesh' },
          ...{ addresses: [], encryptionKey: 0, labels: {} },
        }),
      ),
      event(7, { type: 'ip', kind: 'delete', key: '10.9.0.2/32' }),
      event(8, { type: 'service', kind: 'delete', key: 'shop/gone' }),
      event(9, { type: 'node', kind: 'delete', key: 'baltic/gone' }),
    ].join(''),
  );
  expect(part).toMatchObject({ revision: 9, hasMissed: false });
  expect(await parts.after(10, ALL_TYPES)).toEqual({ bytes: new Uint8Array(), revision: 9, hasMissed: true });
});

it('a part without changes is read again', async () => {
  const { model, feed } = testApp(new TestModel());
  const parts = new MonitorParts({ model, feed, instance: 'abc', gate: OPEN_GATE });
  expect((await parts.after(0, ALL_TYPES)).bytes).toHaveLength(0);
  model.ipcache.upsert('10.9.0.1', { identity: 7, source: 'kvstore' });
  expect(await parts.after(0, ALL_TYPES)).toMatchObject({ revision: 1 });
  expect((await parts.after(0, ALL_TYPES)).bytes.length).toBeGreaterThan(0);
});

it('the last 2 MB of the parts of monitors are shared', async () => {
  const { model, feed } = testApp(new TestModel());
  const parts = new MonitorParts({ model, feed, instance: 'abc', gate: OPEN_GATE });
  const written: Awaited<ReturnType<typeof parts.after>>[] = [];
  for (let change = 1; change <= 80; change++) {
    model.ipcache.upsert('10.9.0.1', {
      identity: change,
      source: 'kvstore',
      k8s: { namespace: 'shop', podName: 'x'.repeat(60_000) },
    });
    const part = await parts.after(feed.revision - 1, ALL_TYPES);
    written.push(part);
    expect(parts.after(feed.revision - 1, ALL_TYPES)).toBe(part);
  }
  let size = 0;
  const expected = written.toReversed().map(({ bytes }) => {
    size += bytes.length;
    return size <= 2 << 20;
  });
  expect(new Set(expected).size).toBe(2);
  // Newest first. The parts that are not kept are empty now, because their key has a later change.
  const isKept: boolean[] = [];
  for (const [at, part] of written.toReversed().entries())
    isKept.push((await parts.after(79 - at, ALL_TYPES)) === part);
  expect(isKept).toEqual(expected);
});

it('the parts of monitors at different revisions are encoded in several turns', async () => {
  const { model, feed } = testApp(new TestModel());
  for (let at = 0; at < 40; at++) model.ipcache.upsert(`10.9.0.${at}`, { identity: 7, source: 'kvstore' });
  const encoded = vi.spyOn(feed, 'read');
  const turns: (() => void)[] = [];
  const { clock } = model;
  const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn), weightPerTurn: 80 });
  const parts = new MonitorParts({ model, feed, instance: 'abc', gate });
  const { signal } = new AbortController();
  const first = Array.from({ length: 40 }, (_, from) =>
    monitorEvents({ feed, clock }, parts, { types: ALL_TYPES, from }, signal).next(),
  );
  const encodedByTurn: number[] = [];
  do {
    turns.shift()?.();
    await new Promise(setImmediate);
    encodedByTurn.push(encoded.mock.calls.length);
  } while (turns.length > 0);
  await Promise.all(first);
  expect(encodedByTurn).toEqual([16, 24, 32, 40, 40]);
});

it('a service with many backends is encoded in several steps (regression: 100,000 took 0.1 s in one turn)', async () => {
  const { model, feed } = testApp(new TestModel());
  const shop = { namespace: 'shop', name: 'cart' };
  model.services.updateService(createService({ id: shop, clusterIPs: ['172.16.0.10'] }));
  const addresses = Array.from({ length: 5_000 }, (_, at) => `10.9.${at >> 8}.${at & 255}`);
  model.services.updateEndpoints(
    createEndpointSlice({
      service: shop,
      backends: addresses.map((address) => createBackend({ address, ports: [] })),
    }),
  );
  const gate = new TurnGate({ clock: model.clock, nextTurn: setImmediate });
  const steps = vi.spyOn(gate, 'run');
  const parts = new MonitorParts({ model, feed, instance: 'abc', gate });
  const [part, same] = [parts.after(0, ALL_TYPES), parts.after(0, ALL_TYPES)];
  const lines = new TextDecoder().decode((await part).bytes).split('\n');
  const change = JSON.parse(lines[2]?.slice('data: '.length) ?? '');
  expect(change.value.backends.map(({ address }: { address: string }) => address)).toEqual(addresses.sort());
  // The sort takes 9 + 40 steps.
  expect(steps.mock.calls.length).toBeGreaterThan(50);
  expect(await same).toBe(await part);
});

it('a monitor whose client disconnects while its part is encoded receives nothing more', async () => {
  const { model, feed } = testApp(new TestModel());
  model.ipcache.upsert('10.9.0.1', { identity: 7, source: 'kvstore' });
  const turns: (() => void)[] = [];
  const { clock } = model;
  const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn) });
  const parts = new MonitorParts({ model, feed, instance: 'abc', gate });
  const client = new AbortController();
  await gate.pass(Number.POSITIVE_INFINITY);
  const first = monitorEvents({ feed, clock }, parts, { types: ALL_TYPES, from: 0 }, client.signal).next();
  client.abort();
  turns.shift()?.();
  expect(await first).toEqual({ done: true, value: undefined });
});
