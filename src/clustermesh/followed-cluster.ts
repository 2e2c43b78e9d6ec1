import { assert } from '../base/assert.ts';
import { backoffDelay, isRecentOutage, RECENT_OUTAGE_CAP_MS } from '../base/backoff.ts';
import type { Timer } from '../base/clock.ts';
import { failureOf } from '../base/failure.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Rejection, RejectionLog } from '../base/rejection.ts';
import { sleep } from '../base/sleep.ts';
import { interruptible, Supervisor, type Work } from '../base/supervisor.ts';
import type { Runtime } from '../base/system-clock.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import type { CopiedResource } from '../kvstore/codec/keys.ts';
import type { ValueLimits } from '../kvstore/codec/value.ts';
import type { KeyRead, KvstoreBackend } from '../kvstore/session/backend.ts';
import { HEARTBEAT_INTERVAL_MS, KvstoreHealth } from '../kvstore/session/health.ts';
import { IdentityCache } from '../model/identity-cache.ts';
import { stepCluster } from './cluster-machine.ts';
import type {
  ClusterAnswer,
  ClusterEffect,
  ClusterFollow,
  ClusterInput,
  ClusterState,
  Withdrawal,
} from './cluster-state.ts';
import { type RemoteClusterStatus, ReportedStatus } from './cluster-status.ts';
import {
  type FollowParams,
  followCluster,
  isReplaced,
  readHandshake,
  watchConfig,
} from './follow-cluster.ts';
import {
  EXPIRING_RESOURCES,
  type KeyVersion,
  type OnReaderState,
  type ResourceStores,
  type StoreHooks,
} from './resource-stores.ts';
import type { RetryPacer } from './retry-pacer.ts';
import type { SyncProgress } from './sync-deadline.ts';
import { WatchStates } from './watch-states.ts';

/**
 * Returns a new kvstore client of a remote cluster. The client is closed when the cluster is no longer followed with
 * it. If the call throws, it is retried. If the signal fires, the call is abandoned, and a client that it returns later
 * is closed.
 */
export type ConnectKvstore = (signal: AbortSignal) => KvstoreBackend | Promise<KvstoreBackend>;

/** Common options of followed clusters. */
export interface FollowingOptions {
  /**
   * Gate which every batch of every cluster passes on its way into the engines, so that many concurrent syncs do not
   * block the event loop. By default, each batch is applied when it arrives.
   */
  readonly gate?: TurnGate | undefined;
  /** Size limits of values and their parts. Larger values are rejected. Default `VALUE_LIMITS`. */
  readonly valueLimits?: ValueLimits | undefined;
  /** Receives every rejected value, with its kvstore key, and the name of the cluster in the message. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
}

export interface FollowedClusterOptions extends Pick<FollowingOptions, 'gate' | 'onReject'>, Runtime {
  readonly name: string;
  /** Initial state: of a remote cluster or of the local one. */
  readonly initial: ClusterState;
  readonly stores: (hooks: StoreHooks) => ResourceStores;
  /**
   * Returns the reason why a cluster with this configuration may not be followed. Called before its resources are read.
   */
  readonly objection: (config: ClusterConfig | undefined) => string | undefined;
  readonly serviceTTLMs?: number | undefined;
  /** See `LocalClusterOptions`. */
  readonly refillMs?: number | undefined;
  /** Paces the retries of many unreachable clusters. */
  readonly retries?: RetryPacer | undefined;
  /** Called when the state, `connected` or the configured id changes, and after each failure. */
  readonly onChange: () => void;
}

type TaskEffect = Exclude<ClusterEffect, { readonly do: 'leave' | 'validate' }>;

/** Receives the answers to one effect, and passes them to the state machine. */
type OnAnswer = (answer: ClusterAnswer) => void;

/**
 * Weight of a new client at the gate. The creation, with the TLS handshake, takes about 2 ms, as long as this number of
 * events.
 */
