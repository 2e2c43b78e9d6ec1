import { backoffDelay } from '../base/backoff.ts';
import type { Clock, Random } from '../base/clock.ts';
import { type Rejection, RejectionLog, type RejectionStatus } from '../base/rejection.ts';
import { sleep } from '../base/sleep.ts';
import { clusterIdentityRange, type MaxConnectedClusters } from '../identity/numeric-identity.ts';
import { RemoteIdentityCache } from '../identity/remote-identity-cache.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { equalBytes } from '../kvstore/bytes.ts';
import { type ClusterConfig, decodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import {
  CLUSTER_CONFIG_PREFIX,
  clusterConfigKey,
  type MeshResource,
  syncedKey,
  syncedPrefix,
} from '../kvstore/codec/keys.ts';
import type { WatchStoreStatus } from '../kvstore/store/watch-store.ts';
import { ClusterStores, type FollowRequest } from './cluster-stores.ts';
import { NO_LIMITS } from './decoders.ts';
import type { MeshEngines } from './engines.ts';

/** Where a remote cluster is in its life (SEMANTICS 6). */
export type RemoteClusterState =
  | 'connecting'
  | 'handshake'
  | 'watching'
  | 'ready'
  | 'failed'
  | 'stopped'
  | 'removed';

/** What a {@link RemoteCluster} is made of. */
export interface RemoteClusterOptions {
  readonly name: string;
  readonly engines: MeshEngines;
  readonly clock: Clock;
  readonly random: Random;
  readonly maxConnectedClusters: MaxConnectedClusters;
  /** Whether the cluster may have this id; text says why not. Asked before anything of it is read. */
  readonly claimID: (id: number) => string | undefined;
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
}

/** A remote cluster as data. */
export interface RemoteClusterStatus {
  readonly name: string;
  readonly state: RemoteClusterState;
  /** Whether every resource has been complete once. */
  readonly ready: boolean;
  /** Undefined while it has not been read, and in clusters older than 1.13. */
  readonly config: ClusterConfig | undefined;
  readonly resources: ReadonlyMap<MeshResource, WatchStoreStatus>;
  readonly rejections: RejectionStatus;
  readonly failures: number;
  readonly lastFailure: string | undefined;
}

const BACKOFF = { baseMs: 200, capMs: 15_000 };

interface Handshake {
  /** Undefined where there is no configuration: the cluster is older than 1.13. */
  readonly bytes: Uint8Array | undefined;
  readonly config: ClusterConfig | undefined;
}

/** The remote cluster says of itself what cannot be. */
class HandshakeError extends Error {
  override readonly name = 'HandshakeError';
}

/**
 * One remote cluster: reads its configuration, then follows its nodes, services, identities and IPs into the
 * engines, as claims of source `clustermesh` and owner = its name, until it is stopped or removed.
 */
export class RemoteCluster {
  /** Its identities; the same object for as long as the cluster is known. */
  readonly identities: RemoteIdentityCache = new RemoteIdentityCache();
  readonly #options: RemoteClusterOptions;
  readonly #rejections: RejectionLog;
  readonly #stores: ClusterStores;
  #connection: { readonly backend: KvstoreBackend; readonly ended: AbortController } | undefined;
  #running: Promise<void> = Promise.resolve();
  #state: RemoteClusterState = 'connecting';
  #config: ClusterConfig | undefined;
  /** The id under which what is held now was read. */
  #id = 0;
  #failures = 0;
  #lastFailure: string | undefined;

  constructor(options: RemoteClusterOptions) {
    this.#options = options;
    this.#rejections = new RejectionLog(options.onReject);
    this.#stores = new ClusterStores({
      cluster: options.name,
      writer: { source: 'clustermesh', owner: options.name },
      engines: options.engines,
      identities: this.identities,
      rejections: this.#rejections,
    });
  }

  get name(): string {
    return this.#options.name;
  }

  /** The id that the cluster has claimed; 0 when it has none. */
  get clusterID(): number {
    return this.#id;
  }

  /** Resolves once every resource has been complete. */
  synced(): Promise<void> {
    return this.#stores.synced();
  }

  status(): RemoteClusterStatus {
    const ready = this.#stores.isSynced;
    return {
      name: this.name,
      state: this.#state === 'watching' && ready ? 'ready' : this.#state,
      ready,
      config: this.#config,
      resources: this.#stores.status(),
      rejections: this.#rejections.status(),
      failures: this.#failures,
      lastFailure: this.#lastFailure,
    };
  }

  /**
   * Follows the cluster on `backend` from now on, which becomes the cluster's own to close. What was read from
   * an earlier one stays until the new one has shown what is gone.
   */
  async connect(backend: KvstoreBackend): Promise<void> {
    await this.#disconnect();
    const ended = new AbortController();
    this.#connection = { backend, ended };
    this.#running = this.#run(backend, ended.signal);
  }

  /** Ends following; withdraws nothing. */
  async stop(): Promise<void> {
    await this.#disconnect();
    this.#state = 'stopped';
  }

  /** Ends following and takes back everything that was read (I10). */
  async remove(): Promise<void> {
    await this.#disconnect();
    this.#stores.withdraw();
    this.#state = 'removed';
  }

  async #disconnect(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    connection?.ended.abort();
    await this.#running;
    await connection?.backend.close();
  }

  async #run(backend: KvstoreBackend, signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      try {
        this.#state = 'handshake';
        const handshake = await this.#handshake(backend, signal);
        this.#state = 'watching';
        failures = 0;
        await this.#follow(backend, handshake, signal);
      } catch (error) {
        if (signal.aborted) return;
        failures++;
        this.#failures++;
        this.#lastFailure = error instanceof Error ? error.message : String(error);
        this.#state = 'failed';
        await sleep(this.#options.clock, backoffDelay(failures, BACKOFF, this.#options.random), signal);
      }
    }
  }

  /** Reads and checks the cluster's configuration; gives it with the bytes that it was read from. */
  async #handshake(backend: KvstoreBackend, signal: AbortSignal): Promise<Handshake> {
    const key = clusterConfigKey(this.name);
    const bytes = (await backend.get(key, { signal }))?.value;
    const decoded = bytes && decodeClusterConfig(bytes, key);
    if (decoded?.ok === false) {
      this.#rejections.add(decoded.rejection);
      throw new HandshakeError(decoded.rejection.message);
    }
    const config = decoded?.value;
    this.#adopt(config);
    return { bytes, config };
  }

  /**
   * Goes over to a configuration. What was read under another id is taken back first: its identities are not
   * this cluster's any more (SEMANTICS 6).
   */
  #adopt(config: ClusterConfig | undefined): void {
    const id = config?.id ?? 0;
    const why = config && this.#objection(config);
    if (why !== undefined || id !== this.#id) this.#stores.withdraw();
    this.#id = why === undefined ? id : 0;
    this.#config = config;
    if (why !== undefined) throw new HandshakeError(why);
    const identities = clusterIdentityRange(id, this.#options.maxConnectedClusters);
    this.#stores.setLimits(id === 0 ? NO_LIMITS : { clusterID: id, identities });
  }

  /** Why a cluster with this configuration cannot be of the mesh. */
  #objection({ id, capabilities }: ClusterConfig): string | undefined {
    const own = this.#options.maxConnectedClusters;
    const theirs = capabilities.maxConnectedClusters ?? 255;
    if (theirs !== own) return `cluster ${this.name} is of a mesh of ${theirs} clusters, this one of ${own}`;
    if (id > own) return `cluster ${this.name} has id ${id}, above ${own}`;
    return this.#options.claimID(id);
  }

  /**
   * Follows every resource until the signal fires, or until the kvstore turns out to be another one: then
   * everything stops, so that the new one is met with a handshake.
   */
  async #follow(backend: KvstoreBackend, { bytes, config }: Handshake, signal: AbortSignal): Promise<void> {
    const left = new AbortController();
    const request: FollowRequest = {
      backend,
      layout: config?.capabilities.cached === true ? 'cache' : 'state',
      signal: AbortSignal.any([signal, left.signal]),
      endOnDivergence: true,
    };
    const follow = async (resource: MeshResource): Promise<void> => {
      if ((await this.#stores.follow(resource, request)) === 'diverged') left.abort();
    };
    const canaries = config?.capabilities.syncedCanaries === true;
    await Promise.all([
      this.#watchConfig(request, bytes).then(() => left.abort()),
      ...(canaries ? [this.#followCanaries(request, left, follow)] : this.#stores.resources.map(follow)),
    ]);
  }

  /** Resolves when the configuration is not what the handshake has read any more. */
  async #watchConfig({ backend, signal }: FollowRequest, read: Uint8Array | undefined): Promise<void> {
    const key = clusterConfigKey(this.name);
    let now: Uint8Array | undefined;
    let listed = false;
    for await (const batch of backend.watch(CLUSTER_CONFIG_PREFIX, { signal, endOnDivergence: true })) {
      for (const event of batch) {
        if (event.key === key) now = event.type === 'delete' ? undefined : event.value;
        listed ||= event.type === 'list-done';
      }
      const same = now === undefined || read === undefined ? now === read : equalBytes(now, read);
      if (listed && !same) return;
    }
  }

  /**
   * A cluster that writes canaries is believed complete only when it says so: its kvstore may be empty because
   * it was just restarted, and a sweep against that would remove what is valid (TRAPS, "canary missing").
   */
  async #followCanaries(
    { backend, layout, signal }: FollowRequest,
    left: AbortController,
    follow: (resource: MeshResource) => Promise<void>,
  ): Promise<void> {
    const running: Promise<void>[] = [];
    const waiting = new Map(
      this.#stores.resources.map((resource) => [syncedKey(this.name, resource, layout), resource]),
    );
    for await (const batch of backend.watch(syncedPrefix(this.name), { signal, endOnDivergence: true })) {
      for (const { type, key } of batch) {
        const resource = type === 'delete' ? undefined : waiting.get(key);
        if (resource === undefined) continue;
        waiting.delete(key);
        running.push(follow(resource));
      }
    }
    left.abort();
    await Promise.all(running);
  }
}
