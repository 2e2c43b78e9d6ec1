import { assert } from '../../base/assert.ts';
import type { Clock, Random } from '../../base/clock.ts';
import type { Unsubscribe } from '../../base/subscription.ts';
import type { OnClusterChange } from '../../clustermesh/cluster-changes.ts';
import { type AddClusterOutcome, ClusterSet } from '../../clustermesh/cluster-set.ts';
import { NEW_CLUSTER } from '../../clustermesh/cluster-state.ts';
import type { RemoteClusterStatus } from '../../clustermesh/cluster-status.ts';
import {
  type ConnectKvstore,
  FollowedCluster,
  type FollowingOptions,
} from '../../clustermesh/followed-cluster.ts';
import type { KvstoreBackend } from '../../kvstore/backend.ts';
import { type MirrorStatus, MirrorStores } from './mirror-stores.ts';

/** Options of {@link KvstoreMesh}. */
export interface KvstoreMeshOptions extends Pick<FollowingOptions, 'gate'> {
  /** The own cluster: it is never copied. */
  readonly clusterName: string;
  /** Its id; 0 when it has none. */
  readonly clusterID: number;
  /** The kvstore into which is copied. The caller closes it, after {@link KvstoreMesh.stop}, and keeps its leases. */
  readonly local: KvstoreBackend;
  readonly clock: Clock;
  readonly random: Random;
  /** How long readers have to let go of a cluster that is removed. Default 3 minutes. */
  readonly drainMs?: number | undefined;
}

/** A remote cluster that is copied, as data. */
export interface MirroredClusterStatus extends RemoteClusterStatus {
  /** Its copy in the local kvstore. */
  readonly copy: MirrorStatus;
  /** It was configured again while it was being removed, and waits for the end of that. */
  readonly returns: boolean;
}

/** The mesh as data. */
export interface KvstoreMeshStatus {
  /** See {@link KvstoreMesh.isReady}. */
  readonly ready: boolean;
  /** By name, ascending. */
  readonly clusters: readonly MirroredClusterStatus[];
  /** What somebody should look at: a sentence each. */
  readonly problems: readonly string[];
}

/** A cluster that was not connected to for so long does not keep us from being ready (OPERATOR 46). */
const CONNECT_MS = 15_000;
/** Nor does anything after so long. */
const READY_MS = 600_000;

interface Mirrored {
  readonly stores: MirrorStores;
  readonly since: number;
}

/**
 * Copies what remote clusters show into the local kvstore, under `cilium/cache/`, where many agents may read it (OPERATOR
 * 13). Fails static: what was copied of a cluster stays until the cluster's own kvstore, complete and with its
 * configuration, shows that it is gone, or until the cluster is removed; also over restarts of this process.
 */
export class KvstoreMesh {
  readonly #options: KvstoreMeshOptions;
  readonly #clusters: ClusterSet;
  readonly #mirrored = new Map<string, Mirrored>();
  /** What is to become of a cluster once what is under way with it is over; `undefined`: it is to go. */
  readonly #wanted = new Map<string, ConnectKvstore | undefined>();
  readonly #pursued = new Map<string, Promise<void>>();
  readonly #startedAt: number;
  #hasAllAdded = false;
  #isReady = false;
  #stopped = false;

  constructor(options: KvstoreMeshOptions) {
    this.#options = options;
    const { clusterName, clock } = options;
    this.#startedAt = clock.now();
    this.#clusters = new ClusterSet({ clusterName, clock, create: (name) => this.#newCluster(name) });
  }

  /**
   * Copies the cluster `name` from the client that `connect` makes from now on. One that is being removed is copied once
   * that is over. Waits for nothing; `stopped` after {@link stop}.
   */
  add(name: string, connect: ConnectKvstore): Promise<AddClusterOutcome> {
    const fault = this.#stopped ? 'stopped' : this.check(name);
    if (fault !== undefined) return Promise.resolve(fault);
    const isKnown = this.#mirrored.has(name);
    this.#want(name, connect);
    return Promise.resolve(isKnown ? 'reconnected' : 'added');
  }

