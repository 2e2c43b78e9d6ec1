import { describe, expect, it, vi } from 'vitest';
import { MAX_COMPARED, search } from '../../../src/api/search/search.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { TestModel } from '../support/model.ts';
import { testApp } from '../support/test-app.ts';

const gate = new TurnGate({ clock: systemClock, nextTurn: setImmediate });
const run = (steps: Iterable<unknown>): Promise<unknown> => gate.runSteps(steps);

async function found(text: string, model: TestModel = new TestModel().fill()): Promise<readonly string[]> {
  const { groups } = await search(model, run, text, 8);
  return groups.flatMap(({ items }) => items.map(({ kind, key, match }) => `${kind} ${key} ${match}`));
}

/** Returns a function that sends a GET request to a filled API. */
function requests(): (path: string) => Promise<{ readonly status: number; readonly body: unknown }> {
  const { app } = testApp();
  return async (path) => {
    const answer = await app.request(path);
    return { status: answer.status, body: await answer.json() };
  };
}

describe('search', () => {
  it.each([
    ['10.0.0.1', ['prefix 10.0.0.1/32 exact', 'pod shop/checkout-1 related']],
    ['10.9.9.9', ['prefix 10.0.0.0/8 related']],
    ['10.0.0.0/8', ['prefix 10.0.0.0/8 exact', 'prefix 10.0.0.1/32 part']],
    ['10.0.0.', ['prefix 10.0.0.1/32 start']],
    ['172.16.0.10', ['service shop/checkout exact']],
    ['192.168.7.1', ['prefix 192.168.7.1/32 exact', 'node baltic/node-1 exact']],
    ['10.0.0.1:8080', ['prefix 10.0.0.1/32 exact', 'pod shop/checkout-1 related']],
    ['10.0.0.1:', []],
    ['checkout.shop.svc', ['service shop/checkout exact']],
    ['Checkout.shop.svc.cluster.local:80', ['service shop/checkout exact']],
    ['checkout.shop.svcs', []],
    ['1234', ['identity 1234 exact']],
    ['NODE-1', ['node baltic/node-1 exact']],
    ['shop/checkout-1', ['pod shop/checkout-1 exact']],
    ['k8s:app=checkout', ['label k8s:app=checkout exact', 'identity 1234 related']],
    ['app=checkout', ['label k8s:app=checkout exact', 'identity 1234 related']],
    ['shop', ['namespace shop exact', 'service shop/checkout start']],
    ['300.1.1.', []],
    ['nothing', []],
  ])('%s', async (text, expected) => {
    expect(await found(text)).toEqual(expect.arrayContaining(expected));
    expect((await found(text))[0]).toEqual(expected[0]);
  });

  it.each([
    ['10.', ['10.0.0.1/32', '10.255.0.0/16']],
    ['10.2', ['10.255.0.0/16']],
    ['1', []],
    ['1.', ['1.0.0.0/24']],
    ['10.0.0.1', ['10.0.0.1/32']],
    ['100.64.0.', ['100.64.0.0/32', '100.64.0.25/32']],
    ['100.64.0.2', []],
    ['100.64.0.25', ['100.64.0.25/32']],
    ['255.2', ['255.255.255.255/32']],
    ['256.2', []],
  ])('of the start of an address, %s, finds the prefixes that start with it', async (text, expected) => {
    const model = new TestModel();
    const keys = ['10.0.0.1', '10.255.0.0/16', '1.0.0.0/24', '100.64.0.0', '100.64.0.25', '255.255.255.255'];
    for (const key of keys) model.ipcache.upsert(key, { identity: 5, source: 'k8s' });
    const prefixes = (await found(text, model)).flatMap((line) => /^prefix (\S+)/.exec(line)?.[1] ?? []);
    expect(prefixes.sort()).toEqual(expected);
  });

  it.each(['fd00::7', '[FD00::7]', '[fd00::7]:53'])('%s', async (text) => {
    const model = new TestModel();
    model.ipcache.upsert('fd00::7', { identity: 5, source: 'k8s' });
    expect(await found(text, model)).toEqual(['prefix fd00::7/128 exact']);
  });

  it('finds nodes and labels with the form of a DNS name of a service (regression: only a service)', async () => {
    const model = new TestModel();
    const name = 'rack-1.paris.svc.example.net';
    model.nodes.nodeUpdated({ cluster: 'own', name, source: 'k8s' });
    expect(await found(name, model)).toEqual([`node own/${name} exact`]);
    const labels = [{ source: 'k8s', key: 'url', value: 'web.shop.svc' }];
    model.identities = () => [{ identity: 7, labels, cluster: 'own' }];
    const expected = ['label k8s:url=web.shop.svc exact', 'identity 7 related'];
    expect(await found('url=web.shop.svc', model)).toEqual(expected);
  });

  it('sorts by the match, then by the length of the key, then by the key', async () => {
    const model = new TestModel();
    for (const name of ['xweb', 'web-b', 'web-a', 'web-long', 'web', 'a-web-1'])
      model.nodes.nodeUpdated({ cluster: 'own', name, source: 'k8s' });
    const keysOf = async (limit: number): Promise<readonly string[]> => {
      const { groups } = await search(model, run, 'WEB', limit);
      expect(groups.map(({ kind, total }) => [kind, total])).toEqual([['node', 6]]);
      return groups.flatMap(({ items }) => items.map(({ key, match }) => `${key} ${match}`));
    };
    const sorted = [
      ...['own/web exact', 'own/web-a start', 'own/web-b start', 'own/web-long start', 'own/xweb part'],
      'own/a-web-1 part',
    ];
    for (let limit = 1; limit <= 7; limit++) expect(await keysOf(limit)).toEqual(sorted.slice(0, limit));
  });

  it.each([
    [
      'checkout',
      ['service shop/checkout exact', 'pod shop/checkout-1 start', 'label k8s:app=checkout start'],
    ],
    ['shop/check', ['service shop/checkout start', 'pod shop/checkout-1 start']],
    ['bank/check', []],
    ['baltic/node', ['node baltic/node-1 start']],
    ['app', ['label k8s:app=checkout start']],
    ['app=check', []],
    ['ban', ['namespace bank start', 'service bank/ledger start']],
    ['10.0.0.1', ['prefix 10.0.0.1/32 exact', 'pod shop/checkout-1 related']],
  ])('of %s finds exactly these names', async (text, expected) => {
    const model = new TestModel().fill();
    model.addService({ namespace: 'bank', name: 'ledger' }, '172.16.0.11');
    const lines = await found(text, model);
    expect(lines.filter((line) => !line.startsWith('identity')).sort()).toEqual([...expected].sort());
  });

  it('puts the kind of the best result first', async () => {
    const model = new TestModel();
    model.nodes.nodeUpdated({ cluster: 'own', name: 'shop', source: 'k8s' });
    model.addService({ namespace: 'bank', name: 'my-shop' }, '172.16.0.11');
    model.services.markSynced();
    const { groups } = await search(model, run, 'shop', 8);
    expect(groups.map(({ kind }) => kind)).toEqual(['node', 'service']);
  });

  it('of an identity finds it if it has labels or prefixes', async () => {
    const model = new TestModel();
    model.ipcache.upsert('10.0.0.1', { identity: 77, source: 'k8s' });
    const identities = async (text: string): Promise<readonly string[]> =>
      (await found(text, model)).filter((line) => line.startsWith('identity'));
    expect(await identities('77')).toEqual(['identity 77 exact']);
    expect(await identities('1234')).toEqual(['identity 1234 exact']);
    expect(await identities('0077')).toEqual(['identity 77 exact']);
    expect([...(await identities('78')), ...(await identities('99999999999'))]).toEqual([]);
  });

  it('describes each result', async () => {
    const model = new TestModel().fill();
    const baltic = { name: 'baltic', state: 'watching', keys: { nodes: 1, services: 4 } };
    model.clusterNames = () => ['baltic'];
    model.cluster = (name) => (name === 'baltic' ? baltic : undefined) as never;
    // Regression: each result of a cluster read the status of all clusters, 20 ms for 255.
    const status = vi.spyOn(model, 'status');
    model.ipcache.upsert('10.0.0.3', {
      ...{ identity: 1234, source: 'kvstore', owner: 'baltic', hostIP: '192.168.0.1' },
      k8s: { namespace: 'shop', podName: 'checkout-1', namedPorts: new Map() },
    });
    model.ipcache.upsert('10.0.0.4', { identity: 1, source: 'k8s' });
    model.ipcache.upsert('10.0.0.5', { identity: 99, source: 'k8s' });
    const textOf = async (text: string, kind: string): Promise<string | undefined> => {
      const { groups } = await search(model, run, text, 8);
      const item = groups.find((group) => group.kind === kind)?.items[0];
      return item && `${item.title}: ${item.detail}`;
    };
    const pod = 'pod shop/checkout-1, identity 1234 (app=checkout), on 192.168.0.1';
    const expected = [
      ['10.0.0.1', 'prefix', `10.0.0.1/32: ${pod}, by kvstore`],
      ['10.0.0.3', 'prefix', `10.0.0.3/32: ${pod}, by kvstore (baltic)`],
      ['10.0.0.4', 'prefix', '10.0.0.4/32: identity 1 (host), by k8s'],
      ['10.0.0.5', 'prefix', '10.0.0.5/32: identity 99, by k8s'],
      ['checkout', 'service', 'shop/checkout: 172.16.0.10, 1 backend, global'],
      ['node-1', 'node', 'baltic/node-1: 192.168.7.1'],
      ['1234', 'identity', '1234: app=checkout, own, 2 prefixes'],
      ['99', 'identity', '99: 1 prefix'],
      ['app=checkout', 'label', 'k8s:app=checkout: label of identities'],
      ['shop', 'namespace', 'shop: namespace'],
      ['alti', 'cluster', 'baltic: watching, 5 keys'],
    ] as const;
    const texts = expected.map(async ([text, kind]) => [text, kind, await textOf(text, kind)]);
    expect(await Promise.all(texts)).toEqual(expected);
    expect(status).not.toHaveBeenCalled();
    const addresses = /^shop\/checkout-1: (10\.0\.0\.1, 10\.0\.0\.3|10\.0\.0\.3, 10\.0\.0\.1), (.*)/;
    const [, , claim] = addresses.exec((await textOf('shop/checkout-1', 'pod')) ?? '') ?? [];
    expect(claim).toMatch(/^identity 1234 \(app=checkout\), on 192\.168\.0\.1, by kvstore/);
  });

  it('describes a result that was removed during the search', async () => {
    const model = new TestModel().fill();
    const { namespaces } = model.ipcache;
    Object.assign(model.ipcache, {
      namespaces: () => {
        Object.assign(model.ipcache, { lookupByPrefix: () => undefined, get: () => undefined });
        return namespaces.call(model.ipcache);
      },
    });
    Object.assign(model.nodes, { get: () => undefined });
    Object.assign(model.services, { get: () => undefined });
    const details = async (text: string): Promise<readonly string[]> =>
      (await search(model, run, text, 8)).groups.flatMap(({ items }) =>
        items.filter(({ kind }) => kind !== 'namespace').map(({ kind, detail }) => `${kind} ${detail}`),
      );
    expect(await details('10.0.0.')).toEqual(['prefix removed']);
    expect(await details('checkout')).toContain('service removed');
    expect(await details('checkout-1')).toEqual(['pod removed']);
    expect(await details('node-1')).toEqual(['node removed']);
  });

  it('answers with at most the limit of each kind, the best first, and says that there are more', async () => {
    const model = new TestModel();
    for (let host = 1; host <= 40; host++)
      model.ipcache.upsert(`10.0.0.${host}`, {
        identity: host,
        source: 'k8s',
        k8s: { namespace: 'shop', podName: `web-${host}`, namedPorts: new Map() },
      });
    const { groups } = await search(model, run, 'web-1', 3);
    expect(groups.map(({ kind, total }) => [kind, total])).toEqual([['pod', 11]]);
    expect(groups[0]?.items.map(({ key }) => key)).toEqual(['shop/web-1', 'shop/web-10', 'shop/web-11']);
    const [prefixes] = (await search(model, run, '10.0.0.', 3)).groups;
    expect([prefixes?.items.length, prefixes?.total]).toEqual([3, 4]);
  });

  it('counts a pod with the exact name once, also beyond the limit', async () => {
    const model = new TestModel();
    for (const [host, namespace] of ['a', 'b', 'c'].entries())
      model.ipcache.upsert(`10.0.0.${host}`, {
        identity: 300,
        source: 'k8s',
        k8s: { namespace, podName: 'web', namedPorts: new Map() },
      });
    const { groups } = await search(model, run, 'web', 1);
    expect(groups.map(({ kind, total }) => [kind, total])).toEqual([['pod', 3]]);
  });

  it('compares a bounded number of names, says so, and still finds exact names', async () => {
    const model = new TestModel();
    const k8s = (pod: number) => ({ namespace: 'shop', podName: `web-${pod}`, namedPorts: new Map() });
    const keyOf = (pod: number) => `10.${pod >> 16}.${(pod >> 8) & 255}.${pod & 255}`;
    for (let pod = 0; pod < 250_000; pod++)
      model.ipcache.upsert(keyOf(pod), {
        identity: 1234,
        source: 'k8s',
        k8s: k8s(pod),
      });
    expect(MAX_COMPARED.pod).toBeLessThan(250_000);
    const result = await search(model, run, 'web-249999', 8);
    expect(result.truncated).toBe(true);
    expect(result.groups[0]?.items).toMatchObject([{ key: 'shop/web-249999', match: 'exact' }]);
    expect((await search(model, run, '10.3.208.143', 8)).groups[0]?.items).toMatchObject([
      { kind: 'prefix', key: '10.3.208.143/32' },
    ]);
    const deleteMeanwhile = async (steps: Iterable<unknown>): Promise<void> => {
      let pod = 249_999;
      for (const _ of steps) model.ipcache.delete(keyOf(pod--), { source: 'k8s' });
    };
    expect(await search(model, deleteMeanwhile, 'web', 8)).toMatchObject({ truncated: true });
  });

  it('finds the exact keys of a service and a node beyond the names that it compares', async () => {
    const model = new TestModel().fill();
    const [service] = model.services.entries();
    const [node] = model.nodes.nodes();
    // Stands in for 50,000 other services and nodes, because none of their names matches.
    const repeated = function* <T>(item: T | undefined): Generator<T> {
      for (let at = 0; item !== undefined && at <= MAX_COMPARED.node; at++) yield item;
    };
    model.addService({ namespace: 'shop', name: 'last' }, '172.16.0.11');
    model.nodes.nodeUpdated({ cluster: 'own', name: 'last', source: 'k8s' });
    Object.assign(model.services, { entries: () => repeated(service) });
    Object.assign(model.nodes, { nodes: () => repeated(node) });
    expect(await found('Shop/last', model)).toEqual(['service shop/last exact']);
    expect(await found('own/last', model)).toEqual(['node own/last exact']);
    const { groups, truncated } = await search(model, run, 'baltic/node-1', 8);
    expect([truncated, groups.map(({ kind, total }) => [kind, total])]).toEqual([true, [['node', 1]]]);
  });

  it('finds the exact name of a namespace beyond those that it compares (regression: not found)', async () => {
    const model = new TestModel();
    const k8s = { namespace: 'last', podName: 'web', namedPorts: new Map() };
    model.ipcache.upsert('10.0.0.1', { identity: 1234, source: 'k8s', k8s });
    const others = Array.from({ length: MAX_COMPARED.namespace }, (_, at) => `team-${at}`);
    Object.assign(model.ipcache, { namespaces: () => [...others, 'last'] });
    expect(await found('Last', model)).toEqual(['namespace last exact']);
    expect(await search(model, run, 'las', 8)).toMatchObject({ truncated: true, groups: [] });
  });

  it('compares at most 2,048 namespaces in one step (regression: all, 30 ms for 100,000)', async () => {
    const model = new TestModel();
    let compared = 0;
    const namespaces = Array.from({ length: 10_000 }, (_, at) => `team-${at}`);
    const counted = function* (): Generator<string> {
      for (const namespace of namespaces) {
        compared++;
        yield namespace;
      }
    };
    const lookupByPod = (): readonly string[] => {
      compared++;
      return [];
    };
    const stepsOf = async (text: string): Promise<readonly number[]> => {
      const steps: number[] = [];
      const measure = async (all: Iterable<unknown>): Promise<void> => {
        for (const _ of all) {
          steps.push(compared);
          compared = 0;
        }
      };
      await search(model, measure, text, 8);
      return steps;
    };
    Object.assign(model.ipcache, { namespaces: counted });
    expect(Math.max(...(await stepsOf('7.')))).toBe(2_048); // no names of pods begin like an address
    Object.assign(model.ipcache, { namespaces: () => namespaces, lookupByPod, podsOf: () => [] });
    expect(Math.max(...(await stepsOf('web')))).toBe(2_048);
  });

  it('compares labels even if there are more pods than it compares', async () => {
    const model = new TestModel();
    for (let pod = 0; pod <= MAX_COMPARED.pod; pod++)
      model.ipcache.upsert(`10.${pod >> 16}.${(pod >> 8) & 255}.${pod & 255}`, {
        identity: 1234,
        source: 'k8s',
        k8s: { namespace: 'shop', podName: `web-${pod}`, namedPorts: new Map() },
      });
    expect(await found('checkou', model)).toEqual(['label k8s:app=checkout start', 'identity 1234 related']);
    const { truncated, groups } = await search(model, run, 'app=checkout', 8);
    expect(truncated).toBe(false);
    expect(groups.map(({ kind, total }) => [kind, total])).toEqual([
      ['label', 1],
      ['identity', 1],
    ]);
  });

  it('counts a label of many identities once, also beyond the limit', async () => {
    const model = new TestModel();
    const label = (value: string) => ({ source: 'k8s', key: 'app', value });
    model.identities = () =>
      Array.from({ length: 100 }, (_, at) => ({
        identity: 1000 + at,
        cluster: 'own',
        labels: [label('web-long'), label('web'), label('we')],
      }));
    const { groups } = await search(model, run, 'we', 1);
    expect(groups.map(({ kind, total, items }) => [kind, total, items.length])).toEqual([
      ['label', 3, 1],
      ['identity', 100, 1],
    ]);
  });

  it('GET /v1/search ends when the client disconnects (regression: it compared everything)', async () => {
    const { app, model } = testApp();
    const leaving = new AbortController();
    const nodes = vi.spyOn(model.nodes, 'nodes');
    const answer = app.request('/v1/search?q=web', { signal: leaving.signal });
    leaving.abort();
    expect((await answer).status).toBe(400);
    expect(nodes).not.toHaveBeenCalled();
  });

  it('GET /v1/search refuses an empty text and a limit that is too large', async () => {
    const get = requests();
    expect(await get('/v1/search?q=%20')).toMatchObject({ status: 400, body: { field: 'q' } });
    expect(await get('/v1/search?q=a&limit=51')).toMatchObject({ status: 400 });
    expect(await get('/v1/search?q=checkout')).toMatchObject({
      status: 200,
      body: { query: 'checkout', truncated: false, groups: [{ kind: 'service' }, {}, {}, {}] },
    });
  });
});

