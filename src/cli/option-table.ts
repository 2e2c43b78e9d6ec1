import { type AddHelpTextPosition, type Command, InvalidArgumentError, Option } from 'commander';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { CLUSTER_NAME_RULE, isClusterName } from '../model/cluster-name.ts';
import { isLabelValue } from '../model/label-selector.ts';
import { MAX_CLUSTER_ID } from '../net/prefix.ts';

/*
 * The options of several commands. The text, parser and default of each are defined only here. The key in a
 * configuration file and the environment variable are derived from the option (settings.ts).
 */

/** A repeatable option. Each use adds to the previous values. */
export class RepeatableOption extends Option {}

/** Returns a parser of decimal numbers without a sign or leading zeros. */
export function numberParser(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^(0|[1-9]\d{0,9})$/.test(text) ? Number(text) : Number.NaN;
    if (number >= min && number <= max) return number;
    throw new InvalidArgumentError(`It must be a number from ${min} to ${max}.`);
  };
}

/** Parses an encryption key; 0: none. */
export const parseEncryptKey: (text: string) => number = numberParser(0, 255);

/** Parses a duration in the format of Cilium, such as `90s`, `10m` or `1h30m`. Returns milliseconds. */
export function parseDuration(text: string): number {
  const parts = /^(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?$/.exec(text === '0' ? '0s' : text);
  if (parts === null) throw new InvalidArgumentError('It must be a duration such as 90s, 10m or 1h30m.');
  const [hours = 0, minutes = 0, seconds = 0] = parts.slice(1).map((part) => Number(part ?? 0));
  return ((hours * 60 + minutes) * 60 + seconds) * 1000;
}

/** Returns an option with a duration. `shown`: the default in the help. */
export function durationOption(flags: string, text: string, ms: number, shown: string): Option {
  return new Option(flags, text).argParser(parseDuration).default(ms, shown);
}

const SIZE_UNITS: Readonly<Record<string, number>> = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** Minimum size, because a smaller history would contain too little to be useful. */
const MIN_SIZE: number = 2 ** 20;

/** Parses a size such as `64MiB`, at least 1 MiB, or `off`. Returns bytes; 0 for `off`. */
export function parseSize(text: string): number {
  if (text === 'off' || text === '0') return 0;
  const [, digits = '', unit = ''] = /^(\d{1,12})(B|KiB|MiB|GiB)$/.exec(text) ?? [];
  const size = Number(digits) * (SIZE_UNITS[unit] ?? Number.NaN);
  if (size >= MIN_SIZE && size <= Number.MAX_SAFE_INTEGER) return size;
  throw new InvalidArgumentError('It must be a size of at least 1MiB, such as 64MiB, or off.');
}

/** Parses the name of a cluster or node. */
export function parseName(text: string): string {
  if (text !== '' && !text.includes('/')) return text;
  throw new InvalidArgumentError('It must be a non-empty name without /.');
}

/** Parses the name of the local cluster. */
function parseClusterName(text: string): string {
  if (isClusterName(text)) return text;
  throw new InvalidArgumentError(`It ${CLUSTER_NAME_RULE}.`);
}

/** Parses the value of a Kubernetes label. Rejects an empty one. */
export function parseLabelValue(text: string): string {
  if (isLabelValue(text)) return text;
  throw new InvalidArgumentError(
    'It must be the value of a label: at most 63 letters, digits, -, _ and ., with a letter or digit at both ends.',
  );
}

/** Parses a path. Rejects an empty one. */
export function parsePath(path: string): string {
  if (path === '') throw new InvalidArgumentError('It must be a path.');
  return path;
}

/** Returns the paths with one more. */
export function appendPath(path: string, previous: readonly string[] = []): readonly string[] {
  return [...previous, parsePath(path)];
}

/** Cilium's names of the options of an etcd client (pkg/kvstore/etcd.go, 1.17). */
const KVSTORE_OPTS: ReadonlyMap<string, keyof RateLimitOptions> = new Map([
  ['etcd.qps', 'qps'],
  ['etcd.bootstrapQps', 'bootstrapQps'],
  ['etcd.maxInflight', 'maxInflight'],
]);

/**
 * Parses `name=value`, or several separated by commas, in the format of Cilium. If a name is repeated, the last value
 * is used.
 */
function parseKvstoreOpt(text: string, previous: RateLimitOptions = {}): RateLimitOptions {
  const options: { -readonly [K in keyof RateLimitOptions]: number } = {};
  for (const item of text.split(',')) {
    const [name = '', value = ''] = item.split(/=(.*)/s);
    const option = KVSTORE_OPTS.get(name);
    const names = [...KVSTORE_OPTS.keys()].join(', ');
    if (option === undefined) throw new InvalidArgumentError(`'${name}' is not one of ${names}.`);
    if (!/^[1-9]\d{0,8}$/.test(value))
      throw new InvalidArgumentError(`${name} must be a number from 1 to 999999999: '${value}'.`);
    options[option] = Number(value);
  }
  return { ...previous, ...options };
}

/** Returns an option with one of several values. */
export function choice(flags: string, text: string, choices: readonly string[], preset: string): Option {
  return new Option(flags, text).choices(choices).default(preset);
}

/** Returns `--output` of a command whose output is a text for people or JSON. */
export function outputOption(text = 'output format'): Option {
  return choice('-o, --output <format>', text, ['text', 'json'], 'text');
}

/** Returns `--quiet` of a command with progress output. */
export function quietOption(): Option {
  return new Option('-q, --quiet', 'do not print the progress on stderr');
}

export function clusterOption(): Option {
  return new Option('--cluster <name>', 'name of the local cluster')
    .argParser(parseClusterName)
    .default('default');
}

/** Returns `--cluster-id` without a default value. */
export function clusterIDOption(text = 'id of the local cluster (default: the id in its kvstore)'): Option {
  return new Option('--cluster-id <n>', text).argParser(numberParser(0, MAX_CLUSTER_ID));
}

/** Returns the contradiction if the id is too large for the mesh, because other clusters would reject it. */
export function clusterIDContradiction(flags: {
  readonly clusterId?: number;
  readonly maxConnectedClusters?: string;
}): string | undefined {
  const { clusterId = 0, maxConnectedClusters } = flags;
  if (clusterId <= Number(maxConnectedClusters)) return undefined;
  return `--cluster-id ${clusterId} requires --max-connected-clusters ${MAX_CLUSTER_ID}`;
}

export function maxClustersOption(): Option {
  return choice(
    '--max-connected-clusters <n>',
    'maximum number of clusters in the mesh',
    ['255', '511'],
    '255',
  );
}

/** Returns `--kvstore-config`. `condition`: text about when the option is used or required. */
export function kvstoreConfigOption(condition = ''): Option {
  const text = `Cilium etcd configuration of the local kvstore${condition}`;
  return new Option('--kvstore-config <file>', text).argParser(parsePath);
}

const LIMIT_TEXTS = {
  qps: 'etcd.qps (calls per second; default: no limit)',
  bootstrapQps:
    'etcd.bootstrapQps (calls per second to the local etcd until the initial sync is done; default: etcd.qps)',
  maxInflight: 'etcd.maxInflight (concurrent calls; default: the value of etcd.qps)',
};

export function kvstoreOptOption(
  ...limits: readonly (keyof RateLimitOptions & keyof typeof LIMIT_TEXTS)[]
): Option {
  const names = limits.map((limit) => LIMIT_TEXTS[limit]).join(', ');
  const text = `limits for each etcd: ${names}; may be repeated`;
  return new RepeatableOption('--kvstore-opt <name=value>', text).argParser(parseKvstoreOpt);
}

export function clustermeshConfigOption(): Option {
  return new Option(
    '--clustermesh-config <folder>',
    'folder with one etcd configuration per remote cluster; the name of the file is the name of the cluster',
  ).argParser(parsePath);
}

/** Returns `--clustermesh-cache-ttl`; 0: never. `removed`: what is removed. */
export function cacheTTLOption(removed: string): Option {
  return new Option(
    '--clustermesh-cache-ttl <time>',
    `remove the ${removed} of a remote cluster if it is unreachable or empty for this time, such as 10m; 0: never`,
  )
    .argParser(parseDuration)
    .default(0);
}

/** Returns `--kubeconfig`. `otherwise`: text about the access without this option. */
export function kubeconfigOption(otherwise = ''): Option {
  return new Option('--kubeconfig <file>', `kubeconfig of the API server${otherwise}`).argParser(parsePath);
}

export function contextOption(): Option {
  return new Option('--context <name>', 'context of the kubeconfig (default: its current context)');
}

export function k8sLoadOption(effect = ''): Option {
  const text = `Kubernetes objects (YAML or JSON), a file or a folder, served by an API server in this process${effect}; may be repeated`;
  return new RepeatableOption('--k8s-load <path>', text).argParser(appendPath);
}

/** Returns the contradiction of `--context` or `--k8s-load` with `--kubeconfig`. `isLoaded`: objects are loaded. */
export function accessContradiction(
  { kubeconfig, context }: { readonly kubeconfig?: string; readonly context?: string },
  isLoaded: boolean,
): string | undefined {
  if (context !== undefined && kubeconfig === undefined) return '--context requires --kubeconfig <file>';
  if (kubeconfig !== undefined && isLoaded)
    return '--k8s-load and --kubeconfig cannot be combined, because --k8s-load replaces the API server';
  return undefined;
}

/** Width of help if the output is not a terminal; the default of commander. */
const HELP_WIDTH = 80;

/** Adds paragraphs below the help of a command, wrapped at its width. Returns the command. */
export function addHelp(command: Command, position: AddHelpTextPosition, paragraphs: string): Command {
  return command.addHelpText(position, ({ command: shown }) => {
    const width = shown.configureOutput().getOutHelpWidth?.() ?? HELP_WIDTH;
    return `\n${shown.createHelp().boxWrap(paragraphs, width)}`;
  });
}