const CONNECT_WEIGHT = 1024;
/** Weight of ending the watches of a cluster, about 0.8 ms. Many clusters may be removed in one turn. */
const REMOVE_WEIGHT = 400;
const CONNECT_MS = 30_000;
/** Time limit for closing a client. After it, the client is abandoned. */
const CLOSE_MS = 5_000;
const BACKOFF = { baseMs: 200, capMs: 15_000 };
const RECENT_BACKOFF = { ...BACKOFF, capMs: RECENT_OUTAGE_CAP_MS };
/** Maximum number of attempts of a withdrawal. It is then abandoned, because nothing may wait for it forever. */
const MAX_WITHDRAWALS = 5;
/**
 * Time in which a replaced kvstore is refilled: the lifetime of a lease, within which every live client has written its
 * keys again.
 */
const REFILL_MS = 15 * 60_000;

/**
 * Follows the nodes, services, identities and IPs of one cluster into the engines until it is stopped or removed.
 * Performs the effects of the state machine (`cluster-machine.ts`).
 */
export class FollowedCluster {
  /** Identities of the cluster. The object is the same for the lifetime of the cluster. */
  readonly identities: IdentityCache = new IdentityCache(
    undefined,
    new CallbackGuard((error) => this.#recordFailure(error, 'a listener of identities failed: ')),
  );
  readonly #options: FollowedClusterOptions;
  readonly #rejections: RejectionLog;
  readonly #stores: ResourceStores;
  readonly #tasks: Supervisor;
  readonly #watchStates = new WatchStates();
  readonly #status: ReportedStatus;
  /** Reads only the heartbeat, because the watches show whether the kvstore answers. */
  readonly #health: KvstoreHealth;
  readonly #inputs: ClusterInput[] = [];
  #isStepping = false;
  #state: ClusterState;
  #connect: ConnectKvstore | undefined;
  #backend: KvstoreBackend | undefined;
  /** The last handshake's read of the configuration. */
  #handshake: KeyRead | undefined;
  /** See {@link RemoteClusterStatus.refusedID}. */
  #refusedID: number | undefined;
  /** True if all lists of the current phase are complete. */
  #isComplete = false;
  /** Resolves when all previous attempts have ended. */
  #leaving: Promise<void> = Promise.resolve();
  #endWaiters: (() => void)[] = [];
  #expiry: Timer | undefined;
  /** Time of the first of the consecutive failures, monotonic. */
  #failingSince = 0;

  constructor(options: FollowedClusterOptions) {
    const { name, clock, random, onReject } = options;
    this.#options = options;
    this.#state = options.initial;
    // Clusters have equal keys, so the log of all clusters needs the name.
    this.#rejections = new RejectionLog((item) =>
      onReject?.({ ...item, message: `cluster ${name}: ${item.message}` }),
    );
    this.#tasks = new Supervisor({ clock, random });
    this.#status = new ReportedStatus(clock);
    this.#health = new KvstoreHealth({
      backend: { get: (key, call) => this.#client.get(key, call), endpoints: () => Promise.resolve([]) },
      clock,
      random,
      intervalMs: HEARTBEAT_INTERVAL_MS / 2, // each heartbeat is read, although both intervals have jitter
    });
    this.#stores = options.stores({
      identities: this.identities,
      rejections: this.#rejections,
      onApplied: () => this.#recordProgress(),
      onFault: (error) => this.#recordFailure(error, 'an engine failed: '),
    });
  }

  get name(): string {
    return this.#options.name;
  }

  /** The id under which the cluster was accepted into the mesh; 0 if none. */
  get clusterID(): number {
    return this.#state.id;
  }

  /** The id in the cluster's configuration; 0 if there is none. */
  get configuredID(): number {
    return this.#state.config?.id ?? 0;
  }

  /** Resolves when every resource has been complete once. */
  synced(): Promise<void> {
    return this.#stores.synced();
  }

  progress(): SyncProgress {
    const { phase, failures } = this.#state;
    return {
      name: this.name,
      synced: this.#stores.isSynced,
      progressAt: this.#status.progressAt,
      failures,
      settled: phase === 'unconfigured',
    };
  }

  /** See {@link ResourceStores.versionOf}. */
  versionOf(resource: CopiedResource, name: string): KeyVersion | undefined {
    return this.#stores.versionOf(resource, name);
  }

  status(): RemoteClusterStatus {
    const { config, expired, failures } = this.#state;
    const { quorum, heartbeat } = this.#health.status();
    return {
      name: this.name,
      ...this.#status.status(),
      kvstore: this.#backend?.status(),
      config,
      refusedID: this.#refusedID,
      resources: this.#stores.status(),
      rejections: this.#rejections.status(),
      servicesExpired: expired,
      heartbeat: quorum === 'ok' ? heartbeat : undefined,
      failures,
      tasks: this.#tasks.status().tasks,
    };
  }

  /**
   * Follows the cluster with a new client from now on. State from an earlier client stays until the new client has
   * listed, and is then deleted if the lists do not contain it. Resolves when the earlier client is closed.
   */
  async connect(connect: ConnectKvstore): Promise<void> {
    this.#connect = connect;
    this.#dispatch({ type: 'connect' });
    await this.#leaving;
  }

  /** Stops following. Withdraws nothing. */
  stop(): Promise<void> {
    return this.#finish('stop');
  }

  /** Stops following and withdraws everything (I10). */
  async remove(): Promise<void> {
    if (this.#backend !== undefined) await this.#options.gate?.pass(REMOVE_WEIGHT);
    await this.#finish('remove');
  }

  async #finish(type: 'stop' | 'remove'): Promise<void> {
    this.#dispatch({ type });
    const isOver = (): boolean => this.#state.phase === 'removed' || this.#state.phase === 'stopped';
    if (!isOver()) await new Promise<void>((resolve) => this.#endWaiters.push(resolve));
  }

  // ── The machine ────────────────────────────────────────────────────────────────────────────────────────

  /** Processes inputs one after the other, including those dispatched by effects. */
  #dispatch(input: ClusterInput): void {
    this.#inputs.push(input);
    if (this.#isStepping) return;
    this.#isStepping = true;
    try {
      for (let next = this.#inputs.shift(); next !== undefined; next = this.#inputs.shift()) this.#step(next);
    } finally {
      this.#isStepping = false;
    }
    this.#update();
  }

  #step(input: ClusterInput): void {
    const previous = this.#state;
    const { state, effects } = stepCluster(previous, input);
    this.#state = state;
    if (state.phase !== previous.phase) this.#isComplete = false;
    if (state.failures !== previous.failures && state.lastFailure !== undefined)
      this.#status.recordFailure(state.lastFailure);
    for (const effect of effects) this.#perform(effect, state.attempt);
  }

  #perform(effect: ClusterEffect, attempt: number): void {
    const { objection, clock } = this.#options;
    const answer: OnAnswer = (answered) => this.#dispatch({ ...answered, attempt });
    if (effect.do === 'leave') this.#leave(effect.closeClient, answer);
    else if (effect.do === 'validate') {
      const refusal = objection(effect.config);
      this.#refusedID = refusal === undefined ? undefined : effect.config?.id;
      answer({ type: 'validated', objection: refusal });
    } else
      this.#tasks
        .run(effect.do, (signal) => this.#runEffect(effect, answer, signal))
        .then(answer, (error: unknown) => answer({ type: 'failed', reason: failureOf(error, clock) }));
  }

  /** Performs an effect as a task. `leave` ends it; its answer is then ignored. */
  #runEffect(effect: TaskEffect, answer: OnAnswer, signal: AbortSignal): Promise<ClusterAnswer> {
    switch (effect.do) {
      case 'connect':
        return this.#createClient(signal);
      case 'read-config':
        return this.#readConfig(signal);
      case 'withdraw':
        return this.#withdraw(effect.scope, signal);
      case 'follow':
        return this.#follow(effect, answer, signal);
      case 'await-config':
        return this.#awaitConfig(signal);
      case 'wait':
        return this.#wait(effect.streak, signal);
    }
  }

  #leave(closeClient: boolean, answer: OnAnswer): void {
    const stopped = this.#tasks.stop();
    this.#leaving = Promise.all([this.#leaving, stopped]).then(async () => {
      this.#watchStates.clear();
      if (closeClient) await this.#closeClient();
      answer({ type: 'left' });
    });
  }

  /**
   * Closes the client, except that of the local cluster, which its caller closes. Never rejects, because a client that
   * cannot be closed must not prevent the removal of the cluster.
   */
  async #closeClient(): Promise<void> {
    const backend = this.#backend;
    this.#backend = undefined;
    if (backend === undefined || this.#state.local) return;
    await this.#runWithin(CLOSE_MS, 'its kvstore client was not closed', () => backend.close()).catch(
      (error: unknown) => this.#recordFailure(error),
    );
  }

  async #createClient(leaving: AbortSignal): Promise<ClusterAnswer> {
    const { gate, retries } = this.#options;
    await gate?.pass(CONNECT_WEIGHT, leaving);
    leaving.throwIfAborted();
    this.#backend = await this.#runWithin(
      CONNECT_MS,
      'its kvstore client was not created',
      (signal) => this.#connect?.(signal),
      { leaving, discard: (late) => late?.close() },
    );
    if (retries !== undefined) this.#backend?.retryInTurn(retries);
    return { type: 'connected' };
  }

  /**
   * Runs `work` with a time limit. Rejects with an error that contains `reason` if the limit is exceeded, or with the
   * reason of `leaving` if that fires. `discard` receives a result that arrives later.
   */
  async #runWithin<T>(
    ms: number,
    reason: string,
    work: Work<T>,
    { leaving, discard }: { readonly leaving?: AbortSignal; readonly discard?: (late: T) => unknown } = {},
  ): Promise<T> {
    const late = new AbortController();
    const error = new Error(`${reason} within ${ms / 1000} s`);
    const timer = this.#options.clock.after(ms, () => late.abort(error));
    using either = new EitherSignal(leaving, late.signal);
    try {
      return await interruptible(() => work(either.signal), either.signal, discard);
    } finally {
      timer.cancel();
    }
  }

  async #wait(streak: number, signal: AbortSignal): Promise<ClusterAnswer> {
    const { clock, random, retries } = this.#options;
    if (streak === 1) this.#failingSince = clock.now();
    const since = this.#failingSince;
    const backoff = isRecentOutage(since, clock) ? RECENT_BACKOFF : BACKOFF;
    await sleep(clock, backoffDelay(streak, backoff, random), signal);
    await retries?.turn(since, signal);
    return { type: 'retry' };
  }

  async #readConfig(signal: AbortSignal): Promise<ClusterAnswer> {
    const { read, config, others } = await readHandshake(this.#client, this.name, signal);
    signal.throwIfAborted();
    if (config?.ok === false) {
      this.#rejections.add(config.rejection);
      const { reason: code, message } = config.rejection;
      return { type: 'failed', reason: { code, message } };
    }
    for (const detail of config?.dropped ?? []) this.#rejections.add(detail);
    this.#options.retries?.succeeded();
    const replaced = isReplaced(this.#handshake, read);
    this.#handshake = read;
    this.#refusedID = undefined;
    return { type: 'config', config: config?.value, replaced, others };
  }

  /** Withdraws state. If an engine fails, the withdrawal is repeated, and finally abandoned. */
  async #withdraw(scope: Withdrawal, signal: AbortSignal): Promise<ClusterAnswer> {
    const { clock, random } = this.#options;
    for (let tries = 1; ; tries++) {
      try {
        if (scope === 'services') await this.#stores.withdrawServices(signal);
        else await this.#stores.withdraw(signal);
        break;
      } catch (error) {
        this.#recordFailure(error, 'an engine failed to delete the state of the cluster: ');
      }
      signal.throwIfAborted();
      if (tries === MAX_WITHDRAWALS) {
        this.#stores.endWithdrawal();
        break;
      }
      await sleep(clock, backoffDelay(tries, BACKOFF, random), signal);
    }
    signal.throwIfAborted();
    if (scope === 'everything') this.#status.recordWithdrawal();
    return { type: 'drained' };
  }

  async #follow(options: ClusterFollow, answer: OnAnswer, signal: AbortSignal): Promise<ClusterAnswer> {
    const { clock, random, refillMs = REFILL_MS } = this.#options;
    await this.#stores.configure(options.config, signal);
    const onComplete = (): void => {
      this.#isComplete = true;
      answer({ type: 'complete' });
    };
    const refill = async (leaving: AbortSignal): Promise<void> => {
      // An empty kvstore deletes nothing, however long it is empty.
      do {
        await sleep(clock, refillMs, leaving);
      } while (!leaving.aborted && this.#stores.watchedKeys === 0);
      answer({ type: 'refilled' });
    };
    // If the signal fired during `configure`, these tasks end immediately.
    if (options.isRefilling) void this.#tasks.runWithRestart('refill', refill, { signal });
    void this.#tasks.runWithRestart('heartbeat', (leaving) => this.#health.run(leaving), { signal });
    const cluster = { ...this.#readParams, stores: this.#stores, options, clock, random, onComplete };
    const end = await followCluster(cluster, signal);
    return { type: 'outdated', diverged: end === 'diverged' };
  }

  async #awaitConfig(signal: AbortSignal): Promise<ClusterAnswer> {
    const end = await watchConfig(this.#readParams, signal);
    return { type: 'outdated', diverged: end === 'diverged' };
  }

  // ── Status ─────────────────────────────────────────────────────────────────────────────────────────────

  readonly #onReaderState: OnReaderState = (reader, state, failure) => {
    this.#watchStates.observe(reader, state);
    if (failure !== undefined && (state === 'waiting' || state === 'forbidden'))
      this.#status.recordFailure(failure);
    this.#update();
  };

  #recordFailure(thrown: unknown, prefix: string = ''): void {
    const failure = failureOf(thrown, this.#options.clock);
    this.#status.recordFailure({ ...failure, message: `${prefix}${failure.message}` });
  }

  #recordProgress(): void {
    this.#status.recordArrived(this.#stores.progressCount);
    this.#update();
  }

  /** Updates the status and notifies if it changed. */
  #update(): void {
    if (this.#isStepping) return;
    const { areUp = this.#status.connected, size: readers } = this.#watchStates;
    // While the client is closed, its connection does not count.
    const isUp = readers > 0 ? areUp : this.#backend?.status().connected === true;
    const connected = this.#state.hasClient && isUp;
    const { isSynced, size: keys } = this.#stores;
    const facts = { connected, complete: this.#isComplete, isSynced, keys };
    const isChanged = this.#status.update(this.#state, facts);
    this.#watchExpiry();
    const { phase } = this.#state;
    if (phase === 'removed' || phase === 'stopped')
      for (const resolve of this.#endWaiters.splice(0)) resolve();
    if (isChanged) this.#options.onChange();
  }

  /** Runs the timer of the service TTL while the services are not followed and have not expired. */
  #watchExpiry(): void {
    const { clock, serviceTTLMs } = this.#options;
    if (serviceTTLMs === undefined) return;
    const { resources } = this.#stores;
    const services = EXPIRING_RESOURCES.find((resource) => resources.includes(resource));
    if (services === undefined) return;
    const { phase, expired, found } = this.#state;
    // Without the configuration, nothing proves that the services still exist.
    const isLive = phase === 'watching' && found !== 'gone' && this.#watchStates.isUp(services);
    if (isLive || phase === 'stopped' || phase === 'removed') {
      this.#expiry?.cancel();
      this.#expiry = undefined;
    } else if (!expired) {
      this.#expiry ??= clock.after(serviceTTLMs, () => {
        this.#expiry = undefined;
        this.#dispatch({ type: 'expired' });
      });
    }
  }

  get #client(): KvstoreBackend {
    const backend = this.#backend;
    assert(backend !== undefined, 'the cluster has a kvstore client');
    return backend;
  }

  /** Parameters to read the cluster with the current client. */
  get #readParams(): Pick<FollowParams, 'name' | 'backend' | 'read' | 'onReaderState'> {
    assert(this.#handshake !== undefined, 'the configuration of the cluster was read');
    return {
      name: this.name,
      backend: this.#client,
      read: this.#handshake,
      onReaderState: this.#onReaderState,
    };
  }
}
