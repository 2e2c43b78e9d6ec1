import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { namePath } from '../../src/api/name-path.ts';
import { type FilterValues, matching, parseFilters } from '../../src/api/routes/ip-filters.ts';
import type { KeyedEntry } from '../../src/ipcache/types.ts';
import type { ClusterIdentity } from '../../src/model/identity-cache.ts';
import { type Labels, parseLabels } from '../../src/model/labels.ts';
import { Prefix } from '../../src/net/prefix.ts';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { FrontendIndex } from '../../src/servicecache/frontend-index.ts';
import { createService } from '../../src/servicecache/service.ts';
import { TestModel } from './support/model.ts';
import { SteeringModel } from './support/steering-model.ts';
import { testApp } from './support/test-app.ts';

/** The fields of answers that the tests read. */
interface Json {
  readonly revision?: unknown;
  readonly items?: unknown;
  readonly continue?: unknown;
  readonly detail?: unknown;
  readonly paths?: unknown;
}

async function get(
  path: string,
  app = testApp().app,
): Promise<{ status: number; type: string | null; body: Json }> {
  const answer = await app.request(path);
  return {
    status: answer.status,
    type: answer.headers.get('content-type'),
    body: (await answer.json()) as Json,
  };
}

/** Returns a function that returns the number of turns of the event loop until it is called. */
function setTurns(): () => number {
  let turns = 0;
  const count = (): void => {
    turns++;
    timer = setImmediate(count);
  };
  let timer = setImmediate(count);
  return () => {
    clearImmediate(timer);
    return turns;
  };
}

const CHECKOUT = {
  prefix: '10.0.0.1/32',
  identity: 1234,
  labels: ['k8s:app=checkout'],
  hostIP: '192.168.0.1',
  encryptKey: 0,
  namespace: 'shop',
  podName: 'checkout-1',
  namedPorts: { http: '8080/TCP' },
  source: 'kvstore',
};
const EIGHT = { prefix: '10.0.0.0/8', identity: 77, encryptKey: 0, source: 'clustermesh', owner: 'baltic' };

