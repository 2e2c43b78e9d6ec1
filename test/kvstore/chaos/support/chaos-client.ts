import type { Random } from '../../../../src/base/clock.ts';
import { RejectionLog } from '../../../../src/base/rejection.ts';
import { systemClock } from '../../../../src/base/system-clock.ts';
import { bytesOfText, textOfBytes } from '../../../../src/kvstore/codec/bytes.ts';
import { EtcdBackend } from '../../../../src/kvstore/etcd/etcd-backend.ts';
import type { EtcdConfig } from '../../../../src/kvstore/etcd/etcd-config.ts';
import type { Watch } from '../../../../src/kvstore/session/backend.ts';
import { SharedStore, type SharedStoreStatus } from '../../../../src/kvstore/stores/shared-store.ts';
import {
  type StoreDecoder,
  type StoreObserver,
  WatchStore,
} from '../../../../src/kvstore/stores/watch-store.ts';
import { type LinkMode, TcpProxy } from '../../etcd/support/tcp-proxy.ts';
import { CheckedWatch } from './checked-watch.ts';
import type { Past } from './past.ts';

/** Options of a {@link ChaosClient}. */
export interface ChaosClientOptions {
  readonly name: string;
  /** Ports of the cluster's members. */
  readonly ports: readonly number[];
  readonly config: EtcdConfig;
  readonly prefix: string;
  readonly pasts: readonly Past[];
  readonly random: Random;
  /** Falsifies the client's events, as a test of the test. */
  readonly tamper?: ((watch: Watch) => Watch) | undefined;
}

const LEASE_SECONDS = 5;

const asText: StoreDecoder<string> = (_name, value) => ({ ok: true, value: textOfBytes(value) ?? 'no text' });

/** Returns an observer that folds its events. */
function folding(content: Map<string, string>): StoreObserver<string> {
  return {
    onUpdate: (name, value) => void content.set(name, value),
    onDelete: (name) => void content.delete(name),
  };
}

/**
 * A client of the cluster with everything that a user of the library runs: a watch of the whole prefix, a
 * watch store of its keys, and a shared store to which it contributes under a lease. It has separate links to
 * each member.
 */
export class ChaosClient {
  readonly name: string;
  readonly links: readonly TcpProxy[];
  readonly backend: EtcdBackend;
  readonly watch: CheckedWatch;
  /** Content of the watch store below `keys/`. */
  readonly keys: Map<string, string> = new Map();
  /** Content of the watch store below `idle/`. Nothing is written there. */
  readonly idle: Map<string, string> = new Map();
  /** Content of the shared store below `shared/`. */
  readonly shared: Map<string, string> = new Map();
  /** The contributions of this client. */
  readonly contribution: Map<string, string> = new Map();
  readonly #config: EtcdConfig;
  readonly #sharedStore: SharedStore<string>;
  readonly #ended = new AbortController();
  readonly #done: Promise<unknown>;

  private constructor(links: readonly TcpProxy[], options: ChaosClientOptions) {
    const { name, prefix, pasts, random, tamper = (watch) => watch } = options;
    this.name = name;
    this.links = links;
    const scheme = options.config.tls === undefined ? 'http' : 'https';
    this.#config = {
      ...options.config,
      endpoints: links.map(({ port }) => `${scheme}://127.0.0.1:${port}`),
      deadlineMs: 2000,
      keepAliveTimeMs: 500,
      keepAliveTimeoutMs: 500,
    };
    this.backend = new EtcdBackend(this.#config, { leaseSeconds: LEASE_SECONDS, random });
    const { signal } = this.#ended;
    this.watch = new CheckedWatch(name, tamper(this.backend.watch(prefix, { signal })), pasts);
    const rejections = new RejectionLog();
    const keys = new WatchStore<string>({ decode: asText, observer: folding(this.keys), rejections });
    const idle = new WatchStore<string>({ decode: asText, observer: folding(this.idle), rejections });
    this.#sharedStore = new SharedStore<string>({
      backend: this.backend,
      prefix: `${prefix}shared/`,
      decode: asText,
      observer: folding(this.shared),
      rejections,
      clock: systemClock,
      random,
      deleteDelayMs: 0,
    });
    this.#done = Promise.all([
      this.watch.done,
      keys.run({ backend: this.backend, prefix: `${prefix}keys/`, signal }),
      idle.run({ backend: this.backend, prefix: `${prefix}idle/`, signal }),
      this.#sharedStore.run(signal),
    ]);
  }

  static async start(options: ChaosClientOptions): Promise<ChaosClient> {
    const links = options.ports.map((port) => new TcpProxy(port));
    await Promise.all(links.map((link) => link.start()));
    return new ChaosClient(links, options);
  }

  /** Sets the keys of this client from now on. */
  contribute(round: number, count: number): void {
    for (let i = 0; i < count; i++) {
      const [name, value] = [`${this.name}-${i}`, `${this.name} ${round} ${i}`];
      this.contribution.set(name, value);
      this.#sharedStore.local.upsert(name, bytesOfText(value));
    }
    const gone = `${this.name}-${round % count}`;
    this.contribution.delete(gone);
    this.#sharedStore.local.delete(gone);
  }

  get sharedStatus(): SharedStoreStatus {
    return this.#sharedStore.status();
  }

  /** Sets the mode of the links to all members. */
  setLinks(mode: LinkMode): void {
    for (const link of this.links) link.mode = mode;
  }

  /** Limits the speed of the links to all members. */
  setSpeed(bytesPerSecond: number): void {
    for (const link of this.links) link.bytesPerSecond = bytesPerSecond;
  }

  /** Reloads a configuration file that was rewritten with the same content. */
  rewriteConfig(): void {
    this.backend.reconfigure(this.#config);
  }

  /** Changes to other certificates. */
  reconfigure(tls: EtcdConfig['tls']): void {
    this.backend.reconfigure({ ...this.#config, tls });
  }

  /** True if the client has noticed that a link is broken. */
  get hasNoticed(): boolean {
    return this.watch.status().state !== 'watching';
  }

  /** Failures of all watches. One of them retries for all while the server is unreachable. */
  get failures(): number {
    return this.backend.status().watches.reduce((sum, { failures }) => sum + failures, 0);
  }

  async close(): Promise<void> {
    this.#ended.abort();
    await this.#done;
    await this.backend.close();
    await Promise.all(this.links.map((link) => link.close()));
  }
}
