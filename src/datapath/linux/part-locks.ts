import { closeSync, openSync } from 'node:fs';
import { AF_UNIX, type Kernel, SOCK_CLOEXEC } from './syscall/kernel.ts';
import { SyscallError } from './syscall/syscall-error.ts';

/** Thrown if another process owns a part. */
export class PartLockedError extends Error {
  override readonly name: string = 'PartLockedError';
  readonly code: 'part-locked' = 'part-locked';
}

/** A part of a namespace that only one agent may own, because all agents use the same names and protocol numbers. */
export type NamespacePart = 'routes' | 'rules';

const SOCK_STREAM = 1;
const LOCK_EXCLUSIVE_NOW = 2 | 4; // LOCK_EX | LOCK_NB

const NAMESPACE_REMEDIES: Readonly<Record<NamespacePart, string>> = {
  routes: '--datapath-routing off',
  rules: 'another --datapath-services',
};

/**
 * Locks a part of the network namespace of this process until dispose or until the process ends for any reason. The
 * lock is the name of an abstract socket, which the kernel keeps per namespace. Throws {@link PartLockedError}.
 */
export function lockNamespace(kernel: Kernel, part: NamespacePart): Disposable {
  const fd = kernel.socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const message = `another agent manages the ${part} of this network namespace: stop it, or start this one with ${NAMESPACE_REMEDIES[part]}`;
  const name = Buffer.from(`\0datapath-cache/${part}`);
  return locked(fd, 'EADDRINUSE', message, () =>
    kernel.bind(fd, Buffer.concat([Buffer.from([AF_UNIX, 0]), name])),
  );
}

/** Locks a folder of pins like {@link lockNamespace}, by an advisory lock on it. Throws {@link PartLockedError}. */
export function lockFolder(kernel: Kernel, folder: string): Disposable {
  const fd = openSync(folder, 'r');
  const message = `another agent uses the pins in ${folder}: stop it, or set another folder with --datapath-pins`;
  return locked(fd, 'EAGAIN', message, () => void kernel.call('flock', fd, LOCK_EXCLUSIVE_NOW));
}

function locked(fd: number, conflict: string, message: string, lock: () => void): Disposable {
  try {
    lock();
  } catch (error) {
    closeSync(fd);
    if (error instanceof SyscallError && error.code === conflict) throw new PartLockedError(message);
    throw error;
  }
  let isHeld = true;
  return {
    [Symbol.dispose]: () => {
      if (isHeld) closeSync(fd);
      isHeld = false;
    },
  };
}
