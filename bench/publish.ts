import { processGate } from '../src/base/node/process-gate.ts';
import { systemClock } from '../src/base/system-clock.ts';
import type { IPIdentityPair } from '../src/kvstore/codec/ip-identity-pair.ts';
import { resourcePrefix } from '../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../src/kvstore/etcd/etcd-backend.ts';
import { ClusterPublisher } from '../src/operator/publish/cluster-publisher.ts';
import { startEtcd } from '../test/kvstore/etcd/support/etcd-process.ts';
import { expect } from './expect.ts';
import { type KeyWork, keyWorkTable } from './key-work.ts';
import { liveBytes } from './meter.ts';
import { ownWorkDuring } from './own-work.ts';
import { podAddress } from './pod-address.ts';

/** The result of {@link benchPublish}. */
export interface PublishBenchReport {
  readonly keys: number;
  readonly rows: readonly KeyWork[];
  /** Growth of heap and buffers of the publisher, for each key. */
  readonly bytesPerKey: number;
  /** Requests to etcd while nothing changed for {@link IDLE_MS}. */
  readonly idleRequests: number;
}

const NAMES = { clusterName: 'west', clusterID: 1 };
const PREFIX = resourcePrefix('ip', NAMES.clusterName);
/** Number of keys that the owner adds or removes in one turn of the event loop. */
const KEYS_PER_TURN = 250;
const IDLE_MS = 5000;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

function pair(i: number, round: number): IPIdentityPair {
  return {
    key: podAddress(i),
    identity: 65_536 + 256 + ((i + round) % 5000),
    hostIP: `192.168.${Math.floor(i / 110) >> 8}.${Math.floor(i / 110) & 255}`, // 110 pods per node
    encryptKey: 0,
    k8s: { namespace: `namespace-${i % 50}`, podName: `workload-${i % 977}-${i.toString(36)}` },
  };
}

/** Deletes all keys, 65,536 in one request: etcd refuses other requests while it deletes a million. */
async function deleteAll(backend: EtcdBackend, keys: number): Promise<void> {
  for (let i = 0; i < keys; i += 1 << 16)
    await backend.deletePrefix(`${PREFIX}10.${i >> 16}.`, { deadlineMs: 60_000 });
}

/** A publisher with a separate client and session, like a process. */
class Publisher {
  readonly backend: EtcdBackend;
  readonly publisher: ClusterPublisher;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor(endpoint: string) {
    const gate = processGate(systemClock);
    this.backend = new EtcdBackend(
      { endpoints: [endpoint] },
      { clock: systemClock, random: Math.random, gate },
    );
    this.publisher = new ClusterPublisher({ ...NAMES, backend: this.backend, gate });
    this.#running = this.publisher.run(this.#stop.signal);
  }

  async publish(keys: number, round: number): Promise<void> {
    for (let i = 0; i < keys; i++) {
      this.publisher.upsertIP(pair(i, round));
      if (i % KEYS_PER_TURN === 0) await turn();
    }
    await this.publisher.markSynced();
    await this.#landed();
  }

  async delete(keys: number): Promise<void> {
    for (let i = 0; i < keys; i++) {
      this.publisher.deleteIP(pair(i, 0).key);
      if (i % KEYS_PER_TURN === 0) await turn();
    }
    await this.#landed();
  }

  /** Resolves when all keys are restored after another client has deleted them. */
  async putBack(keys: number): Promise<void> {
    const { ip } = this.publisher.status().resources;
    while (this.publisher.status().resources.ip.writes < ip.writes + keys) await pause();
    await this.#landed();
  }

  async end(keepLeases: boolean): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await this.backend.close({ keepLeases });
  }

  async #landed(): Promise<void> {
    while (this.publisher.status().resources.ip.pending > 0) await pause();
  }
}

function render({ keys, rows, bytesPerKey, idleRequests }: PublishBenchReport): string {
  return [
    `${keys} IPs of a cluster in a real etcd, bound to leases; ${bytesPerKey.toFixed(0)} bytes per key; ${idleRequests} requests in ${IDLE_MS / 1000} s without changes\n`,
    keyWorkTable(rows),
  ].join('\n');
}

/** Measures the cost of publishing a large cluster for its publisher. Prints a table unless `json` is set. */
export async function benchPublish({
  n: keys = 1_000_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<PublishBenchReport> {
  const [etcd] = await startEtcd(1, { flags: ['--quota-backend-bytes', String(8 * 2 ** 30)] });
  if (etcd === undefined) throw new Error('no etcd');
  const other = new EtcdBackend({ endpoints: [etcd.url] }, { clock: systemClock, random: Math.random });
  const count = async (): Promise<number> => {
    const found = await etcd.ctl([
      'get',
      PREFIX,
      '--prefix',
      '--limit=1',
      '--keys-only',
      '--write-out=fields',
    ]);
    return Number(/"Count" : (\d+)/.exec(found)?.[1]);
  };
  const rows: KeyWork[] = [];
  const measure = async (what: string, left: number, work: () => Promise<unknown>): Promise<void> => {
    const row = await ownWorkDuring(async () => void (await work()));
    rows.push({ what, ...row, keysPerSecond: (keys * 1000) / row.ms });
    expect(what, await count(), left);
    if (!json) process.stderr.write(`${what}: ${row.ms} ms\n`);
  };

  const before = await liveBytes();
  let publisher = new Publisher(etcd.url);
  await measure('publish', keys, () => publisher.publish(keys, 0));
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const bytesPerKey = ((await liveBytes()) - before) / keys;
  const requests = (): number => publisher.backend.status().requests.ok ?? 0;
  const busy = requests();
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  const idleRequests = requests() - busy;
  await measure('change every key', keys, () => publisher.publish(keys, 1));
  await measure('another client deletes all: put back', keys, async () => {
    await Promise.all([publisher.putBack(keys), deleteAll(other, keys)]);
  });
  await publisher.end(true);
  publisher = new Publisher(etcd.url);
  await measure('restart: publish again', keys, () => publisher.publish(keys, 1));
  await measure('delete', 0, () => publisher.delete(keys));
  await publisher.publish(keys, 2);
  await measure('withdraw: end the session', 0, () => publisher.end(false));
  await other.close();
  await etcd.dispose();
  const report = { keys, rows, bytesPerKey, idleRequests };
  if (!json) console.log(render(report));
  return report;
}
