import type { Clock, Random } from '../../base/clock.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import type { DatapathEngines } from '../datapath.ts';
import type { NodePathsOptions } from './paths/node-paths.ts';

/** The parts of a Linux datapath and their settings. */
export interface HostDatapathOptions {
  /** A folder on a bpf file system. Pins in it outlive the process. */
  readonly pinFolder: string;
  /** Default: the root of the mounted cgroup2. */
  readonly cgroup?: string | undefined;
  /** How pods of other nodes are reached; see `NodePathsOptions`. */
  readonly routing: NodePathsOptions['mode'] | 'off';
  /** Ranges for pods of remote clusters, in addition to the private address ranges. */
  readonly remoteCIDRs?: readonly string[] | undefined;
  /** How services are reached: at `connect` of a socket, by rules of nftables, or by another program. */
  readonly services: 'socket' | 'nftables' | 'off';
  /**
   * The frontends that admit only the clients in `loadBalancerSourceRanges`. `external` (default): load-balancer
   * addresses and external IPs. `all`: also node ports.
   */
  readonly sourceRanges?: 'external' | 'all' | undefined;
  /** The layout of the map of prefixes, by Cilium version. `1.18` is also the layout of later versions. */
  readonly layout: '1.18' | '1.17' | '1.8';
  /** Maximum number of prefixes; default 512,000, as in Cilium. */
  readonly capacity?: number | undefined;
  /**
   * Maximum number of service backends per family; default 131,072. The map of slots, which lists the backends of each
   * frontend, has five times as many entries.
   */
  readonly serviceCapacity?: number | undefined;
  /** If true, the kernel is compared with the engines, and nothing is written. */
  readonly dryRun: boolean;
}

/** The engines, the runtime and the node of a Linux datapath. */
export interface HostDatapathContext {
  readonly engines: DatapathEngines & { readonly ipcache: IPCache };
  readonly clock: Clock;
  readonly random: Random;
  /** Name of the local node. No route leads to it, and traffic policies prefer its backends. */
  readonly nodeName: string;
  readonly clusterName: string;
}
