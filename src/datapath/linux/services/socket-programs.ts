import { statSync } from 'node:fs';
import { join } from 'node:path';
import { type Bpf, NAME_LENGTH } from '../bpf/bpf.ts';
import { BpfMap } from '../bpf/bpf-map.ts';
import { CGROUP_LINK, linkInfo, programName } from '../bpf/info.ts';
import { attachToCgroup, updateLink } from '../bpf/link.ts';
import { ForeignPinError, kindOf, pin, unpin, usePin } from '../bpf/pin.ts';
import { ATTACH_TYPES, type AttachType, loadProgram, type ProgramImage } from '../bpf/program.ts';
import {
  socketConnect4,
  socketConnect6,
  socketGetpeername4,
  socketGetpeername6,
  socketRecvmsg4,
  socketRecvmsg6,
  socketSendmsg4,
  socketSendmsg6,
} from '../bpf/programs/sockets-images.ts';
import type { GuardedPin } from '../pin-table.ts';
import { useDescriptor } from '../syscall/descriptor.ts';

// Programs for answers are attached first, so that no answer reaches a socket untranslated.
const PROGRAMS: readonly (readonly [AttachType, ProgramImage])[] = [
  ['udp4Recvmsg', socketRecvmsg4],
  ['udp6Recvmsg', socketRecvmsg6],
  ['inet4Getpeername', socketGetpeername4],
  ['inet6Getpeername', socketGetpeername6],
  ['udp4Sendmsg', socketSendmsg4],
  ['udp6Sendmsg', socketSendmsg6],
  ['inet4Connect', socketConnect4],
  ['inet6Connect', socketConnect6],
];

export interface SocketProgramsOptions {
  /** A folder of a bpffs, for the pins of the links. */
  readonly folder: string;
  /** The programs apply to all sockets of processes in this cgroup and below. */
  readonly cgroup: string;
  /** Descriptors of the maps, as returned by `ServicePins.descriptors`. */
  readonly maps: ReadonlyMap<string, number>;
  /**
   * The network namespace of the agent, from `networkCookie`; 0: the initial one. Loopback addresses answer for
   * services only in it.
   */
  readonly hostCookie: bigint;
}

const HOST_MAP = { type: 'array', keySize: 4, valueSize: 8, maxEntries: 1 } as const;

/**
 * Attaches the socket programs. If an earlier process has attached them, their links get the new programs atomically,
 * so that no connection fails. They stay attached when this process ends. Throws `SyscallError`, or `ForeignPinError`
 * before anything is attached.
 */
export function attachSocketPrograms(
  bpf: Bpf,
  { folder, cgroup, maps, hostCookie }: SocketProgramsOptions,
): void {
  for (const [attachType, image] of PROGRAMS) {
    const path = join(folder, image.name);
    if (ownerOfProgram(bpf, path, attachType, image) === 'foreign') throw new ForeignPinError(path);
  }
  // The programs keep the map alive. Each process creates a new map, because it may run in another network namespace.
  using hostMap = BpfMap.create(bpf, HOST_MAP, 'host');
  hostMap.values.view.setBigUint64(0, hostCookie, true);
  for (const error of hostMap.update(1)) if (error !== undefined) throw error;
  const named = new Map([...maps, ['host', hostMap.fd]]);
  for (const [attachType, image] of PROGRAMS) {
    const path = join(folder, image.name);
    useDescriptor(loadProgram(bpf, image, { type: 'cgroupSockAddr', attachType, maps: named }), (program) =>
      attach(bpf, program, { cgroup, attachType, path }),
    );
  }
}

/** Detaches the programs, in reverse order. Connected sockets stay connected. Foreign pins are kept. */
export function detachSocketPrograms(bpf: Bpf, folder: string): void {
  for (const [attachType, image] of PROGRAMS.toReversed()) {
    const path = join(folder, image.name);
    if (ownerOfProgram(bpf, path, attachType, image) === 'ours') unpin(path);
  }
}

/** Returns the pins of the programs' links, by name. Restoring one attaches all. */
export function programPins(bpf: Bpf, options: SocketProgramsOptions): ReadonlyMap<string, GuardedPin> {
  const { folder, cgroup } = options;
  const desired = `attached to ${cgroup}`;
  const stateOf = (path: string, attachType: AttachType, image: ProgramImage): string | undefined => {
    const owner = ownerOfProgram(bpf, path, attachType, image);
    if (owner !== 'ours') return owner;
    const inode = statSync(cgroup, { throwIfNoEntry: false })?.ino;
    return usePin(bpf, path, (fd) => (linkInfo(bpf, fd).cgroup === inode ? desired : 'detached'));
  };
  return new Map(
    PROGRAMS.map(([attachType, image]) => [
      `program ${image.name}`,
      {
        desired,
        read: () => stateOf(join(folder, image.name), attachType, image),
        restore: () => attachSocketPrograms(bpf, options),
      },
    ]),
  );
}

/** Returns the owner of a pin. Ours is a link to a cgroup, with the attach type and name of the program. */
function ownerOfProgram(
  bpf: Bpf,
  path: string,
  attachType: AttachType,
  image: ProgramImage,
): 'ours' | 'foreign' | undefined {
  return usePin(bpf, path, (fd) => {
    if (kindOf(fd) !== 'link') return 'foreign';
    const link = linkInfo(bpf, fd);
    const name = programName(bpf, link.programID) ?? image.name;
    const isOurs =
      link.type === CGROUP_LINK &&
      link.attachType === ATTACH_TYPES[attachType] &&
      name.slice(0, NAME_LENGTH) === image.name.slice(0, NAME_LENGTH);
    return isOurs ? 'ours' : 'foreign';
  });
}

/** The cgroup and the hook at which a program is attached, and the pin of its link. */
interface Place {
  readonly cgroup: string;
  readonly attachType: AttachType;
  readonly path: string;
}

function attach(bpf: Bpf, program: number, place: Place): void {
  const { path, cgroup, attachType } = place;
  const isUpdated = usePin(bpf, path, (found) => {
    // A link cannot be moved if its cgroup was deleted or is another one. A new link is created.
    if (linkInfo(bpf, found).cgroup !== statSync(cgroup).ino) return false;
    updateLink(bpf, found, program);
    return true;
  });
  if (isUpdated === true) return;
  useDescriptor(attachToCgroup(bpf, program, cgroup, attachType), (link) => {
    // Not earlier: if attaching fails, the old link is kept.
    unpin(path);
    pin(bpf, link, path);
  });
}
