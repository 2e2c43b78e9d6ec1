import { assert } from '../base/assert.ts';
import { backoffDelay } from '../base/backoff.ts';
import type { Clock, Random } from '../base/clock.ts';
import { type Rejection, RejectionLog, type RejectionStatus } from '../base/rejection.ts';
import { sleep } from '../base/sleep.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { clusterIdentityRange, type MaxConnectedClusters } from '../identity/numeric-identity.ts';
import { RemoteIdentityCache } from '../identity/remote-identity-cache.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import {
  type ClusterEffect,
  type ClusterInput,
  type ClusterPhase,
  type ClusterState,
  NEW_CLUSTER,
  stepCluster,
} from './cluster-machine.ts';
import { ClusterStores, type ResourceStatuses } from './cluster-stores.ts';
import { NO_LIMITS } from './decoders.ts';
import type { MeshEngines } from './engines.ts';
import { followCluster, readHandshake } from './follow-cluster.ts';
import type { GlobalServices } from './global-services.ts';
import { ReachTimer } from './reach-timer.ts';
import type { SyncProgress } from './sync-deadline.ts';

/** Makes a client of a cluster's kvstore, which becomes the cluster's own to close. What it throws is retried. */
export type ConnectKvstore = () => KvstoreBackend | Promise<KvstoreBackend>;

/** What a {@link RemoteCluster} is made of. */
export interface RemoteClusterOptions {
  readonly name: string;
  readonly engines: MeshEngines;
  readonly globalServices: GlobalServices;
  readonly clock: Clock;
  readonly random: Random;
  readonly maxConnectedClusters: MaxConnectedClusters;
  /** Whether the cluster may have this id; text says why not. Asked before anything of it is read. */
  readonly claimID: (id: number) => string | undefined;
  /** See `ClusterMeshOptions`. */
  readonly serviceTTLMs: number | undefined;
  readonly gate: TurnGate | undefined;
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
}

/** How a remote cluster appears: as its phase, but `ready` while it is watched and complete. */
export type RemoteClusterState = Exclude<ClusterPhase, 'idle' | 'leaving'> | 'ready';

/** A remote cluster as data. */
export interface RemoteClusterStatus {
  readonly name: string;
  readonly state: RemoteClusterState;
  /** Whether every resource has been complete once, and nothing of it had to be taken back since. */
  readonly ready: boolean;
  /** Whether its kvstore answers now. */
  readonly connected: boolean;
  /** Undefined while it has not been read, and in clusters older than 1.13. */
  readonly config: ClusterConfig | undefined;
  /** Per resource: whether it is `synced`, counts, and how far its watch has come. */
  readonly resources: ResourceStatuses;
  readonly rejections: RejectionStatus;
  /** Whether its services were taken back because it could not be reached for too long. */
  readonly servicesExpired: boolean;
  readonly failures: number;
  readonly lastFailure: string | undefined;
}

/** What making a client and its handshake weigh at the gate, in events: about 2 ms. */
const CONNECT_WEIGHT = 1024;

const BACKOFF = { baseMs: 200, capMs: 15_000 };

/**
 * One remote cluster: does what its state machine (`cluster-machine.ts`) asks for, and so follows the cluster's
 * nodes, services, identities and IPs into the engines, as claims of source `clustermesh` and owner = its name,
 * until it is stopped or removed.
 */
export class RemoteCluster {
  /** Its identities; the same object for as long as the cluster is known. */
  readonly identities: RemoteIdentityCache = new RemoteIdentityCache();
  readonly #options: RemoteClusterOptions;
  readonly #rejections: RejectionLog;
  readonly #stores: ClusterStores;
  readonly #inputs: ClusterInput[] = [];
  #stepping = false;
  #state: ClusterState = NEW_CLUSTER;
  #connect: ConnectKvstore | undefined;
  #backend: KvstoreBackend | undefined;
  #configBytes: Uint8Array | undefined;
  /** What is under way, and what ends it. */
  #tasks: Promise<void>[] = [];
  #underWay = new AbortController();
  /** Resolves when all that had to be left is left. */
  #leaving: Promise<void> = Promise.resolve();
  readonly #reach: ReachTimer | undefined;

