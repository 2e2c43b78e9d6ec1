import { describe, expect, it, vi } from 'vitest';
import { deferred } from '../../src/base/sleep.ts';
import { STEP, SteeringModel } from './support/steering-model.ts';
import { testApp } from './support/test-app.ts';

const POST = { method: 'POST', body: '{}', headers: { 'content-type': 'application/json' } };

describe('the API of an agent with a datapath', () => {
  it('returns the differences, and repairs them', async () => {
    const model = new SteeringModel();
    const { app } = testApp(model);
    const diff = await app.request('/v1/datapath/diff');
    expect([diff.status, await diff.json()]).toEqual([200, { total: 1, steps: [STEP] }]);
    const repaired = await app.request('/v1/datapath/repair', POST);
    expect([repaired.status, await repaired.json()]).toEqual([200, { total: 1, steps: [STEP] }]);
  });

  it('explains a prefix with its entry in the kernel', async () => {
    const model = new SteeringModel().fill();
    const { app } = testApp(model);
    const explained = async (query = ''): Promise<object> =>
      (await (await app.request(`/v1/ipcache/explain/10.0.0.1${query}`)).json()) as object;
    expect(await explained()).not.toHaveProperty('kernel');
    model.kernel = { kernel: 'identity 77', cache: 'identity 1234 via 192.168.0.1' };
    expect(await explained()).toMatchObject({ prefix: '10.0.0.1/32', kernel: model.kernel });
    expect(await explained('?at=-0s')).not.toHaveProperty('kernel');
  });

  it('reads the kernel for one request at a time', async () => {
    const model = new SteeringModel();
    const { app } = testApp(model);
    await Promise.all([app.request('/v1/datapath/diff'), app.request('/v1/datapath/repair', POST)]);
    expect(model.asked).toEqual(['diff begins', 'diff ends', 'repair begins', 'repair ends']);
  });

  it('reads the kernel once for all requests that wait for a diff (regression: one read for each delayed the writes)', async () => {
    const model = new SteeringModel();
    const { app } = testApp(model);
    const answers = await Promise.all(Array.from({ length: 8 }, () => app.request('/v1/datapath/diff')));
    expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
    expect(model.asked.filter((each) => each === 'diff begins')).toHaveLength(1);
    await app.request('/v1/datapath/diff');
    expect(model.asked.filter((each) => each === 'diff begins')).toHaveLength(2);
  });

  it('reads the kernel once for all diffs behind a repair (regression: the end of an earlier diff separated them)', async () => {
    const model = new SteeringModel();
    const { datapath } = model;
    let requested = 0;
    Object.defineProperty(model, 'datapath', { get: () => requested++ >= 0 && datapath });
    const end = deferred();
    vi.spyOn(datapath, 'diff').mockImplementationOnce(async () => {
      model.asked.push('diff begins');
      await end.promise;
      return [];
    });
    const { app } = testApp(model);
    const first = app.request('/v1/datapath/diff');
    await vi.waitUntil(() => model.asked.length === 1);
    const repair = app.request('/v1/datapath/repair', POST);
    await vi.waitUntil(() => requested === 2);
    const second = app.request('/v1/datapath/diff');
    await vi.waitUntil(() => requested === 3);
    end.resolve();
    await first;
    await Promise.all([repair, second, app.request('/v1/datapath/diff')]);
    expect(model.asked.filter((each) => each.endsWith('begins'))).toEqual([
      'diff begins',
      'repair begins',
      'diff begins',
    ]);
  });

  it('reads the kernel again after a failed read', async () => {
    const model = new SteeringModel();
    const { app, faults } = testApp(model);
    const failure = new Error('the map cannot be read');
    for (const [path, init] of [['/v1/datapath/repair', POST], ['/v1/datapath/diff']] as const) {
      const kind = path === '/v1/datapath/diff' ? 'diff' : 'repair';
      vi.spyOn(model.datapath, kind).mockRejectedValueOnce(failure);
      const statuses = [await app.request(path, init), await app.request(path, init)].map(
        ({ status }) => status,
      );
      expect([path, statuses, faults.splice(0)]).toEqual([path, [500, 200], [failure]]);
    }
  });

  it('shows a thousand differences, and the total number', async () => {
    const model = new SteeringModel();
    model.steps = Array.from({ length: 2_500 }, () => STEP);
    const answer = await testApp(model).app.request('/v1/datapath/diff');
    const { total, steps } = (await answer.json()) as { total: number; steps: readonly unknown[] };
    expect([total, steps.length]).toEqual([2_500, 1_000]);
  });

  it.each([
    ['over TCP', { remoteAddress: '127.0.0.1', destroyed: false }],
    ['over a connection that is over', { remoteAddress: undefined, destroyed: true }],
  ])('neither reads nor repairs if the request comes from %s', async (_, socket) => {
    const model = new SteeringModel();
    const { app } = testApp(model);
    const incoming = { socket };
    for (const [path, init] of [['/v1/datapath/repair', POST], ['/v1/datapath/diff']] as const) {
      const answer = await app.request(path, init, { incoming } as object);
      expect([answer.status, model.asked]).toEqual([403, []]);
    }
  });

  it('reports that no datapath is configured', async () => {
    const { app } = testApp();
    const answer = await app.request('/v1/datapath/diff');
    expect(answer.status).toBe(404);
    expect(await answer.text()).toContain('--datapath linux');
  });

  it('measures the fill level of its tables, failures and repairs', async () => {
    const { app } = testApp(new SteeringModel());
    const text = await (await app.request('/metrics')).text();
    for (const line of [
      'dpcache_datapath_desired_items{table="ipcache"} 12',
      'dpcache_datapath_items{table="ipcache"} 10',
      'dpcache_datapath_capacity_items{table="ipcache"} 10',
      'dpcache_datapath_pressure_ratio{table="ipcache"} 1',
      'dpcache_datapath_pending_keys{table="ipcache"} 3',
      'dpcache_datapath_unconfirmed_keys{table="ipcache"} 1',
      'dpcache_datapath_keys_without_room{table="ipcache"} 2',
      'dpcache_datapath_failing_keys{table="ipcache"} 1',
      'dpcache_datapath_repairs_total{table="ipcache"} 6',
      'dpcache_datapath_writes_total{table="ipcache",kind="upsert"} 20',
      'dpcache_datapath_writes_total{table="ipcache",kind="delete"} 5',
      'dpcache_datapath_part_runs{part="ipcache"} 1',
      'dpcache_datapath_part_runs{part="services"} 0',
    ])
      expect(text).toContain(`\n${line}\n`);
    expect(text).not.toContain('part="nodes"');
  });
});