describe('GET /v1/ipcache', () => {
  it('lists visible entries, with the revision from which a monitor continues', async () => {
    const { app, model, feed } = testApp();
    model.ipcache.upsert('fd00::/64', { identity: 8, source: 'k8s' });
    const { body } = await get('/v1/ipcache', app);
    expect(body.revision).toBe(feed.revision);
    expect(body.items).toContainEqual(CHECKOUT);
    expect(body.items).toContainEqual(EIGHT);
    expect(body.items).toContainEqual({ prefix: 'fd00::/64', identity: 8, encryptKey: 0, source: 'k8s' });
    expect(body).not.toHaveProperty('continue');
  });

  it.each([
    ['within=10.0.0.0/24', ['10.0.0.1/32']],
    ['within=0.0.0.0/0&identity=77', ['10.0.0.0/8']],
    ['within=0.0.0.0/0&source=kvstore', ['10.0.0.1/32']],
    ['prefix=10.0.0.1', ['10.0.0.1/32']],
    ['prefix=10.0.0.0/8', ['10.0.0.0/8']],
    ['prefix=10.0.0.0/9', []],
    ['identity=1234', ['10.0.0.1/32']],
    ['identity=9', []], // a shadowed CIDR is not visible
    ['label=app=checkout', ['10.0.0.1/32']],
    ['label=k8s:app=checkout&node=192.168.0.1', ['10.0.0.1/32']],
    ['label=k8s:app&within=0.0.0.0/0', ['10.0.0.1/32']],
    ['label=app=check', []],
    ['label=reserved:app', []],
    ['label=app=checkout&identity=77', []],
    ['source=clustermesh&cluster=baltic', ['10.0.0.0/8']],
    ['cluster=baltic&identity=1234', []],
    ['pod=shop/checkout-1', ['10.0.0.1/32']],
    ['pod=shop/checkout-2', []],
    ['node=192.168.0.1', ['10.0.0.1/32']],
    ['node=192.168.7.1', ['192.168.7.1/32']],
  ])('?%s: %j', async (query, prefixes) => {
    const { model, app } = testApp();
    const found = model.ipcache.lookupByPrefix('192.168.7.1/32')?.hostIP; // of the node
    const { body } = await get(`/v1/ipcache?${query}`, app);
    const items = body.items as readonly { prefix: string }[];
    const expected = query === 'node=192.168.7.1' && found === undefined ? [] : prefixes;
    expect(items.map(({ prefix }) => prefix)).toEqual(expected);
  });

  it.each([
    ['prefix', 'x'],
    ['within', '10.0.0.0/33'],
    ['node', '10.0.0.0/8'],
    ['pod', 'shop'],
    ['pod', 'shop/a/b'],
    ['label', '=a'],
  ])('with %s=%s is 400 with this field and value', async (field, value) => {
    const { status, body } = await get(`/v1/ipcache?${new URLSearchParams({ [field]: value })}`);
    expect([status, body]).toMatchObject([
      400,
      { type: 'urn:dpcache:problem:invalid-parameter', field, value, allowed: expect.stringMatching(/\w/) },
    ]);
  });

  it('lists the entries that match all filters', () => {
    const LABELS = parseLabels('k8s:app=a;') ?? [];
    const VALUES = {
      prefix: ['10.0.0.1', '10.0.0.2', '10.0.0.0/8', '10.0.0.1/32', '10.1.0.0/20', 'fd00::1', '10.0.0.1@5'],
      within: ['10.0.0.0/8', '10.0.0.0/20', '10.0.0.0/19', '10.0.0.1', '::/0', 'fd00::/116', 'fd00::/115'],
      identity: ['1', '2'],
      source: ['k8s', 'kvstore'],
      label: ['app=a', 'k8s:app', 'app=b'],
      cluster: ['baltic', 'caspian'],
      pod: ['shop/a', 'shop/b', 'bank/a'],
      node: ['192.168.0.1', '192.168.0.2'],
    };
    const filters = fc.record(
      Object.fromEntries(Object.entries(VALUES).map(([name, values]) => [name, fc.constantFrom(...values)])),
      { requiredKeys: [] },
    );
    const entries = fc.array(
      fc.record({
        key: fc.constantFrom(...VALUES.prefix),
        identity: fc.constantFrom(1, 2),
        source: fc.constantFrom('k8s' as const, 'kvstore' as const),
        owner: fc.constantFrom('', ...VALUES.cluster),
        hostIP: fc.constantFrom(undefined, ...VALUES.node),
        pod: fc.constantFrom(undefined, ...VALUES.pod),
      }),
      { maxLength: 10 },
    );
    fc.assert(
      fc.property(entries, filters, (list, query) => {
        const model = new TestModel();
        Object.assign(model, { labelsOf: (identity: number) => (identity === 1 ? LABELS : undefined) });
        for (const { key, pod, ...claim } of list) {
          const [namespace = '', podName = ''] = pod?.split('/') ?? [];
          model.ipcache.upsert(key, { ...claim, ...(pod && { k8s: { namespace, podName } }) });
        }
        const { prefix, within, identity, source, label, cluster, pod, node } = query;
        const prefixOf = (text: string): Prefix => Prefix.parseAnnotated(text) as Prefix; // all are valid
        const expected = [...model.ipcache.snapshot().entries()].filter(
          (entry) =>
            (!prefix || prefixOf(entry.key).toString() === prefixOf(prefix).toString()) &&
            (!within || prefixOf(within).contains(prefixOf(entry.key))) &&
            (!identity || entry.identity === Number(identity)) &&
            (!source || entry.source === source) &&
            (!label || (label !== 'app=b' && entry.identity === 1)) &&
            (!cluster || entry.owner === cluster) &&
            (!pod || pod === `${entry.k8s?.namespace}/${entry.k8s?.podName}`) &&
            (!node || entry.hostIP === node),
        );
        const parsed = parseFilters(
          { ...query, identity: identity && Number(identity) } as FilterValues,
          model,
        );
        const found = [...matching(model, model.ipcache.snapshot(), parsed)].filter((entry) => entry);
        const keysOf = (some: readonly (KeyedEntry | undefined)[]) => some.map((entry) => entry?.key).sort();
        expect(keysOf(found)).toEqual(keysOf(expected));
      }),
    );
  });

  it('shows one consistent view over its pages', async () => {
    const { app, model } = testApp();
    const before = new Set([...model.ipcache.entries()].map(({ key }) => key));
    let { body } = await get('/v1/ipcache?limit=1', app);
    const seen: string[] = [];
    for (;;) {
      for (const { prefix } of body.items as readonly { prefix: string }[]) seen.push(prefix);
      if (body.continue === undefined) break;
      model.ipcache.upsert(`11.0.0.${seen.length}`, { identity: 5, source: 'k8s' });
      model.ipcache.delete('10.0.0.0/8', { source: 'clustermesh', owner: 'baltic' });
      ({ body } = await get(`/v1/ipcache?limit=1&continue=${body.continue}`, app));
    }
    expect(new Set(seen.map((prefix) => prefix.replace('/32', '')))).toEqual(before);
  });
});

