import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { disposeOnError } from '../../../base/dispose-on-error.ts';
import { listText } from '../../../base/show-value.ts';
import type { Node } from '../../../nodemanager/node.ts';
import type { NodeHandler } from '../../../nodemanager/node-handler.ts';
import type { ServiceListener } from '../../../servicecache/events.ts';
import type { NodePortOptions } from '../../../servicecache/frontends.ts';
import type { Bpf } from '../bpf/bpf.ts';
import { DeleteHold } from '../delete-hold.ts';
import type { HostAccess } from '../host-access.ts';
import { type KeptItems, keptItems } from '../kept-items.ts';
import { KeptTable, type KeptTableContext } from '../kept-table.ts';
import type { KernelTable } from '../kernel-table.ts';
import type { LinuxPart } from '../linux-datapath.ts';
import { isRulesKey, NftServices } from '../nftables/nft-services.ts';
import { PartLockedError } from '../part-locks.ts';
import { PacedTask } from '../paths/paced-task.ts';
import { guardPins, mapPins } from '../pin-guard.ts';
import type { GuardedPin } from '../pin-table.ts';
import { networkCookie } from '../syscall/network-cookie.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import {
  DesiredServices,
  type DesiredServicesOptions,
  type NodeLabels,
  type ServiceItem,
} from './desired-services.ts';
import type { AddressesByFamily } from './host-addresses.ts';
import { serviceCapacity } from './service-layout.ts';
import { ServicePins, unpinServiceMaps } from './service-pins.ts';
import { ServiceMapTable } from './service-table.ts';
import {
  attachSocketPrograms,
  detachSocketPrograms,
  programPins,
  type SocketProgramsOptions,
} from './socket-programs.ts';

/** Errors of a kernel without nftables. */
const NO_NFTABLES: ReadonlySet<string> = new Set(['EOPNOTSUPP', 'EPROTONOSUPPORT']);

/** Minimum time between the starts of two repairs of rules changed by others. */
const RULES_PACE_MS = 500;
/** After a slow repair, the minimum time is its duration times this factor: repairs take a tenth of the time. */
const REPAIR_PACE_FACTOR = 10;

/** The clients and frontends that a table serves, and the condition for its deletes. */
type ServicesOptions = Pick<DesiredServicesOptions, 'clients' | 'frontends'> &
  Pick<KeptTableContext, 'whenDeletesAllowed'>;

interface OpenedServices extends Disposable {
  readonly desired: DesiredServices;
  readonly items: KeptItems;
  readonly listener: ServiceListener;
  setNodeLabels(labels: NodeLabels): void;
}

/**
 * Opens services as socket programs of this host. If the kernel has nftables, also opens rules for packets from
 * outside to node ports, external IPs and load-balancer addresses. Maps are opened before the programs that read
 * them. Programs of an earlier process are replaced immediately or, if the maps have another size or layout, when the
 * new maps are filled.
 */
export function openSockets(access: HostAccess, cgroup: string): LinuxPart {
  const { dryRun } = access.options;
  const { addresses, bpf, kernel } = access;
  const hostCookie = networkCookie(kernel);
  const folder = access.folder();
  const capacity = serviceCapacity(access.options.serviceCapacity);
  const pins = new ServicePins(bpf, { folder, capacity, isPinned: !dryRun });
  const table = new ServiceMapTable(pins.maps);
  const programOptions = (): SocketProgramsOptions => ({
    folder,
    cgroup,
    maps: pins.descriptors,
    hostCookie,
  });
  const attach = (): void => {
    if (!dryRun && !pins.hasOtherLayout) attachSocketPrograms(bpf, programOptions());
  };
  if (!pins.needsResize) disposeOnError([pins], attach);
  const inside = openServices(access, table, pins, { clients: 'inside' });
  const adopt = async (): Promise<void> => {
    if (pins.needsResize) await resize(pins, table, attach);
    await inside.items.adopt();
  };
  const { rules, noRulesReason } = disposeOnError([inside], () => openRulesForOutside(access, inside.items));
  const parts = rules === undefined ? [inside] : [inside, rules];
  const guard = guardPins(access, 'service-pins', () => guardedPins(bpf, pins, programOptions()));
  return {
    datapath: { services: listenerOf(parts), nodes: labelHandler(access, parts) },
    tables: [
      access.addRouteUser({ ...inside.items, adopt }),
      ...(rules === undefined ? [] : [access.addRouteUser(rules.items)]),
      ...guard.tables,
    ],
    problems: () => [
      ...(existsSync(cgroup)
        ? guard.problems()
        : [`cgroup ${cgroup} does not exist any more: set another with --datapath-cgroup`]),
      ...pins.problems(),
      ...(noRulesReason === undefined ? [] : unreachableProblem(inside.desired, noRulesReason)),
      ...addresses.problems(),
    ],
    setInputs: (inputs) => {
      for (const { desired } of parts) desired.setInputs(inputs);
    },
    retire: () => {
      if (!pins.hasOtherLayout || dryRun) return;
      attachSocketPrograms(bpf, programOptions());
      pins.replacePins();
    },
    [Symbol.dispose]: () => {
      guard[Symbol.dispose]();
      for (const part of parts) part[Symbol.dispose]();
    },
  };
}

