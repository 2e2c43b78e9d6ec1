import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { type KvstoreMeshProcessOptions, runKvstoreMesh } from '../../src/agent/run-kvstoremesh.ts';
import type { HealthProblem } from '../../src/api/problems.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { clusterConfigKey } from '../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { KvstoreError } from '../../src/kvstore/session/errors.ts';
import * as kvstoreMesh from '../../src/operator/kvstoremesh/kvstore-mesh.ts';
import * as soleWriter from '../../src/operator/kvstoremesh/sole-writer.ts';
import * as localEtcd from '../../src/process/local-etcd.ts';
import * as remotes from '../../src/process/remote-etcds.ts';
import { spyOnConstructor } from '../base/support/spy-on-constructor.ts';
import { until } from '../base/support/until.ts';
import { settle } from './support/fake-clock.ts';
import { type RunInTest, runInTest } from './support/run-in-test.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

const Mesh = kvstoreMesh.KvstoreMesh;
const { SoleWriter } = soleWriter;

interface Running extends RunInTest {
  readonly folder: string;
  readonly opened: Parameters<typeof localEtcd.openLocalEtcd>[];
  readonly closed: unknown[];
  readonly made: () => kvstoreMesh.KvstoreMeshOptions | undefined;
}

/** Runs a kvstoremesh of cluster `own` over a kvstore in memory, and a folder with these configurations. */
function copy(
  changes: Partial<KvstoreMeshProcessOptions> = {},
  files: Readonly<Record<string, string>> = {},
): Running {
  const folder = temporaryFolder(files);
  const opened: Parameters<typeof localEtcd.openLocalEtcd>[] = [];
  const closed: unknown[] = [];
  vi.spyOn(localEtcd, 'openLocalEtcd').mockImplementation(async (...given) => {
    opened.push(given);
    const { clock, random } = given[2];
    const backend = new MemoryBackend({ clock, random });
    await backend.update(clusterConfigKey('own'), bytesOfText('{"id": 3, "capabilities": {}}'));
    const close = backend.close.bind(backend);
    vi.spyOn(backend, 'close').mockImplementation((options) => {
      closed.push(options);
      return close(options);
    });
    return backend as never;
  });
  const meshes = spyOnConstructor(kvstoreMesh, 'KvstoreMesh');
  const options = {
    clusterName: 'own',
    clusterID: undefined,
    kvstoreConfig: '/etcd',
    clustermeshConfig: folder,
    rateLimit: { qps: 9 },
    serviceTTLMs: 600_000,
    heartbeat: false,
    ...changes,
  };
  const running = runInTest((context) => runKvstoreMesh(options, {}, context));
  return { ...running, folder, opened, closed, made: () => meshes.mock.calls[0]?.[0] };
}

async function copies({ clock, made, get }: Running): Promise<void> {
  await until('it copies', async () => {
    clock.advance(500);
    return made() !== undefined && (await get('/readyz')).includes('"ready":true');
  });
}

