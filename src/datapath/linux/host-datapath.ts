import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import type { Clock, Random } from '../../base/clock.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import type { DatapathEngines } from '../datapath.ts';
import { Bpf } from './bpf/bpf.ts';
import { type CleanOutcome, cleanAll, cleanPins, cleanTable, type OwnMap } from './clean-host.ts';
import { DesiredIPCache, IPCacheTable, markPrefixes } from './ipcache-map.ts';
import { keptItems } from './kept-items.ts';
import { KeptTable, type KeptTableContext } from './kept-table.ts';
import type { KernelTable } from './kernel-table.ts';
import { LinuxDatapath, type LinuxPart, type WantedPart } from './linux-datapath.ts';
import { NodePaths, type NodePathsOptions } from './paths/node-paths.ts';
import { PathTable } from './paths/path-table.ts';
import { missingFor, type ProbeAnswer, probeHost, readHost } from './probe.ts';
import { DesiredServices } from './services/desired-services.ts';
import { DEFAULT_ROOM, serviceMapShapes } from './services/service-layout.ts';
import { openServiceMaps, ServiceTable } from './services/service-table.ts';
import { attachSocketPrograms, detachSocketPrograms } from './services/socket-programs.ts';
import { Kernel } from './syscall/kernel.ts';

/** What is steered, and how. */
export interface HostDatapathOptions {
  /** On a bpf file system; what is pinned there outlives the process. */
  readonly pinFolder: string;
  /** Default: the root of the cgroup2 that is mounted. */
  readonly cgroup?: string | undefined;
  /** How a pod of another node is reached; see `NodePathsOptions`. */
  readonly routing: NodePathsOptions['mode'] | 'off';
  /** How a service is reached: at `connect` of a socket, or by others. */
  readonly services: 'socket' | 'off';
  /** Of which Cilium the layout of maps is. */
  readonly layout: '1.17' | '1.8';
  /** Most prefixes; default: upstream's. */
  readonly capacity?: number | undefined;
  /** Compares, and writes nothing. */
  readonly dryRun: boolean;
}

/** What the datapath of a host works with. */
export interface HostDatapathContext {
  readonly engines: DatapathEngines & { readonly ipcache: IPCache };
  readonly clock: Clock;
  readonly random: Random;
  /** The own node, for traffic policies that prefer it. */
  readonly nodeName: string;
}

/** The datapath of this host, and what its probe has found. */
export interface HostDatapath {
  readonly probe: ProbeAnswer;
  readonly datapath: LinuxDatapath;
}

/** Of pins by their layout: the sizes of both are the same, and what stands at which byte is not. A bpf file system takes no dots. */
const IPCACHE_PINS: Readonly<Record<HostDatapathOptions['layout'], string>> = {
  '1.17': 'ipcache',
  '1.8': 'ipcache-1_8',
};

/** The maps that are pinned by this, and what each of ours is like. */
const OWN_MAPS: Parameters<typeof cleanPins>[1] = new Map<string, OwnMap>([
  ...Object.values(IPCACHE_PINS).map(
    (name) => [name, { type: 'lpmTrie', keySize: 24, valueSize: 12 }] as const,
  ),
  ...([4, 6] as const).flatMap((family) =>
    Object.entries(serviceMapShapes(family, DEFAULT_ROOM)).map(
      ([name, shape]) => [`${name}${family}`, shape] as const,
    ),
  ),
]);

/** The main table: pods are reached whatever a packet's source is. */
const ROUTE_TABLE = 254;
const TUNNEL_DEVICE = 'dpcache_vxlan';
/** The port that Linux has always had for VXLAN, and Cilium has; the network is ours. */
const TUNNEL = { vni: 20_201, port: 8_472 } as const;

/** Opens what can run on this host of what is asked for. Never throws: what cannot run is named in the status. */
export function openHostDatapath(options: HostDatapathOptions, context: HostDatapathContext): HostDatapath {
  const { pinFolder, cgroup, routing, services } = options;
  const probe = probeHost(readHost(), { pinFolder, cgroup });
  const parts = new HostParts(options, context);
  const wanted: readonly WantedPart[] = [
    {
      name: 'nodes',
      needs: routing === 'tunnel' ? ['routes', 'tunnel'] : ['routes'],
      open: routing === 'off' ? undefined : () => parts.nodes(routing),
    },
    { name: 'ipcache', needs: ['maps'], open: () => parts.ipcache() },
    {
      name: 'services',
      needs: ['sockets'],
      open: services === 'off' ? undefined : () => parts.services(probe.cgroup ?? ''),
    },
  ];
  return { probe, datapath: new LinuxDatapath(probe, wanted) };
}

/**
 * Takes away all that is ours on this host: routes, the tunnel, and what is pinned in the folder, programs first. No agent may run with it: it
 * would write everything anew. Never throws.
 */
