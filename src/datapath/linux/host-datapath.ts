import type { Clock, Random } from '../../base/clock.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import type { DatapathEngines } from '../datapath.ts';
import { HostParts } from './host-parts.ts';
import { LinuxDatapath, type WantedPart } from './linux-datapath.ts';
import type { NodePathsOptions } from './paths/node-paths.ts';
import { type DatapathPart, missingFor, type ProbeAnswer, probeHost, readHost } from './probe.ts';

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

/** The datapath of this host, and what its probe has found. */
export interface HostDatapath {
  readonly probe: ProbeAnswer;
  readonly datapath: LinuxDatapath;
}

/** Opens what can run on this host of what is asked for. Never throws: what cannot run is named in the status. */
export function openHostDatapath(options: HostDatapathOptions, context: HostDatapathContext): HostDatapath {
  const { pinFolder, cgroup, routing, services } = options;
  const probe = probeHost(readHost(), { pinFolder, cgroup });
  const parts = new HostParts(options, context);
  const canRun = (part: DatapathPart): boolean => missingFor(probe, part).length === 0;
  const retireRules = (): void => {
    if (canRun('nftables')) parts.retireRules();
  };
  const wanted: readonly WantedPart[] = [
    {
      name: 'nodes',
      needs: routing === 'tunnel' ? ['routes', 'tunnel'] : ['routes'],
      open: routing === 'off' ? undefined : () => parts.nodes(routing),
      retire: () => {
        if (canRun('routes')) parts.retireNodes();
      },
    },
    { name: 'ipcache', needs: ['maps'], open: () => parts.ipcache() },
    {
      name: 'services',
      needs: services === 'nftables' ? ['nftables'] : ['sockets'],
      open:
        services === 'off'
          ? undefined
          : () =>
              services === 'nftables' ? parts.nftables() : parts.sockets(probe.cgroup ?? '', retireRules),
      retire: () => {
        parts.retirePrograms();
        retireRules();
      },
    },
  ];
  return { probe, datapath: new LinuxDatapath(probe, wanted, parts) };
}
