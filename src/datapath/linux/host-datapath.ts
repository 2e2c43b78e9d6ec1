import {
  BOOLEAN,
  checkArgument,
  FUNCTION,
  OBJECT,
  objectWith,
  oneOf,
  optional,
  POSITIVE,
  TEXT,
} from '../../base/arguments.ts';
import { HostAccess } from './host-access.ts';
import type { HostDatapathContext, HostDatapathOptions } from './host-options.ts';
import { openIPCache, openNodes, retireNodes } from './host-parts.ts';
import { LinuxDatapath, type WantedPart } from './linux-datapath.ts';
import { type DatapathPiece, missingFor, type ProbeAnswer, probeHost, readHost } from './probe.ts';
import { openNftables, openSockets, retirePrograms, retireRules } from './services/service-parts.ts';

/** The datapath of this host, and the result of its probe. */
export interface HostDatapath {
  readonly probe: ProbeAnswer;
  readonly datapath: LinuxDatapath;
}

const OPTIONS = objectWith({
  pinFolder: TEXT,
  cgroup: optional(TEXT),
  services: oneOf('socket', 'nftables', 'off'),
  sourceRanges: optional(oneOf('external', 'all')),
  layout: oneOf('1.18', '1.17', '1.8'),
  capacity: optional(POSITIVE),
  serviceCapacity: optional(POSITIVE),
  dryRun: BOOLEAN,
});
const CONTEXT = objectWith({
  engines: objectWith({ ipcache: OBJECT, services: OBJECT, nodes: OBJECT }),
  clock: objectWith({ now: FUNCTION, after: FUNCTION }),
  random: FUNCTION,
  nodeName: TEXT,
  clusterName: TEXT,
});

/** Opens the requested parts that can run on this host. Never throws: parts that cannot run are in the status. */
export function openHostDatapath(options: HostDatapathOptions, context: HostDatapathContext): HostDatapath {
  checkArgument('openHostDatapath: options', options, OPTIONS);
  checkArgument('openHostDatapath: context', context, CONTEXT);
  const { pinFolder, cgroup, routing } = options;
  const probe = probeHost(readHost(), { pinFolder, cgroup });
  const access = new HostAccess(options, context);
  const canRun = (piece: DatapathPiece): boolean => missingFor(probe, piece).length === 0;
  const openServices: Readonly<Record<HostDatapathOptions['services'], WantedPart['open']>> = {
    off: undefined,
    nftables: () => openNftables(access),
    socket: () => openSockets(access, probe.cgroup ?? ''),
  };
  const wanted: readonly WantedPart[] = [
    {
      name: 'nodes',
      needs: routing === 'tunnel' ? ['routes', 'tunnel'] : ['routes'],
      open: routing === 'off' ? undefined : () => openNodes(access, routing),
      retire: () => {
        if (canRun('routes')) retireNodes(access);
      },
    },
    { name: 'ipcache', needs: ['maps'], open: () => openIPCache(access) },
    {
      name: 'services',
      needs: options.services === 'nftables' ? ['nftables'] : ['sockets'],
      open: openServices[options.services],
      retire: () => {
        retirePrograms(access);
        if (canRun('nftables')) retireRules(access);
      },
    },
  ];
  return { probe, datapath: new LinuxDatapath(probe, wanted, access) };
}
