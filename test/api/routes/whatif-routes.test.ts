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

  it('refuses unknown names with the nearest one, and fields by name', async () => {
    const { app, model } = testApp();
    model.ipcache.upsert('10.9.0.1', { identity: 5, source: 'clustermesh', owner: 'caspian' });
    const unknown = await post(app, [{ edit: 'remove-cluster', cluster: 'kaspian' }]);
    expect(unknown.status).toBe(404);
    const problem = (await unknown.json()) as Record<string, unknown>;
    expect(problem).toMatchObject({ field: 'edits.0.cluster', value: 'kaspian' });
    expect(problem['detail']).toContain('did you mean caspian?');
    for (const [edit, field] of [
      [{ edit: 'setting', name: 'underlay', value: 'x' }, 'edits.0.value'],
      [{ edit: 'remove-source', source: 'x' }, 'edits.0.source'],
      [{ edit: 'upsert', key: '10.0.0', source: 'k8s', identity: 1 }, 'edits.0.key'],
    ] as const) {
      const refused = await post(app, [edit]);
      expect(refused.status).toBeGreaterThanOrEqual(400);
      expect(await refused.json()).toMatchObject({ field });
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
