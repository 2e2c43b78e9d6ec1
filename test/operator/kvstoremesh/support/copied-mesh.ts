import { ClusterMesh, type ClusterMeshOptions } from '../../../../src/clustermesh/cluster-mesh.ts';
import type { ConnectKvstore } from '../../../../src/clustermesh/followed-cluster.ts';
import { FaultyMemoryBackend } from '../../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../../src/kvstore/memory/memory-server.ts';
import { KvstoreMesh, type KvstoreMeshOptions } from '../../../../src/operator/kvstoremesh/kvstore-mesh.ts';

type CopiedMeshOptions = ClusterMeshOptions & Pick<KvstoreMeshOptions, 'clock' | 'random' | 'drainMs'>;

/** A `KvstoreMesh`, and a mesh that reads its copies instead of the remote clusters. */
export class CopiedMesh extends ClusterMesh {
  readonly local: MemoryServer;
  readonly #options: CopiedMeshOptions;
  readonly #configured = new Map<string, ConnectKvstore>();
  #copying: { readonly mesh: KvstoreMesh; readonly backend: FaultyMemoryBackend };
  #readers: FaultyMemoryBackend[] = [];

  constructor(options: CopiedMeshOptions) {
    super(options);
    this.#options = options;
    this.local = new MemoryServer({ clock: options.clock, clusterID: 'local' });
    this.#copying = this.#copy();
  }

  get copying(): KvstoreMesh {
    return this.#copying.mesh;
  }

  override add(name: string, connect: ConnectKvstore): ReturnType<ClusterMesh['add']> {
    this.#configured.set(name, connect);
    void this.copying.add(name, connect);
    return super.add(name, () => {
      const reader = this.#client();
      this.#readers.push(reader);
      return reader;
    });
  }

  override remove(name: string): Promise<boolean> {
    this.#configured.delete(name);
    void this.copying.remove(name);
    return super.remove(name);
  }

  /** Ends the copying process, cleanly or not, and starts another one. */
  async restart(how: 'stop' | 'kill'): Promise<void> {
    const { mesh, backend } = this.#copying;
    if (how === 'kill') backend.link.down();
    await mesh.stop();
    await backend.close({ keepLeases: true });
    this.#copying = this.#copy();
    for (const [name, connect] of this.#configured) void this.copying.add(name, connect);
  }

  /** Deletes every leased key, each lease at another revision. */
  loseLeases(): void {
    for (const lease of this.local.leases) this.local.expireLease(lease);
  }

  /** Sets the link between the copying process and the local kvstore. */
  link(state: 'up' | 'down' | 'cut'): void {
    this.#copying.backend.link[state]();
  }

  override async stop(): Promise<void> {
    await this.copying.stop();
    await this.#copying.backend.close();
    await super.stop();
    for (const reader of this.#readers) await reader.close();
  }

  #copy(): { readonly mesh: KvstoreMesh; readonly backend: FaultyMemoryBackend } {
    const { clusterName, clusterID, clock, random, drainMs, gate } = this.#options;
    const backend = this.#client();
    const options = { clusterName, clusterID, local: backend, clock, random, drainMs, gate };
    return { mesh: new KvstoreMesh(options), backend };
  }

  #client(): FaultyMemoryBackend {
    const { clock, random } = this.#options;
    return new FaultyMemoryBackend({ server: this.local, clock, random });
  }
}
