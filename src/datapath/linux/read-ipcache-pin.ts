import { formatAddress } from '../../net/format-address.ts';
import { Bpf } from './bpf/bpf.ts';
import { BpfMap } from './bpf/bpf-map.ts';
import { IPCacheTable, ipcacheShape } from './ipcache-map.ts';
import { Kernel } from './syscall/kernel.ts';

export interface PinnedEntry {
  /** Canonical, with a length. */
  readonly prefix: string;
  readonly identity: number;
  /** Undefined if the entry has no tunnel endpoint. */
  readonly hostIP: string | undefined;
  readonly skipTunnel: boolean;
}

const SKIP_TUNNEL = 1;

/**
 * Returns the entries of a pinned ipcache map of Cilium or of ours, of any capacity and of either layout. The layouts
 * differ only in the offset of the encryption key; 1.8 has zeros where 1.17 has flags. Writes nothing. Throws
 * `SyscallError` if the kernel refuses, and `ForeignMapError` if the pin is another map.
 */
export function readIPCachePin(path: string): readonly PinnedEntry[] {
  using kernel = new Kernel();
  using bpf = new Bpf(kernel);
  const map = BpfMap.open(bpf, ipcacheShape(), path, 'any');
  if (map === undefined)
    throw new Error('no map is pinned there: check the path, and mount the bpf file system');
  using table = new IPCacheTable(map);
  return Array.from(table.dump(), ([prefix, { identity, tunnel, flags }]) => ({
    prefix,
    identity,
    hostIP: tunnel === 0 ? undefined : formatAddress({ family: 4, w0: tunnel, w1: 0, w2: 0, w3: 0 }),
    skipTunnel: (flags & SKIP_TUNNEL) !== 0,
  }));
}
