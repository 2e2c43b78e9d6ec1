import { type Command, InvalidArgumentError, Option } from 'commander';
import type { HostDatapathOptions } from '../datapath/linux/host-options.ts';
import { canonicalCIDR } from '../net/prefix.ts';
import { numberParser, RepeatableOption } from './option-table.ts';

/** Default folder of the pins. Cilium's is `/sys/fs/bpf/tc/globals`. */
export const DEFAULT_PIN_FOLDER = '/sys/fs/bpf/dpcache';

// The first value of each is the default.
const SERVICES = ['socket', 'nftables', 'off'] as const satisfies readonly HostDatapathOptions['services'][];
const ROUTING = [
  'auto',
  'direct',
  'tunnel',
  'off',
] as const satisfies readonly HostDatapathOptions['routing'][];
const SOURCE_RANGES = ['external', 'all'] as const satisfies readonly HostDatapathOptions['sourceRanges'][];
const LAYOUTS = ['1.17', '1.18', '1.8'] as const satisfies readonly HostDatapathOptions['layout'][];

/** Options of a datapath as parsed by commander. Missing ones have their defaults. */
export interface DatapathFlags {
  readonly datapath?: 'linux';
  readonly datapathPins?: string;
  readonly datapathCgroup?: string;
  readonly datapathServices?: HostDatapathOptions['services'];
  readonly datapathSourceRanges?: NonNullable<HostDatapathOptions['sourceRanges']>;
  readonly datapathRouting?: HostDatapathOptions['routing'];
  readonly datapathRemoteCidrs?: readonly string[];
  readonly datapathLayout?: HostDatapathOptions['layout'];
  readonly datapathCapacity?: number;
  readonly datapathServiceCapacity?: number;
  readonly datapathDryRun?: true;
}

/** Parses an absolute path, because the next agent must find the pins even if it has another working directory. */
function parseAbsolute(path: string): string {
  if (path.startsWith('/')) return path;
  throw new InvalidArgumentError('It must be an absolute path.');
}

/**
 * Parses `203.0.113.0/24,2001:db8::/32`, and appends the CIDRs to the previous ones. Throws `InvalidArgumentError` with
 * the invalid part.
 */
function parseCIDRs(text: string, previous: readonly string[] = []): readonly string[] {
  const cidrs = text.split(',').map((word) => {
    const cidr = canonicalCIDR(word.trim());
    if (cidr !== undefined) return cidr;
    throw new InvalidArgumentError(`'${word}' is not a CIDR.`);
  });
  return [...previous, ...cidrs];
}

/** Cilium's limit of its maps (pkg/option, 1.17: `bpf-*-map-max`). */
const MAX_CAPACITY = 16_777_216;

const parseCapacity = numberParser(1, MAX_CAPACITY);
/** Parses a number of backends. The limit is a fifth, because the maps have five times as many slots. */
const parseServiceCapacity = numberParser(1, Math.floor(MAX_CAPACITY / 5));

/** Adds `--datapath-pins` and `--datapath-cgroup` to a command. */
export function addPinOptions(command: Command): Command {
  return command
    .option(
      '--datapath-pins <folder>',
      `folder on a bpf file system for the maps, which outlive the agent (default: ${DEFAULT_PIN_FOLDER})`,
      parseAbsolute,
    )
    .option(
      '--datapath-cgroup <folder>',
      'cgroup2 folder whose sockets use the services (default: the root of the mounted cgroup2)',
      parseAbsolute,
    );
}

/** Adds the options of {@link DatapathFlags}. */
export function addDatapathOptions(command: Command): Command {
  const choice = (flags: string, text: string, choices: readonly string[]): Option =>
    new Option(flags, `${text} (default: ${choices[0]})`).choices(choices);
  command
    .optionsGroup('Datapath:')
    .addOption(
      new Option('--datapath <kind>', 'linux: write the caches to the kernel of this machine')
        .choices(['linux'])
        .conflicts('once'),
    );
  return addPinOptions(command)
    .addOption(choice('--datapath-services <mode>', 'implementation of services', SERVICES))
    .addOption(
      choice(
        '--datapath-source-ranges <frontends>',
        'frontends at which loadBalancerSourceRanges apply',
        SOURCE_RANGES,
      ),
    )
    .addOption(choice('--datapath-routing <mode>', 'routes to pods of other nodes', ROUTING))
    .addOption(
      new RepeatableOption(
        '--datapath-remote-cidrs <cidrs>',
        'CIDRs allowed for pods of remote clusters, in addition to private ranges; may be repeated',
      ).argParser(parseCIDRs),
    )
    .addOption(choice('--datapath-layout <version>', 'map layout of this Cilium version', LAYOUTS))
    .option(
      '--datapath-capacity <n>',
      'maximum number of prefixes in the map (default: 512000)',
      parseCapacity,
    )
    .option(
      '--datapath-service-capacity <n>',
      'maximum number of backends in the service maps, which have five times as many slots (default: 131072)',
      parseServiceCapacity,
    )
    .option(
      '--datapath-dry-run',
      'write nothing to the kernel; dpcache datapath diff lists the pending writes',
    )
    .optionsGroup('Options:');
}

/** Returns the contradiction if an option requires `--datapath`, which is missing. */
export function datapathContradiction(flags: DatapathFlags): string | undefined {
  if (flags.datapath !== undefined) return undefined;
  const names = Object.entries(flags).flatMap(([name, value]) => (value === undefined ? [] : name));
  const attribute = names.find((name) => name.startsWith('datapath'));
  if (attribute === undefined) return undefined;
  const option = attribute.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  return `--${option} requires --datapath linux`;
}

/** Returns the datapath of the flags; undefined if there is none. */
export function datapathOptions(flags: DatapathFlags): HostDatapathOptions | undefined {
  if (flags.datapath === undefined) return undefined;
  return {
    pinFolder: flags.datapathPins ?? DEFAULT_PIN_FOLDER,
    cgroup: flags.datapathCgroup,
    services: flags.datapathServices ?? SERVICES[0],
    sourceRanges: flags.datapathSourceRanges ?? SOURCE_RANGES[0],
    routing: flags.datapathRouting ?? ROUTING[0],
    remoteCIDRs: flags.datapathRemoteCidrs,
    layout: flags.datapathLayout ?? LAYOUTS[0],
    capacity: flags.datapathCapacity,
    serviceCapacity: flags.datapathServiceCapacity,
    dryRun: flags.datapathDryRun === true,
  };
}