describe('a list of several pages', () => {
  const NAMES = Array.from({ length: 5_000 }, (_, at) => `s-${(at * 7919) % 5_000}`);

  it.each(['ipcache', 'services', 'nodes', 'identities'])(
    'of %s is answered with 304 until it changes',
    async (list) => {
      const { app, model } = testApp();
      model.ipcache.upsert('10.0.0.3', { identity: 1234, source: 'k8s' });
      model.services.updateService(
        createService({
          id: { namespace: 'a', name: 'b' },
          clusterIPs: ['172.16.0.11'],
          addressing: 'assigned',
        }),
      );
      model.nodes.nodeUpdated({ cluster: 'a', name: 'b', source: 'clustermesh' });
      let known: readonly ClusterIdentity[] = [1, 2].map((identity) => ({
        identity,
        labels: [],
        cluster: 'own',
      }));
      Object.assign(model, { identities: () => known });
      const path = `/v1/${list}?limit=1`;
      const first = await app.request(path);
      const page = (await first.json()) as Json;
      const tags = { 'if-none-match': first.headers.get('etag') ?? '' };
      expect(page.continue).toEqual(expect.any(String));
      expect((await app.request(path, { headers: tags })).status).toBe(304);
      expect((await get(`${path}&continue=${page.continue}`, app)).body.items).toHaveLength(1);
      await model.clock.advance(120_000); // nothing is held any more
      expect((await app.request(path, { headers: tags })).status).toBe(304);
      expect((await app.request(`/v1/${list}?limit=2`, { headers: tags })).status).toBe(200);
      model.ipcache.upsert('10.0.0.4', { identity: 1234, source: 'k8s' });
      known = [...known, { identity: 3, labels: [], cluster: 'own' }];
      expect((await app.request(path, { headers: tags })).status).toBe(200);
    },
  );

  it('of identities changes if only the labels of one change', async () => {
    const { app, model } = testApp();
    const identity = (labels: Labels): ClusterIdentity => ({ identity: 1, labels, cluster: 'own' });
    let known = [identity(parseLabels('k8s:app=a;') ?? [])];
    Object.assign(model, { identities: () => known });
    const first = await app.request('/v1/identities');
    known = [identity(parseLabels('k8s:app=b;') ?? [])];
    const tags = { 'if-none-match': first.headers.get('etag') ?? '' };
    const second = await app.request('/v1/identities', { headers: tags });
    expect([second.status, await second.json()]).toMatchObject([200, { items: [{ labels: ['k8s:app=b'] }] }]);
  });

  it('is sorted once, however many pages there are', async () => {
    const { app, model } = testApp(new TestModel());
    for (const name of NAMES) model.nodes.nodeUpdated({ cluster: 'a', name, source: 'clustermesh' });
    let walks = 0;
    const nodes = model.nodes.nodes.bind(model.nodes);
    model.nodes.nodes = () => {
      walks++;
      return nodes();
    };
    const seen: string[] = [];
    let path = '/v1/nodes?limit=1000';
    for (;;) {
      const { body } = await get(path, app);
      for (const { name } of body.items as readonly { name: string }[]) seen.push(name);
      if (body.continue === undefined) break;
      path = `/v1/nodes?limit=1000&continue=${body.continue}`;
    }
    expect(seen).toEqual([...NAMES].sort());
    await get('/v1/nodes?limit=1000', app);
    expect(walks).toBe(1);
    model.nodes.nodeUpdated({ cluster: 'a', name: 'a-first', source: 'clustermesh' });
    expect((await get('/v1/nodes', app)).body.items).toContainEqual(
      expect.objectContaining({ name: 'a-first' }),
    );
    expect(walks).toBe(2);
  });

  it('keeps at most eight snapshots, and serves one that is some seconds old before it takes a ninth', async () => {
    const { app, model } = testApp();
    let [snapshots, changes] = [0, 0];
    const snapshot = model.ipcache.snapshot.bind(model.ipcache);
    model.ipcache.snapshot = () => {
      snapshots++;
      return snapshot();
    };
    const begin = async (): Promise<Json> => {
      model.ipcache.upsert('10.0.0.5', { identity: ++changes, source: 'k8s' });
      return (await get('/v1/ipcache?limit=1', app)).body;
    };
    const lists: Json[] = [];
    for (let i = 0; i < 20; i++) lists.push(await begin());
    expect(snapshots).toBe(8);
    expect(lists[19]?.revision).toBe(lists[7]?.revision);
    await model.clock.advance(10_000);
    expect((await begin()).revision).toBe(21);
    expect((await get(`/v1/ipcache?limit=1&continue=${lists[1]?.continue}`, app)).status).toBe(200);
    const { status, headers } = await app.request(`/v1/ipcache?limit=1&continue=${lists[0]?.continue}`);
    expect(status).toBe(410);
    // Regression: a browser stored it. A list that is read again at the same revision has the same tokens.
    expect(headers.get('cache-control')).toBe('no-store');
  });

  it('reads only the entries that the indices return', async () => {
    const { app, model } = testApp();
    for (let i = 0; i < 30_000; i++)
      model.ipcache.upsert(`11.0.${i >> 8}.${i & 255}`, {
        identity: 5,
        source: 'k8s',
        hostIP: '192.168.9.9',
      });
    for (const query of ['pod=shop/checkout-1', 'node=192.168.0.1']) {
      const { body } = await get(`/v1/ipcache?${query}`, app);
      expect([query, body.items, body.continue]).toEqual([query, [CHECKOUT], undefined]);
    }
  });
});

