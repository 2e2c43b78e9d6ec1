import { EitherSignal } from '../base/follow-signal.ts';
import type { Runtime } from '../base/system-clock.ts';
import { equalBytes } from '../kvstore/codec/bytes.ts';
import { type ClusterConfig, decodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import {
  CLUSTER_CONFIG_PREFIX,
  type CopiedResource,
  clusterConfigKey,
  syncedKey,
  syncedPrefix,
} from '../kvstore/codec/keys.ts';
import type { KeyRead, KvstoreBackend, Watch } from '../kvstore/session/backend.ts';
import { KvstoreError } from '../kvstore/session/errors.ts';
import type { Decoded } from '../net/fields.ts';
import type { ClusterFollow } from './cluster-state.ts';
import { DeleteGuard } from './delete-guard.ts';
import {
  EXPIRING_RESOURCES,
  type FollowEnd,
  type FollowRequest,
  type OnReaderState,
  type ResourceStores,
} from './resource-stores.ts';

export interface Handshake {
  readonly read: KeyRead;
  /** The cluster's configuration; undefined if the kvstore has none. */
  readonly config: Decoded<ClusterConfig> | undefined;
  /**
   * If `config` is undefined: the names of the clusters whose configurations the kvstore has; undefined if the user may
   * read only the configuration of this cluster.
   */
  readonly others: readonly string[] | undefined;
}

/** Reads the configuration of the cluster `name`. Rejects like `KvstoreBackend.read`. */
export async function readHandshake(
  backend: KvstoreBackend,
  name: string,
  signal: AbortSignal,
): Promise<Handshake> {
  const key = clusterConfigKey(name);
  const read = await backend.read(key, { signal });
  if (read.kv !== undefined) return { read, config: decodeClusterConfig(read.kv.value, key), others: [] };
  const all = await backend.listPrefix(CLUSTER_CONFIG_PREFIX, { signal }).catch(noneIfForbidden);
  const others = all
    ?.map((kv) => kv.key.slice(CLUSTER_CONFIG_PREFIX.length))
    .filter((other) => other !== name);
  return { read, config: undefined, others };
}

function noneIfForbidden(error: unknown): undefined {
  if (!(error instanceof KvstoreError && error.code === 'forbidden')) throw error;
}

/** Returns true if the kvstore is known to be replaced or restored since the `previous` read. */
export function isReplaced(previous: KeyRead | undefined, current: KeyRead): boolean {
  if (previous === undefined) return false;
  const { clusterID, revision } = previous.header;
  if (current.header.clusterID !== clusterID || current.header.revision < revision) return true;
  return (
    previous.kv !== undefined &&
    current.kv !== undefined &&
    previous.kv.createRevision !== current.kv.createRevision
  );
}

/** A cluster to follow, and the result of its handshake. */
export interface FollowParams extends Runtime {
  readonly name: string;
  readonly backend: KvstoreBackend;
  readonly stores: ResourceStores;
  /** The configuration of the handshake. Following ends when it changes. */
  readonly read: KeyRead;
  readonly options: ClusterFollow;
  readonly onReaderState: OnReaderState;
  /** Called when every resource has been listed and keys that no longer exist have been deleted. */
  readonly onComplete: () => void;
}

/**
 * Follows every resource of a cluster. Resolves if the signal fires, the configuration differs from the handshake, or
 * the kvstore turns out to be replaced. Rejects with the first failure; a watch that ends without an error counts as
 * one. In all cases every reader has stopped and nothing is withdrawn.
 */
export async function followCluster(cluster: FollowParams, signal: AbortSignal): Promise<FollowEnd> {
  const { stores, options } = cluster;
  const stop = new AbortController();
  const leave = (): void => stop.abort();
  using either = new EitherSignal(signal, stop.signal);
  const request = requestOf(cluster, either.signal, leave);
  const failures: unknown[] = [];
  /** Runs a reader. When it ends for any reason, the other readers are stopped. Never rejects. */
  const run = async (reader: () => Promise<FollowEnd>): Promise<FollowEnd> => {
    try {
      return await reader();
    } catch (error) {
      failures.push(error);
      return 'ended';
    } finally {
      leave();
    }
  };
  if (stores.resources.length === 0) cluster.onComplete(); // the cluster exports nothing readable
  const readers = [run(() => watchConfig(cluster, either.signal, options.endsAtOthers))];
  const follow = (resource: CopiedResource): unknown =>
    readers.push(run(async () => checkEnd(await stores.follow(resource, request), resource, request.signal)));
  if (options.needsCanaries) readers.push(run(() => watchCanaries(cluster, request, follow)));
  else
    stores.resources
      .filter((resource) => options.followsServices || !EXPIRING_RESOURCES.includes(resource))
      .forEach(follow);
  let end: FollowEnd = 'ended';
  // `readers` may grow during the loop.
  for (const reader of readers) if ((await reader) === 'diverged') end = 'diverged';
  if (failures.length > 0) throw failures[0];
  return end;
}

function requestOf(cluster: FollowParams, signal: AbortSignal, leave: () => void): FollowRequest {
  const { backend, name, stores, read, options, clock, random, onReaderState, onComplete } = cluster;
  const missing = new Set(stores.resources);
  const guard = new DeleteGuard({
    backend,
    key: clusterConfigKey(name),
    initialRead: read,
    clock,
    random,
    signal,
    onKeyLost: leave,
    onFailure: (error) => onReaderState('deletes', error === undefined ? 'ended' : 'waiting', error),
  });
  const mayDelete = {
    proven: (revision: number) => guard.allows(revision),
    none: 'never',
    all: undefined,
  } as const;
  return {
    backend,
    signal,
    layout: options.config?.capabilities.cached === true ? 'cache' : 'state',
    mayDelete: mayDelete[options.deletes],
    keepUnlisted: options.isRefilling,
    onReaderState,
    onListed: (resource) => {
      if (missing.delete(resource) && missing.size === 0) onComplete();
    },
  };
}

/**
 * Resolves when the configuration differs from `read`, the kvstore turns out to be replaced, or the signal fires; with
 * `endsAtOthers`, also when the kvstore has the configuration of another cluster. Rejects if the watch fails or ends.
 */
export async function watchConfig(
  { backend, name, read, onReaderState }: Pick<FollowParams, 'backend' | 'name' | 'read' | 'onReaderState'>,
  signal: AbortSignal,
  endsAtOthers: boolean = false,
): Promise<FollowEnd> {
  const key = clusterConfigKey(name);
  const previous = read.kv?.value;
  let current: Uint8Array | undefined;
  let listed = false;
  // Cilium permits remote clusters to read this key, but not its prefix (pkg/kvstore/etcdinit, `rangesForRemoteRole`).
  // A cluster without a configuration is followed only if the handshake could list the prefix.
  const watch = backend.watch(endsAtOthers ? CLUSTER_CONFIG_PREFIX : key, {
    signal,
    exactKey: !endsAtOthers,
    endOnDivergence: true,
    onState: (state) => onReaderState('config', state, watch.status().lastFailure),
  });
  for await (const batch of watch) {
    for (const event of batch) {
      if (event.type === 'list-done') listed = true;
      else if (event.key === key) current = event.type === 'delete' ? undefined : event.value;
      else if (endsAtOthers && event.type !== 'delete') return 'ended';
    }
    const isSame =
      current === undefined || previous === undefined ? current === previous : equalBytes(current, previous);
    if (listed && !isSame) return 'ended';
  }
  return endOf(watch, 'the configuration', signal);
}

function endOf(watch: Watch, what: string, signal: AbortSignal): FollowEnd {
  return checkEnd(watch.status().state === 'diverged' ? 'diverged' : 'ended', what, signal);
}

/**
 * Returns the reason why a watch ended. Throws if it ended without an error before the signal fired: the next handshake
 * follows after a delay only if the watch failed.
 */
function checkEnd(end: FollowEnd, what: string, signal: AbortSignal): FollowEnd {
  if (end === 'ended' && !signal.aborted)
    throw new KvstoreError('unavailable', `the watch of ${what} ended without an error`);
  return end;
}

/**
 * Calls `follow` for each resource when its canary appears. The kvstore of a cluster with canaries may be empty because
 * it has just restarted. A list completed before the canary would then delete valid keys (SEMANTICS 6).
 */
async function watchCanaries(
  { backend, name, stores }: FollowParams,
  { layout, signal, onReaderState }: FollowRequest,
  follow: (resource: CopiedResource) => void,
): Promise<FollowEnd> {
  const waiting = new Map(
    stores.resources.map((resource) => [syncedKey(name, resource, layout), resource] as const),
  );
  const watch = backend.watch(syncedPrefix(name), {
    signal,
    endOnDivergence: true,
    onState: (state) => onReaderState('canaries', state, watch.status().lastFailure),
  });
  for await (const batch of watch) {
    for (const { type, key } of batch) {
      const resource = type === 'delete' ? undefined : waiting.get(key);
      if (resource === undefined) continue;
      waiting.delete(key);
      follow(resource);
    }
  }
  return endOf(watch, 'the canaries', signal);
}
