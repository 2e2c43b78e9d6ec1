import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/system-clock.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { encodeClusterConfig } from '../../src/kvstore/codec/cluster-config.ts';
import { clusterConfigKey, resourcePrefix, syncedKey } from '../../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../../src/kvstore/etcd/etcd-backend.ts';
import { type KvstoreBackend, MAX_WRITES } from '../../src/kvstore/session/backend.ts';
import { KvstoreMesh } from '../../src/operator/kvstoremesh/kvstore-mesh.ts';
import { ClusterPublisher } from '../../src/operator/publish/cluster-publisher.ts';
import { until } from '../base/support/until.ts';
import { type EtcdProcess, startEtcd } from '../kvstore/etcd/support/etcd-process.ts';

const KEYS = 100_000;
/**
 * Maximum number of transactions: one write per key, and others: leases, the fence, canaries, comparisons.
 * Without batches there would be one or two for each key.
 */
const FEW_CALLS = (1.5 * KEYS) / MAX_WRITES + 500;
const RUNTIME = { clock: systemClock, random: Math.random };

let etcd: EtcdProcess;
let remote: EtcdProcess;
const clients: EtcdBackend[] = [];

function client(of: EtcdProcess = etcd, gate?: TurnGate): EtcdBackend {
  const backend = new EtcdBackend({ endpoints: [of.url] }, { ...RUNTIME, gate });
  clients.push(backend);
  return backend;
}

async function count(prefix: string): Promise<number> {
  const found = await etcd.ctl(['get', prefix, '--prefix', '--limit=1', '--keys-only', '--write-out=fields']);
  return Number(/"Count" : (\d+)/.exec(found)?.[1]);
}

/** Counts the deletes of a prefix from now on. */
async function deletesBelow(prefix: string): Promise<{ readonly count: () => number; stop(): void }> {
  const ended = new AbortController();
  let deletes = 0;
  const watch = client().watch(prefix, { signal: ended.signal });
  void (async () => {
    for await (const events of watch) for (const { type } of events) if (type === 'delete') deletes++;
  })();
  await until('the prefix is listed', () => watch.status().listed);
  return { count: () => deletes, stop: () => ended.abort() };
}

const address = (i: number): string => `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`;

beforeAll(async () => {
  const flags = ['--quota-backend-bytes', String(4 * 2 ** 30)];
  const [[first], [second]] = await Promise.all([startEtcd(1, { flags }), startEtcd(1, { flags })]);
  if (first === undefined || second === undefined) throw new Error('no etcd');
  etcd = first;
  remote = second;
});
afterAll(async () => {
  for (const backend of clients) await backend.close({ keepLeases: true });
  await Promise.all([etcd.dispose(), remote.dispose()]);
});

describe(`a cluster of ${KEYS.toLocaleString('en')} IPs in a real etcd`, () => {
  const PREFIX = resourcePrefix('ip', 'west');

  class Publisher {
    readonly backend: EtcdBackend = client();
    readonly publisher: ClusterPublisher = new ClusterPublisher({
      clusterName: 'west',
      clusterID: 1,
      backend: this.backend,
    });
    readonly #ended = new AbortController();
    readonly #running: Promise<void> = this.publisher.run(this.#ended.signal);

    async publish(): Promise<void> {
      for (let i = 0; i < KEYS; i++)
        this.publisher.upsertIP({ key: address(i), identity: 65_792 + (i % 5000), encryptKey: 0 });
      await this.publisher.markSynced();
    }

    async end(keepLeases: boolean): Promise<void> {
      this.#ended.abort();
      await this.#running;
      await this.backend.close({ keepLeases });
    }
  }

  it('is published, taken over without a delete, changed by another client, and deleted: with few calls', async () => {
    const first = new Publisher();
    await first.publish();
    expect([await count(PREFIX), await count(syncedKey('west', 'ip'))]).toEqual([KEYS, 1]);
    expect(first.backend.status().requests.ok).toBeLessThan(FEW_CALLS);
    await first.end(true);

    const deletes = await deletesBelow(PREFIX);
    const second = new Publisher();
    await second.publish();
    expect([await count(PREFIX), deletes.count()]).toEqual([KEYS, 0]);
    expect(second.backend.status().requests.ok).toBeLessThan(FEW_CALLS);
    deletes.stop();

    // The leases of the first process are adopted, so its keys are not written again.
    expect(second.publisher.status().resources.ip.writes).toBe(0);
    expect(await client().deletePrefix(PREFIX, { deadlineMs: 60_000 })).toBe(KEYS);
    await until('every key is put back', () => second.publisher.status().resources.ip.writes >= KEYS);
    await until('all writes have landed', () => second.publisher.status().resources.ip.pending === 0);
    expect(await count(PREFIX)).toBe(KEYS);
    expect(second.backend.status().requests.ok).toBeLessThan(2 * FEW_CALLS);

    for (let i = 0; i < KEYS; i += 2) second.publisher.deleteIP(address(i));
    await until('all writes have landed', () => second.publisher.status().resources.ip.pending === 0);
    expect(await count(PREFIX)).toBe(KEYS / 2);
    await second.end(false);
    expect(await count(PREFIX)).toBe(0);
  });
});

