import { hostname } from 'node:os';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { LOG_FORMATS, LOG_LEVELS, type LogFormat, type LogLevel } from '../agent/log-options.ts';
import { type AgentOptions, KVSTORE_KINDS, type KvstoreKind } from '../agent/options.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { MAX_CLUSTER_ID } from '../identity/numeric-identity.ts';
import {
  addKubernetesOptions,
  type KubernetesFlags,
  kubernetesContradiction,
  kubernetesOptions,
  namesKubernetes,
  type OtherSources,
} from './kubernetes-options.ts';
import { RepeatableOption } from './settings.ts';

/** Options that every command with an agent behind it takes, as commander hands them over. */
export interface MeshFlags extends LogFlags, KubernetesFlags {
  readonly kvstore: KvstoreKind;
  readonly kvstoreConfig?: string;
  readonly kvstoreOpt?: RateLimitOptions;
  readonly clustermeshConfig?: string;
  /** 0: never. */
  readonly clustermeshCacheTtl: number;
  readonly failStatic: boolean;
  readonly load?: readonly string[];
  readonly manifests?: readonly string[];
  readonly cluster: string;
  readonly clusterId?: number;
  readonly maxConnectedClusters: '255' | '511';
  readonly nodeName: string;
  readonly remoteNodeIdentities: boolean;
  readonly encryption?: true;
  readonly nodeEncryption?: true;
  readonly hostFirewall?: true;
  readonly underlay: 'ipv4' | 'ipv6';
  readonly timeout?: number;
}

/** Options of every command's log. */
export interface LogFlags {
  readonly logLevel: LogLevel;
  readonly logFormat: LogFormat;
}

/** What a timer can be set to. */
const MAX_TIMER_MS: number = 2 ** 31;

/** A number from 0 to 511. */
export function parseClusterID(text: string): number {
  const id = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
  if (id <= MAX_CLUSTER_ID) return id;
  throw new InvalidArgumentError(`It must be a number from 0 to ${MAX_CLUSTER_ID}.`);
}