describe('a kvstoremesh', () => {
  it('passes each of its options on, and keeps its leases at the end', async () => {
    const source = vi.spyOn(remotes, 'remoteEtcds');
    const writers = spyOnConstructor(soleWriter, 'SoleWriter');
    const stopped = vi.spyOn(Mesh.prototype, 'stop');
    const mesh = copy();
    await copies(mesh);
    expect(mesh.opened[0]?.slice(0, 2)).toEqual(['/etcd', { qps: 9 }]);
    expect(mesh.opened[0]?.[2]).toMatchObject({ witnessLeases: true });
    expect(mesh.made()).toMatchObject({ clusterName: 'own', clusterID: undefined, serviceTTLMs: 600_000 });
    expect(source.mock.calls[0]).toEqual([mesh.folder, expect.objectContaining({ rateLimit: { qps: 9 } })]);
    const { clock, gate, random } = mesh.opened[0]?.[2] ?? {};
    for (const options of [mesh.made(), source.mock.calls[0]?.[1]])
      expect([options?.clock === clock, options?.gate === gate, options?.random === random]).toEqual(
        [true, true, true], // one gate bounds the turns of the whole process
      );
    expect([clock === mesh.clock, gate, random]).toEqual([true, expect.any(TurnGate), expect.any(Function)]);
    const backend = await vi.mocked(localEtcd.openLocalEtcd).mock.results[0]?.value;
    expect(mesh.made()?.local).toBe(backend);
    expect(writers.mock.calls[0]?.[0]).toMatchObject({ backend, clock, random });
    const status = JSON.parse(await mesh.get('/v1/status'));
    expect(status.ready).toBe(true); // all clusters of the folder were added
    expect(status.steps).toMatchObject([{ name: 'API' }, { name: 'local kvstore' }, { name: 'clusters' }]);
    mesh.stop.abort();
    await mesh.ended;
    expect(stopped).toHaveBeenCalled();
    expect(mesh.closed).toEqual([{ keepLeases: true }]);
    expect(mesh.clock.pending).toBe(0);
  });

  it('reports that the local kvstore does not answer, and that it answers again (regression: nothing did)', async () => {
    const mesh = copy();
    await copies(mesh);
    const get = vi.spyOn(MemoryBackend.prototype, 'get');
    get.mockRejectedValueOnce(new KvstoreError('unavailable', 'connection refused'));
    mesh.clock.advance(2_000);
    await settle();
    const text = 'the kvstore does not answer: connection refused';
    expect(mesh.logged.slice(-1)).toEqual([`warn  local kvstore: ${text}`]);
    expect(JSON.parse(await mesh.get('/v1/problems'))).toMatchObject({
      ready: true,
      items: [{ severity: 'warning', subject: 'local kvstore', text }],
    });
    expect(await mesh.get('/metrics')).toContain('dpcache_problems{severity="warning"} 1\n');
    mesh.clock.advance(2_000);
    await settle();
    expect(mesh.logged.slice(-1)).toEqual(['warn  local kvstore: the kvstore answers again']);
    expect(await mesh.get('/v1/problems')).toContain('"items":[]');
  });

  it('uses its own cluster id rather than that in the kvstore', async () => {
    const mesh = copy({ clusterID: 7 });
    await copies(mesh);
    expect(mesh.made()).toMatchObject({ clusterID: 7 });
  });

  it.each([false, true])('writes a heartbeat each minute only if it is enabled: %s', async (heartbeat) => {
    const update = vi.spyOn(MemoryBackend.prototype, 'update');
    const mesh = copy({ heartbeat });
    await copies(mesh);
    const beats = (): number => update.mock.calls.filter(([key]) => key === 'cilium/.heartbeat').length;
    expect(beats()).toBe(heartbeat ? 1 : 0);
    update.mockRejectedValueOnce(new Error('no space'));
    mesh.clock.advance(60_000);
    await settle();
    expect(mesh.logged.join().includes('cannot write the heartbeat: no space')).toBe(heartbeat);
    mesh.clock.advance(60_000);
    await settle();
    expect(beats()).toBe(heartbeat ? 3 : 0);
  });

  it('may write only while it is the sole writer', async () => {
    const may = vi.spyOn(SoleWriter.prototype, 'mayWrite').mockReturnValue(false);
    const mesh = copy();
    await copies(mesh);
    const { mayWrite } = mesh.opened[0]?.[2] ?? {};
    expect(mayWrite?.()).toBe(false);
    may.mockReturnValue(true);
    expect(mayWrite?.()).toBe(true);
  });

  it('ends with an error if another one has taken the lock', async () => {
    vi.spyOn(SoleWriter.prototype, 'run').mockImplementation(async (begin) => {
      await begin();
      return 'taken';
    });
    await expect(copy().ended).rejects.toThrow(
      'the lock was lost: another kvstoremesh may copy into this kvstore',
    );
  });

  it('ends with the error of its copy', async () => {
    vi.spyOn(SoleWriter.prototype, 'run').mockRejectedValue(new Error('boom'));
    await expect(copy().ended).rejects.toThrow('boom');
  });

  it('is ready as a standby, and not before it is known that another one copies', async () => {
    const writers = spyOnConstructor(soleWriter, 'SoleWriter');
    vi.spyOn(SoleWriter.prototype, 'holder', 'get').mockReturnValue('lock/1');
    vi.spyOn(SoleWriter.prototype, 'run').mockImplementation(async (_, signal) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return 'ended';
    });
    const mesh = copy();
    await until('it waits for the lock', () => writers.mock.calls.length > 0);
    await settle();
    expect(await mesh.get('/readyz')).toContain('"ready":false');
    expect(mesh.logged.join()).not.toContain('standby');
    const writer = writers.mock.calls[0]?.[0] as soleWriter.SoleWriterOptions | undefined;
    writer?.onStandby?.();
    await until('it is ready', async () => (await mesh.get('/readyz')).includes('"ready":true'));
    expect(mesh.logged).toContain(
      'warn  standby, because another kvstoremesh copies into this kvstore (lock lock/1)',
    );
    expect(mesh.made()).toBeUndefined();
    expect(JSON.parse(await mesh.get('/v1/status'))).toMatchObject({
      cluster: 'own',
      ready: false,
      clusters: [],
      problems: ['standby, because another kvstoremesh copies into this kvstore (lock lock/1)'],
      configProblems: [],
    });
  });

  it('that waits for the lock can be stopped', async () => {
    const run = vi.spyOn(SoleWriter.prototype, 'run').mockImplementation(async (_, signal) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return 'ended';
    });
    const mesh = copy();
    await until('it waits for the lock', () => run.mock.calls.length > 0);
    mesh.stop.abort();
    await mesh.ended;
    expect(mesh.closed).toHaveLength(1);
  });

  it('reports unusable files of remote clusters, and of its own kvstore', async () => {
    const mesh = copy({}, { far: 'endpoints: 7\n' });
    await copies(mesh);
    mesh.opened[0]?.[2].onProblem?.('--kvstore-config /etcd: no certificate', 'no certificate');
    await until('the file was read', async () => (await mesh.get('/v1/status')).includes('/far: '));
    expect(JSON.parse(await mesh.get('/v1/status')).configProblems).toEqual([
      '--kvstore-config /etcd: no certificate',
      expect.stringMatching(`--clustermesh-config ${join(mesh.folder, 'far')}: .*endpoints`),
    ]);
    expect(mesh.logged).toContain('warn  --kvstore-config /etcd: no certificate');
    expect(mesh.logged).toContainEqual(
      expect.stringMatching(/^warn {2}--clustermesh-config .*\/far: .*endpoints/),
    );
    mesh.opened[0]?.[2].onProblem?.(undefined);
    expect(JSON.parse(await mesh.get('/v1/status')).configProblems).toHaveLength(1);
  });

  it('logs the clusters that it cannot reach (regression: only its status named them)', async () => {
    const mesh = copy({}, { far: 'endpoints: [http://127.0.0.1:1]\n' });
    await until('the failure is logged', () => {
      mesh.clock.advance(500);
      return mesh.logged.some((line) => line.startsWith('warn  cluster far: not connected'));
    });
    expect(mesh.logged).toContain('info  cluster far has joined the mesh');
    expect(mesh.logged.join()).toContain('cannot connect to etcd at 127.0.0.1:1: connection refused');
  });

  it('logs failed writes of a copy once, and their end (regression: later pending writes logged them again)', async () => {
    const mesh = copy();
    await copies(mesh);
    const passes = async (...copies: readonly object[]): Promise<readonly string[]> => {
      const { length } = mesh.logged;
      const clusters = copies.map((copy, at) => ({ name: `c${at}`, copy }));
      vi.spyOn(Mesh.prototype, 'status').mockReturnValue({ clusters } as never);
      mesh.clock.advance(10_000);
      await settle();
      return mesh.logged.slice(length);
    };
    const solved = { pending: 7, failures: 1, lastFailure: { message: 'solved' }, isFailing: false };
    const idle = { pending: 3, failures: 0, isFailing: false };
    const full = { pending: 5, failures: 1, lastFailure: { message: 'no space' }, isFailing: true };
    expect(await passes(solved, idle, full)).toEqual([
      'warn  cluster c2: cannot write its copy to the local kvstore; retrying: no space',
    ]);
    expect(await passes(solved, idle, { ...full, pending: 9 })).toEqual([]);
    expect(await passes(solved, idle, { ...full, lastFailure: { message: 'refused' } })).toEqual([
      'warn  cluster c2: cannot write its copy to the local kvstore; retrying: refused',
    ]);
    // Regression: failures of two endpoints alternate, and each pass logged another one.
    expect(await passes(solved, idle, full)).toEqual([]);
    expect(await passes(solved, idle, { ...full, isFailing: false })).toEqual([
      'warn  cluster c2: its copy can be written again',
    ]);
    expect(await passes(solved, idle, full)).toHaveLength(1);
  });

  it('does not start without its folder', async () => {
    const folder = temporaryFolder({});
    rmSync(folder, { recursive: true });
    await expect(copy({ clustermeshConfig: folder }).ended).rejects.toThrow(
      `--clustermesh-config ${folder}: no such file or folder`,
    );
  });

  it('tells why its kvstore does not answer while it starts', async () => {
    vi.spyOn(MemoryBackend.prototype, 'get').mockRejectedValue(new Error('refused'));
    const mesh = copy();
    await until('it waits', async () => (await mesh.get('/readyz')).includes('refused'));
    expect(JSON.parse(await mesh.get('/readyz')).blockers.join()).toContain(
      'the local kvstore does not answer: refused; check the endpoints and certificates of --kvstore-config',
    );
    await until('the time is over', () => {
      mesh.clock.advance(10_000);
      return mesh.closed.length > 0;
    });
    await expect(mesh.ended).rejects.toThrow('local kvstore: no progress for 30 s');
  });
});

