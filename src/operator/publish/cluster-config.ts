import { EitherSignal } from '../../base/follow-signal.ts';
import { deferred, sleep } from '../../base/sleep.ts';
import { interruptible, Supervisor } from '../../base/supervisor.ts';
import { equalBytes } from '../../kvstore/codec/bytes.ts';
import {
  decodeClusterConfig,
  type EndpointSlicesExportMode,
  encodeClusterConfig,
} from '../../kvstore/codec/cluster-config.ts';
import { CLUSTER_CONFIG_PREFIX, clusterConfigKey } from '../../kvstore/codec/keys.ts';
import type { KvstoreBackend, WatchEvent } from '../../kvstore/session/backend.ts';
import { ContestedKeys } from '../../kvstore/stores/contested-keys.ts';
import type { Duty, DutyState, DutyStatus } from '../duty.ts';
import type { DutyContext } from '../duty-report.ts';
import type { KeyOwner } from './mesh-keys.ts';

export interface ClusterConfigOptions extends KeyOwner, DutyContext {
  readonly backend: KvstoreBackend;
  /**
   * The resources whose canaries the configuration promises; `synced` resolves when everything published so far, and
   * the canary, is in the kvstore. The configuration is written only after all of them are synced, also when it is
   * written again after a loss. If omitted, the configuration promises no canaries, and does not replace a
   * configuration that does (OPERATOR 16).
   */
  readonly promised?: readonly { synced(): Promise<void> }[] | undefined;
  /** How services are published; undefined: only as `services/v1`. */
  readonly endpointSlicesExportMode?: EndpointSlicesExportMode | undefined;
  /** True if the cluster publishes service exports, even if it has none; undefined to omit the field. */
  readonly serviceExportsEnabled?: boolean | undefined;
}

/** Time between two checks of the configuration and of the ids of clusters (OPERATOR 35). */
const INTERVAL_MS = 5 * 60_000;

/**
 * Keeps the configuration of the local cluster, `cilium/cluster-config/<name>` (OPERATOR 16, 35). The configuration is
 * written last: a reader that finds it also finds the canaries, and all keys that the canaries promise. The
 * configuration has a separate lease, which expires first if its writer dies. While the configuration is absent,
 * readers ignore deletes (SEMANTICS 6), so no reader loses keys that expire afterwards. If another client deletes or
 * overwrites the configuration, it is put back like the keys of a `SyncStore`.
 */
export class ClusterConfigKeeper implements Duty {
  readonly name = 'cluster configuration';
  readonly #options: ClusterConfigOptions;
  readonly #tasks: Supervisor;
  readonly #key: string;
  readonly #value: Uint8Array;
  #state: DutyState = 'waiting';
  /** True if this run has written the configuration, or kept an existing one, and its loss was not reported since. */
  #isWritten = false;
  /** Number of reports of lost leases of the client, regardless of their keys. */
  #losses = 0;
  #writes = 0;
  #wake: () => void = () => {};
  readonly #contested: ContestedKeys<string>;
  readonly #written = deferred();

