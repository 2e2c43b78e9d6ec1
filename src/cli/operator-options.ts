import { type Command, InvalidArgumentError, Option } from 'commander';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import type { ElectionTimes } from '../operator/leader-election.ts';
import {
  append,
  type LogFlags,
  parseClusterID,
  parseDuration,
  parseKvstoreOpt,
  parseName,
  parsePath,
} from './mesh-options.ts';
import type { ServeFlags } from './serve-options.ts';
import { RepeatableOption } from './settings.ts';

/** Options of an operator as parsed by commander. */
export interface OperatorFlags extends LogFlags, ServeFlags {
  readonly cluster: string;
  readonly clusterId: number;
  readonly maxConnectedClusters: '255' | '511';
  readonly kvstoreConfig?: string;
  readonly kvstoreOpt?: RateLimitOptions;
  readonly kvstoreLeaseTtl: number;
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly k8sLoad?: readonly string[];
  readonly manifests?: readonly string[];
  readonly k8sNamespace: string;
  readonly leaderElectionLeaseDuration: number;
  readonly leaderElectionRenewDeadline: number;
  readonly leaderElectionRetryPeriod: number;
  readonly leaderElectionKvstoreDeadline: number;
  readonly k8sEndpoints: 'ciliumendpoints' | 'ciliumendpointslices';
  readonly identityAllocationMode: 'crd' | 'kvstore';
  readonly serviceSync: boolean;
  readonly nodeSync: boolean;
  readonly identitySync: boolean;
  readonly ipSync: boolean;
  readonly clusterConfig: boolean;
  readonly heartbeat: boolean;
  readonly endpointGcInterval?: number;
  readonly identityGcInterval?: number;
  readonly nodesGcInterval?: number;
  readonly cnpStatusGcInterval?: number;
  readonly unmanagedKubeDnsInterval?: number;
  readonly kvstoreIdentityGcInterval?: number;
  readonly lockGcInterval?: number;
  readonly deleteAllEndpoints?: true;
  readonly endpointSlices: 'off' | 'identity' | 'fcfs';
  readonly dryRun?: true;
}

/** Parses a duration. Returns seconds: at least 5, because a shorter lease could expire during one election of etcd. */
function parseLeaseTTL(text: string): number {
  const seconds = parseDuration(text) / 1000;
  if (seconds >= 5) return seconds;
  throw new InvalidArgumentError('It must be at least 5s.');
}

function addDutyOptions(command: Command): Command {
  return command
    .optionsGroup('What it publishes:')
    .option('--no-service-sync', 'no services')
    .option('--no-node-sync', 'no CiliumNodes')
    .option('--no-identity-sync', 'no CiliumIdentities')
    .option('--no-ip-sync', 'no addresses of endpoints')
    .option('--no-cluster-config', 'no configuration of the cluster')
    .option('--no-heartbeat', 'no heartbeat')
    .addOption(
      new Option(
        '--endpoint-slices <mode>',
        'batch CiliumEndpoints into CiliumEndpointSlices: those of one identity together, or first come, first served',
      )
        .choices(['off', 'identity', 'fcfs'])
        .default('off'),
    )
    .optionsGroup('What it collects, and how often (0: not at all):')
    .option(
      '--endpoint-gc-interval <time>',
      'CiliumEndpoints of pods that are gone (default: 5m)',
      parseDuration,
    )
    .option(
      '--identity-gc-interval <time>',
      'CiliumIdentities that no endpoint names (default: 15m)',
      parseDuration,
    )
    .option('--nodes-gc-interval <time>', 'CiliumNodes without a Node (default: 5m)', parseDuration)
    .option(
      '--kvstore-identity-gc-interval <time>',
      'identities of the kvstore that no node uses (default: 15m)',
      parseDuration,
    )
    .option(
      '--lock-gc-interval <time>',
      'locks of the kvstore that are never given back (default: 25s)',
      parseDuration,
    )
    .option(
      '--cnp-status-gc-interval <time>',
      'what nodes that are gone have said of policies (default: 0)',
      parseDuration,
    )
    .option(
      '--unmanaged-kube-dns-interval <time>',
      'DNS pods without an endpoint, which are restarted (default: 0)',
      parseDuration,
    )
    .option(
      '--delete-all-endpoints',
      'delete every CiliumEndpoint once, in use or not, where agents keep none any more; the intervals of endpoints and identities must be 0',
    );
}