describe('the metrics and readiness of a kvstoremesh', () => {
  const cluster = (name: string, changes: object): object => ({
    name,
    state: 'connecting',
    ready: false,
    connected: false,
    servicesExpired: false,
    resources: {},
    rejections: { total: 0 },
    connectionChangedAt: 0,
    copy: { keys: 11, pending: 12, failures: 13, canaries: { nodes: true, ip: false } },
    ...changes,
  });

  it('have times in ISO 8601 in the status (regression: milliseconds, unlike an agent)', async () => {
    const mesh = copy();
    await copies(mesh);
    const clusters = [cluster('far', { lastFailure: { message: 'x', at: 1000.5 } })];
    vi.spyOn(Mesh.prototype, 'status').mockReturnValue({ ready: false, clusters, problems: [] } as never);
    expect(JSON.parse(await mesh.get('/v1/status')).clusters).toMatchObject([
      { connectionChangedAt: '1970-01-01T00:00:00.000Z', lastFailure: { at: '1970-01-01T00:00:01.000Z' } },
    ]);
  });

  it('have every count of each cluster, and name those that are not copied', async () => {
    const mesh = copy();
    await copies(mesh);
    const copied = { keys: 1, pending: 2, failures: 3, canaries: { nodes: true } };
    const clusters = [
      cluster('far', {}),
      cluster('near', {
        ready: true,
        connected: true,
        servicesExpired: true,
        heartbeat: 'stale',
        copy: copied,
      }),
      cluster('held', { connected: true, heartbeat: 'never', copy: copied }),
    ];
    vi.spyOn(Mesh.prototype, 'status').mockReturnValue({
      ready: false,
      clusters,
      problems: ['a problem'],
    } as never);
    vi.spyOn(Mesh.prototype, 'isReady', 'get').mockReturnValue(false);
    const metrics = (await mesh.get('/metrics'))
      .split('\n')
      .filter((line) => /^(# TYPE )?dpcache_(cluster|kvstoremesh)/.test(line));
    expect(metrics).toMatchInlineSnapshot(`
      [
        "# TYPE dpcache_cluster_ready gauge",
        "dpcache_cluster_ready{cluster="far"} 0",
        "dpcache_cluster_ready{cluster="near"} 1",
        "dpcache_cluster_ready{cluster="held"} 0",
        "# TYPE dpcache_cluster_connected gauge",
        "dpcache_cluster_connected{cluster="far"} 0",
        "dpcache_cluster_connected{cluster="near"} 1",
        "dpcache_cluster_connected{cluster="held"} 1",
        "# TYPE dpcache_cluster_services_expired gauge",
        "dpcache_cluster_services_expired{cluster="far"} 0",
        "dpcache_cluster_services_expired{cluster="near"} 1",
        "dpcache_cluster_services_expired{cluster="held"} 0",
        "# TYPE dpcache_cluster_heartbeat_stale gauge",
        "dpcache_cluster_heartbeat_stale{cluster="near"} 1",
        "dpcache_cluster_heartbeat_stale{cluster="held"} 0",
        "# TYPE dpcache_kvstoremesh_keys gauge",
        "dpcache_kvstoremesh_keys{cluster="far"} 11",
        "dpcache_kvstoremesh_keys{cluster="near"} 1",
        "dpcache_kvstoremesh_keys{cluster="held"} 1",
        "# TYPE dpcache_kvstoremesh_pending_keys gauge",
        "dpcache_kvstoremesh_pending_keys{cluster="far"} 12",
        "dpcache_kvstoremesh_pending_keys{cluster="near"} 2",
        "dpcache_kvstoremesh_pending_keys{cluster="held"} 2",
        "# TYPE dpcache_kvstoremesh_failures_total counter",
        "dpcache_kvstoremesh_failures_total{cluster="far"} 13",
        "dpcache_kvstoremesh_failures_total{cluster="near"} 3",
        "dpcache_kvstoremesh_failures_total{cluster="held"} 3",
      ]
    `);
    expect(JSON.parse(await mesh.get('/readyz'))).toMatchObject({
      ready: false,
      blockers: ['cluster far is not copied yet: connecting'],
    });
    expect(JSON.parse(await mesh.get('/v1/status'))).toMatchObject({
      problems: ['a problem'],
      clusters: clusters.map((one) => ({ ...one, connectionChangedAt: '1970-01-01T00:00:00.000Z' })),
    });
    const { items } = JSON.parse(await mesh.get('/v1/problems'));
    expect(items.map(({ severity, subject }: HealthProblem) => `${severity} ${subject}`)).toEqual([
      ...['error not ready', 'error cluster far'],
      ...['warning copies', 'warning cluster near', 'warning cluster held'],
    ]);
    vi.spyOn(Mesh.prototype, 'isReady', 'get').mockReturnValue(true); // a cluster that was added later does not count
    expect(JSON.parse(await mesh.get('/readyz'))).toMatchObject({ ready: true, blockers: [] });
  });
});
