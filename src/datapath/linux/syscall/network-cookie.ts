import { useDescriptor } from './descriptor.ts';
import { AF_UNIX, type Kernel, SOCK_CLOEXEC, SOL_SOCKET } from './kernel.ts';
import { SyscallError } from './syscall-error.ts';

const SOCK_DGRAM = 2;
const SO_NETNS_COOKIE = 71;

/**
 * Returns the cookie of the network namespace of this process, as `bpf_get_netns_cookie` returns it to programs.
 * Returns 0 on kernels before 5.14, which do not provide it.
 */
export function networkCookie(kernel: Kernel): bigint {
  return useDescriptor(kernel.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), (fd) => {
    try {
      return Buffer.from(kernel.socketOption(fd, SOL_SOCKET, SO_NETNS_COOKIE, 8)).readBigUInt64LE();
    } catch (error) {
      if (error instanceof SyscallError && error.code === 'ENOPROTOOPT') return 0n;
      throw error;
    }
  });
}
