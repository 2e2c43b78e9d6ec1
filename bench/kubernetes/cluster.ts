import { NAMESPACES } from '../../src/k8s/feed/kinds.ts';
import { KubernetesClient } from '../../src/k8s/kubernetes-client.ts';
import { objectVersion } from '../../src/k8s/resource.ts';
import { EtcdTransport } from '../../src/kvstore/etcd/etcd-transport.ts';
import { NO_LEASE } from '../../src/kvstore/session/transport.ts';
import { RealApiServer } from '../../test/apiserver/support/real-apiserver.ts';
import { until } from '../../test/base/support/until.ts';
import { ApiUser } from '../../test/k8s/support/api-user.ts';
import { KINDS } from './following.ts';
import { ciliumEndpoint, endpointName, endpointSlice, type StoredObject, service, TEAMS } from './objects.ts';

const WRITERS = 16;

/** A kube-apiserver with objects. */
export class Cluster {
  readonly server: RealApiServer;
  readonly #etcd: EtcdTransport;
  readonly #endpoints: ApiUser;

  private constructor(server: RealApiServer) {
    this.server = server;
    this.#etcd = new EtcdTransport({ endpoints: [server.etcd] }, Math.random);
    this.#endpoints = new ApiUser(server.transport, KINDS.endpoints, endpointName(0).namespace);
  }

  static async start(endpoints: number, services: number): Promise<Cluster> {
    const cluster = new Cluster(await RealApiServer.start());
    await cluster.server.serve({ ...KINDS.endpoints, kind: 'CiliumEndpoint' });
    // The CRD is needed for changes through the API server, not for objects that are written into etcd.
    await new ApiUser(cluster.server.transport, NAMESPACES).create(endpointName(0).namespace);
    await cluster.put(Array.from({ length: endpoints }, (_, n) => ciliumEndpoint(n)));
    await cluster.put(Array.from({ length: services }, (_, n) => service(n)));
    await cluster.put(Array.from({ length: services }, (_, n) => endpointSlice(n)));
    return cluster;
  }

  /** The access to it. */
  get access(): { readonly server: string; readonly ca: string } {
    const { server, ca } = this.server.access;
    if (ca === undefined || !('file' in ca)) throw new Error('no file of an authority');
    return { server, ca: ca.file };
  }

  /** Waits until the API server has all objects in its memory, from which it lists. */
  async warm(counts: Readonly<Record<keyof typeof KINDS, number>>): Promise<void> {
    const client = new KubernetesClient(this.server.access);
    const sink = { apply: () => {}, onListed: () => {} };
    const followed = Object.values(KINDS).map((kind) => client.follow(kind, sink, { keep: objectVersion }));
    await until('it has read everything', () =>
      Object.values(counts).every((count, i) => (followed[i]?.status().objects ?? 0) >= count),
    );
    await client.close();
  }

  /**
   * Writes directly into etcd, one object per transaction. Objects of one transaction would have the same version, and
   * an API server that resumes its own watch at that version would lose some.
   */
  async put(objects: readonly StoredObject[]): Promise<void> {
    const left = objects.values();
    const writer = async (): Promise<void> => {
      for (const { key, object } of left) {
        const value = new TextEncoder().encode(JSON.stringify(object));
        const writes = [{ op: 'put', key, value, lease: NO_LEASE }] as const;
        await this.#etcd.txn({ compare: [], writes }, { deadlineMs: 60_000 });
      }
    };
    await Promise.all(Array.from({ length: WRITERS }, writer));
  }

  /** Gives an endpoint of the first namespace another address, through the API server. */
  async move(n: number, ipv4: string): Promise<void> {
    const { name } = endpointName(n * TEAMS);
    await this.#endpoints.patch(name, { status: { networking: { addressing: [{ ipv4 }] } } });
  }

  async close(): Promise<void> {
    await this.#etcd.close();
    await this.server.close();
  }
}
