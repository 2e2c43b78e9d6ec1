import type { Clock, Random } from '../base/clock.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { bytesOfText } from '../kvstore/bytes.ts';
import {
  type ClusterConfig,
  decodeClusterConfig,
  encodeClusterConfig,
} from '../kvstore/codec/cluster-config.ts';
import {
  clusterConfigKey,
  DEFAULT_ADDRESS_SPACE,
  MESH_RESOURCES,
  parseKey,
  syncedKey,
} from '../kvstore/codec/keys.ts';
import { MemoryBackend } from '../kvstore/memory/memory-backend.ts';
import { InputError } from './input-error.ts';
import { type RecordedKey, readRecordedKeys } from './recorded-keys.ts';

/**
 * Why a key would never be read, if so. A mesh watches whole prefixes, so what lies beside them would be dropped
 * silently.
 */
function strayKey({ store, key, at }: RecordedKey): Rejection | undefined {
  const parsed = parseKey(key);
  if (parsed === undefined) return rejection('unknown-key', 'key', key, 'no key of a mesh', at);
  const isOwn = (parsed.kind === 'node' || parsed.kind === 'service') && parsed.layout === 'state';
  if (isOwn && parsed.cluster !== store) {
    const why = `the ${parsed.kind} is not of cluster ${store}, whose kvstore this is`;
    return rejection('wrong-cluster', 'key', key, why, at);
  }
  if (parsed.kind !== 'ip' || parsed.layout !== 'state') return undefined;
  if (parsed.addressSpace === DEFAULT_ADDRESS_SPACE) return undefined;
  const why = `the only address space is ${DEFAULT_ADDRESS_SPACE}`;
  return rejection('unknown-address-space', 'key', key, why, at);
}

/** How a recording is read. */
export interface LoadOptions {
  /** The cluster of keys that name no store. */
  readonly own: string;
  readonly onReject: (rejection: Rejection) => void;
  /** Called for each key. */
  readonly onProgress?: (() => void) | undefined;
  readonly signal: AbortSignal;
}

/** Kvstores of a mesh in memory, one for each cluster, as recorded. */
export class RecordedMesh {
  readonly #stores = new Map<string, MemoryBackend>();
  readonly #clock: Clock;
  readonly #random: Random;

  constructor(clock: Clock, random: Random) {
    this.#clock = clock;
    this.#random = random;
  }

  /** Names of the clusters that have a kvstore, in order of first mention. */
  get clusters(): readonly string[] {
    return [...this.#stores.keys()];
  }

  /** The kvstore of a cluster, if it has been mentioned. */
  get(cluster: string): MemoryBackend | undefined {
    return this.#stores.get(cluster);
  }

  /**
   * The own cluster's kvstore, and its id: `id`, else the recorded one, else 0. It gets a configuration where none was
   * recorded: what it holds is all there is, and not what is left after a loss.
   */
  async openOwn(
    cluster: string,
    id: number | undefined,
  ): Promise<{ readonly backend: MemoryBackend; readonly id: number }> {
    const backend = this.#open(cluster);
    const known = id ?? (await this.#configOf(cluster))?.id ?? 0;
    const capabilities = { syncedCanaries: false, cached: false };
    await backend.createOnly(clusterConfigKey(cluster), encodeClusterConfig({ id: known, capabilities }));
    return { backend, id: known };
  }

  /** The kvstore of a cluster, empty if it has not been mentioned. */
  #open(cluster: string): MemoryBackend {
    const known = this.#stores.get(cluster);
    if (known !== undefined) return known;
    const store = new MemoryBackend({ clock: this.#clock, random: this.#random });
    this.#stores.set(cluster, store);
    return store;
  }

  /**
   * Writes the keys of a file into the stores; see `readRecordedKeys`. Lines that are not right, and keys that
   * no reader would find, go to `onReject`. Ends early when the signal fires. `own`: see there. Throws `InputError` when
   * not one line can be read.
   */
  async load(path: string, { own, onReject, onProgress, signal }: LoadOptions): Promise<void> {
    let keys = 0;
    let lines = 0;
    const rejectLine = (rejected: Rejection): void => {
      lines++;
      onReject(rejected);
    };
    for await (const recorded of readRecordedKeys(path, rejectLine, own)) {
      if (signal.aborted) return;
      onProgress?.();
      keys++;
      const stray = strayKey(recorded);
      if (stray === undefined)
        await this.#open(recorded.store).update(recorded.key, bytesOfText(recorded.value));
      else onReject(stray);
    }
    if (keys === 0 && lines > 0)
      throw new InputError(
        `--load ${path}: none of its ${lines} lines can be read; 'dpcache record' writes such files`,
      );
  }

  /**
   * Adds the canaries that are missing of clusters that write them, and reports each: such a cluster is believed
   * complete only when it says so, but a recording is complete when it has been read, even one that is cut off.
   */
  async complete(onReject: (rejection: Rejection) => void): Promise<void> {
    for (const [cluster, store] of this.#stores) {
      const config = await this.#configOf(cluster);
      if (config?.capabilities.syncedCanaries !== true) continue;
      for (const resource of MESH_RESOURCES) {
        const key = syncedKey(cluster, resource, config.capabilities.cached ? 'cache' : 'state');
        if (!(await store.createOnly(key, bytesOfText('')))) continue;
        const why = 'is missing: is the recording cut off? What it holds is taken for complete';
        onReject(rejection('missing-canary', 'key', key, why, `cluster ${cluster}`));
      }
    }
  }

  /** Closes every kvstore. */
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
