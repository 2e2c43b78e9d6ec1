import { describe, expect, it } from 'vitest';
import { testApp } from '../support/test-app.ts';

type App = ReturnType<typeof testApp>['app'];

async function post(app: App, edits: unknown): Promise<Response> {
  return app.request('/v1/whatif', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ edits }),
  });
}

async function linesOf(answer: Response): Promise<readonly Record<string, unknown>[]> {
  const text = await answer.text();
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

describe('POST /v1/whatif', () => {
  it('returns the changes, then the summary, as JSON lines', async () => {
    const { app, model } = testApp();
    model.ipcache.upsert('10.9.0.1', { identity: 5, source: 'clustermesh', owner: 'caspian' });
    model.ipcache.upsert('10.9.0.1', { identity: 6, source: 'k8s' });
    const answer = await post(app, [{ edit: 'rank', source: 'clustermesh', place: 'above', other: 'k8s' }]);
    expect(answer.headers.get('content-type')).toBe('application/x-ndjson');
    const lines = await linesOf(answer);
    expect(lines).toMatchObject([
      {
        type: 'prefix',
        kind: 'changed',
        prefix: '10.9.0.1/32',
        old: { identity: 6 },
        new: { owner: 'caspian' },
      },
      { type: 'summary', prefixes: { changed: 1, gone: 0 }, loses: false },
    ]);
    expect(model.ipcache.get('10.9.0.1')?.identity).toBe(6);
  });

  it('answers with the entries, nodes and services before and after the edits, and the numbers of changes', async () => {
    const { app, model } = testApp();
    const caspian = { source: 'clustermesh', owner: 'caspian' } as const;
    model.ipcache.upsert('10.9.0.0/16', { identity: 3, source: 'k8s' });
    model.ipcache.upsert('10.9.0.1', { identity: 5, hostIP: '192.168.9.1', ...caspian });
    model.ipcache.upsert('10.9.0.2', { identity: 6, source: 'generated' });
    model.ipcache.upsert('10.9.0.2', { identity: 5, ...caspian });
    const node = { cluster: 'caspian', addresses: [{ type: 'InternalIP', ip: '192.168.9.1' }] };
    model.nodes.nodeUpdated({ ...node, name: 'n', source: 'clustermesh', ipv4AllocCIDR: '10.9.8.0/24' });
    model.nodes.nodeUpdated({ cluster: 'own', name: 'm', source: 'kvstore' });
    model.nodes.nodeUpdated({ cluster: 'own', name: 'm', source: 'k8s' });
    model.offer('caspian', { namespace: 'shop', name: 'checkout' }, '10.9.0.1');
    const answer = await post(app, [
      { edit: 'remove-cluster', cluster: 'caspian' },
      { edit: 'remove-source', source: 'kvstore', owner: 'own/m' },
      {
        ...{ edit: 'upsert', key: '10.11.0.1', source: 'k8s', owner: 'me', identity: 8 },
        ...{ hostIP: '192.168.9.2', encryptKey: 2, namespace: 'shop' },
      },
      { edit: 'upsert', key: '10.11.0.2', source: 'k8s', identity: 8, podName: 'cart-1' },
      { edit: 'upsert', key: '10.11.0.3', source: 'k8s', identity: 8 },
      { edit: 'delete', key: '10.0.0.1', source: 'kvstore' },
      { edit: 'setting', name: 'encryption', value: 'true' },
    ]);
    const entry = (prefix: string, identity: number, source: string, fields: object = {}): object => ({
      ...{ prefix, identity, source, encryptKey: 0 },
      ...fields,
    });
    const ofCaspian = { owner: 'caspian' };
    const ofBaltic = { owner: 'baltic/node-1' };
    const prefix = (kind: string, prefix: string, change: object): object => ({
      ...{ type: 'prefix', kind, prefix },
      ...change,
    });
    const revisions = { ipcache: 8, services: 3, nodes: 3 };
    expect(await linesOf(answer)).toEqual([
      prefix('gone', '10.9.0.1/32', {
        old: entry('10.9.0.1/32', 5, 'clustermesh', { ...ofCaspian, hostIP: '192.168.9.1' }),
        coveredBy: entry('10.9.0.0/16', 3, 'k8s'),
      }),
      prefix('changed', '10.9.0.2/32', {
        old: entry('10.9.0.2/32', 5, 'clustermesh', ofCaspian),
        new: entry('10.9.0.2/32', 6, 'generated'),
      }),
      prefix('changed', '192.168.7.1/32', {
        old: entry('192.168.7.1/32', 6, 'clustermesh', ofBaltic),
        new: entry('192.168.7.1/32', 6, 'clustermesh', { ...ofBaltic, hostIP: '192.168.7.1' }),
      }),
      prefix('gone', '192.168.9.1/32', {
        old: entry('192.168.9.1/32', 6, 'clustermesh', { owner: 'caspian/n' }),
      }),
      prefix('created', '10.11.0.1/32', {
        new: entry('10.11.0.1/32', 8, 'k8s', {
          ...{ hostIP: '192.168.9.2', encryptKey: 2, namespace: 'shop', owner: 'me' },
        }),
      }),
      prefix('created', '10.11.0.2/32', { new: entry('10.11.0.2/32', 8, 'k8s', { podName: 'cart-1' }) }),
      prefix('created', '10.11.0.3/32', { new: entry('10.11.0.3/32', 8, 'k8s') }),
      prefix('revealed', '10.0.0.1/32', {
        old: entry('10.0.0.1/32', 1234, 'kvstore', {
          ...{
            labels: ['k8s:app=checkout'],
            hostIP: '192.168.0.1',
            namespace: 'shop',
            podName: 'checkout-1',
          },
          namedPorts: { http: '8080/TCP' },
        }),
        new: entry('10.0.0.1/32', 9, 'k8s'),
      }),
      {
        ...{ type: 'node', kind: 'gone', node: 'caspian/n', oldSource: 'clustermesh' },
        ...{ addresses: 1, podCIDRs: 1 },
      },
      {
        ...{ type: 'node', kind: 'changed', node: 'own/m', oldSource: 'kvstore', newSource: 'k8s' },
        ...{ addresses: 0, podCIDRs: 0 },
      },
      { type: 'service', kind: 'fewer', service: 'shop/checkout', before: 2, after: 1, lost: 1 },
      {
        type: 'summary',
        prefixes: { gone: 2, changed: 2, revealed: 1, created: 3 },
        nodes: { gone: 1, changed: 1, addresses: 1, podCIDRs: 1 },
        services: { gone: 0, empty: 0, fewer: 1, changed: 0, created: 0 },
        ...{ identities: { unknown: 0 }, loses: true, began: revisions, ended: revisions, readAgain: 0 },
      },
    ]);
  });

  it('refuses unknown names with the nearest one, and fields by name (regression: 404 for an invalid key)', async () => {
    const { app, model } = testApp();
    model.ipcache.upsert('10.9.0.1', { identity: 5, source: 'clustermesh', owner: 'caspian' });
    const unknown = await post(app, [{ edit: 'remove-cluster', cluster: 'kaspian' }]);
    expect(unknown.status).toBe(404);
    const problem = (await unknown.json()) as Record<string, unknown>;
    expect(problem).toMatchObject({ field: 'edits.0.cluster', value: 'kaspian', allowed: 'baltic, caspian' });
    expect(problem['detail']).toContain('did you mean caspian?');
    model.clusterNames = () => ['own', 'baltic'];
    const local = await post(app, [{ edit: 'remove-cluster', cluster: 'own' }]);
    expect(await local.json()).toMatchObject({
      detail: expect.stringContaining('is the local cluster'),
      allowed: 'baltic, caspian',
    });
    const setting = (name: string, value: string): object => ({ edit: 'setting', name, value });
    for (const [edit, status, field, allowed] of [
      [setting('underlay', 'true'), 400, 'value', 'ipv4, ipv6'],
      [setting('encryption', 'ipv6'), 400, 'value', 'true, false'],
      [{ edit: 'remove-source', source: 'x' }, 400, 'source', undefined],
      [{ edit: 'upsert', key: '10.0.0', source: 'k8s', identity: 1 }, 400, 'key', undefined],
      [{ edit: 'delete', key: '10.0.0', source: 'k8s' }, 400, 'key', undefined],
      [{ edit: 'delete', key: '10.0.0.1', source: 'k8s' }, 404, 'key', undefined],
    ] as const) {
      const refused = await post(app, [setting('underlay', 'ipv6'), edit]);
      const about = (await refused.json()) as Record<string, unknown>;
      expect([refused.status, about['field'], about['allowed']]).toEqual([
        ...[status, `edits.1.${field}`, allowed],
      ]);
    }
    expect((await post(app, [])).status).toBe(400);
    expect((await post(app, Array(17).fill({ edit: 'delete', key: '10.0.0.1', source: 'k8s' }))).status).toBe(
      400,
    );
  });

  it('returns its lines in parts, each in a turn of the event loop, so that others run in between', async () => {
    const { app, model } = testApp();
    for (let i = 0; i < 1_000; i++)
      model.ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, {
        identity: 5,
        source: 'clustermesh',
        owner: 'caspian',
      });
    const { body } = await post(app, [{ edit: 'remove-cluster', cluster: 'caspian' }]);
    let turns = 0;
    let isRead = false;
    const count = (): void => {
      turns++;
      if (!isRead) setImmediate(count);
    };
    setImmediate(count);
    let parts = 0;
    for await (const _ of body ?? []) parts++;
    isRead = true;
    expect(parts).toBeGreaterThan(3);
    expect(turns).toBeGreaterThanOrEqual(parts - 1); // the first part was read before
  });

  it('evaluates four requests at a time and refuses a fifth', async () => {
    const { app, model } = testApp();
    for (let i = 0; i < 20_000; i++)
      model.ipcache.upsert(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`, {
        identity: 5,
        source: 'clustermesh',
        owner: 'caspian',
      });
    const asked = Array.from({ length: 5 }, () =>
      post(app, [{ edit: 'remove-cluster', cluster: 'caspian' }]),
    );
    const statuses = (await Promise.all(asked)).map(({ status }) => status).sort();
    expect(statuses).toEqual([200, 200, 200, 200, 429]);
    expect((await post(app, [{ edit: 'remove-cluster', cluster: 'caspian' }])).status).toBe(200);
  });
});
