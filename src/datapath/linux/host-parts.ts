import { existsSync, mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { Bpf } from './bpf/bpf.ts';
import { ForeignMapError } from './bpf/bpf-map.ts';
import { unpin } from './bpf/pin.ts';
import { cleanTable } from './clean-tables.ts';
import { DeleteHold } from './delete-hold.ts';
import type { HostDatapathContext, HostDatapathOptions } from './host-options.ts';
import {
  DesiredIPCache,
  type IPCacheMapOptions,
  IPCacheTable,
  markPrefixes,
  rerankPrefixes,
} from './ipcache-map.ts';
import { type KeptItems, keptItems } from './kept-items.ts';
import { KeptTable, type KeptTableContext } from './kept-table.ts';
import type { KernelTable } from './kernel-table.ts';
import type { LinuxPart } from './linux-datapath.ts';
import { NftServices } from './nftables/nft-services.ts';
import { lockFolder, lockNamespace, type NamespacePart, SteeredByAnotherError } from './own-locks.ts';
import { BESIDE, IPCACHE_PINS, NFT_TABLE, ROUTE_TABLE, TUNNEL, TUNNEL_DEVICE } from './own-names.ts';
import { NodePaths, type NodePathsOptions } from './paths/node-paths.ts';
import { PathTable } from './paths/path-table.ts';
import { DesiredServices, type ServiceItem } from './services/desired-services.ts';
import { HostAddresses } from './services/host-addresses.ts';
import { serviceRoom } from './services/service-layout.ts';
import { openServiceMaps, ServiceTable, unpinServiceMaps } from './services/service-table.ts';
import { attachSocketPrograms, detachSocketPrograms } from './services/socket-programs.ts';
import { Kernel } from './syscall/kernel.ts';
import { SyscallError } from './syscall/syscall-error.ts';

/** What a kernel answers that has no nftables. */
const NO_NFTABLES: ReadonlySet<string> = new Set(['EOPNOTSUPP', 'EPROTONOSUPPORT']);

/** What is to be written is taken for written. */
function writesNothing<Item>(table: Pick<KernelTable<Item>, 'apply'>): void {
  table.apply = (changes) => changes.map(() => undefined);
}

/** The parts of one host, which share what they speak to the kernel through, and are disposed of before it. */
export class HostParts implements Disposable {
  readonly #options: HostDatapathOptions;
  readonly #context: HostDatapathContext;
  readonly #keeping: KeptTableContext & { readonly clock: Clock };
  #opened: { readonly kernel: Kernel; readonly bpf: Bpf } | undefined;
  #folderLock: Disposable | undefined;
  /** Tables that lead to pods of other nodes: paths are deleted after what is in them. */
  readonly #leading: KeptItems[] = [];

  constructor(options: HostDatapathOptions, context: HostDatapathContext) {
    this.#options = options;
    this.#context = context;
    const { clock, random } = context;
    this.#keeping = { clock, random, nextTurn: setImmediate };
  }

  /** Others may steer what is pinned from here on. */
  [Symbol.dispose](): void {
    this.#folderLock?.[Symbol.dispose]();
  }

  nodes(mode: NodePathsOptions['mode']): LinuxPart {
    return this.#holding('routes', () => this.#nodes(mode));
  }

  #nodes(mode: NodePathsOptions['mode']): LinuxPart {
    const { clusterName, nodeName } = this.#context;
    const table = new PathTable(this.#open().kernel, { routeTable: ROUTE_TABLE, device: TUNNEL_DEVICE });
    if (this.#options.dryRun) writesNothing(table);
    const hold = new DeleteHold(this.#keeping.clock, this.#leading);
    const paths = new NodePaths(
      table,
      { mode, ...TUNNEL, device: TUNNEL_DEVICE, ownNode: `${clusterName}/${nodeName}` },
      { ...this.#keeping, deletesMayGo: () => hold.passed() },
    );
    return {
      tables: [{ ...keptItems(table, paths.kept), adopt: () => paths.start() }],
      datapath: { nodes: paths },
      problems: () => {
        const { failures, problems } = paths.status();
        return [...problems, ...failures.map(({ reason }) => reason)];
      },
      [Symbol.dispose]: () => {
        paths[Symbol.dispose]();
        hold[Symbol.dispose]();
        table[Symbol.dispose]();
      },
    };
  }

  ipcache(): LinuxPart {
    const { layout, capacity, dryRun } = this.#options;
    const { ipcache } = this.#context.engines;
    const folder = this.#folder();
    const path = join(folder, IPCACHE_PINS[layout]);
    const { table, resized } = this.#ipcacheTable(path, { layout, maxEntries: capacity, isPinned: !dryRun });
    if (dryRun) writesNothing(table);
    let isSwapped = resized === undefined;
    const addresses = new HostAddresses(this.#open().kernel, { clock: this.#keeping.clock });
    const desired = new DesiredIPCache(ipcache, (address) => addresses.has(address));
    const kept = new KeptTable(table, desired, this.#keeping);
    const repair = async (): Promise<void> => void (await kept.repair());
    // Which entries have another endpoint now is found as what others change is. What fails is so by the next repair.
    addresses.follow(() => void repair().catch(() => {}));
    const end = ipcache.subscribeOwners(rerankPrefixes((prefix) => kept.rerank(prefix)));
    return {
      tables: [this.#isLeading(keptItems(table, kept))],
      datapath: { ipcache: markPrefixes((prefix) => kept.mark(prefix)) },
      problems: () =>
        isSwapped ? [] : [`${resized}: a new one is filled beside it, and then takes its place`],
      retire: () => {
        if (dryRun) return;
        if (!isSwapped) renameSync(path + BESIDE, path);
        isSwapped = true;
        for (const name of Object.values(IPCACHE_PINS)) {
          if (name !== IPCACHE_PINS[layout]) unpin(join(folder, name));
          // One that an earlier agent has not finished.
          unpin(join(folder, name + BESIDE));
        }
      },
      [Symbol.dispose]: () => {
        end();
        addresses[Symbol.dispose]();
        table[Symbol.dispose]();
      },
    };
  }

  /** The table, or where the pinned one has room for another number, one beside it, and what that has found. */
  #ipcacheTable(
    path: string,
    options: Omit<IPCacheMapOptions, 'path'>,
  ): { readonly table: IPCacheTable; readonly resized?: string } {
    const { bpf } = this.#open();
    try {
      return { table: IPCacheTable.open(bpf, { path, ...options }) };
    } catch (error) {
      if (!(error instanceof ForeignMapError) || !error.isResized) throw error;
      const beside = path + BESIDE;
      // One that an agent has not finished may be of yet another size.
      if (options.isPinned !== false) unpin(beside);
      return { table: IPCacheTable.open(bpf, { path: beside, ...options }), resized: error.message };
    }
  }

  /** Takes away our routes and our tunnel, which an earlier process has left. */
  retireNodes(): void {
    this.#unlessSteered(() => {
      using _lock = this.#lock('routes');
      using table = new PathTable(this.#open().kernel, { routeTable: ROUTE_TABLE, device: TUNNEL_DEVICE });
      for (const _ of cleanTable(table));
    });
  }

  /** Takes away the socket programs of an earlier process, and the maps that none reads then. */
  retirePrograms(): void {
    const { pinFolder } = this.#options;
    if (!existsSync(pinFolder)) return;
    this.#unlessSteered(() => {
      const folder = this.#folder();
      const { bpf } = this.#open();
      detachSocketPrograms(bpf, folder);
      unpinServiceMaps(bpf, folder);
    });
  }

  /** Takes away the rules of an earlier process. */
  retireRules(): void {
    this.#unlessSteered(() => {
      try {
        using _lock = this.#lock('rules');
        using table = new NftServices(this.#open().kernel, { table: NFT_TABLE });
        table.remove();
      } catch (error) {
        // A kernel without nftables has no rules either.
        if (!(error instanceof SyscallError && NO_NFTABLES.has(error.code))) throw error;
      }
    });
  }

  /** What another agent steers has not been left by an earlier one. */
  #unlessSteered(retire: () => void): void {
    if (this.#options.dryRun) return;
    try {
      retire();
    } catch (error) {
      if (!(error instanceof SteeredByAnotherError)) throw error;
    }
  }

  /**
   * The maps come before the programs that read them; those stay attached where an earlier process has left them. Rules go
   * once the maps have all of it.
   */
  sockets(cgroup: string, retire: () => void): LinuxPart {
    const { dryRun } = this.#options;
    const { bpf } = this.#open();
    const folder = this.#folder();
    const room = serviceRoom(this.#options.serviceCapacity);
    const table = new ServiceTable(openServiceMaps(bpf, folder, room, !dryRun));
    const resized = table.sizesOtherThan(room);
    const attach = (): void => {
      if (!dryRun) attachSocketPrograms(bpf, { folder, cgroup, maps: table.descriptors });
    };
    attach();
    const { items, problems, desired: _, ...services } = this.#services(table);
    return {
      ...services,
      tables: [
        {
          ...items,
          // What others have detached, or a cgroup that has come back, is steered again.
          repair: async () => {
            const steps = await items.repair();
            attach();
            return steps;
          },
        },
      ],
      problems: () =>
        existsSync(cgroup)
          ? [...resized, ...problems()]
          : [
              `the cgroup ${cgroup} is gone, and its sockets with it: name another with --datapath-cgroup`,
              ...problems(),
            ],
      retire,
    };
  }

  /** Socket programs of an earlier agent go once the rules have all of it: both lead to the same backends. */
  nftables(): LinuxPart {
    return this.#holding('rules', () => this.#nftables());
  }

  #nftables(): LinuxPart {
    const table = new NftServices(this.#open().kernel, { table: NFT_TABLE });
    const { items, desired, problems, ...services } = this.#services(table);
    return {
      ...services,
      tables: [items],
      problems: () => [...affinityIsLost(desired.withAffinity), ...problems()],
      retire: () => this.retirePrograms(),
    };
  }

  /** Services in a table, which goes with them. Node ports follow the addresses of this host. */
  #services(table: KernelTable<ServiceItem> & Disposable) {
    const { nodeName } = this.#context;
    if (this.#options.dryRun) writesNothing(table);
    const addresses = new HostAddresses(this.#open().kernel, { clock: this.#keeping.clock });
    const desired = new DesiredServices({ nodePort: { enabled: true, ...addresses.current }, nodeName });
    const kept = new KeptTable(table, desired, this.#keeping);
    addresses.follow((all) => {
      for (const frontend of desired.setNodePort({ enabled: true, ...all })) kept.mark(frontend);
    });
    return {
      desired,
      items: this.#isLeading(keptItems(table, kept)),
      datapath: { services: desired.listener((frontend) => kept.mark(frontend)) },
      problems: () => addresses.problems(),
      [Symbol.dispose]: () => {
        addresses[Symbol.dispose]();
        table[Symbol.dispose]();
      },
    };
  }

  #isLeading(items: KeptItems): KeptItems {
    this.#leading.push(items);
    return items;
  }

  /** The folder of pins; it is made where it is missing, and no other steers it then. */
  #folder(): string {
    const { pinFolder, dryRun } = this.#options;
    if (dryRun) return pinFolder;
    mkdirSync(pinFolder, { recursive: true, mode: 0o700 });
    this.#folderLock ??= lockFolder(this.#open().kernel, pinFolder);
    return pinFolder;
  }

  /** No other process has this part as long. */
  #holding(part: NamespacePart, open: () => LinuxPart): LinuxPart {
    const lock = this.#lock(part);
    try {
      const opened = open();
      return {
        ...opened,
        [Symbol.dispose]: () => {
          opened[Symbol.dispose]();
          lock?.[Symbol.dispose]();
        },
      };
    } catch (error) {
      lock?.[Symbol.dispose]();
      throw error;
    }
  }

  #lock(part: NamespacePart): Disposable | undefined {
    return this.#options.dryRun ? undefined : lockNamespace(this.#open().kernel, part);
  }

  #open(): { readonly kernel: Kernel; readonly bpf: Bpf } {
    if (this.#opened === undefined) {
      const kernel = new Kernel();
      this.#opened = { kernel, bpf: new Bpf(kernel) };
    }
    return this.#opened;
  }
}
/** What rules do not do for these services. */
function affinityIsLost(services: ReadonlySet<string>): readonly string[] {
  const [first] = services;
  if (first === undefined) return [];
  const more = services.size === 1 ? '' : ` and ${services.size - 1} more`;
  return [
    `the session affinity of ${first}${more} is not kept: rules choose a backend for each connection, --datapath-services socket keeps it`,
  ];
}
