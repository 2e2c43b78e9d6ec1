import type { Random } from '../../../src/base/clock.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import type { KeyValue } from '../../../src/kvstore/session/transport.ts';
import { type EtcdProcess, startEtcd } from '../../kvstore/etcd/support/etcd-process.ts';
import { TcpProxy } from '../../kvstore/etcd/support/tcp-proxy.ts';
import { type Fault, publishedAgain } from './mesh-laws.ts';

/**
 * The etcd of one cluster, with injected faults. The cluster itself writes to it directly, so that it continues while
 * others cannot reach it.
 */
export class ClusterEtcd {
  readonly #name: string;
  readonly #process: EtcdProcess;
  readonly #writer: EtcdBackend;
  readonly #link: TcpProxy;
  /** A backup of its empty state. */
  readonly #empty: string;
  #lost: readonly KeyValue[] = [];
  #backup: string | undefined;
  #restores = 0;

  private constructor(name: string, process: EtcdProcess, link: TcpProxy, empty: string) {
    this.#name = name;
    this.#process = process;
    this.#link = link;
    this.#empty = empty;
    this.#writer = new EtcdBackend({ endpoints: [process.url] });
  }

  /** Starts an etcd with the configuration and the canaries of an empty cluster. */
  static async start(name: string, id: number): Promise<ClusterEtcd> {
    const [process] = await startEtcd();
    if (process === undefined) throw new Error('no etcd');
    const link = new TcpProxy(process.clientPort);
    await link.start();
    const etcd = new ClusterEtcd(name, process, link, await process.backup());
    await etcd.claim(id);
    for (const resource of ['nodes', 'services', 'identities', 'ip']) {
      await etcd.write(`cilium/synced/${name}/cilium/state/${resource}/v1`, '2026-01-01T00:00:00Z');
    }
    return etcd;
  }

  /** Address of the proxy that others use. */
  get url(): string {
    return `http://127.0.0.1:${this.#link.port}`;
  }

  /** Writes a key, or deletes it if `value` is undefined. A value that is neither text nor bytes is written as JSON. */
  async write(key: string, value: unknown): Promise<void> {
    if (value === undefined) return void (await this.#writer.delete(key));
    const text = (): string => (typeof value === 'string' ? value : JSON.stringify(value));
    await this.#writer.update(key, value instanceof Uint8Array ? value : bytesOfText(text()));
  }

  /** Writes the configuration with this id. */
  claim(id: number): Promise<void> {
    return this.write(`cilium/cluster-config/${this.#name}`, { id, capabilities: { syncedCanaries: true } });
  }

  async strike(fault: Fault, random: Random): Promise<void> {
    switch (fault) {
      case 'cut':
        return random() < 0.5 ? this.#killAndRestart() : this.#link.cut();
      case 'down':
        this.#link.mode = 'refuse';
        return;
      case 'black-hole':
      case 'hang':
        this.#link.mode = 'black-hole';
        return;
      case 'up':
        return this.heal();
      case 'idle-compact':
        await this.write('unrelated', 'x');
        return this.#compact();
      case 'compact':
        return this.#compact();
      case 'die':
        await this.#lose();
        await this.#writer.deletePrefix('cilium/');
        return;
      case 'replace':
        await this.#lose();
        await this.#process.replaceData(this.#empty, `other-${++this.#restores}`);
        return this.#process.start();
      case 'backup':
        // Not for a cluster with a dead publisher: if restored in a later script, it would miss keys that no client
        // writes again.
        if (this.#lost.length === 0) this.#backup = await this.#process.backup();
        return;
      case 'restore':
        return this.#restore(random);
    }
  }

  /** Ends all faults. */
  heal(): void {
    this.#link.mode = 'open';
  }

  /** The keys that the cluster lost last. */
  get lost(): readonly KeyValue[] {
    return this.#lost;
  }

  /** Restarts the publisher with most of its keys, unless they were written again in the meantime. */
  async publishAgain(): Promise<void> {
    for (const { key, value } of publishedAgain(this.#lost)) await this.#writer.createOnly(key, value);
    this.#lost = [];
  }

  async #lose(): Promise<void> {
    const kvs = await this.#writer.listPrefix('cilium/');
    this.#lost = [...new Map([...this.#lost, ...kvs].map((kv) => [kv.key, kv])).values()];
  }

  async dispose(): Promise<void> {
    await this.#writer.close();
    await this.#link.close();
    await this.#process.dispose();
  }

  async #killAndRestart(): Promise<void> {
    await this.#process.kill();
    await this.#process.start();
  }

  /** Restores the backup: as the same etcd, or as another one at the same address. */
  async #restore(random: Random): Promise<void> {
    if (this.#backup === undefined) return;
    const isOther = random() < 0.5;
    await this.#process.replaceData(this.#backup, isOther ? `other-${++this.#restores}` : undefined);
    await this.#process.start();
  }

  async #compact(): Promise<void> {
    const { header } = JSON.parse(await this.#process.ctl(['get', 'nothing', '-w', 'json'])) as {
      header: { revision: number };
    };
    await this.#process.ctl(['compact', String(header.revision)]).catch(() => {}); // compacted already
  }
}
