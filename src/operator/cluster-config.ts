import type { Clock, Random } from '../base/clock.ts';
import { sleep } from '../base/sleep.ts';
import { interruptible, Supervisor } from '../base/supervisor.ts';
import type { MaxConnectedClusters } from '../identity/numeric-identity.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { equalBytes } from '../kvstore/bytes.ts';
import { decodeClusterConfig, encodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { CLUSTER_CONFIG_PREFIX, clusterConfigKey } from '../kvstore/codec/keys.ts';
import type { Duty, DutyState, DutyStatus } from './duty.ts';
import { openable } from './openable.ts';

/** What must be complete before readers are shown it. */
export interface Completable {
  /** Resolves when all that was said so far is there, and its canary. */
  synced(): Promise<void>;
}

/** Options of {@link ClusterConfigKeeper}. */
export interface ClusterConfigOptions {
  readonly backend: KvstoreBackend;
  readonly clusterName: string;
  /** 0 in no mesh. */
  readonly clusterID: number;
  /** Default 255. */
  readonly maxConnectedClusters?: MaxConnectedClusters | undefined;
  /**
   * What the configuration promises canaries of; it is written after them, and again after them when it was lost. Left out: it
   * promises none, and yields to that of another writer who does (OPERATOR 16).
   */
  readonly after?: readonly Completable[] | undefined;
  readonly clock: Clock;
  readonly random: Random;
  /** Receives what fails, with the name of the task. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

const INTERVAL_MS = 5 * 60_000;
const YIELDING_INTERVAL_MS = 60_000;

/**
 * The configuration of the own cluster, `cilium/cluster-config/<name>` (OPERATOR 16, 35).
 *
 * It is written last: a reader that sees it finds canaries, and behind each of them everything. It goes first when its writer
 * dies, under a lease of its own: a reader that does not see it any more believes no delete (SEMANTICS 6), so that what
 * leases take away afterwards costs no reader anything.
 */
export class ClusterConfigKeeper implements Duty {
  readonly name = 'cluster configuration';
  readonly #options: ClusterConfigOptions;
  readonly #tasks: Supervisor;
  readonly #key: string;
  readonly #value: Uint8Array;
  #state: DutyState = 'waiting';
  #isThere = false;
  /** How often leases of the client were lost, of whatever keys. */
  #losses = 0;
  #writes = 0;
  #wake: () => void = () => {};
  readonly #written = openable();

  constructor(options: ClusterConfigOptions) {
    this.#options = options;
    const { clusterName, clusterID: id, maxConnectedClusters = 255, after, clock, random } = options;
    this.#tasks = new Supervisor({ clock, random, onFailure: options.onFailure });
    this.#key = clusterConfigKey(clusterName);
    const syncedCanaries = after !== undefined;
    this.#value = encodeClusterConfig({
      id,
      capabilities: { syncedCanaries, cached: false, maxConnectedClusters },
    });
  }

  /** Resolves when it has been written for the first time. */
  get written(): Promise<void> {
    return this.#written.opened;
  }

  status(): DutyStatus {
    const { failures, lastFailure } = this.#tasks.status();
    const isWaiting = this.#state === 'running' && !this.#isThere;
    return {
      name: this.name,
      state: isWaiting ? 'waiting' : this.#state,
      ...{ failures, lastFailure },
      published: {
        synced: this.#isThere,
        keys: 1,
        pending: this.#isThere ? 0 : 1,
        writes: this.#writes,
        refused: 0,
      },
    };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { backend } = this.#options;
    this.#state = 'running';
    this.#isThere = false; // what was lost since the last run is not known
    const unsubscribe = backend.onLeaseLost({
      onLeaseLost: (keys) => {
        this.#losses++;
        if (!keys.includes(this.#key)) return;
        this.#isThere = false;
        this.#wake();
      },
    });
    await this.#tasks.keep(this.name, (until) => this.#keep(until), { signal });
    unsubscribe();
    this.#state = 'ended';
  }

  async #keep(signal: AbortSignal): Promise<void> {
    const { after, clock } = this.#options;
    while (!signal.aborted) {
      const woken = new AbortController();
      this.#wake = () => woken.abort();
      const losses = this.#losses;
      if (!this.#isThere && after !== undefined)
        await interruptible(() => Promise.all(after.map((one) => one.synced())), signal);
      if (signal.aborted) return;
      // What was complete first may be gone again while the last is awaited.
      if (!this.#isThere && losses !== this.#losses) continue;
      await this.#put(signal, woken.signal);
      const interval = after === undefined ? YIELDING_INTERVAL_MS : INTERVAL_MS;
      await sleep(clock, interval, AbortSignal.any([signal, woken.signal]));
    }
  }

  async #put(signal: AbortSignal, lost: AbortSignal): Promise<void> {
    const { backend, after } = this.#options;
    const found = after === undefined ? await backend.get(this.#key, { signal }) : undefined;
    if (found === undefined || !isToStay(found.value, this.#value)) {
      const options = { leased: 'first', fenced: true, signal } as const;
      if (await backend.updateIfDifferent(this.#key, this.#value, options)) this.#writes++;
    }
    if (lost.aborted) return;
    this.#isThere = true;
    this.#written.open();
    await this.#tasks.run('ids of clusters', () => this.#checkIDs(signal), { signal }).catch(() => {}); // it is counted
  }

  /** Says so where another cluster has the same id: readers will refuse one of the two. */
  async #checkIDs(signal: AbortSignal): Promise<void> {
    const { backend, clusterID } = this.#options;
    if (clusterID === 0) return;
    for (const { key, value } of await backend.listPrefix(CLUSTER_CONFIG_PREFIX, { signal })) {
      const config = decodeClusterConfig(value, key);
      if (key === this.#key || !config.ok || config.value.id !== clusterID) continue;
      const name = key.slice(CLUSTER_CONFIG_PREFIX.length);
      throw new Error(`cluster ${name} has the id ${clusterID} as well: readers refuse one of the two`);
    }
  }
}

/** A configuration that says the same, or that promises more and so is another writer's (OPERATOR 16). */
function isToStay(found: Uint8Array, own: Uint8Array): boolean {
  if (equalBytes(found, own)) return true;
  const config = decodeClusterConfig(found, '');
  return config.ok && (config.value.capabilities.syncedCanaries || config.value.capabilities.cached);
}