  constructor(options: ClusterConfigOptions) {
    this.#options = options;
    const { clusterName, clusterID: id, maxConnectedClusters = 255, promised, clock, random } = options;
    this.#tasks = new Supervisor({ clock, random, onFailure: options.onFailure });
    this.#contested = new ContestedKeys({ clock, random, putBack: () => this.#wake() });
    this.#key = clusterConfigKey(clusterName);
    const syncedCanaries = promised !== undefined;
    const { endpointSlicesExportMode: mode, serviceExportsEnabled } = options;
    this.#value = encodeClusterConfig({
      id,
      capabilities: {
        syncedCanaries,
        cached: false,
        maxConnectedClusters,
        ...(serviceExportsEnabled === undefined ? {} : { serviceExportsEnabled }),
        ...(mode === undefined ? {} : { endpointSlicesExportMode: mode }),
      },
    });
  }

  /** Resolves when the configuration has been written for the first time. */
  get written(): Promise<void> {
    return this.#written.promise;
  }

  status(): DutyStatus {
    const { failures, lastFailure } = this.#tasks.status();
    const isWaiting = this.#state === 'running' && !this.#isWritten;
    return {
      name: this.name,
      state: isWaiting ? 'waiting' : this.#state,
      failures,
      lastFailure,
      waitsFor: isWaiting && lastFailure === undefined ? 'it is written after all other keys' : undefined,
      published: {
        synced: this.#isWritten,
        keys: 1,
        pending: this.#isWritten ? 0 : 1,
        writes: this.#writes,
        rejected: 0,
      },
    };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { backend } = this.#options;
    this.#state = 'running';
    this.#isWritten = false; // losses between two runs are not reported
    const unsubscribe = backend.onLeaseLost({
      onLeaseLost: (keys) => {
        this.#losses++;
        if (!keys.includes(this.#key)) return;
        this.#isWritten = false;
        this.#wake();
      },
    });
    await Promise.all([
      this.#tasks.runWithRestart(this.name, (until) => this.#maintain(until), { signal }),
      this.#tasks.runWithRestart('watch', (until) => this.#watch(until), { signal }),
    ]);
    this.#contested.stop();
    unsubscribe();
    this.#state = 'ended';
  }

  async #watch(signal: AbortSignal): Promise<void> {
    for await (const events of this.#options.backend.watch(CLUSTER_CONFIG_PREFIX, { signal }))
      for (const event of events) if (event.key === this.#key) this.#receiveEvent(event);
  }

  #receiveEvent({ type, value }: WatchEvent): void {
    if (type === 'delete') {
      this.#isWritten = false;
      this.#contested.recordDelete(this.#key);
    } else if (!this.#mustKeep(value)) this.#contested.recordOverwrite(this.#key);
  }

  async #maintain(signal: AbortSignal): Promise<void> {
    const { promised, clock } = this.#options;
    while (!signal.aborted) {
      const woken = new AbortController();
      this.#wake = () => woken.abort();
      const losses = this.#losses;
      if (!this.#isWritten && promised !== undefined)
        await interruptible(() => Promise.all(promised.map((resource) => resource.synced())), signal);
      if (signal.aborted) return;
      // Keys of a synced resource may have been lost during the wait for the others.
      if (!this.#isWritten && losses !== this.#losses) continue;
      await this.#put(signal, woken.signal);
      using either = new EitherSignal(signal, woken.signal);
      await sleep(clock, INTERVAL_MS, either.signal);
    }
  }

  /** @param woken fires if the configuration must be put again */
  async #put(signal: AbortSignal, woken: AbortSignal): Promise<void> {
    const { backend, promised } = this.#options;
    const found = promised === undefined ? await backend.get(this.#key, { signal }) : undefined;
    if (found === undefined || !this.#mustKeep(found.value)) {
      const options = { leased: 'expires-first', fenced: true, signal } as const;
      if (await backend.updateIfDifferent(this.#key, this.#value, options)) this.#writes++;
    }
    if (woken.aborted) return;
    this.#isWritten = true;
    this.#written.resolve();
    // Failures are counted.
    await this.#tasks.run('ids of clusters', () => this.#checkIDs(signal), { signal }).catch(() => {});
  }

  /** Throws if another cluster has the same id, because readers reject one of the two. */
  async #checkIDs(signal: AbortSignal): Promise<void> {
    const { backend, clusterID } = this.#options;
    if (clusterID === 0) return;
    for (const { key, value } of await backend.listPrefix(CLUSTER_CONFIG_PREFIX, { signal })) {
      const config = decodeClusterConfig(value, key);
      if (key === this.#key || !config.ok || config.value.id !== clusterID) continue;
      const name = key.slice(CLUSTER_CONFIG_PREFIX.length);
      throw new Error(
        `cluster ${name} has id ${clusterID}, the same as this cluster: agents follow only one of them`,
      );
    }
  }

  /**
   * Returns true if the found configuration is kept: it equals the wanted one; or it promises canaries or is a copy,
   * and the wanted one does not, so it belongs to another writer (OPERATOR 16).
   */
  #mustKeep(found: Uint8Array): boolean {
    if (equalBytes(found, this.#value)) return true;
    if (this.#options.promised !== undefined) return false;
    const config = decodeClusterConfig(found, '');
    return config.ok && (config.value.capabilities.syncedCanaries || config.value.capabilities.cached);
  }
}
