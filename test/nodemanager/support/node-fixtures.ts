import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import type { NodeManagerOptions } from '../../../src/nodemanager/node-manager-options.ts';
import type { NodeSpec } from '../../../src/nodemanager/node-spec.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

/** Returns node `east/<name>` announced by the kvstore, with these fields. */
export function node(name: string, fields: Partial<NodeSpec> = {}): NodeSpec {
  return { name, cluster: 'east', source: 'kvstore', ...fields };
}

/** Parses addresses written as `InternalIP:192.168.0.1`. */
export function addresses(...given: string[]): NonNullable<NodeSpec['addresses']> {
  return given.map((text) => {
    const colon = text.indexOf(':');
    return { type: text.slice(0, colon), ip: text.slice(colon + 1) };
  });
}

/** A manager of cluster `east` whose local node is `me`, with an IPCache in the same mode. */
export function fresh(
  options: Partial<NodeManagerOptions> = {},
  { maxEntries, maxWaiting }: { readonly maxEntries?: number; readonly maxWaiting?: number } = {},
): {
  readonly manager: NodeManager;
  readonly ipcache: IPCache;
  readonly clock: ManualClock;
} {
  const clock = new ManualClock();
  const ipcache = new IPCache({ retainOverruled: options.retainOverruled, maxEntries, maxWaiting });
  const manager = new NodeManager({
    ipcache,
    clock,
    random: () => 0.5,
    clusterName: 'east',
    nodeName: 'me',
    ...options,
  });
  return { manager, ipcache, clock };
}