/**
 * Returns the pins to restore: maps before programs, so that a pinned program always has its maps: the next agent
 * would create empty ones in place of those without a pin. None while new maps are being filled, because the old maps
 * must stay pinned.
 */
function guardedPins(
  bpf: Bpf,
  pins: ServicePins,
  programOptions: SocketProgramsOptions,
): ReadonlyMap<string, GuardedPin> {
  if (pins.hasOtherLayout) return new Map();
  const { maps, folder } = programOptions;
  const pinned = [...maps].map(([name, fd]) => [join(folder, name), fd] as const);
  return new Map([...mapPins(bpf, pinned), ...programPins(bpf, programOptions)]);
}

function listenerOf(parts: readonly OpenedServices[]): ServiceListener {
  return {
    onEvents: (events) => {
      for (const { listener } of parts) listener.onEvents(events);
    },
  };
}

/** Replaces maps that have another size than the configured one. The table and the programs then use the new maps. */
async function resize(pins: ServicePins, table: ServiceMapTable, attach: () => void): Promise<void> {
  try {
    for (const _ of pins.resize(attach)) await new Promise<void>((resolve) => setImmediate(resolve));
  } finally {
    table.replaceMaps(pins.maps);
  }
  // If the resize failed, the old maps remain, and no programs of this process are attached to them yet.
  attach();
}

/**
 * Opens the rules for packets from outside of this host, or returns the reason why there are none. The deletes of rules
 * wait until `sockets` are up to date, but only as long as {@link DeleteHold} allows, because the maps of the sockets
 * may be unreadable.
 */
function openRulesForOutside(
  access: HostAccess,
  sockets: KeptItems,
): { readonly rules?: OpenedServices; readonly noRulesReason?: string } {
  try {
    const rules = access.openLocked('rules', () => {
      const options = { clients: 'outside', frontends: 'external' } as const;
      const hold = new DeleteHold(access.tableContext.clock, [sockets]);
      const opened = openRules(access, { ...options, whenDeletesAllowed: () => hold.deletesAllowed() });
      return {
        ...opened,
        [Symbol.dispose]: () => {
          hold[Symbol.dispose]();
          opened[Symbol.dispose]();
        },
      };
    });
    return { rules };
  } catch (error) {
    if (error instanceof SyscallError || error instanceof PartLockedError)
      return { noRulesReason: error.message };
    throw error;
  }
}

/** Opens services as rules. Socket programs of an earlier agent are removed when the rules are complete. */
export function openNftables(access: HostAccess): LinuxPart {
  const { addresses } = access;
  return access.openLocked('rules', () => {
    const rules = openRules(access, { clients: 'outside' });
    const { desired, items, listener } = rules;
    return {
      datapath: { services: listener, nodes: labelHandler(access, [rules]) },
      tables: [access.addRouteUser(items)],
      problems: () => [...affinityProblem(desired), ...addresses.problems()],
      setInputs: (inputs) => desired.setInputs(inputs),
      retire: () => retirePrograms(access),
      [Symbol.dispose]: () => rules[Symbol.dispose](),
    };
  });
}

/** Opens services as rules, and repairs changes by others. Throws `SyscallError` without nftables. */
function openRules(access: HostAccess, options: ServicesOptions): OpenedServices {
  const table = new NftServices(access.kernel);
  return disposeOnError([table], () => {
    table.check();
    const services = openServices(access, table, table, options);
    const { clock } = access.tableContext;
    let tookMs = 0;
    const repairing = new PacedTask(
      clock,
      () => Math.max(RULES_PACE_MS, REPAIR_PACE_FACTOR * tookMs),
      async () => {
        const begun = clock.now();
        // Failures are retried by the next repair of all tables.
        await services.items.repair().catch(() => {});
        tookMs = clock.now() - begun;
      },
    );
    if (!access.options.dryRun)
      disposeOnError([services], () => table.follow(() => void repairing.request()));
    return {
      ...services,
      [Symbol.dispose]: () => {
        repairing[Symbol.dispose]();
        services[Symbol.dispose]();
      },
    };
  });
}

