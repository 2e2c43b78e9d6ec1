import type { Clock, Random } from '../base/clock.ts';
import type { KeyRead, KvstoreBackend, Watch } from '../kvstore/backend.ts';
import { equalBytes } from '../kvstore/bytes.ts';
import { type ClusterConfig, decodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import {
  CLUSTER_CONFIG_PREFIX,
  clusterConfigKey,
  type MeshResource,
  syncedKey,
  syncedPrefix,
} from '../kvstore/codec/keys.ts';
import type { Decoded } from '../net/fields.ts';
import type { ClusterFollow } from './cluster-state.ts';
import { DeleteGuard } from './delete-guard.ts';
import type { FollowEnd, FollowRequest, OnReading, ResourceStores } from './resource-stores.ts';

/** A cluster's configuration as it lies in its kvstore. */
export interface Handshake {
  readonly read: KeyRead;
  /** Undefined where there is none. */
  readonly config: Decoded<ClusterConfig> | undefined;
  /** Where there is none: the names of the clusters of which the kvstore has one. */
  readonly others: readonly string[];
}

/** Reads what the cluster `name` says of itself. Rejects as `KvstoreBackend.read` does. */
export async function readHandshake(
  backend: KvstoreBackend,
  name: string,
  signal: AbortSignal,
): Promise<Handshake> {
  const key = clusterConfigKey(name);
  const read = await backend.read(key, { signal });
  if (read.kv !== undefined) return { read, config: decodeClusterConfig(read.kv.value, key), others: [] };
  const all = await backend.listPrefix(CLUSTER_CONFIG_PREFIX, { signal });
  const others = all
    .map((kv) => kv.key.slice(CLUSTER_CONFIG_PREFIX.length))
    .filter((other) => other !== name);
  return { read, config: undefined, others };
}

/** Whether the kvstore of a handshake is known to be another one than that of `before`, or another past of it. */
export function isReplaced(before: KeyRead | undefined, now: KeyRead): boolean {
  if (before === undefined) return false;
  const { clusterID, revision } = before.header;
  if (now.header.clusterID !== clusterID || now.header.revision < revision) return true;
  return (
    before.kv !== undefined && now.kv !== undefined && before.kv.createRevision !== now.kv.createRevision
  );
}

/** A cluster, and what the handshake has found. */
export interface FollowedCluster {
  readonly name: string;
  readonly backend: KvstoreBackend;
  readonly stores: ResourceStores;
  /** As soon as the configuration is another one, following ends. */
  readonly read: KeyRead;
  readonly how: ClusterFollow;
  readonly clock: Clock;
  readonly random: Random;
  readonly onReading: OnReading;
  /** Called when every resource has been listed, and what the lists did not show has been taken away. */
  readonly onComplete: () => void;
}

/**
 * Follows every resource of a cluster. Resolves when the signal fires, when its configuration is not the one that was
 * read any more, or when the kvstore turns out to be another one: everything has stopped then, and nothing was taken
 * back.
 */
export async function followCluster(cluster: FollowedCluster, signal: AbortSignal): Promise<FollowEnd> {
  const { stores, how } = cluster;
  const left = new AbortController();
  const leave = (): void => left.abort();
  const request = requestOf(cluster, AbortSignal.any([signal, left.signal]), leave);
  // One that ends takes the others along: either all were asked to, or the kvstore is another one.
  const follow = (resource: MeshResource): Promise<FollowEnd> =>
    stores.follow(resource, request).finally(leave);
  const following = how.canaries
    ? [followCanaries(cluster, request, follow).finally(leave)]
    : stores.resources.map((resource) => follow(resource));
  const ends = await Promise.all([watchConfig(cluster, request).finally(leave), ...following]);
  return ends.includes('diverged') ? 'diverged' : 'ended';
}

function requestOf(cluster: FollowedCluster, signal: AbortSignal, leave: () => void): FollowRequest {
  const { backend, name, stores, read, how, clock, random, onReading, onComplete } = cluster;
  const missing = new Set(stores.resources);
  const guard = new DeleteGuard({
    ...{ backend, key: clusterConfigKey(name), seen: read, clock, random, signal, onGone: leave },
    onFailure: (error) => onReading('deletes', error === undefined ? 'ended' : 'waiting', error),
  });
  const mayDelete = {
    proven: (revision: number) => guard.allows(revision),
    none: () => Promise.resolve(false),
    all: undefined,
  };
  return {
    backend,
    signal,
    layout: how.config?.capabilities.cached === true ? 'cache' : 'state',
    mayDelete: mayDelete[how.deletes],
    keepUnlisted: how.refill,
    onReading,
    onListed: (resource) => {
      if (missing.delete(resource) && missing.size === 0) onComplete();
    },
  };
}

type ConfiguredCluster = Pick<FollowedCluster, 'backend' | 'name' | 'read'>;

/** Resolves once the configuration of the cluster is not the one of `read` any more. */
async function watchConfig(
  { backend, name, read }: ConfiguredCluster,
  { signal, onReading }: Pick<FollowRequest, 'signal' | 'onReading'>,
): Promise<FollowEnd> {
  const key = clusterConfigKey(name);
  const before = read.kv?.value;
  let now: Uint8Array | undefined;
  let listed = false;
  const watch = backend.watch(CLUSTER_CONFIG_PREFIX, {
    signal,
    endOnDivergence: true,
    onState: (state) => onReading('config', state, watch.status().lastFailure),
  });
  for await (const batch of watch) {
    for (const event of batch) {
      if (event.key === key) now = event.type === 'delete' ? undefined : event.value;
      listed ||= event.type === 'list-done';
    }
    const same = now === undefined || before === undefined ? now === before : equalBytes(now, before);
    if (listed && !same) return 'ended';
  }
  return endOf(watch);
}

function endOf(watch: Watch): FollowEnd {
  return watch.status().state === 'diverged' ? 'diverged' : 'ended';
}

/** Resolves once the kvstore has a configuration of the cluster, or is another one, or the signal fires. */
export function awaitConfig(
  cluster: ConfiguredCluster & Pick<FollowedCluster, 'onReading'>,
  signal: AbortSignal,
): Promise<FollowEnd> {
  return watchConfig(cluster, { signal, onReading: cluster.onReading });
}

/**
 * A cluster that writes canaries is believed complete only when it says so: its kvstore may be empty because
 * it was just restarted, and a sweep against that would remove what is valid (SEMANTICS 6).
 */
async function followCanaries(
  { backend, name, stores }: FollowedCluster,
  { layout, signal, onReading }: FollowRequest,
  follow: (resource: MeshResource) => Promise<FollowEnd>,
): Promise<FollowEnd> {
  const running: Promise<FollowEnd>[] = [];
  const failures: unknown[] = [];
  const waiting = new Map(
    stores.resources.map((resource) => [syncedKey(name, resource, layout), resource] as const),
  );
  const fail = (error: unknown): FollowEnd => {
    failures.push(error);
    return 'ended';
  };
  const watch = backend.watch(syncedPrefix(name), {
    signal,
    endOnDivergence: true,
    onState: (state) => onReading('canaries', state, watch.status().lastFailure),
  });
  for await (const batch of watch) {
    for (const { type, key } of batch) {
      const resource = type === 'delete' ? undefined : waiting.get(key);
      if (resource === undefined) continue;
      waiting.delete(key);
      running.push(follow(resource).catch(fail));
    }
  }
  const ends = await Promise.all(running);
  if (failures.length > 0) throw failures[0];
  return [endOf(watch), ...ends].includes('diverged') ? 'diverged' : 'ended';
}
