/**
 * The entry `datapath-cache/linux`: the datapath of this Linux host. Keeps the tables of the kernel equal to the
 * content of the engines. An import loads no native code; opening a datapath loads koffi. Also exports the entries
 * `nodemanager` and `servicecache`, because the signatures contain their types.
 */

export type { Datapath, DatapathEngines } from './datapath/datapath.ts';
export { cleanHost } from './datapath/linux/clean-host.ts';
export type { CleanOutcome } from './datapath/linux/clean-tables.ts';
export type { FailingKey } from './datapath/linux/failing-keys.ts';
export type { HostDatapath } from './datapath/linux/host-datapath.ts';
export { openHostDatapath } from './datapath/linux/host-datapath.ts';
export type { HostDatapathContext, HostDatapathOptions } from './datapath/linux/host-options.ts';
export type { KeptItems, KeptItemsStatus, PrintedStep } from './datapath/linux/kept-items.ts';
export type { KeptTableContext, KeptTableStatus } from './datapath/linux/kept-table.ts';
export { KeptTable } from './datapath/linux/kept-table.ts';
export type {
  ApplyOutcome,
  DesiredItems,
  KernelTable,
  MapUse,
  PlannedChange,
  TableChange,
} from './datapath/linux/kernel-table.ts';
export type { KnownInputs } from './datapath/linux/known-inputs.ts';
export type {
  LinuxDatapath,
  LinuxDatapathStatus,
  LinuxPart,
  LinuxPartName,
  LinuxPartStatus,
  WantedPart,
} from './datapath/linux/linux-datapath.ts';
export type { NodePathsOptions } from './datapath/linux/paths/node-paths.ts';
export type { DatapathPiece, PieceAnswer, ProbeAnswer } from './datapath/linux/probe.ts';
export { SyscallError } from './datapath/linux/syscall/syscall-error.ts';
export type { AttachedBy, TrafficPlace } from './datapath/linux/traffic/attached-program.ts';
export type { IdentityFlow, IdentityTrafficOptions } from './datapath/linux/traffic/identity-traffic.ts';
export { IdentityTraffic } from './datapath/linux/traffic/identity-traffic.ts';
export * from './nodemanager.ts';
export * from './servicecache.ts';