describe('lookups', () => {
  it('find the longest prefix, and explain which claim won', async () => {
    expect((await get('/v1/ipcache/lookup/::ffff:10.0.0.1')).body).toEqual(CHECKOUT);
    expect((await get('/v1/ipcache/lookup/10.9.9.9')).body).toEqual(EIGHT);
    const { body } = await get('/v1/ipcache/explain/10.0.0.1');
    expect(body).toMatchObject({
      decidedBy: 'endpoint-over-cidr',
      claims: [
        { ...CHECKOUT, key: '10.0.0.1', effective: true, shadowed: false },
        { key: '10.0.0.1/32', identity: 9, effective: false, shadowed: true },
      ],
    });
    expect((await get('/v1/ipcache/explain/10.0.0.0/8')).body).toMatchObject({ prefix: '10.0.0.0/8' });
  });

  it('of many IPs are answered in one request, in order', async () => {
    const { app } = testApp();
    const ask = async (body: string, headers = {}): Promise<Response> =>
      app.request('/v1/lookup', {
        method: 'POST',
        body,
        headers: { 'content-type': 'application/json', ...headers },
      });
    const answer = await ask(JSON.stringify({ ips: ['10.9.9.9', 'nonsense', '11.0.0.1', '10.0.0.1'] }));
    expect(await answer.json()).toEqual({
      revision: 0,
      entries: [EIGHT, null, null, CHECKOUT],
      errors: [{ index: 1, ip: 'nonsense', detail: 'not a valid IP address' }],
    });
    const many = Array.from({ length: 10_000 }, (_, at) =>
      at % 2 === 0 ? '10.0.0.1' : `10.1.${at & 255}.1`,
    );
    let turns = setTurns();
    await ask(JSON.stringify({ ips: many.slice(0, 10) }));
    const few = turns();
    turns = setTurns();
    const found = (await (await ask(JSON.stringify({ ips: many }))).json()) as { entries: unknown };
    expect(found.entries).toEqual(many.map((_, at) => (at % 2 === 0 ? CHECKOUT : EIGHT)));
    expect(turns()).toBeGreaterThan(few);
    expect((await ask(JSON.stringify({ ips: new Array(10_001).fill('10.0.0.1') }))).status).toBe(400);
    expect((await ask('{')).status).toBe(400);
    for (const body of ['null', '[]', '1', '"x"', '{}', '{"ips":[1]}', '{"ips":[],"x":1}'])
      expect((await ask(body)).status).toBe(400);
    const large = await ask('', { 'content-length': `${(1 << 20) + 1}` });
    expect([large.status, await large.json()]).toMatchObject([
      413,
      { type: 'urn:dpcache:problem:body-too-large' },
    ]);
    const text = await app.request('/v1/lookup', {
      method: 'POST',
      body: 'x',
      headers: { 'content-type': 'text/plain' },
    });
    expect(text.status).toBe(415);
  });

  it('of many IPs are those of one revision, although an entry changes during the request', async () => {
    const { app, model, feed } = testApp();
    const ips = [...new Array<string>(5_000).fill('10.9.9.9'), '10.0.0.1'];
    const headers = { 'content-type': 'application/json' };
    const takeSnapshot = model.ipcache.snapshot.bind(model.ipcache);
    vi.spyOn(model.ipcache, 'snapshot').mockImplementation(() => {
      const snapshot = takeSnapshot();
      model.ipcache.upsert('10.0.0.1', { identity: 4321, source: 'kvstore' });
      return snapshot;
    });
    const answer = await app.request('/v1/lookup', {
      method: 'POST',
      body: JSON.stringify({ ips }),
      headers,
    });
    const { revision, entries } = (await answer.json()) as { revision: number; entries: unknown[] };
    expect(revision).toBeLessThan(feed.revision);
    expect(entries.at(-1)).toEqual(CHECKOUT);
  });

  it('of an unknown source are an error that names the sources', async () => {
    expect(await get('/v1/ipcache?source=bogus')).toMatchObject({
      status: 400,
      body: { field: 'source', value: 'bogus' },
    });
    expect((await get('/v1/ipcache?source=bogus')).body.detail).toContain('kvstore');
  });

  it('of too many clients at a time are rejected before their bodies are read', async () => {
    const { app } = testApp();
    const bodies: ReadableStreamDefaultController<Uint8Array>[] = [];
    const ask = async (): Promise<number> => {
      const body = new ReadableStream<Uint8Array>({ start: (controller) => void bodies.push(controller) });
      const headers = { 'content-type': 'application/json' };
      return (
        await app.request(
          new Request('http://localhost/v1/lookup', { method: 'POST', body, headers, duplex: 'half' }),
        )
      ).status;
    };
    const first = Array.from({ length: 32 }, ask);
    expect(await ask()).toBe(429);
    for (const body of bodies.slice(0, 32)) {
      body.enqueue(new TextEncoder().encode('{"ips":[]}'));
      body.close();
    }
    expect(new Set(await Promise.all(first))).toEqual(new Set([200]));
    const again = ask();
    bodies.at(-1)?.close();
    expect(await again).toBe(400);
  });
});

describe('the count of a list', () => {
  it.each([
    ...['/v1/ipcache', '/v1/ipcache?within=10.0.0.0/8', '/v1/ipcache?identity=77', '/v1/ipcache?source=k8s'],
    ...['/v1/ipcache?label=app=checkout'],
    ...[
      '/v1/services',
      '/v1/services?namespace=bank',
      '/v1/services?served=nowhere',
      '/v1/nodes',
      '/v1/nodes?cluster=baltic',
    ],
    ...['/v1/identities', '/v1/identities?label=k8s:app=checkout', '/v1/identities?cluster=nowhere'],
  ])('is the number of its items: %s', async (path) => {
    const { app, feed } = testApp();
    const { items } = (await get(path, app)).body as { items: readonly unknown[] };
    const counted = await get(path.replace(/(\?|$)/, '/count$1'), app);
    expect(counted.body).toEqual({ count: items.length, revision: feed.revision });
  });
});

