import { closeSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Bpf } from '../bpf/bpf.ts';
import { CGROUP_LINK, linkInfo, programName } from '../bpf/info.ts';
import { attachToCgroup, updateLink } from '../bpf/link.ts';
import { ForeignPinError, kindOf, openPin, pin, unpin } from '../bpf/pin.ts';
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

// What brings answers back comes first, so that none is sent to a socket that does not know of it.
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

/** As much of a name as the kernel keeps. */
const NAME_LENGTH = 15;

/** Where the programs are attached, and what they read. */
export interface SocketProgramsOptions {
  /** A folder of a bpffs, for the pins of the links. */
  readonly folder: string;
  /** All sockets of processes in this cgroup, and below. */
  readonly cgroup: string;
  /** Descriptors of the maps, as `ServiceTable.descriptors` gives them. */
  readonly maps: ReadonlyMap<string, number>;
}

/**
 * Attaches the socket programs, or takes those over that an earlier process has attached: their links get the new programs
 * with no moment between, so that no connection fails. They stay when this process ends. Throws `SyscallError`, and before
 * anything is attached `ForeignPinError`.
 */
export function attachSocketPrograms(bpf: Bpf, { folder, cgroup, maps }: SocketProgramsOptions): void {
  for (const [attachType, image] of PROGRAMS) {
    const path = join(folder, image.name);
    if (whoseIs(bpf, path, attachType, image) === 'of others') throw new ForeignPinError(path);
  }
  for (const [attachType, image] of PROGRAMS) {
    const program = loadProgram(bpf, image, { type: 'cgroupSockAddr', attachType, maps });
    try {
      attach(bpf, program, { cgroup, attachType, path: join(folder, image.name) });
    } finally {
      closeSync(program);
    }
  }
}

/** Detaches the programs, the other way round. Sockets that are connected stay so, and so do pins of others. */
export function detachSocketPrograms(bpf: Bpf, folder: string): void {
  for (const [attachType, image] of PROGRAMS.toReversed()) {
    const path = join(folder, image.name);
    if (whoseIs(bpf, path, attachType, image) === 'ours') unpin(path);
  }
}

/** Ours is a link to a cgroup, at the place of the program, with a program of that name. */
function whoseIs(
  bpf: Bpf,
  path: string,
  attachType: AttachType,
  image: ProgramImage,
): 'ours' | 'of others' | undefined {
  const fd = openPin(bpf, path);
  if (fd === undefined) return undefined;
  try {
    if (kindOf(fd) !== 'link') return 'of others';
    const link = linkInfo(bpf, fd);
    const name = programName(bpf, link.programID) ?? image.name;
    const isOurs =
      link.type === CGROUP_LINK &&
      link.attachType === ATTACH_TYPES[attachType] &&
      name.slice(0, NAME_LENGTH) === image.name.slice(0, NAME_LENGTH);
    return isOurs ? 'ours' : 'of others';
  } finally {
    closeSync(fd);
  }
}

interface Place {
  readonly cgroup: string;
  readonly attachType: AttachType;
  readonly path: string;
}

function attach(bpf: Bpf, program: number, place: Place): void {
  const { path, cgroup, attachType } = place;
  const found = openPin(bpf, path);
  if (found !== undefined) {
    try {
      // A link whose cgroup has vanished, or that is of another, cannot be moved: there is a new one.
      if (linkInfo(bpf, found).cgroup === statSync(cgroup).ino) {
        updateLink(bpf, found, program);
        return;
      }
    } finally {
      closeSync(found);
    }
  }
  const link = attachToCgroup(bpf, program, cgroup, attachType);
  try {
    // Not before: where it cannot be attached here, it stays where it was.
    unpin(path);
    pin(bpf, link, path);
  } finally {
    closeSync(link);
  }
}
