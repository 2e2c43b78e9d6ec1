import { checkArguments, ITERABLE, objectWith } from '../../base/arguments.ts';
import type { Clock, Random } from '../../base/clock.ts';
import { messageOf } from '../../base/failure.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { RateLimit, type RateLimitOptions } from '../../base/rate-limit.ts';
import { sleep } from '../../base/sleep.ts';
import { systemClock } from '../../base/system-clock.ts';
import { equalBytes } from '../bytes.ts';
import { abortedError } from '../errors.ts';
import { KvstoreClient, type KvstoreClientOptions } from '../kvstore-client.ts';
import type { EtcdConfig } from './etcd-config.ts';
import { type LoadedEtcdConfig, loadEtcdConfigFile } from './etcd-config-file.ts';
import { EtcdTransport } from './etcd-transport.ts';

/** Options of {@link EtcdBackend}. */
export interface EtcdBackendOptions
  extends Pick<
    KvstoreClientOptions,
    'onFailure' | 'leaseSeconds' | 'mayWrite' | 'writeTimeoutMs' | 'witnessLeases'
  > {
  /** Default: the system's. Deadlines of calls are timers of the runtime in any case. */
  readonly clock?: Clock | undefined;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
  /** How many reads and writes are made. Default: as many as are asked for. */
  readonly rateLimit?: RateLimitOptions | undefined;
}

/** How {@link EtcdBackend.open} differs from its defaults. */
export interface OpenEtcdOptions extends EtcdBackendOptions {
  /** How often the files are looked at again. Default 10 s. */
  readonly reloadIntervalMs?: number | undefined;
  /** Receives why the files have become unusable, once for each reason; the connection goes on with what it has. */
  readonly onUnusable?: ((why: string) => void) | undefined;
  /** Called when they are usable again, changed or not. */
  readonly onUsable?: (() => void) | undefined;
  /** Called when a changed configuration has been taken over. */
  readonly onReload?: (() => void) | undefined;
}

const RELOAD_INTERVAL_MS = 10_000;

/** The distributed kvstore: an etcd cluster, version 3.4 or later. */
export class EtcdBackend extends KvstoreClient {
  readonly #transport: EtcdTransport;
  readonly #rateLimit: RateLimit | undefined;
  readonly #closed = new AbortController();

  constructor(config: EtcdConfig, options: EtcdBackendOptions = {}) {
    const { random = Math.random, clock = systemClock } = options;
    const transport = new EtcdTransport(config, random);
    const rateLimit = options.rateLimit && new RateLimit(options.rateLimit, clock, abortedError);
    super({ ...options, kind: 'etcd', transport, clock, random, rateLimit });
    this.#transport = transport;
    this.#rateLimit = rateLimit;
  }

  /**
   * A backend for a Cilium etcd configuration file, which follows the file and the certificates that it names
   * for as long as it is open. They are read every ten seconds and compared by content, because what Kubernetes
   * mounts changes by symbolic links that a watch of the file does not see. Rejects when the file cannot be read,
   * and with `EtcdConfigError` when it cannot be used.
   */
  static async open(path: string, options: OpenEtcdOptions = {}): Promise<EtcdBackend> {
    const loaded = await loadEtcdConfigFile(path);
    const backend = new EtcdBackend(loaded.config, options);
    void backend.#followFile(path, loaded, options);
    return backend;
  }

  /** Streams that are open: none after `close`. */
  get openStreams(): number {
    return this.#transport.streams;
  }

  /** What is written at the start has been written: from now on the lower rate holds. */
  bootstrapped(): void {
    this.#rateLimit?.bootstrapped();
  }

  /** Goes over to another configuration without losing anything: see `EtcdTransport.reconfigure`. */
  reconfigure(config: EtcdConfig): void {
    this.#transport.reconfigure(config);
  }

  override async close(options: { readonly keepLeases?: boolean } = {}): Promise<void> {
    this.#closed.abort();
    await super.close(options);
  }

  async #followFile(path: string, first: LoadedEtcdConfig, options: OpenEtcdOptions): Promise<void> {
    const { clock = systemClock, reloadIntervalMs = RELOAD_INTERVAL_MS } = options;
    const { signal } = this.#closed;
    const guard = new CallbackGuard();
    let current = first;
    let reported: string | undefined;
    for (;;) {
      await sleep(clock, reloadIntervalMs, signal);
      if (signal.aborted) return;
      try {
        const loaded = await loadEtcdConfigFile(path);
        if (signal.aborted) return;
        if (reported !== undefined) guard.call(options.onUsable);
        reported = undefined;
        if (sameParts(loaded, current)) continue;
        this.reconfigure(loaded.config);
        current = loaded;
        guard.call(options.onReload);
      } catch (error) {
        const why = messageOf(error);
        if (why !== reported) guard.call(options.onUnusable, why);
        reported = why;
      }
    }
  }
}

checkArguments(EtcdBackend, { reconfigure: { config: objectWith({ endpoints: ITERABLE }) } });

function sameParts({ parts: a }: LoadedEtcdConfig, { parts: b }: LoadedEtcdConfig): boolean {
  return (
    a.length === b.length && a.every((part, i) => equalBytes(Buffer.from(part), Buffer.from(b[i] ?? '')))
  );
}
