import { openSync } from 'node:fs';
import { useDescriptor } from '../syscall/descriptor.ts';
import type { Bpf } from './bpf.ts';
import { ATTACH_TYPES, type AttachType } from './program.ts';

/**
 * Attaches a program to a cgroup, for the sockets of all processes in and below it. Returns the descriptor of the link.
 * The link ends when it is closed, unless it is pinned. Programs of others stay attached and run as well.
 */
export function attachToCgroup(bpf: Bpf, program: number, cgroup: string, attachType: AttachType): number {
  return useDescriptor(openSync(cgroup, 'r'), (folder) =>
    createLink(bpf, program, folder, attachType, cgroup),
  );
}

/**
 * Attaches a program to an interface, by its index in the network namespace of this thread. Returns the descriptor of
 * the link, which ends when it is closed. The program runs after programs of others that pass the packet on. Since
 * Linux 6.6.
 */
export function attachToInterface(
  bpf: Bpf,
  program: number,
  ifindex: number,
  attachType: 'tcxIngress' | 'tcxEgress',
): number {
  return createLink(bpf, program, ifindex, attachType, `interface ${ifindex}`);
}

function createLink(bpf: Bpf, program: number, target: number, attachType: AttachType, on: string): number {
  const attributes = bpf.attributes();
  attributes.setUint32(0, program, true);
  attributes.setUint32(4, target, true);
  attributes.setUint32(8, ATTACH_TYPES[attachType], true);
  return bpf.call('LINK_CREATE', `${attachType} on ${on}`);
}

/** Replaces the program of a link atomically. */
export function updateLink(bpf: Bpf, link: number, program: number): void {
  const attributes = bpf.attributes();
  attributes.setUint32(0, link, true);
  attributes.setUint32(4, program, true);
  bpf.call('LINK_UPDATE');
}
