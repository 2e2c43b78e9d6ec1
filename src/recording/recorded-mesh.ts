import type { Clock, Random } from '../base/clock.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { counted } from '../base/show-value.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { bytesOfText } from '../kvstore/codec/bytes.ts';
import {
  type ClusterConfig,
  decodeClusterConfig,
  encodeClusterConfig,
  exportsResource,
} from '../kvstore/codec/cluster-config.ts';
import {
  clusterConfigKey,
  DEFAULT_ADDRESS_SPACE,
  HEARTBEAT_KEY,
  MESH_RESOURCES,
  parseKvstoreKey,
  syncedKey,
} from '../kvstore/codec/keys.ts';
import { MemoryBackend } from '../kvstore/memory/memory-backend.ts';
import { MAX_WRITES } from '../kvstore/session/backend.ts';
import { InputError } from '../process/input-error.ts';
import { type RecordedKey, readRecordedKeys } from './recorded-keys.ts';

/**
 * Returns a rejection if no reader would find the key. A mesh watches whole prefixes, so keys outside them would be
 * dropped silently.
 */
function strayKeyRejection({ store, key, at }: RecordedKey): Rejection | undefined {
  const parsed = parseKvstoreKey(key);
  if (parsed === undefined) return rejection('unknown-key', 'key', key, 'not a key of a mesh', at);
  const mustBeOfOwner = (parsed.kind === 'node' || parsed.kind === 'service') && parsed.layout === 'state';
  if (mustBeOfOwner && parsed.cluster !== store) {
    const reason = `the ${parsed.kind} belongs to another cluster than ${store}, the owner of the kvstore`;
    return rejection('wrong-cluster', 'key', key, reason, at);
  }
  if (parsed.kind !== 'ip' || parsed.layout !== 'state') return undefined;
  if (parsed.addressSpace === DEFAULT_ADDRESS_SPACE) return undefined;
  const reason = `the address space must be ${DEFAULT_ADDRESS_SPACE}`;
  return rejection('unknown-address-space', 'key', key, reason, at);
}

export interface LoadOptions {
  /** The cluster of keys without a store: those of a response of `etcdctl`. */
  readonly local: string;
  readonly onReject: (rejection: Rejection) => void;
  /** Called for each key. */
  readonly onProgress?: (() => void) | undefined;
  readonly signal: AbortSignal;
}

/** The kvstores of a recorded mesh, one in memory for each cluster. */
export class RecordedMesh {
  readonly #stores = new Map<string, MemoryBackend>();
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #gate: TurnGate | undefined;

  /** @param gate slices listings of the kvstores */
  constructor(clock: Clock, random: Random, gate?: TurnGate) {
    this.#clock = clock;
    this.#random = random;
    this.#gate = gate;
  }

  /** Names of the clusters with a kvstore, in order of their first key. */
  get clusters(): readonly string[] {
    return [...this.#stores.keys()];
  }

  /** Returns the kvstore of a cluster; undefined if it has no keys. */
  get(cluster: string): MemoryBackend | undefined {
    return this.#stores.get(cluster);
  }

  /**
   * Returns the local kvstore and its cluster id: `id`, or the recorded one, or 0. Adds a cluster configuration if none
   * was recorded, because a kvstore without one counts as incomplete, but a recording is complete.
   */
  async openLocal(
    cluster: string,
    id: number | undefined,
  ): Promise<{ readonly backend: MemoryBackend; readonly id: number }> {
    const backend = this.#open(cluster);
    const clusterID = id ?? (await this.#configOf(cluster))?.id ?? 0;
    const capabilities = { syncedCanaries: false, cached: false };
    await backend.createOnly(clusterConfigKey(cluster), encodeClusterConfig({ id: clusterID, capabilities }));
    return { backend, id: clusterID };
  }

  /** Returns the kvstore of a cluster. Creates an empty one if there is none. */
  #open(cluster: string): MemoryBackend {
    const known = this.#stores.get(cluster);
    if (known !== undefined) return known;
    const store = new MemoryBackend({ clock: this.#clock, random: this.#random, gate: this.#gate });
    this.#stores.set(cluster, store);
    return store;
  }

  /**
   * Stores the keys of a file; see `readRecordedKeys`. Invalid lines, and keys that no reader would find, are passed to
   * `onReject`. Returns early if the signal fires. Throws `InputError` if the file cannot be read, or if all of its
   * lines are invalid.
   */
  async load(path: string, options: LoadOptions): Promise<void> {
    const { local, onReject } = options;
    let invalidLines = 0;
    const rejectLine = (rejected: Rejection): void => {
      invalidLines++;
      onReject(rejected);
    };
    const keys = await this.store(readRecordedKeys(path, rejectLine, local), options);
    if (keys === 0 && invalidLines > 0)
      throw new InputError(
        `--load ${path}: none of its ${counted(invalidLines, 'line')} is valid; 'dpcache record' writes valid files`,
      );
  }

  /** Stores keys; see {@link RecordedMesh.load}. Returns the number of keys, rejected ones included. */
  async store(
    recordedKeys: AsyncIterable<RecordedKey>,
    { onReject, onProgress, signal }: Omit<LoadOptions, 'local'>,
  ): Promise<number> {
    let keys = 0;
    let batch: RecordedKey[] = [];
    const names = new Set<string>();
    const storeBatch = async (): Promise<void> => {
      const [first] = batch;
      if (first !== undefined) await this.#open(first.store).writeAll(batch);
      batch = [];
      names.clear();
    };
    for await (const recorded of recordedKeys) {
      if (signal.aborted) return keys;
      onProgress?.();
      keys++;
      if (recorded.key === HEARTBEAT_KEY) {
        this.#open(recorded.store); // The heartbeat is not stored, because nothing renews it.
        continue;
      }
      const stray = strayKeyRejection(recorded);
      if (stray !== undefined) {
        onReject(stray);
        continue;
      }
      // A batch has keys of one kvstore, and each key once.
      const isOfBatch = recorded.store === batch[0]?.store && !names.has(recorded.key);
      if (!isOfBatch || batch.length === MAX_WRITES) await storeBatch();
      batch.push(recorded);
      names.add(recorded.key);
    }
    await storeBatch();
    return keys;
  }

  /**
   * Adds the missing canaries of clusters that write them, and reports each. Such a cluster is complete only if its
   * canaries exist, but a recording is complete when it has been read, even if it was cut off.
   */
  async complete(onReject: (rejection: Rejection) => void): Promise<void> {
    for (const [cluster, store] of this.#stores) {
      const config = await this.#configOf(cluster);
      if (config?.capabilities.syncedCanaries !== true) continue;
      for (const resource of MESH_RESOURCES) {
        if (!exportsResource(resource, config.capabilities)) continue;
        const key = syncedKey(cluster, resource, config.capabilities.cached ? 'cache' : 'state');
        if (!(await store.createOnly(key, bytesOfText('')))) continue;
        const reason = 'is missing: the recording may be cut off; its keys are used as if they were complete';
        onReject(rejection('missing-canary', 'key', key, reason, `cluster ${cluster}`));
      }
    }
  }

  /** Closes all kvstores. */
  async close(): Promise<void> {
    await Promise.all([...this.#stores.values()].map((store) => store.close()));
  }

  async #configOf(cluster: string): Promise<ClusterConfig | undefined> {
    const key = clusterConfigKey(cluster);
    const found = await this.#stores.get(cluster)?.get(key);
    const decoded = found && decodeClusterConfig(found.value, key);
    return decoded?.ok === true ? decoded.value : undefined;
  }
}