/** Opens services in a table, and disposes of `owner` with them. Node ports follow the addresses of this host. */
function openServices(
  access: HostAccess,
  table: KernelTable<ServiceItem>,
  owner: Disposable,
  { whenDeletesAllowed, ...options }: ServicesOptions,
): OpenedServices {
  const { nodeName } = access.context;
  const { addresses } = access;
  access.disableDryRunWrites(table);
  // Rules cannot send a packet for a loopback address to a backend on another host, because the kernel drops it.
  const nodePort = (all: AddressesByFamily): NodePortOptions => ({
    enabled: true,
    ...(options.clients === 'inside' ? all : withoutLoopback(all)),
  });
  const limitsNodePorts = access.options.sourceRanges === 'all';
  const desired = new DesiredServices({
    nodePort: nodePort(addresses.current),
    nodeName,
    limitsNodePorts,
    ...options,
  });
  const kept = new KeptTable(table, desired, {
    ...access.tableContext,
    whenDeletesAllowed,
    isComplete: (key) => isRulesKey(key) || desired.isComplete(key),
  });
  const end = addresses.follow((all) => {
    for (const frontend of desired.setNodePort(nodePort(all))) kept.mark(frontend);
  });
  return {
    desired,
    items: keptItems(table, kept),
    listener: desired.listener((frontend) => kept.mark(frontend)),
    setNodeLabels: (labels) => {
      for (const frontend of desired.setNodeLabels(labels)) kept.mark(frontend);
    },
    [Symbol.dispose]: () => {
      end();
      owner[Symbol.dispose]();
    },
  };
}

/** Returns a handler that passes the labels of the local node to services. They stay if the node is deleted. */
function labelHandler(access: HostAccess, parts: readonly OpenedServices[]): NodeHandler {
  const { clusterName, nodeName } = access.context;
  const setLabels = ({ cluster, name, labels }: Node): void => {
    if (cluster !== clusterName || name !== nodeName) return;
    for (const part of parts) part.setNodeLabels(labels);
  };
  return {
    name: 'own labels',
    nodeAdd: setLabels,
    nodeUpdate: (_, node) => setLabels(node),
    nodeDelete: () => {},
  };
}

/** Removes the socket programs of an earlier process, and the maps read only by them. */
export function retirePrograms(access: HostAccess): void {
  const { pinFolder } = access.options;
  if (!existsSync(pinFolder)) return;
  access.unlessLocked(() => {
    const folder = access.folder();
    const { bpf } = access;
    detachSocketPrograms(bpf, folder);
    unpinServiceMaps(bpf, folder);
  });
}

/** Removes the rules of an earlier process. */
export function retireRules(access: HostAccess): void {
  access.unlessLocked(() => {
    try {
      using _lock = access.lock('rules');
      using table = new NftServices(access.kernel);
      table.remove();
    } catch (error) {
      // A kernel without nftables has no rules.
      if (!(error instanceof SyscallError && NO_NFTABLES.has(error.code))) throw error;
    }
  });
}

/** Returns a problem if there are frontends which only rules can serve. */
function unreachableProblem(services: DesiredServices, noRulesReason: string): readonly string[] {
  const names = services.externalServices();
  if (names.length === 0) return [];
  return [
    `node ports and external addresses of ${listText(names, 1)} are unreachable from outside this host: ${noRulesReason}`,
  ];
}

function withoutLoopback({ ipv4, ipv6 }: AddressesByFamily): AddressesByFamily {
  return {
    ipv4: ipv4.filter((address) => !address.startsWith('127.')),
    ipv6: ipv6.filter((address) => address !== '::1'),
  };
}

/** Returns a problem for services with session affinity, which rules do not support. */
function affinityProblem(services: DesiredServices): readonly string[] {
  const names = services.affinityServices();
  if (names.length === 0) return [];
  return [
    `no session affinity for ${listText(names, 1)}, because nftables rules select a backend per connection: use --datapath-services socket`,
  ];
}
