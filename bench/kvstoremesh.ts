import { processGate } from '../src/base/node/process-gate.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { encodeClusterConfig } from '../src/kvstore/codec/cluster-config.ts';
import { encodeIPIdentityPair } from '../src/kvstore/codec/ip-identity-pair.ts';
import { clusterConfigKey, resourcePrefix } from '../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../src/kvstore/etcd/etcd-backend.ts';
import { SyncStore } from '../src/kvstore/stores/sync-store.ts';
import { KvstoreMesh } from '../src/operator/kvstoremesh/kvstore-mesh.ts';
import { type EtcdProcess, startEtcd } from '../test/kvstore/etcd/support/etcd-process.ts';
import { expect } from './expect.ts';
import { type KeyWork, keyWorkTable } from './key-work.ts';
import { liveBytes } from './meter.ts';
import { ownWorkDuring } from './own-work.ts';
import { podAddress } from './pod-address.ts';

/** The result of {@link benchKvstoreMesh}. */
export interface KvstoreMeshBenchReport {
  readonly clusters: number;
  /** For each cluster. */
  readonly keys: number;
  readonly rows: readonly KeyWork[];
  /** Growth of heap and buffers by the copies, for each key. */
  readonly bytesPerKey: number;
}

const RUNTIME = { clock: systemClock, random: Math.random };
const CLUSTERS = 10;
const COPIES = 'cilium/cache/';
const IPS = resourcePrefix('ip', '');
const names: readonly string[] = Array.from({ length: CLUSTERS }, (_, i) => `cluster-${i + 1}`);

const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

/** Fills one etcd, which stands for the etcds of all remote clusters. Every cluster has the same addresses. */
async function fill(remote: EtcdProcess, keys: number): Promise<EtcdBackend> {
  const backend = new EtcdBackend({ endpoints: [remote.url] }, RUNTIME);
  const store = new SyncStore({ backend, prefix: IPS, ...RUNTIME, leased: false, batched: true });
  const stop = new AbortController();
  const running = store.run(stop.signal);
  for (let i = 0; i < keys; i++) {
    const key = podAddress(i);
    const k8s = { namespace: `namespace-${i % 50}`, podName: `workload-${i % 977}-${i.toString(36)}` };
    const hostIP = `192.168.${(i / 110) >> 8}.${Math.floor(i / 110) & 255}`; // 110 pods per node
    store.upsert(
      key,
      encodeIPIdentityPair({ key, identity: 65_536 + (i % 5000), hostIP, encryptKey: 0, k8s }),
    );
  }
  await store.markSynced();
  stop.abort();
  await running;
  for (const [i, name] of names.entries()) {
    const capabilities = { syncedCanaries: false, cached: false };
    await backend.update(clusterConfigKey(name), encodeClusterConfig({ id: i + 1, capabilities }));
  }
  return backend;
}

/** A copying process: its client has a separate session. */
class Copier {
  readonly mesh: KvstoreMesh;
  readonly #local: EtcdBackend;

  constructor(local: string, remote: string) {
    const gate = processGate(systemClock);
    this.#local = new EtcdBackend({ endpoints: [local] }, { ...RUNTIME, gate });
    const localOptions = { clusterName: 'own', clusterID: 255, local: this.#local };
    this.mesh = new KvstoreMesh({ ...localOptions, ...RUNTIME, gate, drainMs: 0 });
    for (const name of names)
      void this.mesh.add(name, () =>
        Promise.resolve(new EtcdBackend({ endpoints: [remote] }, { ...RUNTIME, gate })),
      );
    this.mesh.markAllAdded();
  }

  /** Resolves when every copy has this number of keys, and the local etcd has all of them. */
  async has(keys: number): Promise<void> {
    const isDone = (): boolean => {
      const { clusters, ready } = this.mesh.status();
      const isCopied = ({ copy }: (typeof clusters)[number]): boolean =>
        copy.pending === 0 && copy.keys >= keys && copy.keys < keys + 2;
      return ready && clusters.length === CLUSTERS && clusters.every(isCopied);
    };
    while (!isDone()) await pause();
  }

  async remove(): Promise<void> {
    for (const name of names) void this.mesh.remove(name);
    while (this.mesh.status().clusters.length > 0) await pause();
  }

  async end(): Promise<void> {
    await this.mesh.stop();
    await this.#local.close({ keepLeases: true });
  }
}

function render({ clusters, keys, rows, bytesPerKey }: KvstoreMeshBenchReport): string {
  return [
    `${clusters} clusters of ${keys} IPs from a real etcd into another; ${bytesPerKey.toFixed(0)} bytes per key\n`,
    keyWorkTable(rows),
  ].join('\n');
}

/** Measures the cost of copying a mesh for the copying process. Prints a table unless `json` is set. */
export async function benchKvstoreMesh({
  n: keys = 100_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<KvstoreMeshBenchReport> {
  const flags = ['--quota-backend-bytes', String(8 * 2 ** 30)];
  const [[remote], [local]] = [await startEtcd(1, { flags }), await startEtcd(1, { flags })];
  if (remote === undefined || local === undefined) throw new Error('no etcd');
  const source = await fill(remote, keys);
  const rows: KeyWork[] = [];
  const measure = async (what: string, left: number, work: () => Promise<unknown>): Promise<void> => {
    const row = await ownWorkDuring(async () => void (await work()));
    rows.push({ what, ...row, keysPerSecond: (CLUSTERS * keys * 1000) / row.ms });
    const found = await local.ctl([
      'get',
      `${COPIES}ip/`,
      '--prefix',
      '--limit=1',
      '--keys-only',
      '--write-out=fields',
    ]);
    expect(what, Number(/"Count" : (\d+)/.exec(found)?.[1]), left);
    if (!json) process.stderr.write(`${what}: ${row.ms} ms\n`);
  };

  const before = await liveBytes();
  let copier = new Copier(local.url, remote.url);
  await measure('sync', CLUSTERS * keys, () => copier.has(keys));
  const bytesPerKey = ((await liveBytes()) - before) / (CLUSTERS * keys);
  await measure('restart: take over', CLUSTERS * keys, async () => {
    await copier.end();
    copier = new Copier(local.url, remote.url);
    await copier.has(keys);
  });
  await measure('the clusters delete all', 0, async () => {
    await source.deletePrefix(IPS, { deadlineMs: 60_000 });
    await copier.has(0);
  });
  await source.close();
  const again = await fill(remote, keys);
  await copier.has(keys);
  await measure('withdraw: the clusters leave', 0, () => copier.remove());
  await copier.end();
  await again.close();
  await Promise.all([remote.dispose(), local.dispose()]);
  const report = { clusters: CLUSTERS, keys, rows, bytesPerKey };
  if (!json) console.log(render(report));
  return report;
}
