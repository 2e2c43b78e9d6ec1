import {
  checkArgument,
  checkArguments,
  ITERABLE,
  OBJECT,
  objectWith,
  optional,
  optionsWith,
  TEXT,
} from '../../base/arguments.ts';
import { messageOf } from '../../base/failure.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { RateLimit, type RateLimitOptions } from '../../base/rate-limit.ts';
import { sleep } from '../../base/sleep.ts';
import { type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { equalBytes } from '../codec/bytes.ts';
import { type BackendOptions, KvstoreClient } from '../kvstore-client.ts';
import { abortedError } from '../session/errors.ts';
import type { EtcdConfig } from './etcd-config.ts';
import { type LoadedEtcdConfig, loadEtcdConfigFile } from './etcd-config-file.ts';
import { EtcdTransport } from './etcd-transport.ts';

/** Options of {@link EtcdBackend}. Deadlines of calls always use timers of the runtime, not those of `clock`. */
export interface EtcdBackendOptions extends BackendOptions, RuntimeOptions {
  /** Limits on the rate of reads and writes. Default: none. */
  readonly rateLimit?: RateLimitOptions | undefined;
}

/** Options of {@link EtcdBackend.open}. */
export interface OpenEtcdOptions extends EtcdBackendOptions {
  /** Interval at which the files are read again. Default 10 s. */
  readonly reloadIntervalMs?: number | undefined;
  /**
   * Receives the reason if the files are invalid or cannot be applied, once until the reason changes. The connection
   * keeps the previous configuration.
   */
  readonly onUnusable?: ((reason: string) => void) | undefined;
  /** Called when the files are valid and in use again, changed or not. */
  readonly onUsable?: (() => void) | undefined;
  /** Called when a changed configuration was applied. */
  readonly onReload?: (() => void) | undefined;
}

const RELOAD_INTERVAL_MS = 10_000;

/** The distributed kvstore: an etcd cluster, version 3.4 or later. */
export class EtcdBackend extends KvstoreClient {
  readonly #transport: EtcdTransport;
  readonly #rateLimit: RateLimit | undefined;
  readonly #closed = new AbortController();

  constructor(config: EtcdConfig, options: EtcdBackendOptions = {}) {
    checkArgument('new EtcdBackend: config', config, CONFIG);
    checkArgument('new EtcdBackend: options', options, optionsWith({ rateLimit: optional(OBJECT) }));
    const { random, clock } = withRuntime(options);
    const transport = new EtcdTransport(config, random, options.gate);
    const rateLimit = options.rateLimit && new RateLimit(options.rateLimit, clock, abortedError);
    super({ ...options, kind: 'etcd', transport, clock, random, rateLimit });
    this.#transport = transport;
    this.#rateLimit = rateLimit;
  }

  /**
   * Returns a backend for a Cilium etcd configuration file. Until `close`, the backend reads the file and the
   * certificates named in it at intervals, and applies changes. It does not watch the file, because Kubernetes changes
   * mounted files through symbolic links. Rejects if the file cannot be read, and with `EtcdConfigError` if it is
   * invalid.
   */
  static async open(path: string, options: OpenEtcdOptions = {}): Promise<EtcdBackend> {
    checkArgument('EtcdBackend.open: path', path, TEXT);
    const loaded = await loadEtcdConfigFile(path);
    const backend = new EtcdBackend(loaded.config, options);
    void backend.#followFile(path, loaded, options);
    return backend;
  }

  /** Number of open streams; 0 after `close`. */
  get openStreams(): number {
    return this.#transport.streams;
  }

  /** Applies `qps` instead of `bootstrapQps` to reads and writes from now on. */
  endBootstrap(): void {
    this.#rateLimit?.endBootstrap();
  }

  /**
   * Replaces the configuration: certificates, password or endpoints. Leases and the state of watches are kept. Calls on
   * the old connections fail like on any disconnect, and watches resume on the new ones.
   */
  reconfigure(config: EtcdConfig): void {
    this.#transport.reconfigure(config);
  }

  override async close(options: { readonly keepLeases?: boolean } = {}): Promise<void> {
    this.#closed.abort();
    await super.close(options);
  }

  async #followFile(path: string, first: LoadedEtcdConfig, options: OpenEtcdOptions): Promise<void> {
    const { clock, reloadIntervalMs = RELOAD_INTERVAL_MS } = withRuntime(options);
    const { signal } = this.#closed;
    const guard = new CallbackGuard();
    let current = first;
    /** The reason why the files are unusable; undefined while they are usable. */
    let reported: string | undefined;
    for (;;) {
      await sleep(clock, reloadIntervalMs, signal);
      if (signal.aborted) return;
      try {
        const loaded = await loadEtcdConfigFile(path);
        if (signal.aborted) return;
        const isChanged = !haveSameParts(loaded, current);
        if (isChanged) this.reconfigure(loaded.config);
        current = loaded;
        if (reported !== undefined) guard.call(options.onUsable);
        reported = undefined;
        if (isChanged) guard.call(options.onReload);
      } catch (error) {
        const reason = messageOf(error);
        if (reason !== reported) guard.call(options.onUnusable, reason);
        reported = reason;
      }
    }
  }
}

const CONFIG = objectWith({ endpoints: ITERABLE });

checkArguments(EtcdBackend, { reconfigure: { config: CONFIG } });

function haveSameParts({ parts }: LoadedEtcdConfig, { parts: others }: LoadedEtcdConfig): boolean {
  const isSame = (part: string | Uint8Array, index: number): boolean =>
    equalBytes(Buffer.from(part), Buffer.from(others[index] ?? ''));
  return parts.length === others.length && parts.every(isSame);
}
