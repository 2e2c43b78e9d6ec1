import perf_hooks, { PerformanceObserver } from 'node:perf_hooks';
import { describe, expect, it, vi } from 'vitest';
import type { Metric, Sample } from '../../src/api/metrics/metric.ts';
import { ProcessMetrics } from '../../src/api/metrics/process-metrics.ts';
import { Scrape } from '../../src/api/metrics/scrape.ts';
import type { ClusterMetrics } from '../../src/api/read-model.ts';
import { LatencyHistogram } from '../../src/base/latency-histogram.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { testApp } from './support/test-app.ts';

async function metrics(app: ReturnType<typeof testApp>['app']): Promise<string> {
  return (await app.request('/metrics')).text();
}

/** Names of metrics of ours with their series. */
function series(text: string): readonly string[] {
  return text.split('\n').filter((line) => line.startsWith('dpcache_'));
}

/** A cluster without any known state. */
const NEW: ClusterMetrics = {
  name: 'baltic',
  firstSyncMs: undefined,
  lastSyncMs: undefined,
  kvstore: undefined,
  watches: [],
};

const QUIET_KIND = {
  complete: false,
  objects: 0,
  rejected: 0,
  events: 0,
  lists: 0,
  bookmarks: 0,
  failures: 0,
};

describe('/metrics', () => {
  it('of two tables have different names (regression: the later table silently replaced a metric)', () => {
    const metric: Metric = { type: 'gauge', help: 'A.', samples: () => [] };
    const tables = [{ dpcache_a: metric }, { dpcache_a: metric }];
    expect(() => new ProcessMetrics(tables, new Scrape())).toThrow('dpcache_a');
  });

  it('reads few metrics in one turn of the event loop (regression: those of 255 clusters took 0.1 s in one)', async () => {
    let turns = 0;
    const gate = new TurnGate({
      clock: { now: () => 0 },
      nextTurn: (callback) =>
        setImmediate(() => {
          turns++;
          callback();
        }),
    });
    const turnOf: number[] = [];
    const samples = (): readonly Sample[] => {
      turnOf.push(turns);
      return [];
    };
    const metric: Metric = { type: 'gauge', help: 'A.', samples };
    const table = Object.fromEntries(Array.from({ length: 100 }, (_, at) => [`dpcache_${at}`, metric]));
    await new ProcessMetrics([table], new Scrape()).text(gate);
    const counts = Array.from(
      { length: turns },
      (_, turn) => turnOf.filter((other) => other === turn).length,
    );
    expect([turnOf.length, Math.max(...counts)]).toEqual([100, 8]);
  });

  it('counts the entries of the engines by source, family and outcome', async () => {
    const { app } = testApp();
    const text = series(await metrics(app));
    expect(text).toContain('dpcache_ipcache_entries{family="ipv4",form="endpoint"} 2');
    expect(text).toContain('dpcache_ipcache_entries{family="ipv4",form="cidr"} 2');
    expect(text).toContain('dpcache_ipcache_entries_by_source{source="clustermesh"} 2');
    expect(text).toContain('dpcache_service_backends 1');
    expect(text).toContain('dpcache_nodes{source="clustermesh"} 1');
    expect(text).toContain('dpcache_sync_duration_seconds 0.005');
  });

  it('counts requests by the pattern of their route', async () => {
    const { app } = testApp();
    await app.request('/v1/ipcache/lookup/10.0.0.1');
    await app.request('/v1/ipcache/lookup/10.9.9.9');
    await app.request('/v1/ipcache/lookup/x');
    for (let i = 0; i < 50; i++) await app.request(`/nothing/${i}`);
    const text = series(await metrics(app));
    const count = 'dpcache_api_request_duration_seconds_count';
    expect(text).toContain(`${count}{route="/v1/ipcache/lookup/:ip",code="200"} 2`);
    expect(text).toContain(`${count}{route="/v1/ipcache/lookup/:ip",code="400"} 1`);
    expect(text.filter((line) => line.startsWith(count)).length).toBeLessThan(5);
  });

  it('has as many series for a hundred thousand prefixes as for a few', async () => {
    const { app, model } = testApp();
    const before = series(await metrics(app)).length;
    for (let i = 0; i < 100_000; i++)
      model.ipcache.upsert(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`, { identity: i, source: 'kvstore' });
    const after = series(await metrics(app));
    // The first scrape is a route of its own from then on.
    expect(after.length - before).toBeLessThan(20);
    expect(after.join('\n')).not.toContain('10.0');
  });

  it('contains the latency of kvstore changes and the state of the watches of each cluster', async () => {
    const { app, model } = testApp();
    const watch = { listings: 1, streams: 2, failures: 3, queuedBytes: 4 };
    const watches = [[3, 7, 7], [40_000]].map((delays) => {
      const counts = new LatencyHistogram();
      for (const ms of delays) counts.add(ms);
      return { ...watch, delays: counts.status() };
    });
    model.followed.push({ ...NEW, watches });
    const text = await metrics(app);
    const name = 'dpcache_kvstore_propagation_seconds';
    expect(text).toContain(`# TYPE ${name} histogram\n`);
    for (const [le, count] of [
      ['0.002', 0],
      ['0.005', 1],
      ['0.01', 3],
      ['30', 3],
      ['+Inf', 4],
    ])
      expect(series(text)).toContain(`${name}_bucket{cluster="baltic",le="${le}"} ${count}`);
    expect(series(text)).toContain(`${name}_sum{cluster="baltic"} 40.017`);
    expect(series(text)).toContain(`${name}_count{cluster="baltic"} 4`);
    expect(series(text)).toContain('dpcache_kvstore_queue_bytes{cluster="baltic"} 8');
    expect(series(text)).toContain('dpcache_kvstore_streams_total{cluster="baltic"} 4');
  });

  it('counts requests and leases of each kvstore, and none for a cluster without a client', async () => {
    const { app, model } = testApp();
    const kvstore = { requests: { ok: 7, deadline: 2 }, leases: 3, leasesLost: 1 };
    model.followed.push({ ...NEW, kvstore }, { ...NEW, name: 'nordic' });
    const text = series(await metrics(app));
    const of = (name: string): readonly string[] => text.filter((line) => line.startsWith(name));
    expect(of('dpcache_kvstore_requests_total')).toEqual([
      'dpcache_kvstore_requests_total{cluster="baltic",outcome="ok"} 7',
      'dpcache_kvstore_requests_total{cluster="baltic",outcome="deadline"} 2',
    ]);
    expect(of('dpcache_kvstore_leases')).toEqual([
      'dpcache_kvstore_leases{cluster="baltic"} 3',
      'dpcache_kvstore_leases_lost_total{cluster="baltic"} 1',
    ]);
  });

  it('contains the duration of the first and the last sync of each cluster after the first sync', async () => {
    const { app, model } = testApp();
    model.followed.push({ ...NEW, firstSyncMs: 1500, lastSyncMs: 250 }, { ...NEW, name: 'nordic' });
    const text = series(await metrics(app)).filter((line) => /^dpcache_cluster_\w+_sync_/.test(line));
    expect(text).toEqual([
      'dpcache_cluster_first_sync_duration_seconds{cluster="baltic"} 1.5',
      'dpcache_cluster_last_sync_duration_seconds{cluster="baltic"} 0.25',
    ]);
  });

  it('contains the state of each kind of Kubernetes objects, and nothing without Kubernetes', async () => {
    const { app, model } = testApp();
    expect(series(await metrics(app)).filter((line) => line.includes('kubernetes'))).toEqual([]);
    const pods = {
      ...QUIET_KIND,
      complete: true,
      objects: 7,
      lagMs: 1500,
      lists: 2,
      failures: 3,
      rejected: 4,
    };
    const kinds = [
      { ...pods, name: 'pods', state: 'watching', events: 9 },
      { ...QUIET_KIND, name: 'services', state: 'forbidden' },
      { ...QUIET_KIND, name: 'ciliumnodes', state: 'resting' },
      { ...QUIET_KIND, name: 'ciliumendpoints', state: 'missing' },
    ] as const;
    const handover = { nodes: 'resting', ip: 'following', identities: 'following' } as const;
    model.kubernetes = { server: 'memory', synced: false, handover, kinds };
    const text = series(await metrics(app)).map((line) => line.replace('dpcache_kubernetes_', ''));
    const of = (name: string): readonly string[] => text.filter((line) => line.startsWith(name));
    expect(of('synced')).toEqual(['synced{kind="pods"} 1', 'synced{kind="services"} 0']);
    expect(of('watching')).toEqual(['watching{kind="pods"} 1', 'watching{kind="services"} 0']);
    expect(of('lag_seconds')).toEqual(['lag_seconds{kind="pods"} 1.5']);
    for (const line of [
      'objects{kind="pods"} 7',
      'events_total{kind="pods"} 9',
      'lists_total{kind="pods"} 2',
      'failures_total{kind="pods"} 3',
      'rejections_total{kind="pods"} 4',
    ])
      expect(text).toContain(line);
  });

  it('measures the calls of node handlers; handlers of one name share a series', async () => {
    const { app, model } = testApp();
    const name = 'a "route"\\\n';
    for (const ms of [4, 40])
      model.nodes.subscribe({
        name,
        nodeUpdate: () => {},
        nodeDelete: () => {},
        nodeAdd: () => void model.clock.advance(ms),
      });
    const text = series(await metrics(app));
    const metric = 'dpcache_node_handler_duration_seconds';
    const label = String.raw`handler="a \"route\"\\\n"`;
    for (const [le, count] of [
      ['0.002', 0],
      ['0.005', 1],
      ['0.05', 2],
      ['+Inf', 2],
    ])
      expect(text).toContain(`${metric}_bucket{${label},le="${le}"} ${count}`);
    expect(text).toContain(`${metric}_sum{${label}} 0.044`);
    expect(text).toContain(`${metric}_count{${label}} 2`);
  });

  it('counts monitors while they are connected', async () => {
    const { app } = testApp();
    const reader = (await app.request('/v1/monitor')).body?.getReader();
    await reader?.read();
    expect(series(await metrics(app))).toContain('dpcache_api_monitors 1');
    await reader?.cancel();
    expect(series(await metrics(app))).toContain('dpcache_api_monitors 0');
  });

  it('counts at most 256 monitors, and serves another one when one of them has ended', async () => {
    const { app } = testApp();
    const open = (query = ''): Promise<Response> => Promise.resolve(app.request(`/v1/monitor${query}`));
    expect((await open('?types=pod')).status).toBe(400);
    const answers = [];
    for (let count = 1; count <= 256; count++) answers.push(await open());
    expect(answers.every(({ status }) => status === 200)).toBe(true);
    for (let round = 1; round <= 2; round++) {
      const refused = await open();
      expect([refused.status, await refused.json()]).toMatchObject([
        ...[429, { type: 'urn:dpcache:problem:too-many' }],
      ]);
      expect((await app.request('/v1/monitor', { method: 'HEAD' })).status).toBe(200);
      expect(series(await metrics(app))).toContain('dpcache_api_monitors 256');
    }
    await answers[0]?.body?.cancel();
    expect([(await open()).status, (await open()).status]).toEqual([200, 429]);
    for (const { body } of answers.slice(1)) await body?.cancel();
    expect(series(await metrics(app))).toContain('dpcache_api_monitors 1');
  });

  it('limits monitors over TCP and over the unix socket separately (regression: TCP clients could occupy all)', async () => {
    const { app } = testApp();
    const tcp = { incoming: { socket: { remoteAddress: '192.0.2.1', destroyed: false } } };
    const answers = [];
    for (let count = 1; count <= 256; count++) answers.push(await app.request('/v1/monitor', {}, tcp));
    expect((await app.request('/v1/monitor', {}, tcp)).status).toBe(429);
    answers.push(await app.request('/v1/monitor'));
    expect(answers.every(({ status }) => status === 200)).toBe(true);
    expect(series(await metrics(app))).toContain('dpcache_api_monitors 257');
    for (const { body } of answers) await body?.cancel();
    expect(series(await metrics(app))).toContain('dpcache_api_monitors 0');
  });

  it('reads each engine once per scrape', async () => {
    const { app, model } = testApp();
    await metrics(app); // the first scrape starts a count of conflicts
    const asked: string[] = [];
    for (const [name, engine] of Object.entries({ ...model, agent: model } as const)) {
      if (typeof engine !== 'object' || !('status' in engine)) continue;
      const status = engine.status.bind(engine) as () => never;
      engine.status = () => {
        asked.push(name);
        return status();
      };
    }
    for (let scrape = 1; scrape <= 2; scrape++) {
      await metrics(app);
      expect(asked.splice(0).sort()).toEqual(['agent', 'ipcache', 'nodes', 'services']);
    }
  });

  it('measures garbage and delays of the process once for all servers (regression: a timer and an observer for each, also after its end)', () => {
    const timers = vi.spyOn(perf_hooks, 'monitorEventLoopDelay');
    const observers = vi.spyOn(PerformanceObserver.prototype, 'observe');
    for (let i = 0; i < 3; i++) testApp();
    expect(timers.mock.calls.length).toBeLessThanOrEqual(1);
    expect(observers.mock.calls.length).toBeLessThanOrEqual(1);
  });

  it('contains metrics of the process', async () => {
    const text = await metrics(testApp().app);
    for (const name of [
      'nodejs_eventloop_lag_p99_seconds',
      'process_resident_memory_bytes',
      'nodejs_gc_duration_seconds',
    ])
      expect(text).toContain(`# HELP ${name} `);
  });
});
