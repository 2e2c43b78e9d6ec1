import { closeSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Bpf } from '../bpf/bpf.ts';
import { linkInfo } from '../bpf/info.ts';
import { attachToCgroup, updateLink } from '../bpf/link.ts';
import { openPin, pin, unpin } from '../bpf/pin.ts';
import { type AttachType, loadProgram, type ProgramImage } from '../bpf/program.ts';
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
 * with no moment between, so that no connection fails. They stay when this process ends. Throws `SyscallError`.
 */
export function attachSocketPrograms(bpf: Bpf, { folder, cgroup, maps }: SocketProgramsOptions): void {
  for (const [attachType, image] of PROGRAMS) {
    const program = loadProgram(bpf, image, { type: 'cgroupSockAddr', attachType, maps });
    try {
      attach(bpf, program, { cgroup, attachType, path: join(folder, image.name) });
    } finally {
      closeSync(program);
    }
  }
}

/** Detaches the programs, the other way round. Sockets that are connected stay so. */
export function detachSocketPrograms(folder: string): void {
  for (const [, image] of PROGRAMS.toReversed()) unpin(join(folder, image.name));
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
    unpin(path);
  }
  const link = attachToCgroup(bpf, program, cgroup, attachType);
  try {
    pin(bpf, link, path);
  } finally {
    closeSync(link);
  }
}