describe('services, nodes and identities', () => {
  it('answers a service with 20,000 backends in several turns (regression: 100,000 took 0.7 s in one turn)', async () => {
    const { app, model } = testApp();
    const backends = Array.from({ length: 20_000 }, (_, at) =>
      createBackend({ address: `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`, ports: [] }),
    );
    const service = { namespace: 'shop', name: 'checkout' };
    model.services.updateEndpoints(createEndpointSlice({ service, name: 'slice-1', backends }));
    let turns = 0;
    let isAnswered = false;
    const countTurn = (): void => {
      turns++;
      if (!isAnswered) setImmediate(countTurn);
    };
    setImmediate(countTurn);
    const { body } = await get('/v1/services/shop/checkout', app);
    isAnswered = true;
    expect((body as { backends: unknown[] }).backends.length).toBe(20_000);
    expect(turns).toBeGreaterThanOrEqual(2);
  });

  it('are shown with their sources', async () => {
    const { app, model } = testApp();
    expect((await get('/v1/services/shop/chekout', app)).body).toMatchObject({ nearest: 'shop/checkout' });
    expect((await get('/v1/services/shop/checkout', app)).body).toMatchObject({
      namespace: 'shop',
      name: 'checkout',
      clusterIPs: ['172.16.0.10'],
      ports: { http: '80/TCP' },
      global: true,
      backends: [{ address: '10.0.0.1', ports: { http: '8080/TCP' }, state: 'active' }],
      explain: { ready: true, backends: [{ address: '10.0.0.1', slice: 'slice-1', verdict: 'effective' }] },
    });
    expect((await get('/v1/nodes/blatic/node-1', app)).body).toMatchObject({ nearest: 'baltic/node-1' });
    expect((await get('/v1/nodes/baltic/node-1', app)).body).toMatchObject({
      cluster: 'baltic',
      name: 'node-1',
      source: 'clustermesh',
      labels: { zone: 'a' },
      addresses: [{ type: 'InternalIP', ip: '192.168.7.1' }],
      explain: { claims: [{ source: 'clustermesh' }], heldBack: false },
    });
    expect((await get('/v1/identities/1234', app)).body).toEqual({
      identity: 1234,
      labels: ['k8s:app=checkout'],
      cluster: 'own',
      prefixes: 1,
    });
    expect((await get('/v1/identities?label=k8s:app=checkout', app)).body.items).toHaveLength(1);
    expect((await get('/v1/identities?label=app=checkout', app)).body.items).toHaveLength(1);
    expect((await get('/v1/identities?label=app', app)).body.items).toHaveLength(1);
    expect((await get('/v1/identities?label=k8s:app=other', app)).body.items).toHaveLength(0);
    for (const path of ['/v1/identities', '/v1/ipcache'])
      expect((await get(`${path}?label=k8s:`, app)).body).toMatchObject({
        status: 400,
        detail: 'label "k8s:" has no key.',
        field: 'label',
        value: 'k8s:',
      });
    expect((await get('/v1/services?namespace=bank', app)).body.items).toEqual([]);
    expect((await get('/v1/services?namespace=shop', app)).body.items).toHaveLength(1);
    expect((await get('/v1/services/count?namespace=shop', app)).body).toMatchObject({ count: 1 });
    expect((await get('/v1/services?namespace=checkout', app)).body.items).toEqual([]);
    expect((await get('/v1/services?served=one-cluster', app)).body.items).toHaveLength(1);
    expect((await get('/v1/services?served=nowhere', app)).body.items).toHaveLength(0);
    const id = { namespace: 'shop', name: 'checkout' };
    model.offer('baltic', id, '10.20.0.1');
    expect((await get('/v1/services?served=one-cluster', app)).body.items).toHaveLength(0);
    model.services.withdrawCluster('baltic');
    model.services.deleteEndpoints(id, 'slice-1');
    expect((await get('/v1/services?served=nowhere', app)).body.items).toHaveLength(1);
    expect((await get('/v1/nodes?cluster=baltic', app)).body.items).toHaveLength(1);
  });

  it.each(['.', '..', '~.', '~~..', '~', '...', '%2e', '%'])(
    'are found by the name %s (regression: URL parsers removed . and ..)',
    async (name) => {
      const { app, model } = testApp();
      model.nodes.nodeUpdated({ cluster: 'baltic', name, source: 'clustermesh' });
      model.nodes.nodeUpdated({ cluster: name, name: 'node-1', source: 'clustermesh' });
      const id = { namespace: name, name };
      model.addService(id, '172.16.0.99');
      model.services.markSynced();
      const byName = namePath(name);
      expect((await get(`/v1/nodes/baltic/${byName}`, app)).body).toMatchObject({ cluster: 'baltic', name });
      expect((await get(`/v1/nodes/${byName}/node-1`, app)).body).toMatchObject({ cluster: name });
      expect((await get(`/v1/services/${byName}/${byName}`, app)).body).toMatchObject({
        namespace: name,
        name,
      });
    },
  );
});

