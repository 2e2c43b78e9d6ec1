import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { systemClock } from '../../../src/base/system-clock.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { encodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import {
  CLUSTER_CONFIG_PREFIX,
  MESH_RESOURCES,
  type MeshResource,
  resourcePrefix,
  syncedKey,
} from '../../../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { SyncStore } from '../../../src/kvstore/stores/sync-store.ts';

/** The minimum: etcd grants no lease below one and a half election timeouts. */
const LEASE_SECONDS = 2;
const IPS = 120;
const FEW = 9;

/** The content of a publisher. */
export interface PublisherOrder {
  readonly url: string;
  readonly cluster: string;
  readonly id: number;
  /**
   * Version of the content. Between two versions a third of the keys are added, a third are deleted, and half
   * of the others change.
   */
  readonly version: number;
}

function numbers(count: number, version: number): readonly number[] {
  return Array.from({ length: count }, (_, i) => i).filter((i) => (i + version) % 3 !== 0);
}

/** Name below the prefix → value. */
function contentOf(resource: MeshResource, { cluster, id, version }: PublisherOrder): [string, unknown][] {
  const changing = (i: number): number => (i % 2 === 0 ? version % 50 : 0);
  const identity = (i: number): number => (id << 16) + 256 + (i % FEW);
  switch (resource) {
    case 'nodes':
      return numbers(FEW, version).map((i) => {
        const addresses = [{ Type: 'InternalIP', IP: `172.${20 + changing(i)}.${id}.${i + 1}` }];
        return [`n${i}`, { Name: `n${i}`, Cluster: cluster, ClusterID: id, IPAddresses: addresses }];
      });
    case 'services':
      return numbers(FEW, version).map((i) => {
        const backends = { [`10.${id}.9.${changing(i)}`]: { http: { Port: 80, Protocol: 'TCP' } } };
        return [
          `ns/s${i}`,
          { cluster, namespace: 'ns', name: `s${i}`, clusterID: id, shared: true, backends },
        ];
      });
    case 'endpointslices':
      return [];
    case 'identities':
      return numbers(FEW, version).map((i) => [String(identity(i)), `k8s:app=a${i};k8s:v=${changing(i)};`]);
    case 'ip':
      return numbers(IPS, version).map((i) => {
        const IP = `10.${id}.1.${i}`;
        return [IP, { IP, ID: identity(i + changing(i)), HostIP: `192.168.${id}.1` }];
      });
  }
}

/** Writes the content under one lease, the configuration last, so that it never outlives the other keys. */
async function publish(order: PublisherOrder): Promise<void> {
  const { url, cluster, id } = order;
  const context = { clock: systemClock, random: Math.random };
  const backend = new EtcdBackend({ endpoints: [url] }, { ...context, leaseSeconds: LEASE_SECONDS });
  const forever = new AbortController().signal;
  const synced = MESH_RESOURCES.map((resource) => {
    const canary = syncedKey(cluster, resource);
    const store = new SyncStore({ ...context, backend, prefix: resourcePrefix(resource, cluster), canary });
    void store.run(forever);
    for (const [name, value] of contentOf(resource, order))
      store.upsert(name, bytesOfText(typeof value === 'string' ? value : JSON.stringify(value)));
    return store.markSynced();
  });
  await Promise.all(synced);
  const capabilities = { syncedCanaries: true, cached: false, maxConnectedClusters: 255 } as const;
  await backend.update(`${CLUSTER_CONFIG_PREFIX}${cluster}`, encodeClusterConfig({ id, capabilities }), {
    leased: true,
  });
}

/** This file with `src`, which `PublishedMesh.start` bundles: a process that compiles `src` takes twice as long. */
export const BUNDLED: string = fileURLToPath(
  new URL('../../../dist-test/publisher/publisher.js', import.meta.url),
);

/** A process that publishes a cluster, until it is killed. */
export class Publisher {
  readonly #child: ChildProcess;
  /** Resolves when everything is published. */
  readonly published: Promise<void>;

  constructor(order: PublisherOrder) {
    this.#child = spawn(process.execPath, [BUNDLED, JSON.stringify(order)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const ended = once(this.#child, 'exit').then(() => Promise.reject(new Error('the publisher has ended')));
    ended.catch(() => {});
    this.published = Promise.race([once(this.#child.stdout ?? this.#child, 'data'), ended]).then(() => {});
    this.published.catch(() => {});
  }

  /** Kills the process (SIGKILL). Its lease is not revoked and expires later. */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill('SIGKILL');
    await once(this.#child, 'exit');
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.stdin.on('end', () => process.exit()).resume(); // when the parent process ends
  await publish(JSON.parse(process.argv[2] ?? '') as PublisherOrder); // written above
  process.stdout.write('published');
}