export function cleanHost(pinFolder: string): CleanOutcome {
  const missing = missingFor(probeHost(readHost(), { pinFolder }), 'routes');
  const paths = function* (): Generator<string, void, void> {
    if (missing.length > 0) throw new Error(`routes and tunnels: ${missing.join('; ')}`);
    using table = new PathTable(new Kernel(), { routeTable: ROUTE_TABLE, device: TUNNEL_DEVICE });
    yield* cleanTable(table);
  };
  const programs = function* (): Generator<string, void, void> {
    const before = existsSync(pinFolder) ? readdirSync(pinFolder).sort() : [];
    detachSocketPrograms(pinFolder);
    for (const name of before) if (!existsSync(join(pinFolder, name))) yield join(pinFolder, name);
  };
  return cleanAll([paths, programs], () => cleanPins(pinFolder, OWN_MAPS));
}

/** What is to be written is taken for written. */
function writesNothing<Item>(table: Pick<KernelTable<Item>, 'apply'>): void {
  table.apply = (changes) => changes.map(() => undefined);
}

/** The parts of one host, which share what they speak to the kernel through. */
class HostParts {
  readonly #options: HostDatapathOptions;
  readonly #context: HostDatapathContext;
  readonly #keeping: KeptTableContext & { readonly clock: Clock };
  #opened: { readonly kernel: Kernel; readonly bpf: Bpf } | undefined;

  constructor(options: HostDatapathOptions, context: HostDatapathContext) {
    this.#options = options;
    this.#context = context;
    const { clock, random } = context;
    this.#keeping = { clock, random, nextTurn: setImmediate };
  }

  nodes(mode: NodePathsOptions['mode']): LinuxPart {
    const table = new PathTable(this.#open().kernel, { routeTable: ROUTE_TABLE, device: TUNNEL_DEVICE });
    if (this.#options.dryRun) writesNothing(table);
    const paths = new NodePaths(table, { mode, ...TUNNEL, device: TUNNEL_DEVICE }, this.#keeping);
    return {
      tables: [{ ...keptItems(table, paths.kept), adopt: () => paths.start() }],
      datapath: { nodes: paths },
      problems: () => paths.status().failures.map(({ reason }) => reason),
      [Symbol.dispose]: () => {
        paths[Symbol.dispose]();
        table[Symbol.dispose]();
      },
    };
  }

  ipcache(): LinuxPart {
    const { layout, capacity, dryRun } = this.#options;
    const { ipcache } = this.#context.engines;
    const path = join(this.#folder(), IPCACHE_PINS[layout]);
    const table = new IPCacheTable(this.#open().bpf, {
      path,
      layout,
      maxEntries: capacity,
      isPinned: !dryRun,
    });
    if (dryRun) writesNothing(table);
    const kept = new KeptTable(table, new DesiredIPCache(ipcache), this.#keeping);
    return {
      tables: [keptItems(table, kept)],
      datapath: { ipcache: markPrefixes((prefix) => kept.mark(prefix)) },
      [Symbol.dispose]: () => table[Symbol.dispose](),
    };
  }

  /** The maps come before the programs that read them; those stay attached where an earlier process has left them. */
  services(cgroup: string): LinuxPart {
    const { nodeName } = this.#context;
    const { dryRun } = this.#options;
    const { bpf } = this.#open();
    const folder = this.#folder();
    const table = new ServiceTable(openServiceMaps(bpf, folder, undefined, !dryRun));
    const attach = (): void => {
      if (!dryRun) attachSocketPrograms(bpf, { folder, cgroup, maps: table.descriptors });
    };
    if (dryRun) writesNothing(table);
    attach();
    const desired = new DesiredServices({ nodePort: { enabled: true, ...hostAddresses() }, nodeName });
    const kept = new KeptTable(table, desired, this.#keeping);
    const items = keptItems(table, kept);
    return {
      tables: [
        {
          ...items,
          // What others have detached, or a cgroup that has come back, is steered again.
          repair: () => {
            attach();
            return items.repair();
          },
        },
      ],
      datapath: { services: desired.listener((frontend) => kept.mark(frontend)) },
      problems: () =>
        existsSync(cgroup)
          ? []
          : [`the cgroup ${cgroup} is gone, and its sockets with it: name another with --datapath-cgroup`],
      [Symbol.dispose]: () => table[Symbol.dispose](),
    };
  }

  /** The folder of pins; it is made where it is missing. */
  #folder(): string {
    const { pinFolder, dryRun } = this.#options;
    if (!dryRun) mkdirSync(pinFolder, { recursive: true, mode: 0o700 });
    return pinFolder;
  }

  #open(): { readonly kernel: Kernel; readonly bpf: Bpf } {
    if (this.#opened === undefined) {
      const kernel = new Kernel();
      this.#opened = { kernel, bpf: new Bpf(kernel) };
    }
    return this.#opened;
  }
}

/** Addresses of this host that answer on node ports; those of a link alone say nothing without it. */
function hostAddresses(): { readonly ipv4: readonly string[]; readonly ipv6: readonly string[] } {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  const of = (family: string): readonly string[] =>
    all.filter((one) => one.family === family && !one.scopeid).map(({ address }) => address);
  return { ipv4: of('IPv4'), ipv6: of('IPv6') };
}
