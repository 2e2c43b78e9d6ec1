import { isDeepStrictEqual } from 'node:util';
import { expect, it } from 'vitest';
import { systemClock } from '../../src/base/system-clock.ts';
import { EtcdBackend } from '../../src/kvstore/etcd/etcd-backend.ts';
import { HEARTBEAT_INTERVAL_MS } from '../../src/kvstore/session/health.ts';
import { until } from '../base/support/until.ts';
import { ClusterEtcd } from '../clustermesh/support/cluster-etcd.ts';
import { Agent, OWN } from '../clustermesh/support/mesh-world.ts';

/** `IDLE_SECONDS`: duration of the idle time. */
const IDLE_SECONDS = Number(process.env['IDLE_SECONDS'] ?? 300);
const CLUSTERS = { [OWN]: 9, a: 1, b: 2 };
const ARRIVAL_MS = 100;
const RANGE = 'etcdserverpb.KV/Range';

/** Returns the number of calls of each method of an etcd, without keepalives. */
async function calls({ url }: ClusterEtcd): Promise<ReadonlyMap<string, number>> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const started = metrics.matchAll(
    /^grpc_server_started_total\{grpc_method="(?!LeaseKeepAlive)(\w+)",grpc_service="([\w.]+)",.* (\d+)$/gm,
  );
  return new Map(
    Array.from(started, ([, method, service, count]) => [`${service}/${method}`, Number(count)] as const),
  );
}

/** Returns an address of a cluster, as its agents write it. */
function ip(id: number, host: number): readonly [key: string, value: object] {
  const IP = `10.${id}.0.${host}`;
  const value = { IP, Mask: null, HostIP: '192.168.0.1', ID: (id << 16) | 0x200, Key: 0, Metadata: '' };
  return [`cilium/state/ip/v1/default/${IP}`, value];
}

it(`three clusters on compacted etcds that are idle for ${IDLE_SECONDS} s: no request but keepalives and reads of the heartbeat, and a write arrives at once`, async () => {
  const entries = Object.entries(CLUSTERS);
  const etcds = await Promise.all(entries.map(([name, id]) => ClusterEtcd.start(name, id)));
  const ids = Object.values(CLUSTERS);
  for (const [i, etcd] of etcds.entries()) {
    await etcd.write(...ip(ids[i] ?? 0, 1));
    await etcd.write('unrelated', 'later');
    await etcd.strike('compact', Math.random);
  }
  const backends = etcds.map(({ url }) => new EtcdBackend({ endpoints: [url] }));
  const agent = new Agent(systemClock);
  for (const [i, [name]] of entries.entries()) {
    const backend = backends[i] ?? expect.fail();
    if (name === OWN) agent.followOwnOn(backend);
    else await agent.mesh.add(name, () => backend);
  }
  const states = (): readonly string[] =>
    backends.flatMap((backend) =>
      backend.status().watches.map(({ state, failures }) => `${state} ${failures}`),
    );
  await until('all are read', () => agent.ipcache.size === entries.length);
  await until(
    'all are watched',
    () => states().length > 12 && states().every((state) => state === 'watching 0'),
  );

  let before: readonly ReadonlyMap<string, number>[] = [];
  await until('what came with the beginning is over', async () => {
    const last = before;
    before = await Promise.all(etcds.map(calls));
    await new Promise((resolve) => setTimeout(resolve, 500));
    return isDeepStrictEqual(before, last);
  });
  await new Promise((resolve) => setTimeout(resolve, 1000 * IDLE_SECONDS));
  for (const [i, etcd] of etcds.entries()) {
    const made = [...(await calls(etcd))].map(
      ([method, count]) => [method, count - (before[i]?.get(method) ?? 0)] as const,
    );
    expect(made.filter(([method, count]) => count > 0 && method !== RANGE)).toEqual([]);
    const reads = new Map(made).get(RANGE);
    expect(reads).toBeLessThanOrEqual(1 + (2000 * IDLE_SECONDS) / HEARTBEAT_INTERVAL_MS);
  }
  expect(new Set(states())).toEqual(new Set(['watching 0']));

  for (const [i, etcd] of etcds.entries()) {
    const begun = performance.now();
    await etcd.write(...ip(ids[i] ?? 0, 2));
    await until('it arrives', () => agent.ipcache.get(`10.${ids[i]}.0.2`) !== undefined);
    const ms = performance.now() - begun;
    process.stdout.write(`a write to ${entries[i]?.[0]} arrived after ${ms.toFixed(1)} ms\n`);
    expect(ms).toBeLessThan(ARRIVAL_MS);
  }
  await agent.stop();
  for (const backend of backends) await backend.close();
  for (const etcd of etcds) await etcd.dispose();
});