describe('GET /v1/ipcache/explain', () => {
  it('answers for the cluster IP of a service that no prefix contains', async () => {
    const get = requests();
    expect(await get('/v1/ipcache/explain/172.16.0.10')).toMatchObject({
      status: 200,
      body: {
        prefix: '172.16.0.10/32',
        claims: [],
        roles: [{ kind: 'service', name: 'shop/checkout', text: 'cluster IP of shop/checkout (80/TCP)' }],
      },
    });
    expect(await get('/v1/ipcache/explain/172.16.0.11')).toMatchObject({ status: 404 });
  });

  it('names the pod CIDR of an IP that has no entry of its own, and no CIDR of one that has', async () => {
    const { app, model } = testApp();
    const node = { cluster: 'own', name: 'n1', source: 'k8s', ipv6AllocCIDR: 'fd00:1::/64' } as const;
    model.nodes.nodeUpdated({ ...node, ipv4AllocCIDR: '10.0.0.0/24' });
    const get = async (ip: string): Promise<object> => {
      const answer = await app.request(`/v1/ipcache/explain/${ip}`);
      return { status: answer.status, body: await answer.json() };
    };
    const roles = [{ kind: 'node', name: 'own/n1', as: 'pod-cidr' }];
    expect(await get('fd00:1::9')).toMatchObject({
      ...{ status: 200, body: { prefix: 'fd00:1::9/128', claims: [], roles } },
    });
    expect(await get('10.0.0.9')).toMatchObject({ body: { prefix: '10.0.0.0/8', claims: [{}], roles } });
    expect(await get('10.0.0.1')).toMatchObject({ body: { prefix: '10.0.0.1/32', roles: [] } });
    expect(await found('fd00:1::9', model)).toEqual(['node own/n1 related']);
    expect(await found('10.0.0.1', model)).not.toContain('node own/n1 related');
  });

  it('names the origin of each claim', async () => {
    const get = requests();
    expect(await get('/v1/ipcache/explain/10.0.0.1')).toMatchObject({
      body: { claims: [{ origin: { text: 'test, kvstore' } }, { origin: { text: 'test, k8s' } }], roles: [] },
    });
  });
});
