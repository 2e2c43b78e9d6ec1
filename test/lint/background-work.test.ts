import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const SRC = fileURLToPath(new URL('../../src/', import.meta.url));

/** A discarded value, such as `void this.#repair().then(done)`. A type is followed by no name. */
const DISCARDED = /\bvoid (\(async|[\w.#?]+)/g;

/** Returns the names of functions and properties whose values a file discards. */
function discarded(path: string): readonly string[] {
  const code = readFileSync(SRC + path, 'utf8').replaceAll(/^ *(\/\/|\/?\*).*$/gm, '');
  return Array.from(code.matchAll(DISCARDED), ([, chain = '']) => {
    const parts = chain.split(/\??\./).filter((part) => part !== 'then' && part !== 'finally');
    return parts.at(-1) ?? '';
  });
}

/** Places that may discard a value, by the reason why no rejection is lost. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  'returns no promise': [
    'datapath/linux/part-locks.ts call',
    'datapath/linux/paths/node-paths.ts nextTurn',
    'kvstore/etcd/etcd-connection.ts setImmediate',
    'kvstore/stores/watch-store.ts call',
    'agent/operator/run-operator.ts write',
    'operator/mcs/mcs-objects.ts delete',
    'operator/publish/global-namespaces.ts delete',
    'servicecache/service-cache.ts delete',
  ],
  'handles its errors: they are in a status, logged or counted': [
    'agent/agent.ts #releaseRestored',
    'agent/datapath-keeper.ts #repairNow',
    'agent/history-keeper.ts flush',
    'client/list.ts (async',
    'clustermesh/config-follower.ts #scan',
    'clustermesh/local-cluster.ts connect',
    'datapath/linux/host-parts.ts repair',
    'datapath/linux/linux-datapath.ts #retire',
    'datapath/linux/paths/node-paths.ts request',
    'datapath/linux/paths/paced-task.ts #run',
    'datapath/linux/pin-watch.ts request',
    'datapath/linux/services/host-addresses.ts request',
    'datapath/linux/services/service-parts.ts request',
    'history/history.ts flush',
    'k8s/feed/kind-choice.ts #choose',
    'kvstore/etcd/etcd-backend.ts #followFile',
    'kvstore/etcd/etcd-watch-stream.ts run',
    'kvstore/kvstore-client.ts #compareClientWrites',
    'kvstore/session/lease-keepalives.ts #renew',
    'kvstore/session/lock-keeper.ts #deleteEntry',
    'kvstore/watch/list-and-watch.ts checkHistory',
    'kvstore/watch/list-and-watch.ts checkRights',
    'process/reload.ts #run',
    'process/served-api.ts followCredentials',
    'restore/checkpointer.ts write',
    'tape/tape.ts #run',
    'tape/tape.ts flush',
  ],
  'only waits, and then changes variables': [
    'agent/mesh-feed.ts listed',
    'agent/run-kvstoremesh.ts listed',
    'clustermesh/cluster-set.ts settled',
    'datapath/linux/kept-table.ts inTurns',
    'k8s/kubernetes-client.ts stopped',
    'kvstore/session/lock-keeper.ts ended',
    'kvstore/stores/shared-store.ts receiveWatchState',
    'kvstore/stores/sync-store.ts #awaitLostKeys',
    'kvstore/stores/sync-store.ts markSynced',
    'kvstore/stores/sync-store.ts receiveWatchState',
    'kvstore/stores/watch-store.ts #advanceIfIdle',
    'operator/kvstoremesh/mirror-stores.ts receiveWatchState',
    'operator/kvstoremesh/mirror.ts markSynced',
    'operator/mirrored-slices/followed-list.ts stop',
    'operator/publish/producer.ts stop',
  ],
  'is a server for tests': ['kvstore/memory/memory-server.ts #start'],
};

it('no promise is discarded that may reject, because an unhandled rejection ends the process', () => {
  const found = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .flatMap((path) => discarded(path).map((name) => `${path} ${name}`))
    .filter((place) => !place.endsWith(' runWithRestart')); // never rejects
  const places = [...new Set(found)].sort();
  const remedy =
    'use Supervisor.runWithRestart, TurnGate.runInBackground or CallbackGuard.call, or add the reason here';
  expect(places, remedy).toEqual(Object.values(ALLOWED).flat().sort());
});