describe(`a copy of a cluster of ${KEYS.toLocaleString('en')} IPs in a real etcd`, () => {
  const SOURCE = resourcePrefix('ip', 'east');
  const COPY = resourcePrefix('ip', 'east', 'cache');

  async function fill(backend: KvstoreBackend): Promise<void> {
    const capabilities = { syncedCanaries: false, cached: false };
    await backend.update(clusterConfigKey('east'), encodeClusterConfig({ id: 2, capabilities }));
    for (let i = 0; i < KEYS; i += MAX_WRITES) {
      const of = (n: number): { key: string; value: Uint8Array } => {
        const value = { IP: address(i + n), ID: 131_328 + ((i + n) % 5000) };
        return { key: `${SOURCE}${address(i + n)}`, value: bytesOfText(JSON.stringify(value)) };
      };
      await backend.writeAll(Array.from({ length: Math.min(MAX_WRITES, KEYS - i) }, (_, n) => of(n)));
    }
  }

  /** A copying process: its client has a separate session. */
  class Copier {
    readonly #gate = new TurnGate({ clock: systemClock, nextTurn: setImmediate });
    readonly local: EtcdBackend = client(etcd, this.#gate);
    readonly mesh: KvstoreMesh;

    constructor() {
      const own = { clusterName: 'own', clusterID: 255, local: this.local };
      this.mesh = new KvstoreMesh({ ...own, ...RUNTIME, gate: this.#gate, drainMs: 0 });
      void this.mesh.add('east', () => Promise.resolve(client(remote)));
      this.mesh.markAllAdded();
    }

    async has(keys: number): Promise<void> {
      await until(`${keys} keys are copied`, () => {
        const [copied] = this.mesh.status().clusters;
        const { pending = 1, keys: of = 0 } = copied?.copy ?? {};
        return this.mesh.isReady && pending === 0 && of >= keys && of <= keys + 1; // and its configuration
      });
      expect(await count(COPY)).toBe(keys);
    }

    async end(): Promise<void> {
      await this.mesh.stop();
      await this.local.close({ keepLeases: true });
    }
  }

  it('is made, taken over without a delete, emptied, and withdrawn: with few calls', async () => {
    const source = client(remote);
    await fill(source);
    const first = new Copier();
    await first.has(KEYS);
    expect(first.local.status().requests.ok).toBeLessThan(FEW_CALLS);
    await first.end();

    const deletes = await deletesBelow(COPY);
    const second = new Copier();
    await second.has(KEYS);
    expect([deletes.count(), second.local.status().leases]).toEqual([0, expect.any(Number)]);
    expect(second.local.status().leases).toBeGreaterThanOrEqual(KEYS / 1000);
    expect(second.local.status().requests.ok).toBeLessThan(FEW_CALLS);
    deletes.stop();

    await source.deletePrefix(SOURCE, { deadlineMs: 60_000 });
    await second.has(0);
    expect(await second.mesh.remove('east')).toBe(true);
    await until('the cluster is withdrawn', () => second.mesh.status().clusters.length === 0);
    expect([await count(COPY), await count(clusterConfigKey('east'))]).toEqual([0, 0]);
    await second.end();
  });
});
