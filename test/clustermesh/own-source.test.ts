import { EventEmitter, on } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { ClusterMesh } from '../../src/clustermesh/cluster-mesh.ts';
import { LocalCluster } from '../../src/clustermesh/local-cluster.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { encodeClusterConfig } from '../../src/kvstore/codec/cluster-config.ts';
import { encodeIPIdentityPair } from '../../src/kvstore/codec/ip-identity-pair.ts';
import { clusterConfigKey, ipKey } from '../../src/kvstore/codec/keys.ts';
import {
  ReadOnlyBackend,
  type SourceChange,
  type SourceEntry,
} from '../../src/kvstore/session/read-only-backend.ts';

/** A store of keys with many concurrent readers, like the own sources of programs. */
class Inventory extends ReadOnlyBackend {
  readonly #entries = new Map<string, SourceEntry>();
  readonly #changed = new EventEmitter();
  /** Number of lists of each prefix. */
  readonly lists = new Map<string, number>();

  constructor() {
    super({ kind: 'inventory' });
    this.#changed.setMaxListeners(0);
  }

  set(key: string, value: Uint8Array): void {
    this.#entries.set(key, { key, value });
    this.#changed.emit('change', { key, value });
  }

  remove(key: string): void {
    this.#entries.delete(key);
    this.#changed.emit('change', { key });
  }

  protected override async list(prefix: string): Promise<readonly SourceEntry[]> {
    this.lists.set(prefix, (this.lists.get(prefix) ?? 0) + 1);
    return [...this.#entries.values()].filter(({ key }) => key.startsWith(prefix));
  }

  protected override async *changes(prefix: string, signal: AbortSignal): AsyncGenerator<SourceChange[]> {
    for await (const [change] of on(this.#changed, 'change', { signal }))
      if (change.key.startsWith(prefix)) yield [change];
  }
}

const stops: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

function inventoryOf(cluster: string, id: number): Inventory {
  const inventory = new Inventory();
  const capabilities = { syncedCanaries: false, cached: false };
  inventory.set(clusterConfigKey(cluster), encodeClusterConfig({ id, capabilities }));
  for (const ip of [`10.${id}.0.1`, `10.${id}.0.2`]) {
    const pair = { key: ip, identity: (id << 16) + 300, hostIP: '192.168.0.1', encryptKey: 0 };
    inventory.set(ipKey(ip), encodeIPIdentityPair(pair));
  }
  stops.push(() => inventory.close());
  return inventory;
}

function keysOf(ipcache: IPCache): readonly string[] {
  return Array.from(ipcache.entries(), ({ key }) => key).sort();
}

describe('a cluster whose kvstore is an own source and has a configuration', () => {
  // Each read of the configuration had a new revision, so it counted as written again: the cluster was followed anew
  // forever, and its initial sync never ended.
  it('is complete after one list, and its deletes are applied (regression)', async () => {
    const gate = new TurnGate({ nextTurn: setImmediate });
    const ipcache = new IPCache();
    const west = inventoryOf('west', 1);
    const local = new LocalCluster({ clusterName: 'west', backend: west, gate, ipcache });
    stops.push(() => local.stop());
    local.start();

    const mesh = new ClusterMesh({ clusterName: 'west', clusterID: 1, gate, ipcache });
    stops.push(() => mesh.stop());
    const east = inventoryOf('east', 2);
    await mesh.add('east', async () => east);

    await Promise.all([local.synced(), mesh.clustersSynced({ deadlineMs: 10_000 })]);
    expect(keysOf(ipcache)).toEqual(['10.1.0.1', '10.1.0.2', '10.2.0.1', '10.2.0.2']);
    west.remove(ipKey('10.1.0.1'));
    east.remove(ipKey('10.2.0.2'));
    await expect.poll(() => keysOf(ipcache)).toEqual(['10.1.0.2', '10.2.0.1']);
    expect(west.lists.get('cilium/state/ip/v1/default/')).toBe(1);
  });
});
