import { Bpf } from './bpf/bpf.ts';
import { openIPCachePin, tunnelText } from './ipcache-map.ts';
import { Kernel } from './syscall/kernel.ts';

export interface PinnedEntry {
  /** A canonical CIDR; for a key that is not a prefix, a text of its bytes. */
  readonly prefix: string;
  readonly identity: number;
  /** Undefined if the entry has no tunnel endpoint. */
  readonly hostIP: string | undefined;
  readonly skipTunnel: boolean;
}

const SKIP_TUNNEL = 1;

/**
 * Returns the entries of a pinned ipcache map of Cilium or of ours, of any capacity and layout. The layout of 1.8 is
 * read as that of 1.17: only the offset of the encryption key differs, and 1.8 has zeros in place of the flags. Writes
 * nothing. Throws `SyscallError` if the kernel refuses, and `ForeignMapError` if the pin is another map.
 */
export function readIPCachePin(path: string): readonly PinnedEntry[] {
  using kernel = new Kernel();
  using bpf = new Bpf(kernel);
  using table = openIPCachePin(bpf, path);
  if (table === undefined)
    throw new Error('no map is pinned there: check the path, and mount the bpf file system');
  return Array.from(table.dump(), ([prefix, item]) => ({
    prefix,
    identity: item.identity,
    hostIP: tunnelText(item) || undefined,
    skipTunnel: (item.flags & SKIP_TUNNEL) !== 0,
  }));
}
