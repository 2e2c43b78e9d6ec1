import { join } from 'node:path';
import type { Bpf } from './bpf/bpf.ts';
import { ForeignMapError, unpinMap } from './bpf/bpf-map.ts';
import { movePin, STAGING_SUFFIX } from './bpf/pin.ts';
import { cleanTable } from './clean-tables.ts';
import { DeleteHold } from './delete-hold.ts';
import type { HostAccess } from './host-access.ts';
import type { HostDatapathOptions } from './host-options.ts';
import {
  DesiredIPCache,
  type IPCacheLayout,
  IPCacheTable,
  ipcacheShape,
  markPrefixes,
  rerankPrefixes,
} from './ipcache-map.ts';
import { keptItems, type PrintedStep } from './kept-items.ts';
import { KeptTable } from './kept-table.ts';
import { IPCACHE_LAYOUTS, IPCACHE_PINS } from './kernel-names.ts';
import { KnownEntries } from './known-inputs.ts';
import type { LinuxPart } from './linux-datapath.ts';
import { NodePaths, type NodePathsOptions } from './paths/node-paths.ts';
import { PathTable } from './paths/path-table.ts';
import { guardPins, mapPins } from './pin-guard.ts';

export function openNodes(access: HostAccess, mode: NodePathsOptions['mode']): LinuxPart {
  return access.openLocked('routes', () => {
    const { clusterName, nodeName } = access.context;
    const table = new PathTable(access.kernel);
    access.disableDryRunWrites(table);
    const hold = new DeleteHold(access.tableContext.clock, access.routeUsers);
    const { remoteCIDRs } = access.options;
    const known = new KnownEntries();
    const paths = new NodePaths(
      table,
      { mode, localNode: `${clusterName}/${nodeName}`, remoteCIDRs },
      {
        ...access.tableContext,
        whenDeletesAllowed: () => hold.deletesAllowed(),
        isComplete: known.mayBeWritten,
      },
    );
    return {
      setInputs: known.set,
      tables: [{ ...keptItems(table, paths.kept), adopt: () => paths.start() }],
      datapath: { nodes: paths },
      problems: () => [...table.problems(), ...paths.problems()],
      [Symbol.dispose]: () => {
        paths[Symbol.dispose]();
        hold[Symbol.dispose]();
        table[Symbol.dispose]();
      },
    };
  });
}

export function openIPCache(access: HostAccess): LinuxPart {
  const { bpf, options, addresses } = access;
  const { layout, dryRun } = options;
  const { clusterName, engines } = access.context;
  const { ipcache } = engines;
  const folder = access.folder();
  const map = new PinnedIPCache(bpf, join(folder, IPCACHE_PINS[layout]), options);
  const { table } = map;
  access.disableDryRunWrites(table);
  const desired = new DesiredIPCache(ipcache, layout, (address) => addresses.has(address), clusterName);
  const known = new KnownEntries();
  const kept = new KeptTable(table, desired, { ...access.tableContext, isComplete: known.mayBeWritten });
  const repair = async (): Promise<void> => void (await kept.repair());
  const subscriptions = [
    // If addresses of this host change, some entries get another tunnel endpoint. A repair finds them like changes by
    // others. If it fails, the next repair finds them.
    addresses.follow(() => void repair().catch(() => {})),
    // Without a replay, because adopting the map compares all entries, in steps.
    ipcache.subscribe(
      markPrefixes((prefix) => kept.mark(prefix)),
      { replay: false },
    ),
    ipcache.subscribeOwners(rerankPrefixes(kept, clusterName)),
  ];
  const guard = guardPins(access, 'ipcache-pins', () => mapPins(bpf, [[map.pinPath, table.map.fd]]));
  return {
    tables: [access.addRouteUser(keptItems(table, kept)), ...guard.tables],
    datapath: {},
    setInputs: known.set,
    lookupPrefix: (prefix) => lookupPrefix(table, desired, prefix),
    problems: () => [...map.problems(), ...guard.problems()],
    retire: () => {
      if (dryRun) return;
      map.replacePinned();
      unpinFormerMaps(bpf, folder, layout);
    },
    [Symbol.dispose]: () => {
      for (const unsubscribe of subscriptions) unsubscribe();
      guard[Symbol.dispose]();
      table[Symbol.dispose]();
    },
  };
}

/**
 * The ipcache map and its pin. If the pinned map has another capacity, a new map is filled and pinned beside it, until
 * `replacePinned` replaces the old one.
 */
class PinnedIPCache {
  readonly table: IPCacheTable;
  readonly #path: string;
  /** How the pinned map differs; undefined if the table uses it, or has replaced it. */
  #mismatch: string | undefined;

  constructor(
    bpf: Bpf,
    path: string,
    { layout, capacity, dryRun }: Pick<HostDatapathOptions, 'layout' | 'capacity' | 'dryRun'>,
  ) {
    this.#path = path;
    const options = { layout, maxEntries: capacity, isPinned: !dryRun };
    try {
      this.table = IPCacheTable.open(bpf, { path, ...options });
    } catch (error) {
      if (!(error instanceof ForeignMapError) || !error.isResized) throw error;
      this.#mismatch = error.message;
      // An earlier agent may have left a new map that it had not filled, with yet another capacity.
      if (!dryRun) unpinMap(bpf, this.pinPath, ipcacheShape(layout));
      this.table = IPCacheTable.open(bpf, { path: this.pinPath, ...options });
    }
  }

  /** The path at which the map of the table is pinned now. */
  get pinPath(): string {
    return this.#mismatch === undefined ? this.#path : this.#path + STAGING_SUFFIX;
  }

  problems(): readonly string[] {
    if (this.#mismatch === undefined) return [];
    return [`${this.#mismatch}: a new map is being filled and will replace it`];
  }

  /** Replaces the pinned map by the new one, if there is one. */
  replacePinned(): void {
    if (this.#mismatch !== undefined) movePin(this.pinPath, this.#path);
    this.#mismatch = undefined;
  }
}

/** Removes the maps of other layouts, and new maps of agents that ended before they had filled them. */
function unpinFormerMaps(bpf: Bpf, folder: string, layout: IPCacheLayout): void {
  for (const each of IPCACHE_LAYOUTS) {
    const [path, shape] = [join(folder, IPCACHE_PINS[each]), ipcacheShape(each)];
    if (each !== layout) unpinMap(bpf, path, shape);
    unpinMap(bpf, path + STAGING_SUFFIX, shape);
  }
}

function lookupPrefix(table: IPCacheTable, desired: DesiredIPCache, prefix: string): PrintedStep {
  const [kernel, cache] = [table.lookup(prefix), desired.get(prefix)];
  return {
    table: table.name,
    key: prefix,
    kernel: kernel && table.print(kernel),
    cache: cache && table.print(cache),
  };
}

/** Removes the routes and the tunnel of an earlier process. */
export function retireNodes(access: HostAccess): void {
  access.unlessLocked(() => {
    using _lock = access.lock('routes');
    using table = new PathTable(access.kernel);
    for (const _ of cleanTable(table)); // each step deletes an item
  });
}
