import { assert } from '../base/assert.ts';
import { type Rejection, RejectionLog } from '../base/rejection.ts';
import { showValue } from '../base/show-value.ts';
import { ClusterStores, type ClusterStoresOptions } from '../clustermesh/cluster-stores.ts';
import { clusterLimits, NO_LIMITS } from '../clustermesh/decoders.ts';
import type { MeshEngines } from '../clustermesh/engines.ts';
import { decodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { COPIED_RESOURCES, type CopiedResource, resourcePrefix } from '../kvstore/codec/keys.ts';
import type { Watch, WatchEvent, WatchStatus } from '../kvstore/session/backend.ts';
import { IdentityCache } from '../model/identity-cache.ts';
import { InputError } from '../process/input-error.ts';
import { bytesIn, type TapeLine } from './tape-line.ts';
import type { TapeSettings } from './tape-settings.ts';

const EMPTY = new Uint8Array();

/** The status of a watch in sync, for watches without a kvstore. */
export const WATCH_STATUS: WatchStatus = {
  prefix: '',
  state: 'watching',
  keys: 0,
  nextRevision: 1,
  listed: true,
  isDoubtful: false,
  listings: 1,
  streams: 0,
  failures: 0,
  lastFailure: undefined,
  queuedBytes: 0,
  delays: { counts: [], sumMs: 0 },
};

type Batch = readonly WatchEvent[];

/** A watch that delivers batches one by one. */
class ReplayWatch implements Watch {
  #batch: Batch | undefined;
  #ended = false;
  /** Resolves the wait of the reader for the next batch. */
  #wake: (() => void) | undefined;
  /** Resolves the promise of `deliver`. */
  #applied: (() => void) | undefined;

  status(): WatchStatus {
    return WATCH_STATUS;
  }

  /** Resolves when the reader has applied the batch, which is when it asks for the next one. */
  deliver(batch: Batch): Promise<void> {
    if (this.#ended) return Promise.resolve(); // the store does not read this resource
    this.#batch = batch;
    this.#wake?.();
    return new Promise((resolve) => {
      this.#applied = resolve;
    });
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
    this.#applied?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Batch, void, void> {
    while (!this.#ended) {
      const batch = this.#batch;
      this.#batch = undefined;
      if (batch !== undefined) {
        yield batch;
        this.#applied?.();
      } else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }
}

/** The following of a resource by the stores, with the watch that it reads. */
interface ReplayedRun {
  readonly watch: ReplayWatch;
  readonly leave: AbortController;
  readonly ended: Promise<unknown>;
}

/** A resource: the parameters of its runs, from the tape, and its current run and batch. */
interface ReplayedResource {
  prefix: string;
  /** See `MeshTap.onFollow`. */
  keepsKeys: boolean;
  run: ReplayedRun | undefined;
  batch: WatchEvent[];
}

export interface ReplayedClusterOptions {
  readonly name: string;
  readonly settings: TapeSettings;
  readonly engines: MeshEngines;
  readonly onReject: (rejection: Rejection) => void;
}

/** Applies the lines of one cluster with its stores, decoders and observers. */
export class ReplayedCluster {
  readonly identities: IdentityCache = new IdentityCache();
  readonly #name: string;
  readonly #stores: ClusterStores;
  readonly #followed = new Map<CopiedResource, ReplayedResource>();
  readonly #signal = new AbortController().signal;

  constructor({ name, settings, engines, onReject }: ReplayedClusterOptions) {
    this.#name = name;
    const { clusterName, maxConnectedClusters, serviceV2, network } = settings;
    const { ipcache, nodes, services } = engines;
    const { remoteNodeIdentities } = network;
    const isLocal = name === clusterName;
    const options: Pick<ClusterStoresOptions, 'writer' | 'engines' | 'limits'> = isLocal
      ? {
          writer: { source: 'kvstore' },
          engines: { ipcache, nodes, remoteNodeIdentities },
          limits: () => NO_LIMITS,
        }
      : {
          writer: { source: 'clustermesh', owner: name },
          engines: { ipcache, nodes, services, remoteNodeIdentities },
          limits: (config) => {
            const id = config?.id ?? 0;
            // An agent refuses larger ids, so only an edited tape contains one.
            return clusterLimits(id > maxConnectedClusters ? 0 : id, maxConnectedClusters);
          },
        };
    this.#stores = new ClusterStores({
      ...options,
      cluster: name,
      serviceV2,
      identities: this.identities,
      rejections: new RejectionLog(onReject),
      onApplied: () => {},
      onFault: () => {},
    });
    for (const resource of COPIED_RESOURCES) {
      const prefix = resourcePrefix(resource, name);
      this.#followed.set(resource, { prefix, keepsKeys: false, run: undefined, batch: [] });
    }
  }

  /**
   * Applies a line of this cluster. Lines of a batch are kept until its last line, and return undefined. The promise of
   * any other line resolves when the engines have it.
   */
  apply(line: TapeLine & { readonly store: string }): Promise<void> | undefined {
    switch (line.ev) {
      case 'put':
      case 'delete':
      case 'sweep': {
        const type = line.ev === 'put' ? 'modify' : 'delete';
        const value = line.ev === 'put' ? (bytesIn(line) ?? EMPTY) : EMPTY;
        const { batch, prefix } = this.#resourceOf(line.from);
        if (!line.key.startsWith(prefix))
          throw new InputError(`key: ${showValue(line.key)} is not below ${prefix}`);
        batch.push({ type, key: line.key, value, modRevision: line.rev });
        return line.more === 1 ? undefined : this.#deliver(line.from, batch);
      }
      case 'ignored':
        return line.more === 1 ? undefined : this.#deliver(line.from, this.#resourceOf(line.from).batch);
      case 'listed':
        return this.#listed(line.from);
      default:
        return this.#control(line);
    }
  }

  async #control(line: TapeLine & { readonly store: string }): Promise<void> {
    switch (line.ev) {
      case 'follow':
        await this.#leave(line.from);
        Object.assign(this.#resourceOf(line.from), { prefix: line.prefix, keepsKeys: line.keeps });
        return;
      case 'end':
        await this.#leave(line.from);
        this.#resourceOf(line.from).keepsKeys = false;
        return;
      case 'config': {
        await this.stop();
        const value = bytesIn(line);
        const decoded = value === undefined ? undefined : decodeClusterConfig(value, line.key);
        await this.#stores.configure(decoded?.ok === true ? decoded.value : undefined, this.#signal);
        return;
      }
      case 'withdrawn':
        await this.stop();
        if (line.scope === 'services') await this.#stores.withdrawServices(this.#signal);
        else await this.#stores.withdraw(this.#signal);
        return;
      default:
        return; // the state of a reader
    }
  }

  /** Ends all runs. */
  async stop(): Promise<void> {
    for (const resource of this.#followed.keys()) await this.#leave(resource);
  }

  #resourceOf(resource: CopiedResource): ReplayedResource {
    const followed = this.#followed.get(resource);
    assert(followed !== undefined, 'the map has all copied resources');
    return followed;
  }

  async #deliver(resource: CopiedResource, batch: Batch): Promise<void> {
    const followed = this.#resourceOf(resource);
    followed.batch = [];
    if (batch.length === 0) return;
    followed.run ??= this.#begin(resource, followed);
    await followed.run.watch.deliver(batch);
  }

  /**
   * Completes a list. The stores then withdraw services in another format, so the run of that format must have ended.
   * Ignores a list in a format that is not read any more; snapshots contain such lists.
   */
  async #listed(resource: CopiedResource): Promise<void> {
    const { resources } = this.#stores;
    if (!resources.includes(resource)) return;
    for (const other of this.#followed.keys()) if (!resources.includes(other)) await this.#leave(other);
    await this.#deliver(resource, [{ type: 'list-done', key: '', value: EMPTY, modRevision: 0 }]);
  }

  #begin(resource: CopiedResource, { prefix, keepsKeys }: ReplayedResource): ReplayedRun {
    const watch = new ReplayWatch();
    const leave = new AbortController();
    const isCache = prefix === resourcePrefix(resource, this.#name, 'cache');
    const ended = this.#stores.follow(resource, {
      backend: { watch: () => watch },
      signal: leave.signal,
      mayDelete: keepsKeys ? 'never' : undefined,
      keepUnlisted: true,
      layout: isCache ? 'cache' : 'state',
      onListed: () => {},
      onReaderState: () => {},
    });
    ended.finally(() => watch.end()).catch(() => {}); // `#leave` receives the rejection
    return { watch, leave, ended };
  }

  async #leave(resource: CopiedResource): Promise<void> {
    const followed = this.#resourceOf(resource);
    const { run } = followed;
    followed.run = undefined;
    followed.batch = [];
    if (run === undefined) return;
    run.leave.abort();
    run.watch.end();
    await run.ended;
  }
}
