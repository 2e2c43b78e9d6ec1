import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import type { Bpf } from '../bpf/bpf.ts';
import { attachToInterface } from '../bpf/link.ts';
import { RTM_LINK, readLink, writeLinkQuestion } from '../netlink/link.ts';
import { NLM_F } from '../netlink/message-writer.ts';
import { NetlinkSocket } from '../netlink/netlink-socket.ts';
import { RTM_TC, type TrafficFilter, writeClsact, writeFilter } from '../netlink/traffic-filter.ts';
import { inNamespace } from '../syscall/in-namespace.ts';
import type { Kernel } from '../syscall/kernel.ts';
import { SyscallError } from '../syscall/syscall-error.ts';

const { EEXIST, EINVAL, ENOENT } = constants.errno;
const GONE: ReadonlySet<string> = new Set(['ENOENT', 'ENODEV', 'EINVAL']);

/** Where a program sees packets. */
export interface TrafficPlace {
  /** The name of the interface. */
  readonly interface: string;
  /** What it receives, or what it sends. */
  readonly direction: 'ingress' | 'egress';
  /** Path of the network namespace that the interface is in, which takes `CAP_SYS_ADMIN`; by default that of the process. */
  readonly namespace?: string | undefined;
}

/** How a program is attached: by a link of TCX, since Linux 6.6, or as a filter of the discipline `clsact`. */
export type AttachedBy = 'tcx' | 'clsact';

/** What is needed to attach. */
export interface AttachContext {
  readonly kernel: Kernel;
  readonly bpf: Bpf;
}

/** Numbers of our filter: a program attached anew takes the place of the one before. */
const FILTER = { priority: 20_201, handle: 1 } as const;

/**
 * A program at an interface, until it is disposed of. A link of TCX goes with the process, too, whatever ends that; a filter
 * stays then, and the next one takes its place.
 */
export class AttachedProgram implements Disposable {
  readonly by: AttachedBy;
  readonly #detach: () => void;

  private constructor(by: AttachedBy, detach: () => void) {
    this.by = by;
    this.#detach = detach;
  }

  /** By TCX where this kernel has it, unless `by` says which. Throws `SyscallError`, `ENODEV` where there is no such interface. */
  static attach(
    context: AttachContext,
    program: number,
    place: TrafficPlace,
    by?: AttachedBy | undefined,
  ): AttachedProgram {
    const { kernel } = context;
    const { namespace, direction } = place;
    const socket = new NetlinkSocket(kernel, { namespace });
    try {
      const ifindex = indexOf(socket, place.interface);
      if (by !== 'clsact') {
        const link = tryLink(context, program, { ...place, ifindex });
        if (typeof link === 'number') {
          socket[Symbol.dispose]();
          return new AttachedProgram('tcx', () => closeSync(link));
        }
        // A kernel before 6.6 does not know the place.
        if (by === 'tcx' || link.errno !== EINVAL) throw link;
      }
      const filter = { interface: ifindex, direction, ...FILTER };
      addFilter(socket, program, filter);
      return new AttachedProgram('clsact', () => {
        try {
          deleteFilter(socket, filter);
        } finally {
          socket[Symbol.dispose]();
        }
      });
    } catch (error) {
      socket[Symbol.dispose]();
      throw error;
    }
  }

  [Symbol.dispose](): void {
    this.#detach();
  }
}

function indexOf(socket: NetlinkSocket, name: string): number {
  const what = `interface ${name}`;
  const write = (writer: Parameters<typeof writeLinkQuestion>[0]): void =>
    writeLinkQuestion(writer, { name });
  const link = socket.ask({ what, type: RTM_LINK.get, flags: 0, write }, readLink);
  if (link === undefined) throw new SyscallError(what, ENOENT);
  return link.index;
}

function tryLink(
  { kernel, bpf }: AttachContext,
  program: number,
  { namespace, direction, ifindex }: TrafficPlace & { readonly ifindex: number },
): number | SyscallError {
  const attachType = direction === 'ingress' ? 'tcxIngress' : 'tcxEgress';
  try {
    return inNamespace(kernel, namespace, () => attachToInterface(bpf, program, ifindex, attachType));
  } catch (error) {
    if (error instanceof SyscallError) return error;
    throw error;
  }
}

function addFilter(socket: NetlinkSocket, fd: number, filter: TrafficFilter): void {
  const flags = NLM_F.create;
  const [error] = socket.transact([
    {
      ...{ what: 'add clsact', type: RTM_TC.addDiscipline, flags: flags | NLM_F.exclusive },
      write: (writer) => writeClsact(writer, filter.interface),
    },
  ]);
  if (error !== undefined && error.errno !== EEXIST) throw error;
  socket.change({
    ...{ what: 'add a filter', type: RTM_TC.addFilter, flags: flags | NLM_F.replace },
    write: (writer) => writeFilter(writer, filter, { fd, name: 'dpcache' }),
  });
}

/** One that is not there any more has been deleted; its interface may have gone. */
function deleteFilter(socket: NetlinkSocket, filter: TrafficFilter): void {
  const [error] = socket.transact([
    {
      ...{ what: 'delete a filter', type: RTM_TC.deleteFilter, flags: 0 },
      write: (writer) => writeFilter(writer, filter),
    },
  ]);
  if (error !== undefined && !GONE.has(error.code)) throw error;
}