  constructor(options: RemoteClusterOptions) {
    this.#options = options;
    this.#rejections = new RejectionLog(options.onReject);
    this.#stores = new ClusterStores({
      cluster: options.name,
      writer: { source: 'clustermesh', owner: options.name },
      engines: options.engines,
      identities: this.identities,
      globalServices: options.globalServices,
      rejections: this.#rejections,
      gate: options.gate,
    });
    const { clock, serviceTTLMs } = options;
    this.#reach =
      serviceTTLMs === undefined
        ? undefined
        : new ReachTimer({
            clock,
            ttlMs: serviceTTLMs,
            isReached: () => this.#isReached(),
            onExpired: () => this.#dispatch({ type: 'expired' }),
          });
  }

  get name(): string {
    return this.#options.name;
  }

  /** The id that the cluster has claimed; 0 when it has none. */
  get clusterID(): number {
    return this.#state.id;
  }

  /** Resolves once every resource has been complete. */
  synced(): Promise<void> {
    return this.#stores.synced();
  }

  /** How far the first sync has come. Cost: a look at each resource. */
  progress(): SyncProgress {
    const { isSynced: synced, arrived } = this.#stores;
    return { name: this.name, synced, arrived, failures: this.#state.failures };
  }

  status(): RemoteClusterStatus {
    const { config, expired, failures, lastFailure } = this.#state;
    const ready = this.#stores.isSynced;
    const shown = shownPhase(this.#state);
    return {
      name: this.name,
      state: shown === 'watching' && ready ? 'ready' : shown,
      ready,
      connected: this.#isReached(),
      config,
      resources: this.#stores.status(),
      rejections: this.#rejections.status(),
      servicesExpired: expired,
      failures,
      lastFailure,
    };
  }

  /**
   * Follows the cluster on a new client from now on. What was read from an earlier one stays until the new one
   * has shown what is gone. Resolves once the earlier one is closed.
   */
  async connect(connect: ConnectKvstore): Promise<void> {
    this.#connect = connect;
    this.#dispatch({ type: 'connect' });
    await this.#leaving;
  }

  /** Ends following; withdraws nothing. */
  async stop(): Promise<void> {
    this.#reach?.stop();
    this.#dispatch({ type: 'stop' });
    await this.#leaving;
  }

  /** Ends following and takes back everything that was read (I10). */
  async remove(): Promise<void> {
    this.#reach?.stop();
    this.#dispatch({ type: 'remove' });
    await this.#leaving;
  }

  /** One input after the other, also those that an effect answers at once. */
  #dispatch(input: ClusterInput): void {
    this.#inputs.push(input);
    if (this.#stepping) return;
    this.#stepping = true;
    try {
      for (let next = this.#inputs.shift(); next !== undefined; next = this.#inputs.shift()) {
        const { state, effects } = stepCluster(this.#state, next);
        this.#state = state;
        for (const effect of effects) this.#perform(effect, state.attempt);
      }
    } finally {
      this.#stepping = false;
    }
  }

  #perform(effect: ClusterEffect, attempt: number): void {
    switch (effect.do) {
      case 'connect':
        this.#begin(attempt, (signal) => this.#open(attempt, signal));
        break;
      case 'read-config':
        this.#begin(attempt, (signal) => this.#readConfig(attempt, signal));
        break;
      case 'validate':
        this.#dispatch({ type: 'validated', attempt, objection: this.#objection(effect.config) });
        break;
      case 'withdraw':
        this.#stores.withdraw();
        this.#dispatch({ type: 'drained', attempt });
        break;
      case 'withdraw-services':
        this.#stores.withdrawServices();
        break;
      case 'follow':
        this.#begin(attempt, (signal) => this.#follow(attempt, effect.config, signal));
        break;
      case 'leave':
        this.#leave(attempt, effect.hangUp);
        break;
      case 'wait':
        this.#begin(attempt, (signal) => this.#wait(attempt, effect.streak, signal));
    }
  }

  /** Runs `work`, until it is left. */
  #begin(attempt: number, work: (signal: AbortSignal) => Promise<void>): void {
    const { signal } = this.#underWay;
    const fail = (error: unknown): void => {
      if (signal.aborted) return;
      const message = error instanceof Error ? error.message : String(error);
      this.#dispatch({ type: 'failed', attempt, message });
    };
    this.#tasks.push(work(signal).catch(fail));
  }

  #leave(attempt: number, hangUp: boolean): void {
    const tasks = this.#tasks;
    this.#underWay.abort();
    this.#underWay = new AbortController();
    this.#tasks = [];
    this.#leaving = this.#leaving.then(async () => {
      await Promise.all(tasks);
      if (hangUp) await this.#hangUp();
      this.#dispatch({ type: 'left', attempt });
    });
  }

  async #hangUp(): Promise<void> {
    const backend = this.#backend;
    this.#backend = undefined;
    await backend?.close();
  }

  async #open(attempt: number, signal: AbortSignal): Promise<void> {
    await this.#options.gate?.pass(CONNECT_WEIGHT, signal);
    if (signal.aborted) return;
    const backend = await this.#connect?.();
    if (signal.aborted) {
      await backend?.close();
      return;
    }
    this.#backend = backend;
    this.#dispatch({ type: 'connected', attempt });
  }

  async #wait(attempt: number, streak: number, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#options;
    await sleep(clock, backoffDelay(streak, BACKOFF, random), signal);
    this.#dispatch({ type: 'retry', attempt });
  }

  async #readConfig(attempt: number, signal: AbortSignal): Promise<void> {
    const { bytes, config } = await readHandshake(this.#client, this.name, signal);
    if (signal.aborted) return;
    if (config?.ok === false) {
      this.#rejections.add(config.rejection);
      this.#dispatch({ type: 'failed', attempt, message: config.rejection.message });
      return;
    }
    this.#configBytes = bytes;
    this.#dispatch({ type: 'config', attempt, config: config?.value });
  }

  async #follow(attempt: number, config: ClusterConfig | undefined, signal: AbortSignal): Promise<void> {
    const clusterID = config?.id ?? 0;
    const identities = clusterIdentityRange(clusterID, this.#options.maxConnectedClusters);
    this.#stores.setLimits(clusterID === 0 ? NO_LIMITS : { clusterID, identities });
    const { name } = this;
    const followed = { name, config, backend: this.#client, stores: this.#stores };
    await followCluster({ ...followed, configBytes: this.#configBytes }, signal);
    this.#dispatch({ type: 'outdated', attempt });
  }

  /** Why a cluster with this configuration cannot be of the mesh. */
  #objection(config: ClusterConfig | undefined): string | undefined {
    if (config === undefined) return undefined;
    const { id, capabilities } = config;
    const own = this.#options.maxConnectedClusters;
    const theirs = capabilities.maxConnectedClusters ?? 255;
    if (theirs !== own) return `cluster ${this.name} is of a mesh of ${theirs} clusters, this one of ${own}`;
    if (id > own) return `cluster ${this.name} has id ${id}, above ${own}`;
    return this.#options.claimID(id);
  }

  get #client(): KvstoreBackend {
    const backend = this.#backend;
    assert(backend !== undefined, 'the state machine reads and follows on a client only');
    return backend;
  }

  /** Some watch of it is told of changes now: in `watching` there is at least that of the configuration. */
  #isReached(): boolean {
    return this.#backend?.status().watches.some(({ state }) => state === 'watching') === true;
  }
}

function shownPhase({ phase, next }: ClusterState): Exclude<RemoteClusterState, 'ready'> {
  if (phase === 'idle') return 'connecting';
  if (phase !== 'leaving') return phase;
  if (next === 'removed') return 'draining';
  return next === undefined || next === 'expired' ? 'handshake' : next;
}