describe('the agent as a whole', () => {
  it('is ready, or lists what it waits for', async () => {
    const { app, blocking } = testApp();
    expect(await get('/readyz', app)).toMatchObject({ status: 200, body: { ready: true, blockers: [] } });
    blocking.push('cluster baltic is not complete');
    expect(await get('/readyz', app)).toMatchObject({
      status: 503,
      body: { ready: false, blockers: ['cluster baltic is not complete'] },
    });
    expect((await get('/healthz', app)).body).toEqual({ status: 'ok', pid: process.pid });
  });

  it('answers 304 to a client that has the current answer, until something changes', async () => {
    const { app, model } = testApp();
    const tag = (await app.request('/v1/ipcache')).headers.get('etag') ?? '';
    const again = async (tags = tag): Promise<number> =>
      (await app.request('/v1/ipcache', { headers: { 'if-none-match': tags } })).status;
    for (const tags of [tag, `W/${tag}`, `"x", ${tag}`, '*']) expect(await again(tags)).toBe(304);
    for (const tags of ['"x"', tag.replaceAll('"', ''), '']) expect(await again(tags)).toBe(200);
    const unchanged = await app.request('/v1/ipcache', { headers: { 'if-none-match': tag } });
    expect([unchanged.headers.get('etag'), await unchanged.text()]).toEqual([tag, '']);
    model.ipcache.upsert('10.0.0.2', { identity: 5, source: 'k8s' });
    expect(await again()).toBe(200);
  });

  it('counts no monitor for a HEAD request, nor for a failed stream', async () => {
    const { app, model } = testApp();
    for (let i = 0; i < 300; i++)
      expect((await app.request('/v1/monitor', { method: 'HEAD' })).status).toBe(200);
    model.ipcache.upsert('10.0.0.9', { identity: 9, source: 'k8s' });
    model.ipcache.lookupByPrefix = () => {
      throw new Error('bug');
    };
    for (let i = 0; i < 300; i++) {
      const answer = await app.request('/v1/monitor?from=0');
      expect(answer.status).toBe(200);
      await expect(answer.text()).rejects.toThrow('bug');
    }
  });

  it('reports an internal fault as a bug, and continues', async () => {
    const { app, model, faults } = testApp();
    const bug = new Error('bug');
    model.status = () => {
      throw bug;
    };
    expect(await get('/v1/status', app)).toMatchObject({
      status: 500,
      body: { title: 'Internal error' },
    });
    expect(faults).toEqual([bug]);
    expect((await get('/healthz', app)).status).toBe(200);
  });
});

describe('an invalid request', () => {
  it.each([
    ['/v1/ipcache?limit=0', 400, { field: 'limit', detail: 'limit must be at least 1.' }],
    ['/v1/ipcache?limit=1001', 400, { field: 'limit', detail: 'limit must be at most 1000.' }],
    ['/v1/ipcache?limit=many', 400, { field: 'limit', detail: 'limit must be a number.' }],
    ['/v1/ipcache?limit=1.5', 400, { field: 'limit', detail: 'limit must be an integer.' }],
    [`/v1/ipcache?continue=${'x'.repeat(41)}`, 400, { detail: 'continue must have at most 40 characters.' }],
    ['/v1/ipcache?nonsense=1', 400, { field: 'nonsense', detail: 'nonsense is unknown: see /openapi.json.' }],
    ['/v1/ipcache?within=10.0.0.0/33', 400, { field: 'within', value: '10.0.0.0/33' }],
    ['/v1/ipcache?node=x', 400, { field: 'node', value: 'x' }],
    ['/v1/ipcache?pod=x', 400, { field: 'pod', value: 'x', allowed: 'namespace/name' }],
    ['/v1/ipcache?continue=9.9', 410, { field: 'continue', value: '9.9' }],
    ['/v1/ipcache?continue=9.9&identity=5', 400, { field: 'identity' }],
    ['/v1/ipcache/lookup/10.0.0.0%2F8', 400, { field: 'ip', value: '10.0.0.0/8' }],
    ['/v1/ipcache/lookup/x', 400, { field: 'ip', value: 'x' }],
    ['/v1/ipcache/lookup/11.0.0.1', 404, { field: 'ip', value: '11.0.0.1' }],
    ['/v1/ipcache/explain/10.0.0.0/16', 404, { field: 'ip', value: '10.0.0.0/16' }],
    ['/v1/services/shop/x', 404, { value: 'shop/x' }],
    ['/v1/nodes/baltic/x', 404, { value: 'baltic/x' }],
    ['/v1/identities/x', 400, { field: 'identity' }],
    // Regression: an empty number was 0.
    ['/v1/ipcache?identity=', 400, { field: 'identity', detail: 'identity must be a number.', value: '' }],
    ['/v1/ipcache/count?identity=%20', 400, { field: 'identity', detail: 'identity must be a number.' }],
    ['/v1/ipcache?offset=', 400, { field: 'offset', detail: 'offset must be a number.' }],
    ['/v1/identities/%20', 400, { field: 'identity', detail: 'identity must be a number.' }],
    ['/v1/identities/5', 404, { field: 'identity', value: '5' }],
    ['/v1/monitor?types=ip,pod', 400, { field: 'types', value: 'ip,pod', allowed: 'ip, service, node' }],
    ['/v1/monitor?from=soon', 400, { field: 'from', value: 'soon' }],
    ['/v1', 404, {}],
    ['/', 404, {}],
  ])('%s: %i %j', async (path, status, about) => {
    const answer = await get(path);
    expect(answer).toMatchObject({ status, type: 'application/problem+json', body: { status, ...about } });
    expect(answer.body.detail).toMatch(/\.$/);
  });

  // Regression: the problems of unknown objects, and of `types` and `from`, contained the whole value.
  it.each([
    '/v1/ipcache?pod=',
    '/v1/ipcache?limit=',
    '/v1/ipcache/lookup/',
    '/v1/services/shop/',
    '/v1/nodes/baltic/',
    '/v1/clustermesh/',
    '/v1/history?from=',
    '/v1/digest/',
    '/v1/monitor?types=',
    '/v1/monitor?from=',
  ])('%s with 200 characters is shown with the first 120', async (path) => {
    const { body } = await get(`${path}${'x'.repeat(200)}`);
    expect(body).toMatchObject({ value: expect.stringMatching(/^.{120}$/) });
  });

  it.each(['PUT', 'DELETE', 'PATCH', 'OPTIONS'])('%s: 405', async (method) => {
    const answer = await testApp().app.request('/v1/ipcache', { method });
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  });

  it('is rejected whatever is sent, never with a 5xx', async () => {
    const { app, faults } = testApp();
    const words = fc.constantFrom(
      'v1',
      'ipcache',
      'lookup',
      'explain',
      'services',
      'nodes',
      'identities',
      'monitor',
      '10.0.0.1',
      '%',
      '%2F',
      '..',
      '__proto__',
    );
    const segment = fc.oneof(
      words,
      fc.string({ maxLength: 20 }).map(encodeURIComponent),
      fc.string({ maxLength: 8 }),
    );
    const name = fc.constantFrom(
      'limit',
      'continue',
      'within',
      'prefix',
      'identity',
      'pod',
      'node',
      'types',
      'x',
    );
    const value = fc.oneof(
      fc.string({ maxLength: 30 }),
      fc.constantFrom('1', '-1', '1e99', '::', '10.0.0.0/8', '1.1'),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(segment, { maxLength: 6 }),
        fc.array(fc.tuple(name, value), { maxLength: 3 }),
        async (segments, parameters) => {
          const url = `http://localhost/${segments.join('/')}?${new URLSearchParams(parameters)}`;
          fc.pre(URL.canParse(url));
          const answer = await app.request(url);
          await answer.body?.cancel();
          expect(answer.status).toBeLessThan(500);
        },
      ),
    );
    expect(faults).toEqual([]);
  });
});

