// Follows a store of addresses that is no etcd.
//
// `ReadOnlyBackend` needs two methods: `list` returns the current entries below a prefix, and `changes` yields the
// later changes. It lists again after a failure. Keys and values have the formats of Cilium's kvstore.
import { EventEmitter, on } from 'node:events';
import { ReadOnlyBackend, type SourceChange, type SourceEntry } from 'datapath-cache';
import { encodeIPIdentityPair, ipKey } from 'datapath-cache/formats';

class Inventory extends ReadOnlyBackend {
  readonly #identities = new Map([['10.3.0.1', 70_001]]);
  readonly #changed = new EventEmitter();

  /** Replace this with your store. */
  assign(ip: string, identity: number): void {
    this.#identities.set(ip, identity);
    this.#changed.emit('ip', ip, identity);
  }

  protected override async list(prefix: string): Promise<readonly SourceEntry[]> {
    const entries = Array.from(this.#identities, ([ip, identity]) => entryOf(ip, identity));
    return entries.filter(({ key }) => key.startsWith(prefix));
  }

  // `list` is called after `changes` has started. Also yield changes that happen during `list`, so that none is missed.
  protected override async *changes(
    prefix: string,
    signal: AbortSignal,
  ): AsyncGenerator<readonly SourceChange[]> {
    for await (const [ip, identity] of on(this.#changed, 'ip', { signal })) {
      const change = entryOf(ip, identity); // `{ key }` without a value is a delete
      if (change.key.startsWith(prefix)) yield [change];
    }
  }
}

function entryOf(key: string, identity: number): SourceEntry {
  return {
    key: ipKey(key),
    value: encodeIPIdentityPair({ key, identity, hostIP: '192.168.0.9', encryptKey: 0 }),
  };
}

// A program passes the backend to `LocalCluster`, or returns it to `ClusterMesh.add`. Here the watch is read directly.
const inventory = new Inventory({ kind: 'inventory' });
for await (const batch of inventory.watch('cilium/state/ip/v1/')) {
  for (const { type, key } of batch) if (type !== 'list-done') console.log(type, key);
  if (batch.some(({ type }) => type === 'list-done')) inventory.assign('10.3.0.2', 70_002);
  if (batch.some(({ key }) => key === ipKey('10.3.0.2'))) break;
}
await inventory.close();
