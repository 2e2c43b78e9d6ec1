import type { Random } from '../../src/base/clock.ts';
import { bytesOfText } from '../../src/kvstore/bytes.ts';
import { EtcdBackend } from '../../src/kvstore/etcd/etcd-backend.ts';
import { type EtcdProcess, startEtcd } from '../kvstore/etcd/etcd-process.ts';

/** What may go wrong with an etcd; the words are those of `mesh-laws.ts`. */
export type EtcdFault = 'cut' | 'down' | 'up' | 'black-hole' | 'compact' | 'backup' | 'restore';

/** The etcd of one cluster, as that cluster writes it, with faults to order. */
export class ClusterEtcd {
  readonly #name: string;
  readonly #process: EtcdProcess;
  readonly #writer: EtcdBackend;
  #frozen = false;
  #backup: string | undefined;
  #restores = 0;

  private constructor(name: string, process: EtcdProcess) {
    this.#name = name;
    this.#process = process;
    this.#writer = new EtcdBackend({ endpoints: [process.url] });
  }

  /** An etcd with the configuration and the canaries of a cluster that has nothing. */
  static async start(name: string, id: number): Promise<ClusterEtcd> {
    const [process] = await startEtcd();
    if (process === undefined) throw new Error('no etcd');
    const etcd = new ClusterEtcd(name, process);
    await etcd.claim(id);
    for (const resource of ['nodes', 'services', 'identities', 'ip']) {
      await etcd.write(`cilium/synced/${name}/cilium/state/${resource}/v1`, '2026-01-01T00:00:00Z');
    }
    return etcd;
  }

  get url(): string {
    return this.#process.url;
  }

  get #answers(): boolean {
    return this.#process.isUp && !this.#frozen;
  }

  /** Writes a key, or deletes it where `value` is undefined; false when nobody answers. */
  async write(key: string, value: unknown): Promise<boolean> {
    if (!this.#answers) return false;
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    if (text === undefined) await this.#writer.delete(key);
    else await this.#writer.update(key, bytesOfText(text));
    return true;
  }

  /** Says that the cluster has this id; false when nobody answers. */
  claim(id: number): Promise<boolean> {
    const config = { id, capabilities: { syncedCanaries: true } };
    return this.write(`cilium/cluster-config/${this.#name}`, config);
  }

  async strike(fault: EtcdFault, random: Random): Promise<void> {
    if (fault === 'up') await this.heal();
    else if (fault === 'down') await this.#kill();
    else if (fault === 'cut') {
      await this.#kill();
      await this.#process.start();
    } else if (fault === 'black-hole') this.#freeze();
    else if (fault === 'restore') await this.#restore(random);
    else if (!this.#answers) return;
    else if (fault === 'backup') this.#backup = await this.#process.backup();
    else await this.#compact();
  }

  /** It runs, and answers. */
  async heal(): Promise<void> {
    this.#process.thaw();
    this.#frozen = false;
    if (!this.#process.isUp) await this.#process.start();
  }

  async dispose(): Promise<void> {
    await this.#writer.close();
    await this.#process.dispose();
  }

  /** kill -9. */
  async #kill(): Promise<void> {
    await this.#process.kill();
    this.#frozen = false;
  }

  #freeze(): void {
    if (!this.#process.isUp) return;
    this.#process.freeze();
    this.#frozen = true;
  }

  /** Back to the backup: as the same etcd, or as another one at the same address. */
  async #restore(random: Random): Promise<void> {
    if (this.#backup === undefined) return;
    const isOther = random() < 0.5;
    await this.#kill();
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