  /**
   * Ends copying a cluster: its configuration is deleted at once, the rest when readers had the time to disconnect. Waits
   * for nothing. False when it is not known.
   */
  remove(name: string): Promise<boolean> {
    if (this.#stopped || (!this.#mirrored.has(name) && !this.#wanted.has(name)))
      return Promise.resolve(false);
    this.#want(name, undefined);
    return Promise.resolve(true);
  }

  /** Why a cluster of this name cannot be copied, if so. */
  check(name: string): 'own-cluster' | 'invalid-name' | undefined {
    return this.#clusters.check(name);
  }

  /** Calls back when a cluster has come or gone, or its state has changed. */
  onChange(callback: OnClusterChange): Unsubscribe {
    return this.#clusters.onChange(callback);
  }

  /** Every cluster that is configured at the start has been added: before that it is not known what to wait for. */
  allAdded(): void {
    this.#hasAllAdded = true;
  }

  /**
   * Whether every cluster has been complete in the local kvstore once: never before {@link allAdded}. A cluster that is
   * not connected 15 s after it came does not count, nor does any 10 minutes after the start. Once ready, always ready.
   */
  get isReady(): boolean {
    this.#isReady ||= this.#hasAllAdded && this.#unready().length === 0;
    return this.#isReady;
  }

  status(): KvstoreMeshStatus {
    const clusters = this.#statuses();
    return {
      ready: this.isReady,
      clusters,
      problems: [...this.#sharedIDs(clusters), ...clusters.flatMap(refusals)],
    };
  }

  /** Ends copying. What was copied stays, until the leases of the local kvstore's client end. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#wanted.clear();
    await Promise.all([...this.#mirrored.values()].map(({ stores }) => stores.close()));
    await Promise.all(this.#pursued.values());
    await this.#clusters.stop();
  }

  #statuses(): readonly MirroredClusterStatus[] {
    return this.#clusters.statuses().flatMap((status) => {
      const mirrored = this.#mirrored.get(status.name);
      if (mirrored === undefined) return [];
      const returns = this.#wanted.get(status.name) !== undefined;
      return { ...status, copy: mirrored.stores.mirrorStatus(), returns };
    });
  }

  /** Readers take one of two clusters with the same id. */
  #sharedIDs(clusters: readonly MirroredClusterStatus[]): readonly string[] {
    const { clusterName, clusterID } = this.#options;
    const names = new Map([[clusterID, `this cluster, ${clusterName}`]]);
    return clusters.flatMap(({ name, config: { id } = { id: 0 } }) => {
      if (id === 0) return [];
      const other = names.get(id);
      names.set(id, other ?? `cluster ${name}`);
      return other === undefined
        ? []
        : `cluster ${name} has id ${id}, which is that of ${other}: agents follow only one`;
    });
  }

  /** The clusters that keep us from being ready. */
  #unready(): readonly string[] {
    const now = this.#options.clock.now();
    if (now - this.#startedAt >= READY_MS) return [];
    const coming = [...this.#pursued.keys()].filter((name) => !this.#mirrored.has(name));
    const incomplete = this.#clusters.statuses().flatMap(({ name, connected }) => {
      const mirrored = this.#mirrored.get(name);
      if (mirrored === undefined || mirrored.stores.isSynced) return [];
      return !connected && now - mirrored.since >= CONNECT_MS ? [] : name;
    });
    return [...coming, ...incomplete];
  }

  #want(name: string, connect: ConnectKvstore | undefined): void {
    this.#wanted.set(name, connect);
    if (!this.#pursued.has(name)) this.#pursued.set(name, this.#pursue(name));
  }

  /** Does what is wanted last: what was wanted meanwhile, and is not any more, is left out. */
  async #pursue(name: string): Promise<void> {
    while (this.#wanted.has(name)) {
      const connect = this.#wanted.get(name);
      this.#wanted.delete(name);
      if (connect !== undefined) await this.#clusters.add(name, connect);
      else {
        this.#mirrored.get(name)?.stores.leave();
        await this.#clusters.remove(name);
        if (!this.#stopped) this.#mirrored.delete(name);
      }
    }
    this.#pursued.delete(name);
  }

  #newCluster(name: string): FollowedCluster {
    const { local, clock, random, gate, drainMs } = this.#options;
    return new FollowedCluster({
      ...{ name, clock, random, gate, retries: this.#clusters.retries },
      initial: { ...NEW_CLUSTER, needsConfig: true },
      stores: (hooks) => {
        assert(!this.#mirrored.has(name), 'there is one copy of a cluster');
        const stores = new MirrorStores({ ...hooks, cluster: name, local, clock, random, gate, drainMs });
        this.#mirrored.set(name, { stores, since: clock.now() });
        stores.start();
        return stores;
      },
      // Values and ids are checked by the reader (OPERATOR 47).
      objection: () => undefined,
      onChange: () => this.#clusters.notify(name),
    });
  }
}

/** What the local kvstore does not take. */
function refusals({ name, copy }: MirroredClusterStatus): readonly string[] {
  const { pending, lastFailure } = copy;
  if (pending === 0 || lastFailure === undefined) return [];
  return [`the own kvstore does not take what cluster ${name} shows, ${pending} keys wait: ${lastFailure}`];
}
