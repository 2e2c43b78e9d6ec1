import { hostname } from 'node:os';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { type AgentOptions, KVSTORE_KINDS, type KvstoreKind } from '../agent/options.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { MAX_CLUSTER_ID } from '../model/numeric-identity.ts';
import { LOG_FORMATS, LOG_LEVELS, type LogFormat, type LogLevel } from '../process/log-options.ts';
import {
  addKubernetesOptions,
  type KubernetesFlags,
  kubernetesContradiction,
  kubernetesOptions,
  namesKubernetes,
  type OtherSources,
} from './kubernetes-options.ts';
import { RepeatableOption } from './settings.ts';

/** Options of all commands that run an agent, as parsed by commander. */
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
  readonly k8sNodeName?: string;
  readonly remoteNodeIdentities: boolean;
  readonly encryption?: true;
  readonly nodeEncryption?: true;
  readonly hostFirewall?: true;
  readonly underlay: 'ipv4' | 'ipv6';
  readonly timeout?: number;
}

/** Log options of all commands. */
export interface LogFlags {
  readonly logLevel: LogLevel;
  readonly logFormat: LogFormat;
}

/** Exclusive limit of the delay of a timer. */
const MAX_TIMER_MS: number = 2 ** 31;

/** Parses a number from 0 to 511. */
export function parseClusterID(text: string): number {
  const id = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
  if (id <= MAX_CLUSTER_ID) return id;
  throw new InvalidArgumentError(`It must be a number from 0 to ${MAX_CLUSTER_ID}.`);
}

