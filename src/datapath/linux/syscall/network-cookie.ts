import { closeSync } from 'node:fs';
import type { Kernel } from './kernel.ts';
import { SyscallError } from './syscall-error.ts';

const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_NETNS_COOKIE = 71;

/**
 * Returns the cookie of the network namespace of this process, as `bpf_get_netns_cookie` returns it to programs.
 * Returns 0 on kernels before 5.14, which do not provide it.
 */
export function networkCookie(kernel: Kernel): bigint {
  const fd = kernel.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  try {
    return Buffer.from(kernel.socketOption(fd, SOL_SOCKET, SO_NETNS_COOKIE, 8)).readBigUInt64LE();
  } catch (error) {
    if (error instanceof SyscallError && error.code === 'ENOPROTOOPT') return 0n;
    throw error;
  } finally {
    closeSync(fd);
  }
}
