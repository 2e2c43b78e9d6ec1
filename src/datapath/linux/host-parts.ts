import { existsSync, mkdirSync, renameSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { disposeOnError } from '../../base/dispose-on-error.ts';
import type { Node } from '../../nodemanager/node.ts';
import type { NodeHandler } from '../../nodemanager/node-handler.ts';
import type { ServiceListener } from '../../servicecache/events.ts';
import type { NodePortOptions } from '../../servicecache/frontends.ts';
import { Bpf } from './bpf/bpf.ts';
import { ForeignMapError, mapPinState } from './bpf/bpf-map.ts';
import { ForeignPinError, pin, unpin } from './bpf/pin.ts';
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
import { isRulesKey, NftServices } from './nftables/nft-services.ts';
import { lockFolder, lockNamespace, type NamespacePart, OwnedByAnotherError } from './own-locks.ts';
import { IPCACHE_PINS, NFT_TABLE, ROUTE_TABLE, STAGING_SUFFIX, TUNNEL, TUNNEL_DEVICE } from './own-names.ts';
import { NodePaths, type NodePathsOptions } from './paths/node-paths.ts';
import { PacedTask } from './paths/paced-task.ts';
import { PathTable } from './paths/path-table.ts';
import { type GuardedPin, type GuardedPins, PinTable } from './pin-table.ts';
import { PinWatch } from './pin-watch.ts';
import {
  DesiredServices,
  type DesiredServicesOptions,
  type NodeLabels,
  type ServiceItem,
} from './services/desired-services.ts';
import { type AddressesByFamily, HostAddresses } from './services/host-addresses.ts';
import { serviceRoom } from './services/service-layout.ts';
import { ServicePins, unpinServiceMaps } from './services/service-pins.ts';
import { ServiceMapTable } from './services/service-table.ts';
import { attachSocketPrograms, detachSocketPrograms, programPins } from './services/socket-programs.ts';
import { Kernel } from './syscall/kernel.ts';
import { networkCookie } from './syscall/network-cookie.ts';
import { SyscallError } from './syscall/syscall-error.ts';

/** The pins of a part, as a table and as problems. */
interface PinGuard extends Disposable {
  readonly tables: readonly KeptItems[];
  /** Returns a sentence for each pin that is not as desired now. */
  problems(): readonly string[];
}

/** Errors of a kernel without nftables. */
const NO_NFTABLES: ReadonlySet<string> = new Set(['EOPNOTSUPP', 'EPROTONOSUPPORT']);

/** Repairs of rules that others change wait this long, or this many times the duration of the last repair if that is longer. */
const RULES_PACE_MS = 500;
const REPAIR_SHARE = 10;

/** The services of a table, and the condition for its deletes. */
type ServicesOptions = Pick<DesiredServicesOptions, 'origin' | 'frontends'> &
  Pick<KeptTableContext, 'deletesMayGo'>;

interface OpenedServices extends Disposable {
  readonly desired: DesiredServices;
  readonly items: KeptItems;
  readonly listener: ServiceListener;
  setNodeLabels(labels: NodeLabels): void;
  problems(): readonly string[];
}

/** Makes a table report every write as done, without writing. */
function makeDryRun<Item>(table: Pick<KernelTable<Item>, 'apply'>): void {
  table.apply = (changes) => changes.map(() => undefined);
}

/** The parts of one host. They share access to the kernel, which must be disposed of after them. */
export class HostParts implements Disposable {
  readonly #options: HostDatapathOptions;
  readonly #context: HostDatapathContext;
  readonly #keeping: KeptTableContext & { readonly clock: Clock };
  #opened: { readonly kernel: Kernel; readonly bpf: Bpf } | undefined;
  #folderLock: Disposable | undefined;
  /** Tables that lead to pods of other nodes. Paths are deleted after their items. */
  readonly #leading: KeptItems[] = [];

  constructor(options: HostDatapathOptions, context: HostDatapathContext) {
    this.#options = options;
    this.#context = context;
    const { clock, random } = context;
    this.#keeping = { clock, random, nextTurn: setImmediate };
  }

  /** Releases the lock, so that another process may own the pins. */
  [Symbol.dispose](): void {
    this.#folderLock?.[Symbol.dispose]();
  }

  nodes(mode: NodePathsOptions['mode']): LinuxPart {
    return this.#holding('routes', () => this.#nodes(mode));
  }

  #nodes(mode: NodePathsOptions['mode']): LinuxPart {
    const { clusterName, nodeName } = this.#context;
    const table = new PathTable(this.#open().kernel, { routeTable: ROUTE_TABLE, device: TUNNEL_DEVICE });
    if (this.#options.dryRun) makeDryRun(table);
    const hold = new DeleteHold(this.#keeping.clock, this.#leading);
    const { remoteCIDRs } = this.#options;
    const paths = new NodePaths(
      table,
      { mode, ...TUNNEL, device: TUNNEL_DEVICE, ownNode: `${clusterName}/${nodeName}`, remoteCIDRs },
      { ...this.#keeping, deletesMayGo: () => hold.passed() },
    );
    return {
      tables: [{ ...keptItems(table, paths.kept), adopt: () => paths.start() }],
      datapath: { nodes: paths },
      problems: () => {
        const { failures, problems } = paths.status();
        return [...problems, ...table.bypassed(), ...failures.map(({ reason }) => reason)];
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
    if (dryRun) makeDryRun(table);
    let isSwapped = resized === undefined;
    const addresses = disposeOnError(
      [table],
      () => new HostAddresses(this.#open().kernel, { clock: this.#keeping.clock }),
    );
    const desired = new DesiredIPCache(ipcache, (address) => addresses.has(address));
    const kept = new KeptTable(table, desired, this.#keeping);
    const repair = async (): Promise<void> => void (await kept.repair());
    // Finds the entries with a changed endpoint in the same way as changes by others. Failures remain until the next repair.
    addresses.follow(() => void repair().catch(() => {}));
    const end = ipcache.subscribeOwners(rerankPrefixes((prefix) => kept.rerank(prefix)));
    const pinned = (): string => (isSwapped ? path : path + STAGING_SUFFIX);
    const guard = this.#guarding('ipcache-pins', () => this.#mapPins([[pinned(), table.map.fd]]));
    return {
      tables: [this.#isLeading(keptItems(table, kept)), ...guard.tables],
      datapath: { ipcache: markPrefixes((prefix) => kept.mark(prefix)) },
      problems: () => [
        ...(isSwapped ? [] : [`${resized}: a new map is being filled and will replace it`]),
        ...guard.problems(),
      ],
      retire: () => {
        if (dryRun) return;
        if (!isSwapped) renameSync(path + STAGING_SUFFIX, path);
        isSwapped = true;
        for (const name of Object.values(IPCACHE_PINS)) {
          if (name !== IPCACHE_PINS[layout]) unpin(join(folder, name));
          // Left by an agent that ended before it had filled the map.
          unpin(join(folder, name + STAGING_SUFFIX));
        }
      },
      [Symbol.dispose]: () => {
        end();
        guard[Symbol.dispose]();
        addresses[Symbol.dispose]();
        table[Symbol.dispose]();
      },
    };
  }

  /** Returns the table. If the pinned one has another capacity, returns a new one beside it, and the mismatch. */
  #ipcacheTable(
    path: string,
    options: Omit<IPCacheMapOptions, 'path'>,
  ): { readonly table: IPCacheTable; readonly resized?: string } {
    const { bpf } = this.#open();
    try {
      return { table: IPCacheTable.open(bpf, { path, ...options }) };
    } catch (error) {
      if (!(error instanceof ForeignMapError) || !error.isResized) throw error;
      const staging = path + STAGING_SUFFIX;
      // May have yet another size if an agent ended before it had filled it.
      if (options.isPinned !== false) unpin(staging);
      return { table: IPCacheTable.open(bpf, { path: staging, ...options }), resized: error.message };
    }
  }

  /** Removes the routes and the tunnel of an earlier process. */
  retireNodes(): void {
    this.#unlessOwned(() => {
      using _lock = this.#lock('routes');
      using table = new PathTable(this.#open().kernel, { routeTable: ROUTE_TABLE, device: TUNNEL_DEVICE });
      for (const _ of cleanTable(table));
    });
  }

  /** Removes the socket programs of an earlier process, and the maps that only they read. */
  retirePrograms(): void {
    const { pinFolder } = this.#options;
    if (!existsSync(pinFolder)) return;
    this.#unlessOwned(() => {
      const folder = this.#folder();
      const { bpf } = this.#open();
      detachSocketPrograms(bpf, folder);
      unpinServiceMaps(bpf, folder);
    });
  }

  /** Removes the rules of an earlier process. */
  retireRules(): void {
    this.#unlessOwned(() => {
      try {
        using _lock = this.#lock('rules');
        using table = new NftServices(this.#open().kernel, { table: NFT_TABLE });
        table.remove();
      } catch (error) {
        // A kernel without nftables has no rules.
        if (!(error instanceof SyscallError && NO_NFTABLES.has(error.code))) throw error;
      }
    });
  }

  /** Runs `retire`. If another agent owns the part, its items are in use, and nothing is removed. */
  #unlessOwned(retire: () => void): void {
    if (this.#options.dryRun) return;
    try {
      retire();
    } catch (error) {
      if (!(error instanceof OwnedByAnotherError)) throw error;
    }
  }

  /**
   * Opens programs for the sockets of this host. If the kernel has nftables, also opens rules for packets from outside, which
   * reach node ports, external IPs and load-balancer addresses. Maps are opened before the programs that read them. Programs of
   * an earlier process stay attached.
   */
  sockets(cgroup: string): LinuxPart {
    const { dryRun } = this.#options;
    const { bpf, kernel } = this.#open();
    const host = networkCookie(kernel);
    const folder = this.#folder();
    const room = serviceRoom(this.#options.serviceCapacity);
    const pins = new ServicePins(bpf, { folder, room, isPinned: !dryRun });
    const table = new ServiceMapTable(pins.maps);
    const attach = (): void => {
      if (!dryRun && !pins.isStaged) attachSocketPrograms(bpf, programs());
    };
    const programs = () => ({ folder, cgroup, maps: pins.descriptors, host });
    if (!pins.isResized) disposeOnError([pins], attach);
    const inside = this.#services(table, pins, { origin: 'inside' });
    const { items } = inside;
    const sockets: KeptItems = {
      ...items,
      adopt: async () => {
        if (pins.isResized) {
          for (const _ of pins.resize(attach)) await new Promise<void>((resolve) => setImmediate(resolve));
          table.replaceMaps(pins.maps);
          // The old programs stay in use if they could not be replaced.
          attach();
        }
        await items.adopt();
      },
    };
    const outside = this.#outside(items);
    // Maps are restored before programs, because the next agent attaches programs to maps that it finds by name.
    const guard = this.#guarding('service-pins', () => {
      // The old pins are kept until the maps filled beside them replace them.
      if (pins.isStaged) return new Map();
      const pinned = [...pins.descriptors].map(([name, fd]) => [join(folder, name), fd] as const);
      return new Map([...this.#mapPins(pinned), ...programPins(bpf, programs())]);
    });
    const isMissing = typeof outside === 'string';
    const parts = isMissing ? [inside] : [inside, outside];
    const problems = (): readonly string[] => [
      ...(existsSync(cgroup)
        ? guard.problems()
        : [`cgroup ${cgroup} does not exist any more: set another with --datapath-cgroup`]),
      ...pins.problems(),
      ...(isMissing ? outsideIsMissing(inside.desired.withExternal, outside) : []),
      ...parts.flatMap((part) => part.problems()),
    ];
    return {
      datapath: {
        services: {
          onEvents: (events) => {
            for (const { listener } of parts) listener.onEvents(events);
          },
        },
        nodes: this.#ownLabels(parts),
      },
      tables: [sockets, ...(isMissing ? [] : [outside.items]), ...guard.tables],
      problems,
      setServiceInputs: (inputs) => {
        for (const { desired } of parts) desired.setInputs(inputs);
      },
      retire: () => {
        if (!pins.isStaged || dryRun) return;
        attachSocketPrograms(bpf, programs());
        pins.settle();
      },
      [Symbol.dispose]: () => {
        guard[Symbol.dispose]();
        for (const part of parts) part[Symbol.dispose]();
      },
    };
  }

  /**
   * Returns the rules for packets from outside of this host, or the reason why there are none. Their deletes wait until the
   * sockets are up to date.
   */
  #outside(sockets: KeptItems): OpenedServices | string {
    try {
      return this.#holding('rules', () => {
        const options = { origin: 'outside', frontends: 'external' } as const;
        return this.#rules({ ...options, deletesMayGo: () => sockets.flushed() });
      });
    } catch (error) {
      if (error instanceof SyscallError || error instanceof OwnedByAnotherError) return error.message;
      throw error;
    }
  }

  /**
   * Opens services as rules. Socket programs of an earlier agent are removed when the rules are complete, because both lead to
   * the same backends.
   */
  nftables(): LinuxPart {
    return this.#holding('rules', () => {
      const opened = this.#rules({ origin: 'outside' });
      const { desired, items, listener, problems, setNodeLabels: _, ...services } = opened;
      return {
        ...services,
        datapath: { services: listener, nodes: this.#ownLabels([opened]) },
        tables: [items],
        problems: () => [...affinityIsLost(desired.withAffinity), ...problems()],
        setServiceInputs: (inputs) => desired.setInputs(inputs),
        retire: () => this.retirePrograms(),
      };
    });
  }

  /**
   * Opens services as rules. Changes of the rules by others are repaired immediately. Throws `SyscallError` if the kernel has
   * no nftables.
   */
  #rules(options: ServicesOptions): OpenedServices {
    const table = new NftServices(this.#open().kernel, { table: NFT_TABLE });
    try {
      table.check();
      const services = this.#services(table, table, options);
      const { clock } = this.#keeping;
      let tookMs = 0;
      const repairing = new PacedTask(
        clock,
        () => Math.max(RULES_PACE_MS, REPAIR_SHARE * tookMs),
        async () => {
          const begun = clock.now();
          // Failures are retried by the next repair of all tables.
          await services.items.repair().catch(() => {});
          tookMs = clock.now() - begun;
        },
      );
      if (!this.#options.dryRun) table.follow(() => void repairing.request());
      return {
        ...services,
        [Symbol.dispose]: () => {
          repairing[Symbol.dispose]();
          services[Symbol.dispose]();
        },
      };
    } catch (error) {
      table[Symbol.dispose]();
      throw error;
    }
  }

  /** Opens services in a table, and disposes of `owner` with them. Node ports follow the addresses of this host. */
  #services(
    table: KernelTable<ServiceItem>,
    owner: Disposable,
    { deletesMayGo, ...options }: ServicesOptions,
  ): OpenedServices {
    const { nodeName } = this.#context;
    if (this.#options.dryRun) makeDryRun(table);
    const addresses = disposeOnError(
      [owner],
      () => new HostAddresses(this.#open().kernel, { clock: this.#keeping.clock }),
    );
    // Rules cannot rewrite a packet to a loopback address and send it out of the host, because the kernel drops it.
    const nodePort = (all: AddressesByFamily): NodePortOptions => ({
      enabled: true,
      ...(options.origin === 'inside' ? all : withoutLoopback(all)),
    });
    const desired = new DesiredServices({ nodePort: nodePort(addresses.current), nodeName, ...options });
    const kept = new KeptTable(table, desired, {
      ...this.#keeping,
      deletesMayGo,
      isComplete: (key) => isRulesKey(key) || desired.isComplete(key),
    });
    addresses.follow((all) => {
      for (const frontend of desired.setNodePort(nodePort(all))) kept.mark(frontend);
    });
    return {
      desired,
      items: this.#isLeading(keptItems(table, kept)),
      listener: desired.listener((frontend) => kept.mark(frontend)),
      setNodeLabels: (labels) => {
        for (const frontend of desired.setNodeLabels(labels)) kept.mark(frontend);
      },
      problems: () => addresses.problems(),
      [Symbol.dispose]: () => {
        addresses[Symbol.dispose]();
        owner[Symbol.dispose]();
      },
    };
  }

  /** Returns a handler that passes the labels of the local node to services. The last labels stay if the node is deleted. */
  #ownLabels(parts: readonly OpenedServices[]): NodeHandler {
    const { clusterName, nodeName } = this.#context;
    const take = ({ cluster, name, labels }: Node): void => {
      if (cluster !== clusterName || name !== nodeName) return;
      for (const part of parts) part.setNodeLabels(labels);
    };
    return { name: 'own labels', nodeAdd: take, nodeUpdate: (_, node) => take(node), nodeDelete: () => {} };
  }

  /** Returns the pins of open maps, by path. */
  #mapPins(maps: readonly (readonly [path: string, fd: number])[]): ReadonlyMap<string, GuardedPin> {
    const { bpf } = this.#open();
    return new Map(
      maps.map(([path, fd]) => [
        `map ${basename(path)}`,
        {
          desired: 'pinned',
          read: () => mapPinState(bpf, path, fd),
          restore: () => {
            if (existsSync(path)) throw new ForeignPinError(path);
            mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
            pin(bpf, fd, path);
          },
        },
      ]),
    );
  }

  /** Restores pins that others remove and programs that others detach, soon after an event or within ten seconds. */
  #guarding(name: string, pins: GuardedPins): PinGuard {
    const { pinFolder, dryRun } = this.#options;
    // A dry run pins nothing.
    if (dryRun) return { tables: [], problems: () => [], [Symbol.dispose]: () => {} };
    const table = new PinTable(name, pins);
    const kept = keptItems(table, new KeptTable(table, table.desired, this.#keeping));
    const check = async (): Promise<void> => {
      // The next repair of all tables reports a failed read in the status.
      if (kept.status().state !== 'unread') await kept.repair().catch(() => {});
    };
    const watch = new PinWatch(pinFolder, this.#keeping.clock, check);
    return {
      tables: [{ ...kept, isMadeByOpening: true }],
      problems: () => table.problems(),
      [Symbol.dispose]: () => watch[Symbol.dispose](),
    };
  }

  #isLeading(items: KeptItems): KeptItems {
    this.#leading.push(items);
    return items;
  }

  /** Returns the folder of pins. Creates it if it is missing, and locks it. */
  #folder(): string {
    const { pinFolder, dryRun } = this.#options;
    if (dryRun) return pinFolder;
    mkdirSync(pinFolder, { recursive: true, mode: 0o700 });
    this.#folderLock ??= lockFolder(this.#open().kernel, pinFolder);
    return pinFolder;
  }

  /** Opens a part under a lock, which is held until the part is disposed of. */
  #holding<Part extends Disposable>(part: NamespacePart, open: () => Part): Part {
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
/** Returns a problem if there are frontends that only rules can serve, but no rules. */
function outsideIsMissing(services: ReadonlySet<string>, why: string): readonly string[] {
  const [first] = services;
  if (first === undefined) return [];
  const more = services.size === 1 ? '' : ` and ${services.size - 1} more`;
  return [
    `node ports and external addresses of ${first}${more} are unreachable from outside this host: ${why}`,
  ];
}

function withoutLoopback({ ipv4, ipv6 }: AddressesByFamily): AddressesByFamily {
  return {
    ipv4: ipv4?.filter((address) => !address.startsWith('127.')),
    ipv6: ipv6?.filter((address) => address !== '::1'),
  };
}

/** Returns a problem for services with session affinity, which rules do not support. */
function affinityIsLost(services: ReadonlySet<string>): readonly string[] {
  const [first] = services;
  if (first === undefined) return [];
  const more = services.size === 1 ? '' : ` and ${services.size - 1} more`;
  return [
    `no session affinity for ${first}${more}, because nftables rules select a backend per connection: use --datapath-services socket`,
  ];
}
