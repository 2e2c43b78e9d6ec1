import type { KvstoreBackend } from '../kvstore/backend.ts';
import { equalBytes } from '../kvstore/bytes.ts';
import { type ClusterConfig, decodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import type { Decoded } from '../kvstore/codec/fields.ts';
import {
  CLUSTER_CONFIG_PREFIX,
  clusterConfigKey,
  type MeshResource,
  syncedKey,
  syncedPrefix,
} from '../kvstore/codec/keys.ts';
import type { ClusterStores, FollowRequest } from './cluster-stores.ts';

/** A cluster's configuration as it lies in its kvstore. */
export interface Handshake {
  /** Undefined where there is none: the cluster is older than 1.13. */
  readonly bytes: Uint8Array | undefined;
  readonly config: Decoded<ClusterConfig> | undefined;
}

/** Reads what the cluster `name` says of itself. Rejects as `KvstoreBackend.get` does. */
export async function readHandshake(
  backend: KvstoreBackend,
  name: string,
  signal: AbortSignal,
): Promise<Handshake> {
  const key = clusterConfigKey(name);
  const bytes = (await backend.get(key, { signal }))?.value;
  return { bytes, config: bytes && decodeClusterConfig(bytes, key) };
}

/** A cluster, and what the handshake has said of it. */
export interface FollowedCluster {
  readonly name: string;
  readonly backend: KvstoreBackend;
  readonly stores: ClusterStores;
  /** As read by the handshake: as soon as they are others, following ends. */
  readonly configBytes: Uint8Array | undefined;
  readonly config: ClusterConfig | undefined;
}

/**
 * Follows every resource of a cluster. Resolves when the signal fires, when its configuration is not the one
 * that was read any more, or when the kvstore turns out to be another one: everything has stopped then, and
 * nothing was taken back.
 */
export async function followCluster(cluster: FollowedCluster, signal: AbortSignal): Promise<void> {
  const { backend, config, stores } = cluster;
  const left = new AbortController();
  const request: FollowRequest = {
    backend,
    layout: config?.capabilities.cached === true ? 'cache' : 'state',
    signal: AbortSignal.any([signal, left.signal]),
    endOnDivergence: true,
  };
  const leave = (): void => left.abort();
  // One that ends takes the others along: either all were told to, or the kvstore is another one.
  const follow = async (resource: MeshResource): Promise<void> => {
    await stores.follow(resource, request).finally(leave);
  };
  const canaries = config?.capabilities.syncedCanaries === true;
  const following = canaries
    ? [followCanaries(cluster, request, { follow, leave })]
    : stores.resources.map((resource) => follow(resource));
  await Promise.all([watchConfig(cluster, request).finally(leave), ...following]);
}

/** Resolves when the configuration is not what the handshake has read any more. */
async function watchConfig(
  { backend, name, configBytes: read }: FollowedCluster,
  { signal }: FollowRequest,
): Promise<void> {
  const key = clusterConfigKey(name);
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
 * it was just restarted, and a sweep against that would remove what is valid (SEMANTICS 6).
 */
async function followCanaries(
  { backend, name, stores }: FollowedCluster,
  { layout, signal }: FollowRequest,
  { follow, leave }: { follow: (resource: MeshResource) => Promise<void>; leave: () => void },
): Promise<void> {
  const running: Promise<void>[] = [];
  const failures: unknown[] = [];
  const waiting = new Map(
    stores.resources.map((resource) => [syncedKey(name, resource, layout), resource] as const),
  );
  for await (const batch of backend.watch(syncedPrefix(name), { signal, endOnDivergence: true })) {
    for (const { type, key } of batch) {
      const resource = type === 'delete' ? undefined : waiting.get(key);
      if (resource === undefined) continue;
      waiting.delete(key);
      running.push(follow(resource).catch((error: unknown) => void failures.push(error)));
    }
  }
  leave();
  await Promise.all(running);
  if (failures.length > 0) throw failures[0];
}
