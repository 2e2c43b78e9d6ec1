import type { Clock, Random } from '../../base/clock.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import type { DatapathEngines } from '../datapath.ts';
import type { NodePathsOptions } from './paths/node-paths.ts';

/** What is steered, and how. */
export interface HostDatapathOptions {
  /** On a bpf file system; what is pinned there outlives the process. */
  readonly pinFolder: string;
  /** Default: the root of the cgroup2 that is mounted. */
  readonly cgroup?: string | undefined;
  /** How a pod of another node is reached; see `NodePathsOptions`. */
  readonly routing: NodePathsOptions['mode'] | 'off';
  /** How a service is reached: at `connect` of a socket, by a rule of nftables, or by others. */
  readonly services: 'socket' | 'nftables' | 'off';
  /** Of which Cilium the layout of maps is. */
  readonly layout: '1.17' | '1.8';
  /** Most prefixes; default: upstream's. */
  readonly capacity?: number | undefined;
  /** Most backends of services, in each family, and ten times as many slots; default: upstream's. */
  readonly serviceCapacity?: number | undefined;
  /** Compares, and writes nothing. */
  readonly dryRun: boolean;
}

/** What the datapath of a host works with. */
export interface HostDatapathContext {
  readonly engines: DatapathEngines & { readonly ipcache: IPCache };
  readonly clock: Clock;
  readonly random: Random;
  /** The own node, to which no path is needed, and which traffic policies prefer. */
  readonly nodeName: string;
  readonly clusterName: string;
}
