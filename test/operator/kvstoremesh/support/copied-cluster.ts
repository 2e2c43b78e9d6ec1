import { textOfBytes } from '../../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryBackend } from '../../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../../src/kvstore/memory/memory-server.ts';
import { KvstoreMesh } from '../../../../src/operator/kvstoremesh/kvstore-mesh.ts';
import { ManualClock } from '../../../base/support/manual-clock.ts';
import { newCluster } from '../../../clustermesh/support/mesh-world.ts';

const random = (): number => 0.5;

/** The keys below `cilium/` but for those that fence a client's writes, and their values. */
export function contentOf(server: MemoryServer, prefix = 'cilium/'): Readonly<Record<string, string>> {
  const { kvs } = server.range(prefixRange(prefix));
  const shown = kvs.filter(({ key }) => !key.startsWith('cilium/.initlock/'));
  return Object.fromEntries(shown.map(({ key, value }) => [key, textOfBytes(value) ?? 'no text']));
}

/** Cluster `a`, id 1, the kvstore into which it is copied, and the process that does. */
export class CopiedCluster {
  readonly clock: ManualClock = new ManualClock();
  readonly remote: MemoryServer = newCluster(this.clock, 'a', 1);
  readonly local: MemoryServer = new MemoryServer({ clock: this.clock, clusterID: 'local' });
  mesh: KvstoreMesh;
  backend: FaultyMemoryBackend;
  /** The way to the remote kvstore. */
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

  /** Ends as a process does: what was written stays until its leases end. */
  async stop(): Promise<void> {
    await this.mesh.stop();
    await this.backend.close({ keepLeases: true });
  }

  /** Another process in its place, which copies nothing yet. */
  async restart(): Promise<void> {
    await this.stop();
    this.backend = this.#client(this.local);
    this.mesh = this.#newMesh();
  }

  /** Calls back with the keys of each write into the local kvstore, before it is made: what it throws is the answer. */
  onWrite(look: (keys: readonly string[]) => void): void {
    const { local } = this;
    const txn = local.txn.bind(local);
    local.txn = (request) => {
      look([...request.writes, ...(request.otherwise ?? [])].flatMap((w) => (w.op === 'put' ? w.key : [])));
      return txn(request);
    };
  }

  /** What is there of the copy. */
  copy(prefix = 'cilium/'): Readonly<Record<string, string>> {
    return contentOf(this.local, prefix);
  }

  #newMesh(): KvstoreMesh {
    const { backend: local, clock } = this;
    return new KvstoreMesh({ clusterName: 'own', clusterID: 9, local, clock, random });
  }

  #client(server: MemoryServer): FaultyMemoryBackend {
    return new FaultyMemoryBackend({ server, clock: this.clock, random, witnessLeases: true });
  }
}
