// Follows a store of addresses that is no etcd.
//
// `ReadOnlyBackend` needs two methods: `list` returns the current entries below a prefix, and `changes` yields the
// later changes. Keys and values have the formats of Cilium's kvstore.
import { once } from 'node:events';
import { ReadOnlyBackend, type SourceChange, type SourceEntry } from 'datapath-cache';
import { encodeIPIdentityPair, ipKey } from 'datapath-cache/formats';

class Inventory extends ReadOnlyBackend {
  readonly #identities = new Map([['10.3.0.1', 70_001]]);

  protected override async list(prefix: string): Promise<readonly SourceEntry[]> {
    const entries = Array.from(this.#identities, ([key, identity]) => ({
      key: ipKey(key),
      value: encodeIPIdentityPair({ key, identity, hostIP: '192.168.0.9', encryptKey: 0 }),
    }));
    return entries.filter(({ key }) => key.startsWith(prefix));
  }

  // This inventory never changes. If yours does, yield `{ key, value }` for each write and `{ key }` for each delete.
  // `list` is called after `changes` has started. Also yield changes that happen during `list`, so that none is missed.
  protected override async *changes(
    _prefix: string,
    signal: AbortSignal,
  ): AsyncGenerator<readonly SourceChange[]> {
    await once(signal, 'abort');
  }
}

// A program passes the backend to `LocalCluster`, or returns it to `ClusterMesh.add`. Here the watch is read directly.
const inventory = new Inventory({ kind: 'inventory' });
for await (const batch of inventory.watch('cilium/state/ip/v1/')) {
  for (const { type, key } of batch) if (type !== 'list-done') console.log(type, key);
  if (batch.some(({ type }) => type === 'list-done')) break;
}
await inventory.close();