describe('an unsupported method of a path', () => {
  it.each([
    ['POST', '/v1/status', 'GET, HEAD'],
    ['POST', '/v1/ipcache/lookup/10.0.0.1', 'GET, HEAD'],
    ['POST', '/openapi.json', 'GET, HEAD'],
    ['GET', '/v1/lookup', 'POST'],
    ['HEAD', '/v1/lookup', 'POST'],
    ['DELETE', '/v1/lookup', 'POST'],
    ['PUT', '/v1/status', 'GET, HEAD'],
    ['DELETE', '/nothing', 'GET, HEAD'],
  ])('%s %s is answered with 405 and the supported methods: %s', async (method, path, allow) => {
    const answer = await testApp().app.request(path, { method });
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, allow]);
    if (method !== 'HEAD') expect(await answer.json()).toMatchObject({ status: 405 });
  });

  it('of an unknown path is answered with 404', async () => {
    const answer = await testApp().app.request('/nothing', { method: 'POST' });
    expect([answer.status, await answer.json()]).toEqual([
      404,
      expect.objectContaining({ type: 'urn:dpcache:problem:unknown-path' }),
    ]);
  });
});

describe('/openapi.json', () => {
  it('describes every answer', async () => {
    const { app } = testApp(new SteeringModel().fill());
    const { body } = await get('/openapi.json', app);
    const ajv = new Ajv2020({ strict: false, formats: { uri: true } });
    ajv.addSchema(body, 'openapi');
    const paths = body.paths as Readonly<Record<string, Readonly<Record<string, unknown>>>>;
    const filled = (path: string): string =>
      path
        .replace('{ip}/{length}', '10.0.0.0/8')
        .replace('{ip}', '10.0.0.1')
        .replace('{namespace}/{name}', 'shop/checkout')
        .replace('{cluster}/{name}', 'baltic/node-1')
        .replace('{cluster}', 'baltic')
        .replace('{identity}', '1234')
        .replace('{writer}', 'kvstore')
        .replace('/v1/search', '/v1/search?q=checkout');
    const checked: string[] = [];
    for (const path of Object.keys(paths).filter((each) => 'get' in (paths[each] ?? {}))) {
      if (path === '/v1/monitor' || path === '/metrics') continue;
      for (const [asked, status] of [
        [filled(path), '200'],
        [`${path === '/v1/search' ? path : filled(path)}?limit=x`, 'default'],
      ] as const) {
        const answer = await get(asked, app);
        const media = status === '200' ? 'application~1json' : 'application~1problem+json';
        if (status === 'default' && answer.status === 200) continue; // the route has no such parameter and ignores it
        const pointer = `#/paths/${path.replaceAll('/', '~1')}/get/responses/${status}/content/${media}/schema`;
        const validate = ajv.compile({ $ref: `openapi${encodeURI(pointer)}` });
        expect({ asked, valid: validate(answer.body), errors: validate.errors }).toEqual({
          asked,
          valid: true,
          errors: null,
        });
        checked.push(asked);
      }
    }
    expect(checked.length).toBeGreaterThan(15);
  });
});

