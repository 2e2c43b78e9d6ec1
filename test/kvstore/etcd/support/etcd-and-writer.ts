import { afterAll, beforeAll } from 'vitest';
import { bytesOfText } from '../../../../src/kvstore/codec/bytes.ts';
import { EtcdBackend } from '../../../../src/kvstore/etcd/etcd-backend.ts';
import { type EtcdProcess, startEtcd } from './etcd-process.ts';

/** Maximum number of concurrent writes. */
const AT_A_TIME = 100;

/** An etcd shared by all tests of a file, and a client that writes to it. */
export class EtcdAndWriter {
  #etcd: EtcdProcess | undefined;
  #writer: EtcdBackend | undefined;

  /** Starts before the tests of the file, and ends after them. */
  constructor() {
    beforeAll(async () => {
      [this.#etcd] = await startEtcd();
      this.#writer = new EtcdBackend({ endpoints: [this.etcd.url] });
    });
    afterAll(async () => {
      await this.#writer?.close();
      await this.#etcd?.dispose();
    });
  }

  get etcd(): EtcdProcess {
    if (this.#etcd === undefined) throw new Error('no etcd');
    return this.#etcd;
  }

  /** Writes `count` keys below a prefix with the same value, each at a separate revision. */
  async write(prefix: string, count: number, value = 'value'): Promise<void> {
    const keys = Array.from({ length: count }, (_, i) => `${prefix}${i}`);
    for (let at = 0; at < count; at += AT_A_TIME)
      await Promise.all(keys.slice(at, at + AT_A_TIME).map((key) => this.put(key, value)));
  }

  /** Writes one key. */
  async put(key: string, value = 'value'): Promise<void> {
    await this.#writer?.update(key, bytesOfText(value));
  }
}