/** Parses a duration in the format of Cilium, such as `90s`, `10m` or `1h30m`. Returns milliseconds. */
export function parseDuration(text: string): number {
  const parts = /^(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?$/.exec(text === '0' ? '0s' : text);
  if (parts === null) throw new InvalidArgumentError('It must be a duration such as 90s, 10m or 1h30m.');
  const [hours = 0, minutes = 0, seconds = 0] = parts.slice(1).map((part) => Number(part ?? 0));
  return ((hours * 60 + minutes) * 60 + seconds) * 1000;
}

function parseTimeout(text: string): number {
  const ms = parseDuration(text);
  if (ms > 0 && ms < MAX_TIMER_MS) return ms;
  throw new InvalidArgumentError('It must be from 1s to 24 days.');
}

/** Parses the name of a cluster or node. */
export function parseName(text: string): string {
  if (text !== '' && !text.includes('/')) return text;
  throw new InvalidArgumentError('It must be a non-empty name without /.');
}

/** Parses a path. Rejects an empty one. */
export function parsePath(path: string): string {
  if (path === '') throw new InvalidArgumentError('It must be a path.');
  return path;
}

/** Returns the paths with one more. */
export function append(path: string, before: readonly string[] = []): readonly string[] {
  return [...before, parsePath(path)];
}

/** Upstream's names of the options of an etcd client (pkg/kvstore/etcd.go, 1.17). */
const KVSTORE_OPTS: ReadonlyMap<string, keyof RateLimitOptions> = new Map([
  ['etcd.qps', 'qps'],
  ['etcd.bootstrapQps', 'bootstrapQps'],
  ['etcd.maxInflight', 'maxInflight'],
]);

/** Parses `name=value`, or several separated by commas, in the format of Cilium. If a name is repeated, the last value is used. */
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

/** Returns the contradiction between the flags, if any. An option without effect is rejected, too (I12). */
export function contradiction(flags: MeshFlags): string | undefined {
  const { kvstore, kvstoreConfig, kvstoreOpt, clustermeshConfig, load = [] } = flags;
  const own = kvstore === 'etcd';
  if (own && kvstoreConfig === undefined) return '--kvstore etcd requires --kvstore-config <file>';
  if (own && load.length > 0)
    return '--load and --kvstore etcd cannot be combined, because --load fills the in-memory kvstore';
  if (!own && kvstoreConfig !== undefined) return '--kvstore-config requires --kvstore etcd';
  if (!own && kvstoreOpt !== undefined && clustermeshConfig === undefined)
    return '--kvstore-opt requires an etcd: add --kvstore etcd or --clustermesh-config';
  return kubernetesContradiction(flags, otherSources(flags));
}

function otherSources({ kvstore, clustermeshConfig, load = [], manifests = [] }: MeshFlags): OtherSources {
  const mesh = kvstore === 'etcd' || clustermeshConfig !== undefined || load.length > 0;
  return { mesh, manifests: manifests.length > 0 };
}

/** Returns true if the flags name a source. Then a question is answered from that source, and no running agent is asked. */
export function followsMesh(flags: MeshFlags): boolean {
  const { mesh, manifests } = otherSources(flags);
  return mesh || manifests || namesKubernetes(flags);
}

/** Options of an agent without a source. */
export interface FollowNothingFlags {
  readonly followNothing?: true;
}

/** Adds the options of {@link FollowNothingFlags}. */
export function addFollowNothing(command: Command): Command {
  return command
    .optionsGroup('Sources:')
    .option(
      '--follow-nothing',
      'start even if there is no source; without this option, a missing source is an error',
    )
    .optionsGroup('Options:');
}

/** Returns the problem if an agent has no source by mistake, because it would answer "unknown" to every question. */
export function missingSource(
  flags: MeshFlags & FollowNothingFlags & { readonly play?: string },
  isInCluster: boolean,
): string | undefined {
  const hasSource = followsMesh(flags) || flags.play !== undefined || (flags.k8s === 'auto' && isInCluster);
  if (flags.followNothing === true)
    return hasSource ? '--follow-nothing cannot be combined with a source: remove it' : undefined;
  if (hasSource) return undefined;
  return 'no source: add --kvstore etcd, --clustermesh-config, --load, --manifests, --kubeconfig, --k8s on, --k8s-load or --play, or start without one with --follow-nothing';
}

/** Adds the options of {@link MeshFlags}. */
export function addMeshOptions(command: Command): Command {
  command
    .optionsGroup('Sources:')
    .option('--cluster <name>', 'name of the own cluster', parseName, 'default')
    .addOption(choice('--kvstore <kind>', 'kvstore of the own cluster', KVSTORE_KINDS, 'memory'))
    .option('--kvstore-config <file>', 'with --kvstore etcd: its Cilium etcd configuration', parsePath)
    .addOption(
      new RepeatableOption(
        '--kvstore-opt <name=value>',
        'limits for each etcd: etcd.qps (calls per second), etcd.bootstrapQps (calls per second until the initial sync is done), etcd.maxInflight (concurrent calls); default: no limit; may be repeated',
      ).argParser(parseKvstoreOpt),
    )
    .option(
      '--clustermesh-config <folder>',
      'folder with one etcd configuration per remote cluster; the name of the file is the name of the cluster',
      parsePath,
    )
    .option(
      '--clustermesh-cache-ttl <time>',
      'remove the service backends of a remote cluster if it is unreachable for this time, such as 10m; 0: never',
      parseDuration,
      0,
    )
    .option(
      '--no-fail-static',
      'use the content of the own kvstore even if it restarts empty, which removes the state of the own cluster',
    )
    .addOption(
      new RepeatableOption(
        '--load <file>',
        'recorded keys: JSON lines of {"store", "key", "value"}; may be repeated',
      ).argParser(append),
    )
    .addOption(
      new RepeatableOption(
        '--manifests <path>',
        'services and their endpoints as Kubernetes YAML, a file or a folder; may be repeated',
      ).argParser(append),
    )
    .option('--cluster-id <n>', 'id of the own cluster (default: the id in its kvstore)', parseClusterID)
    .option(
      '--timeout <time>',
      'maximum duration of the initial sync, such as 30s (default: no limit while it makes progress)',
      parseTimeout,
    )
    .addOption(
      choice('--max-connected-clusters <n>', 'maximum number of clusters in the mesh', ['255', '511'], '255'),
    )
    .option('--node-name <name>', 'name of the node of the agent', parseName, hostname());
  addKubernetesOptions(command, parsePath, append)
    .option('--k8s-node-name <name>', 'name of the own Kubernetes node; overrides --node-name', parseName)
    .optionsGroup('Network:')
    .option('--remote-node-identities', 'other nodes have identity remote-node', true)
    .option('--no-remote-node-identities', 'all nodes have identity host')
    .option('--encryption', 'traffic between pods is encrypted')
    .option('--node-encryption', 'traffic between nodes is encrypted, too')
    .option('--host-firewall', 'the host firewall is enabled')
    .addOption(
      choice('--underlay <family>', 'IP family of the network under the tunnels', ['ipv4', 'ipv6'], 'ipv4'),
    );
  return addLogOptions(command);
}

function choice(flags: string, what: string, choices: readonly string[], preset: string): Option {
  return new Option(flags, what).choices(choices).default(preset);
}

/** Adds the options of {@link LogFlags}. */
export function addLogOptions(command: Command, level: LogLevel = 'warn'): Command {
  return command
    .optionsGroup('Log (stderr):')
    .addOption(choice('--log-level <level>', 'minimum level', LOG_LEVELS, level))
    .addOption(
      choice('--log-format <format>', 'text for people, json for log collectors', LOG_FORMATS, 'text'),
    )
    .optionsGroup('Options:');
}

/** Returns the options of an agent for the flags. The own node has one name in Kubernetes and in the kvstore, as in Cilium. */
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
    nodeName: flags.k8sNodeName ?? flags.nodeName,
    network: { remoteNodeIdentities, encryption, nodeEncryption, hostFirewall, underlay },
    load,
    manifests,
    kubernetes: kubernetesOptions(flags, otherSources(flags)),
  };
}
