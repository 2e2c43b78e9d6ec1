import { hostname } from 'node:os';
import { type Command, InvalidArgumentError } from 'commander';
import { type AgentOptions, KVSTORE_KINDS, type KvstoreKind } from '../agent/options.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { SERVICE_FORMATS, type ServiceFormat } from '../clustermesh/service-format.ts';
import type { Logger } from '../process/log.ts';
import { LOG_FORMATS, LOG_LEVELS, type LogFormat, type LogLevel } from '../process/log-options.ts';
import type { CommandIO } from './io.ts';
import {
  addKubernetesOptions,
  type KubernetesFlags,
  kubernetesContradiction,
  kubernetesOptions,
  namesKubernetes,
  type OtherSources,
} from './kubernetes-options.ts';
import {
  appendPath,
  cacheTTLOption,
  choice,
  clusterIDOption,
  clustermeshConfigOption,
  clusterOption,
  kvstoreConfigOption,
  kvstoreOptOption,
  maxClustersOption,
  parseDuration,
  parseName,
  RepeatableOption,
} from './option-table.ts';

/** Options of a process that follows the kvstores of clusters, as parsed by commander. */
export interface ClusterFlags {
  readonly cluster: string;
  readonly clusterId?: number;
  readonly kvstoreConfig?: string;
  readonly kvstoreOpt?: RateLimitOptions;
  readonly clustermeshConfig?: string;
  /** Milliseconds; 0 if cached services never expire. */
  readonly clustermeshCacheTtl: number;
}

/** Options of all commands with an agent, as parsed by commander. */
export interface MeshFlags extends ClusterFlags, LogFlags, KubernetesFlags {
  readonly kvstore: KvstoreKind;
  readonly serviceV2: ServiceFormat;
  readonly failStatic: boolean;
  readonly load?: readonly string[];
  readonly manifests?: readonly string[];
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

/** Options of the log, as parsed by commander. */
export interface LogFlags {
  readonly logLevel: LogLevel;
  readonly logFormat: LogFormat;
}

export async function openLog({ logLevel, logFormat }: LogFlags, { stderr }: CommandIO): Promise<Logger> {
  const { createLog } = await import('../process/log.ts');
  return createLog(logLevel, logFormat, stderr);
}

export const DEFAULT_NETWORK: AgentOptions['network'] = {
  remoteNodeIdentities: true,
  encryption: false,
  nodeEncryption: false,
  hostFirewall: false,
  underlay: 'ipv4',
};

/** Limit of the delay of a timer: longer delays overflow. */
const TIMER_LIMIT_MS: number = 2 ** 31;

function parseTimeout(text: string): number {
  const ms = parseDuration(text);
  if (ms > 0 && ms < TIMER_LIMIT_MS) return ms;
  throw new InvalidArgumentError('It must be from 1s to 596h.');
}

/** Returns the contradiction between the flags, if any. An option without effect is rejected, too (I12). */
export function contradiction(flags: MeshFlags): string | undefined {
  const { kvstore, kvstoreConfig, kvstoreOpt, clustermeshConfig, load = [] } = flags;
  const isEtcd = kvstore === 'etcd';
  if (isEtcd && kvstoreConfig === undefined) return '--kvstore etcd requires --kvstore-config <file>';
  if (isEtcd && load.length > 0)
    return '--load and --kvstore etcd cannot be combined, because --load fills the in-memory kvstore';
  if (!isEtcd && kvstoreConfig !== undefined) return '--kvstore-config requires --kvstore etcd';
  if (!isEtcd && kvstoreOpt !== undefined && clustermeshConfig === undefined)
    return '--kvstore-opt requires an etcd: add --kvstore etcd or --clustermesh-config';
  return kubernetesContradiction(flags, otherSources(flags));
}

function otherSources({ kvstore, clustermeshConfig, load = [], manifests = [] }: MeshFlags): OtherSources {
  const mesh = kvstore === 'etcd' || clustermeshConfig !== undefined || load.length > 0;
  return { mesh, manifests: manifests.length > 0 };
}

/**
 * Returns true if the flags name a source. If they do, a question is answered from that source instead of a running
 * agent.
 */
export function namesSource(flags: MeshFlags): boolean {
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

/**
 * Returns the problem if an agent has no source and `--follow-nothing` is not set, because it would answer "unknown" to
 * every question; or if it has a source and the flag is set.
 */
export function sourceProblem(
  flags: MeshFlags & FollowNothingFlags & { readonly play?: string },
  isInCluster: boolean,
): string | undefined {
  const hasSource = namesSource(flags) || flags.play !== undefined || (flags.k8s === 'auto' && isInCluster);
  if (flags.followNothing === true)
    return hasSource ? '--follow-nothing cannot be combined with a source: remove it' : undefined;
  if (hasSource) return undefined;
  return 'no source: add --kvstore etcd, --clustermesh-config, --load, --manifests, --kubeconfig, --k8s on, --k8s-load or --play, or start without one with --follow-nothing';
}

/** Adds the options of {@link MeshFlags}. */
export function addMeshOptions(command: Command): Command {
  command
    .optionsGroup('Sources:')
    .addOption(clusterOption())
    .addOption(choice('--kvstore <kind>', 'kvstore of the local cluster', KVSTORE_KINDS, 'memory'))
    .addOption(kvstoreConfigOption('; requires --kvstore etcd'))
    .addOption(kvstoreOptOption('qps', 'bootstrapQps', 'maxInflight'))
    .addOption(clustermeshConfigOption())
    .addOption(cacheTTLOption('service backends'))
    .addOption(
      choice(
        '--service-v2 <format>',
        'auto: read services of remote clusters as endpoint slices if they export only slices; slices: if they export any; legacy: never',
        SERVICE_FORMATS,
        'auto',
      ),
    )
    .option(
      '--no-fail-static',
      'use the content of the local kvstore even if it restarts empty, which removes the state of the local cluster',
    )
    .addOption(
      new RepeatableOption(
        '--load <file>',
        'recorded keys: JSON lines of {"store", "key", "value"}; may be repeated',
      ).argParser(appendPath),
    )
    .addOption(
      new RepeatableOption(
        '--manifests <path>',
        'services and their endpoints as Kubernetes YAML, a file or a folder; may be repeated',
      ).argParser(appendPath),
    )
    .addOption(clusterIDOption())
    .option(
      '--timeout <time>',
      'maximum duration of the initial sync, such as 30s (default: no limit while it makes progress)',
      parseTimeout,
    )
    .addOption(maxClustersOption())
    .option('--node-name <name>', 'name of the node of the agent', parseName, hostname());
  addKubernetesOptions(command)
    .option('--k8s-node-name <name>', 'name of the local Kubernetes node; overrides --node-name', parseName)
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

/**
 * Returns the options of an agent for the flags. The local node has one name in Kubernetes and in the kvstore, as in
 * Cilium.
 */
export function agentOptions(flags: MeshFlags): AgentOptions {
  const { encryption = false, nodeEncryption = false, hostFirewall = false } = flags;
  const { remoteNodeIdentities, underlay, load = [], manifests = [] } = flags;
  return {
    kvstore: flags.kvstore,
    kvstoreConfig: flags.kvstoreConfig,
    rateLimit: flags.kvstoreOpt,
    clustermeshConfig: flags.clustermeshConfig,
    serviceTTLMs: flags.clustermeshCacheTtl || undefined,
    serviceV2: flags.serviceV2,
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