/** Adds the options of {@link OperatorFlags} except those that all processes have. */
export function addOperatorOptions(command: Command): Command {
  command
    .option(
      '--dry-run',
      'print every write and delete with its reason, and make none; alone, without election',
    )
    .optionsGroup('Which cluster:')
    .option('--cluster <name>', 'its name', parseName, 'default')
    .option('--cluster-id <n>', 'its id in the mesh; 0: in none', parseClusterID, 0)
    .addOption(
      new Option('--max-connected-clusters <n>', 'clusters in the mesh')
        .choices(['255', '511'])
        .default('255'),
    )
    .addOption(
      new Option(
        '--identity-allocation-mode <mode>',
        'who allocates identities: CiliumIdentities, or agents in the kvstore',
      )
        .choices(['crd', 'kvstore'])
        .default('crd'),
    )
    .option(
      '--kvstore-config <file>',
      'etcd configuration of its kvstore, as of Cilium; required, except with --dry-run or --k8s-load',
      parsePath,
    )
    .addOption(
      new RepeatableOption(
        '--kvstore-opt <name=value>',
        'etcd.qps, etcd.maxInflight: calls to etcd a second, and at a time (default: no limit); may be repeated',
      ).argParser(parseKvstoreOpt),
    )
    .addOption(
      new Option('--kvstore-lease-ttl <time>', 'what is published goes so long after the last sign of life')
        .argParser(parseLeaseTTL)
        .default(900, '15m'),
    )
    .optionsGroup('Kubernetes:')
    .option(
      '--kubeconfig <file>',
      'the API server of this kubeconfig (default: as the service account of the pod)',
      parsePath,
    )
    .option('--context <name>', 'context of the kubeconfig (default: its current one)')
    .addOption(
      new RepeatableOption(
        '--k8s-load <path>',
        'objects as YAML, a file or a folder, that an API server in this process serves: alone, without election; may be repeated',
      ).argParser(append),
    )
    .addOption(new RepeatableOption('--manifests <path>', 'the same').argParser(append))
    .option(
      '--k8s-namespace <name>',
      'namespace of the Lease by which operators elect one',
      parseName,
      'default',
    )
    .addOption(
      new Option('--leader-election-lease-duration <time>', 'how long the Lease lasts that is not renewed')
        .argParser(parseDuration)
        .default(15_000, '15s'),
    )
    .addOption(
      new Option('--leader-election-renew-deadline <time>', 'so long after its last renewal a leader ends')
        .argParser(parseDuration)
        .default(10_000, '10s'),
    )
    .addOption(
      new Option('--leader-election-retry-period <time>', 'time between two renewals, and two attempts')
        .argParser(parseDuration)
        .default(2000, '2s'),
    )
    .addOption(
      new Option(
        '--leader-election-kvstore-deadline <time>',
        'a leader gives the Lease up if its kvstore has not answered for so long',
      )
        .argParser(parseDuration)
        .default(60_000, '1m'),
    )
    .addOption(
      new Option('--k8s-endpoints <kind>', 'what says where endpoints are')
        .choices(['ciliumendpoints', 'ciliumendpointslices'])
        .default('ciliumendpoints'),
    );
  return addDutyOptions(command).optionsGroup('Options:');
}

/**
 * Returns the reason if an operator has no etcd but needs one. Without etcd, agents could not read its published keys, which would
 * be in the memory of its process, but its collectors would still delete objects of a real API server.
 */
export function missingKvstore({
  kvstoreConfig,
  dryRun,
  k8sLoad = [],
  manifests = [],
}: OperatorFlags): string | undefined {
  if (kvstoreConfig !== undefined || dryRun === true || k8sLoad.length + manifests.length > 0)
    return undefined;
  return 'no kvstore: add --kvstore-config <file>; only --dry-run and --k8s-load run without one';
}

/** Life of the lease of an agent's references to identities. */
const AGENT_LEASE_MS: number = 15 * 60_000;

/** Returns the contradiction between the flags, if any, before the operator starts. */
export async function operatorContradiction(flags: OperatorFlags): Promise<string | undefined> {
  const { k8sLoad = [], manifests = [], kubeconfig, context, kvstoreConfig, kvstoreOpt } = flags;
  if (k8sLoad.length + manifests.length > 0 && kubeconfig !== undefined)
    return '--k8s-load serves objects in place of an API server: leave it out with --kubeconfig';
  if (context !== undefined && kubeconfig === undefined)
    return '--context is of a kubeconfig: add --kubeconfig <file>';
  if (kvstoreOpt !== undefined && kvstoreConfig === undefined)
    return '--kvstore-opt: there is no etcd; name one with --kvstore-config';
  return collectorContradiction(flags) ?? (await electionContradiction(flags));
}

function collectorContradiction(flags: OperatorFlags): string | undefined {
  const { endpointGcInterval, identityGcInterval, kvstoreIdentityGcInterval = AGENT_LEASE_MS } = flags;
  const isCRD = flags.identityAllocationMode === 'crd';
  const needsEndpoints = isCRD && identityGcInterval !== 0;
  if (flags.deleteAllEndpoints === true && (endpointGcInterval !== 0 || needsEndpoints))
    return `--delete-all-endpoints: CiliumEndpoints do not say any more what is in use: add --endpoint-gc-interval 0${isCRD ? ' and --identity-gc-interval 0' : ''}`;
  if (endpointGcInterval === 0 && needsEndpoints)
    return '--endpoint-gc-interval 0: CiliumEndpoints that are left keep every identity: add --identity-gc-interval 0';
  if (!isCRD && kvstoreIdentityGcInterval > 0 && kvstoreIdentityGcInterval < AGENT_LEASE_MS)
    return '--kvstore-identity-gc-interval: 0, or 15m and more: a node that lives may be without its references for so long';
  return undefined;
}

async function electionContradiction(flags: OperatorFlags): Promise<string | undefined> {
  const { electionFault } = await import('../operator/leader-election.ts');
  const fault = electionFault(electionTimes(flags));
  return fault && `--leader-election-…: ${fault}`;
}

/** Returns the times of the election for the flags. */
export function electionTimes(flags: OperatorFlags): ElectionTimes {
  return {
    leaseMs: flags.leaderElectionLeaseDuration,
    renewDeadlineMs: flags.leaderElectionRenewDeadline,
    retryMs: flags.leaderElectionRetryPeriod,
  };
}
