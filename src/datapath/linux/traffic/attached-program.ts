import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import { disposeOnError } from '../../../base/dispose-on-error.ts';
import type { Bpf } from '../bpf/bpf.ts';
import { attachToInterface } from '../bpf/link.ts';
import { linkRequest, readLink } from '../netlink/link.ts';
import type { NetlinkMessage } from '../netlink/message-reader.ts';
import { type NetlinkRequest, NetlinkSocket } from '../netlink/netlink-socket.ts';
import { addFilter, clsactRequest, deleteFilter, filterDump, RTM_TC } from '../netlink/traffic-filter.ts';
import { runInNamespace } from '../syscall/in-namespace.ts';
import type { Kernel } from '../syscall/kernel.ts';
import { SyscallError } from '../syscall/syscall-error.ts';

const { EEXIST, EINVAL, ENODEV } = constants.errno;
const GONE: ReadonlySet<string> = new Set(['ENOENT', 'ENODEV', 'EINVAL']);

/** The place at which a program sees packets. */
export interface TrafficPlace {
  readonly interface: string;
  /** Received or sent packets. */
  readonly direction: 'ingress' | 'egress';
  /** Path of the network namespace of the interface, which requires `CAP_SYS_ADMIN`; default that of the process. */
  readonly namespace?: string | undefined;
}

/** A place whose interface was found. */
type FoundPlace = TrafficPlace & { readonly ifindex: number };

/** How a program is attached: by a TCX link, since Linux 6.6, or as a filter of the discipline `clsact`. */
export type AttachedBy = 'tcx' | 'clsact';

export interface AttachContext {
  readonly kernel: Kernel;
  readonly bpf: Bpf;
}

/**
 * Number of programs that use each `clsact` added by this process, by `namespace index`. When the last of our programs
 * ends, the discipline is removed, unless others use it.
 */
const createdDisciplines: Map<string, number> = new Map();

/**
 * The last filter attached at each hook by this process, by `namespace index direction`. It has replaced the earlier
 * ones there, which must not remove it.
 */
const currentFilters: Map<string, AttachedProgram> = new Map();

/** Numbers of our filter. A program attached again replaces the one before. */
const FILTER = { priority: 20_201, handle: 1 } as const;

/**
 * A program at an interface, attached until dispose. The kernel removes a TCX link when the process ends for any
 * reason. A filter stays, and the next program replaces it. `clsact` is removed with the last filter if this process
 * has added it.
 */
export interface AttachedProgram extends Disposable {
  readonly by: AttachedBy;
}

/** Attaches a program; by default with TCX if supported. Throws `SyscallError`: `ENODEV` without the interface. */
export function attachProgram(
  context: AttachContext,
  program: number,
  place: TrafficPlace,
  by?: AttachedBy | undefined,
): AttachedProgram {
  const socket = new NetlinkSocket(context.kernel, { namespace: place.namespace });
  return disposeOnError([socket], () => {
    const ifindex = indexOf(socket, place.interface);
    const link = by === 'clsact' ? undefined : tryLink(context, program, { ...place, ifindex });
    if (typeof link === 'number') {
      socket[Symbol.dispose]();
      return { by: 'tcx', [Symbol.dispose]: () => closeSync(link) };
    }
    // Kernels before 6.6 do not support TCX.
    if (link !== undefined && (by === 'tcx' || link.errno !== EINVAL)) throw link;
    return attachFilter(socket, program, { ...place, ifindex });
  });
}

/** Attaches a program as a filter. The attached program owns the socket. */
function attachFilter(socket: NetlinkSocket, program: number, place: FoundPlace): AttachedProgram {
  const { namespace = '', direction, ifindex } = place;
  const filter = { interface: ifindex, direction, ...FILTER };
  const discipline = `${namespace} ${ifindex}`;
  const users = createdDisciplines.get(discipline) ?? 0;
  if (addClsact(socket, ifindex)) createdDisciplines.set(discipline, 1);
  else if (users > 0) createdDisciplines.set(discipline, users + 1);
  const release = { [Symbol.dispose]: () => releaseClsact(socket, ifindex, discipline) };
  disposeOnError([release], () => socket.change(addFilter(filter, { fd: program, name: 'dpcache' })));
  const hook = `${discipline} ${direction}`;
  const attached: AttachedProgram = {
    by: 'clsact',
    [Symbol.dispose]: () => {
      using _socket = socket;
      if (currentFilters.get(hook) === attached) {
        currentFilters.delete(hook);
        remove(socket, deleteFilter(filter));
      }
      release[Symbol.dispose]();
    },
  };
  currentFilters.set(hook, attached);
  return attached;
}

function indexOf(socket: NetlinkSocket, name: string): number {
  const operation = `interface ${name}`;
  const link = socket.ask({ ...linkRequest({ name }), operation }, readLink);
  if (link === undefined) throw new SyscallError(operation, ENODEV);
  return link.index;
}

function tryLink(
  { kernel, bpf }: AttachContext,
  program: number,
  { namespace, direction, ifindex }: FoundPlace,
): number | SyscallError {
  const attachType = direction === 'ingress' ? 'tcxIngress' : 'tcxEgress';
  try {
    return runInNamespace(kernel, namespace, () => attachToInterface(bpf, program, ifindex, attachType));
  } catch (error) {
    if (error instanceof SyscallError) return error;
    throw error;
  }
}

/** Adds `clsact` to an interface. Returns false if it exists. */
function addClsact(socket: NetlinkSocket, ifindex: number): boolean {
  const [error] = socket.transact([clsactRequest('add', ifindex)]);
  if (error !== undefined && error.errno !== EEXIST) throw error;
  return error === undefined;
}

/** Removes `clsact` if this process has added it, no program of ours uses it, and no filter is left there. */
function releaseClsact(socket: NetlinkSocket, ifindex: number, discipline: string): void {
  const users = createdDisciplines.get(discipline);
  if (users === undefined) return;
  if (users > 1) {
    createdDisciplines.set(discipline, users - 1);
    return;
  }
  createdDisciplines.delete(discipline);
  if (!hasFilters(socket, ifindex)) remove(socket, clsactRequest('delete', ifindex));
}

function hasFilters(socket: NetlinkSocket, ifindex: number): boolean {
  const isFilter = ({ type }: NetlinkMessage): true | undefined => type === RTM_TC.addFilter || undefined;
  return (['ingress', 'egress'] as const).some(
    (direction) => socket.dump(filterDump(ifindex, direction), isFilter).length > 0,
  );
}

/** Sends a delete. Succeeds if the object or its interface does not exist. */
function remove(socket: NetlinkSocket, request: NetlinkRequest): void {
  const [error] = socket.transact([request]);
  if (error !== undefined && !GONE.has(error.code)) throw error;
}