it('compares the identities of two reads while it reads them (regression: all afterwards, in one turn)', async () => {
  const { app, model } = testApp();
  let compared = 0;
  const known = Array.from({ length: 5_000 }, (_, at) => ({
    identity: 256 + at,
    labels: [],
    get cluster() {
      compared++;
      return 'own';
    },
  }));
  let most = 0;
  Object.assign(model, {
    *identities() {
      for (const item of known) {
        most = Math.max(most, compared);
        compared = 0;
        yield item;
      }
    },
  });
  const ask = (): unknown => get('/v1/identities?label=k8s:app=none', app);
  await ask();
  [most, compared] = [0, 0];
  await ask();
  expect(most).toBe(2);
  expect(compared).toBe(2);
});

it('reads all identities once for requests that arrive during a read (memory: once for each request)', async () => {
  const { app, model } = testApp();
  const all: ClusterIdentity[] = Array.from({ length: 5_000 }, (_, at) => ({
    ...{ identity: 256 + at, labels: [], cluster: 'own' },
  }));
  const reads = vi.spyOn(model, 'identities').mockImplementation(() => [...all]);
  const first = app.request('/v1/identities?cluster=new');
  await expect.poll(() => reads.mock.calls.length).toBe(1);
  all.push({ identity: 9_999, labels: [], cluster: 'new' });
  const answers = Array.from({ length: 50 }, () => get('/v1/identities?cluster=new', app));
  for (const { body } of await Promise.all(answers))
    expect(body.items).toEqual([expect.objectContaining({ identity: 9_999 })]);
  expect((await first).status).toBe(200);
  expect(reads).toHaveBeenCalledTimes(2);
});

it.each([
  ['/v1/identities', ({ all }) => all.push({ identity: 256 + all.length, labels: [], cluster: 'own' })],
  [
    '/v1/services',
    ({ model }, at) => model.addService({ namespace: 'shop', name: `s${at}` }, `172.16.1.${at}`),
  ],
  [
    '/v1/nodes',
    ({ model }, at) => model.nodes.nodeUpdated({ cluster: 'baltic', name: `n${at}`, source: 'clustermesh' }),
  ],
] as [string, (world: { model: TestModel; all: ClusterIdentity[] }, at: number) => unknown][])(
  'holds at most 8 states of %s (memory: 32, one for each first page)',
  async (path, change) => {
    const { app, model } = testApp();
    const all: ClusterIdentity[] = [];
    vi.spyOn(model, 'identities').mockImplementation(() => [...all]);
    for (let at = 1; at <= 2; at++) change({ model, all }, at);
    const tokens: unknown[] = [];
    for (let at = 3; at <= 11; at++) {
      change({ model, all }, at);
      tokens.push((await get(`${path}?limit=1`, app)).body.continue);
    }
    const statuses = [];
    for (const token of tokens) statuses.push((await get(`${path}?continue=${token}`, app)).status);
    expect(statuses).toEqual([410, ...Array.from({ length: 8 }, () => 200)]);
  },
);

it('builds the index of frontends before the caches are filled (freeze: the first answer on an IP built it)', async () => {
  const model = new TestModel();
  const { app } = testApp(model);
  model.fill();
  const updates = vi.spyOn(FrontendIndex.prototype, 'update');
  expect((await get('/v1/ipcache/explain/10.0.0.1', app)).status).toBe(200);
  expect(updates).not.toHaveBeenCalled();
  updates.mockRestore();
});

describe('a client that disconnects (regression: its work ran to the end, before that of others)', () => {
  const POST = (body: object): RequestInit => ({
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
  });

  it.each([
    ['/v1/ipcache/count?source=k8s'],
    ['/v1/ipcache?sort=pod'],
    ['/v1/services/count'],
    ['/v1/nodes/count'],
    ['/v1/identities/count'],
    ['/v1/digest'],
    ['/v1/digest/kvstore'],
    ['/v1/digest/kvstore?bucket=0-255'],
    ['/v1/digest/kvstore?place=0-65535'],
    [`/v1/digest/${encodeURIComponent('nodes baltic')}?place=0-65535`],
    ['/v1/lookup', POST({ ips: ['10.0.0.1'] })],
    ['/v1/whatif', POST({ edits: [{ edit: 'remove-cluster', cluster: 'baltic' }] })],
  ])('ends the work of %s', async (path, init?: RequestInit) => {
    const { app, faults } = testApp();
    const answer = await app.request(path, { ...init, signal: AbortSignal.abort() });
    expect([answer.status, await answer.text()]).toEqual([400, expect.stringContaining('disconnected')]);
    expect(faults).toEqual([]);
    expect((await app.request(path, init)).status).toBe(200);
  });

  it.each(['/v1/services/shop/chekout', '/v1/nodes/blatic/node-1'])(
    'ends the search for a name similar to %s (regression: one turn read all names)',
    async (path) => {
      const { app } = testApp();
      expect((await app.request(path, { signal: AbortSignal.abort() })).status).toBe(400);
      expect((await app.request(path)).status).toBe(404);
    },
  );
});