/** A time as the original takes it, such as `90s`, `10m` or `1h30m`, in milliseconds. */
export function parseDuration(text: string): number {
  const parts = /^(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?$/.exec(text === '0' ? '0s' : text);
  if (parts === null) throw new InvalidArgumentError('It must be a time such as 90s, 10m or 1h30m.');
  const [hours = 0, minutes = 0, seconds = 0] = parts.slice(1).map((part) => Number(part ?? 0));
  return ((hours * 60 + minutes) * 60 + seconds) * 1000;
}

function parseTimeout(text: string): number {
  const ms = parseDuration(text);
  if (ms > 0 && ms < MAX_TIMER_MS) return ms;
  throw new InvalidArgumentError('It must be from 1s to 24 days.');
}

/** A name of a cluster or node. */
export function parseName(text: string): string {
  if (text !== '' && !text.includes('/')) return text;
  throw new InvalidArgumentError('It must be a name: not empty, without /.');
}

/** A path that is not empty. */
export function parsePath(path: string): string {
  if (path === '') throw new InvalidArgumentError('It must be a path.');
  return path;
}

/** One path more. */
export function append(path: string, before: readonly string[] = []): readonly string[] {
  return [...before, parsePath(path)];
}

/** Upstream's names of what can be said of an etcd client beside its configuration (pkg/kvstore/etcd.go, 1.17). */
const KVSTORE_OPTS: ReadonlyMap<string, keyof RateLimitOptions> = new Map([
  ['etcd.qps', 'qps'],
  ['etcd.bootstrapQps', 'bootstrapQps'],
  ['etcd.maxInflight', 'maxInflight'],
]);

/** `name=value`, or several with commas between, as the original takes them; the last of one name holds. */
export function parseKvstoreOpt(text: string, before: RateLimitOptions = {}): RateLimitOptions {
  const options: { -readonly [K in keyof RateLimitOptions]: number } = {};
  for (const item of text.split(',')) {
    const [name = '', value = ''] = item.split(/=(.*)/s);
    const option = KVSTORE_OPTS.get(name);
    const names = [...KVSTORE_OPTS.keys()].join(', ');
    if (option === undefined) throw new InvalidArgumentError(`It must be one of ${names}: '${name}'.`);
    if (!/^[1-9]\d{0,8}$/.test(value))
      throw new InvalidArgumentError(`${name} must be a number from 1 to 999999999: '${value}'.`);
    options[option] = Number(value);
  }
  return { ...before, ...options };
}

/** Why flags that are right one by one do not go together, if so: what would be ignored is rejected instead (I12). */
export function contradiction(flags: MeshFlags): string | undefined {
  const { kvstore, kvstoreConfig, kvstoreOpt, clustermeshConfig, load = [] } = flags;
  const own = kvstore === 'etcd';
  if (own && kvstoreConfig === undefined)
    return '--kvstore etcd: name its configuration with --kvstore-config <file>';
  if (own && load.length > 0) return '--load fills the kvstore in memory: leave it out with --kvstore etcd';
  if (!own && kvstoreConfig !== undefined) return '--kvstore-config is for an etcd: add --kvstore etcd';
  if (!own && kvstoreOpt !== undefined && clustermeshConfig === undefined)
    return '--kvstore-opt: there is no etcd; name one with --kvstore etcd or --clustermesh-config';
  return kubernetesContradiction(flags, otherSources(flags));
}

function otherSources({ kvstore, clustermeshConfig, load = [], manifests = [] }: MeshFlags): OtherSources {
  const mesh = kvstore === 'etcd' || clustermeshConfig !== undefined || load.length > 0;
  return { mesh, manifests: manifests.length > 0 };
}

/** Whether the flags say what to follow: then a question is answered out of that, and no running agent is asked. */
export function followsMesh(flags: MeshFlags): boolean {
  const { mesh, manifests } = otherSources(flags);
  return mesh || manifests || namesKubernetes(flags);
}

/** Adds the options of {@link MeshFlags}. */
export function addMeshOptions(command: Command): Command {
  command
    .optionsGroup('What to follow:')
    .option('--cluster <name>', 'name of the own cluster', parseName, 'default')
    .addOption(choice('--kvstore <kind>', 'the kvstore to follow', KVSTORE_KINDS, 'memory'))
    .option('--kvstore-config <file>', 'with --kvstore etcd: its etcd configuration, as of Cilium', parsePath)
    .addOption(
      new RepeatableOption(
        '--kvstore-opt <name=value>',
        'etcd.qps, etcd.bootstrapQps, etcd.maxInflight: calls a second, until the first sync, at a time (default: no limit); may be repeated',
      ).argParser(parseKvstoreOpt),
    )
    .option(
      '--clustermesh-config <folder>',
      'etcd configurations of the remote clusters, each file named as its cluster',
      parsePath,
    )
    .option(
      '--clustermesh-cache-ttl <time>',
      'a remote cluster that was out of reach for so long, such as 10m, loses its services; 0: never',
      parseDuration,
      0,
    )
    .option(
      '--no-fail-static',
      'believe the own kvstore whatever it shows: one that restarts empty takes everything of the own cluster away',
    )
    .addOption(
      new RepeatableOption(
        '--load <file>',
        'recorded keys, JSON lines of {"store", "key", "value"}; may be repeated',
      ).argParser(append),
    )
    .addOption(
      new RepeatableOption(
        '--manifests <path>',
        'Kubernetes YAML, a file or a folder; may be repeated',
      ).argParser(append),
    )
    .option('--cluster-id <n>', 'id of the own cluster (default: what its kvstore says)', parseClusterID)
    .option(
      '--timeout <time>',
      'wait no longer than this, such as 30s, for the first sync (default: while it goes on)',
      parseTimeout,
    )
    .addOption(choice('--max-connected-clusters <n>', 'clusters in the mesh', ['255', '511'], '255'))
    .option('--node-name <name>', 'node that the agent runs on', parseName, hostname());
  addKubernetesOptions(command, parsePath, append)
    .optionsGroup('How nodes are reached:')
    .option('--remote-node-identities', 'other nodes have identity remote-node', true)
    .option('--no-remote-node-identities', 'all nodes have identity host')
    .option('--encryption', 'traffic between pods is encrypted')
    .option('--node-encryption', 'traffic between nodes is encrypted too')
    .option('--host-firewall', 'the host firewall is on')
    .addOption(choice('--underlay <family>', 'network under the tunnels', ['ipv4', 'ipv6'], 'ipv4'));
  return addLogOptions(command);
}

function choice(flags: string, what: string, choices: readonly string[], preset: string): Option {
  return new Option(flags, what).choices(choices).default(preset);
}

/** Adds the options of {@link LogFlags}. */
export function addLogOptions(command: Command): Command {
  return command
    .optionsGroup('Log (on stderr):')
    .addOption(choice('--log-level <level>', 'least level', LOG_LEVELS, 'warn'))
    .addOption(choice('--log-format <format>', 'for people or collectors', LOG_FORMATS, 'text'))
    .optionsGroup('Options:');
}

/** The agent's options that the flags ask for. */
export function agentOptions(flags: MeshFlags): AgentOptions {
  const { encryption = false, nodeEncryption = false, hostFirewall = false } = flags;
  const { remoteNodeIdentities, underlay, load = [], manifests = [] } = flags;
  return {
    kvstore: flags.kvstore,
    kvstoreConfig: flags.kvstoreConfig,
    rateLimit: flags.kvstoreOpt,
    clustermeshConfig: flags.clustermeshConfig,
    serviceTTLMs: flags.clustermeshCacheTtl === 0 ? undefined : flags.clustermeshCacheTtl,
    failStatic: flags.failStatic,
    timeoutMs: flags.timeout,
    clusterName: flags.cluster,
    clusterID: flags.clusterId,
    maxConnectedClusters: flags.maxConnectedClusters === '511' ? 511 : 255,
    nodeName: flags.nodeName,
    network: { remoteNodeIdentities, encryption, nodeEncryption, hostFirewall, underlay },
    load,
    manifests,
    kubernetes: kubernetesOptions(flags, otherSources(flags)),
  };
}
