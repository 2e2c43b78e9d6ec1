import { textOfBytes } from '../../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryBackend } from '../../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../../src/kvstore/memory/memory-server.ts';
import { KvstoreMesh, type KvstoreMeshOptions } from '../../../../src/operator/kvstoremesh/kvstore-mesh.ts';
import { ManualClock } from '../../../base/support/manual-clock.ts';
import { newCluster } from '../../../clustermesh/support/mesh-world.ts';

const random = (): number => 0.5;

/** Returns the keys below `cilium/` and their values, without fences. */
export function contentOf(server: MemoryServer, prefix = 'cilium/'): Readonly<Record<string, string>> {
  const { kvs } = server.range(prefixRange(prefix));
  const shown = kvs.filter(({ key }) => !key.startsWith('cilium/.initlock/'));
  return Object.fromEntries(shown.map(({ key, value }) => [key, textOfBytes(value) ?? 'no text']));
}

/** Cluster `a`, id 1, the kvstore into which it is copied, and the copying process. */
export class CopiedCluster {
  readonly clock: ManualClock = new ManualClock();
  readonly remote: MemoryServer = newCluster(this.clock, 'a', 1);
  readonly local: MemoryServer = new MemoryServer({ clock: this.clock, clusterID: 'local' });
  mesh: KvstoreMesh;
  backend: FaultyMemoryBackend;
  /** The link to the remote kvstore. */
  link: FaultyMemoryBackend['link'] | undefined;

  constructor() {
    this.backend = this.#client(this.local);
    this.mesh = this.#newMesh();
  }

  add(name = 'a', server: MemoryServer = this.remote): void {
    void this.mesh.add(name, () => {
      const backend = this.#client(server);
      this.link = backend.link;
      return backend;
    });
  }

  /** Ends the process: its keys remain until their leases end. */
  async stop(): Promise<void> {
    await this.mesh.stop();
    await this.backend.close({ keepLeases: true });
  }

  /** Replaces the process by another one, which has copied nothing yet. */
  async restart(options?: Partial<KvstoreMeshOptions>): Promise<void> {
    await this.stop();
    this.backend = this.#client(this.local);
    this.mesh = this.#newMesh(options);
  }

  /**
   * Calls `look` with the keys of each write into the local kvstore before the write; its exception is the
   * answer.
   */
  onWrite(look: (keys: readonly string[]) => void): void {
    const { local } = this;
    const txn = local.txn.bind(local);
    local.txn = (request) => {
      look([...request.writes, ...(request.otherwise ?? [])].flatMap((w) => (w.op === 'put' ? w.key : [])));
      return txn(request);
    };
  }

  /** Returns the existing keys of the copy. */
  copy(prefix = 'cilium/'): Readonly<Record<string, string>> {
    return contentOf(this.local, prefix);
  }

  #newMesh(options?: Partial<KvstoreMeshOptions>): KvstoreMesh {
    const { backend: local, clock } = this;
    return new KvstoreMesh({ clusterName: 'own', clusterID: 9, local, clock, random, ...options });
  }

  #client(server: MemoryServer): FaultyMemoryBackend {
    return new FaultyMemoryBackend({ server, clock: this.clock, random, witnessLeases: true });
  }
}
