import { join } from 'node:path';
import type { Bpf } from './bpf/bpf.ts';
import { ForeignMapError, unpinMap } from './bpf/bpf-map.ts';
import { movePin, STAGING_SUFFIX } from './bpf/pin.ts';
import { cleanTable } from './clean-tables.ts';
import { DeleteHold } from './delete-hold.ts';
import type { HostAccess } from './host-access.ts';
import type { HostDatapathOptions } from './host-options.ts';
import { DesiredIPCache, IPCacheTable, ipcacheShape, markPrefixes, rerankPrefixes } from './ipcache-map.ts';
import { keptItems } from './kept-items.ts';
import { KeptTable } from './kept-table.ts';
import { IPCACHE_LAYOUTS, IPCACHE_PINS } from './kernel-names.ts';
import type { LinuxPart } from './linux-datapath.ts';
import { NodePaths, type NodePathsOptions } from './paths/node-paths.ts';
import { PathTable } from './paths/path-table.ts';
import { guardPins, mapPins } from './pin-guard.ts';

/** Opens the part of nodes under its lock. */
export function openNodes(access: HostAccess, mode: NodePathsOptions['mode']): LinuxPart {
  return access.openLocked('routes', () => openPaths(access, mode));
}

function openPaths(access: HostAccess, mode: NodePathsOptions['mode']): LinuxPart {
  const { clusterName, nodeName } = access.context;
  const table = new PathTable(access.kernel);
  access.disableDryRunWrites(table);
  const hold = new DeleteHold(access.tableContext.clock, access.routeUsers);
  const { remoteCIDRs } = access.options;
  const paths = new NodePaths(
    table,
    { mode, localNode: `${clusterName}/${nodeName}`, remoteCIDRs },
    { ...access.tableContext, whenDeletesAllowed: () => hold.deletesAllowed() },
  );
  return {
    tables: [{ ...keptItems(table, paths.kept), adopt: () => paths.start() }],
    datapath: { nodes: paths },
    problems: () => [...table.problems(), ...paths.problems()],
    [Symbol.dispose]: () => {
      paths[Symbol.dispose]();
      hold[Symbol.dispose]();
      table[Symbol.dispose]();
    },
  };
}

export function openIPCache(access: HostAccess): LinuxPart {
  const { bpf, options, addresses } = access;
  const { layout, capacity, dryRun } = options;
  const { ipcache } = access.context.engines;
  const folder = access.folder();
  const path = join(folder, IPCACHE_PINS[layout]);
  const { table, mismatch } = openIPCacheTable(bpf, path, { layout, capacity, dryRun });
  access.disableDryRunWrites(table);
  let isReplaced = mismatch === undefined;
  const desired = new DesiredIPCache(ipcache, layout, (address) => addresses.has(address));
  const kept = new KeptTable(table, desired, access.tableContext);
  const repair = async (): Promise<void> => void (await kept.repair());
  // If addresses of this host change, some entries get another tunnel endpoint. A repair finds them like changes by
  // others. If it fails, the next repair finds them.
  const endAddresses = addresses.follow(() => void repair().catch(() => {}));
  // Without a replay, because adopting the map compares all entries, in steps.
  const endChanges = ipcache.subscribe(
    markPrefixes((prefix) => kept.mark(prefix)),
    { replay: false },
  );
  const endOwners = ipcache.subscribeOwners(rerankPrefixes((prefix) => kept.rerank(prefix)));
  const pinned = (): string => (isReplaced ? path : path + STAGING_SUFFIX);
  const guard = guardPins(access, 'ipcache-pins', () => mapPins(bpf, [[pinned(), table.map.fd]]));
  return {
    tables: [access.addRouteUser(keptItems(table, kept)), ...guard.tables],
    datapath: {},
    lookupPrefix: (prefix) => {
      const [kernel, cache] = [table.lookup(prefix), desired.get(prefix)];
      return {
        table: table.name,
        key: prefix,
        kernel: kernel && table.print(kernel),
        cache: cache && table.print(cache),
      };
    },
    problems: () => [
      ...(isReplaced ? [] : [`${mismatch}: a new map is being filled and will replace it`]),
      ...guard.problems(),
    ],
    retire: () => {
      if (dryRun) return;
      if (!isReplaced) movePin(path + STAGING_SUFFIX, path);
      isReplaced = true;
      for (const other of IPCACHE_LAYOUTS) {
        const [name, shape] = [IPCACHE_PINS[other], ipcacheShape(other)];
        if (other !== layout) unpinMap(bpf, join(folder, name), shape);
        // Delete the map of an agent that ended before it had filled it.
        unpinMap(bpf, join(folder, name + STAGING_SUFFIX), shape);
      }
    },
    [Symbol.dispose]: () => {
      endAddresses();
      endChanges();
      endOwners();
      guard[Symbol.dispose]();
      table[Symbol.dispose]();
    },
  };
}

/**
 * Returns the table of the pinned map. If that map has another capacity, returns the table of a new map beside it,
 * and the mismatch as text.
 */
function openIPCacheTable(
  bpf: Bpf,
  path: string,
  { layout, capacity, dryRun }: Pick<HostDatapathOptions, 'layout' | 'capacity' | 'dryRun'>,
): { readonly table: IPCacheTable; readonly mismatch?: string } {
  const options = { layout, maxEntries: capacity, isPinned: !dryRun };
  try {
    return { table: IPCacheTable.open(bpf, { path, ...options }) };
  } catch (error) {
    if (!(error instanceof ForeignMapError) || !error.isResized) throw error;
    const staging = path + STAGING_SUFFIX;
    // An agent that ended before it had filled the map may have left one of a third size.
    if (!dryRun) unpinMap(bpf, staging, ipcacheShape(layout));
    return { table: IPCacheTable.open(bpf, { path: staging, ...options }), mismatch: error.message };
  }
}

/** Removes the routes and the tunnel of an earlier process. */
export function retireNodes(access: HostAccess): void {
  access.unlessLocked(() => {
    using _lock = access.lock('routes');
    using table = new PathTable(access.kernel);
    for (const _ of cleanTable(table));
  });
}
