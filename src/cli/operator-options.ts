import { type Command, InvalidArgumentError, Option } from 'commander';
import type { SliceAddressType } from '../model/cluster-endpoint-slice.ts';
import { IP_FAMILIES } from '../model/service-export.ts';
import type { IdentityAllocation } from '../operator/duties.ts';
import type { ElectionTimes } from '../operator/elect/leader-election.ts';
import type { KubernetesFlags } from './kubernetes-options.ts';
import type { ClusterFlags, LogFlags } from './mesh-options.ts';
import {
  accessContradiction,
  appendPath,
  cacheTTLOption,
  choice,
  clusterIDOption,
  clustermeshConfigOption,
  clusterOption,
  contextOption,
  durationOption,
  k8sLoadOption,
  kubeconfigOption,
  kvstoreConfigOption,
  kvstoreOptOption,
  maxClustersOption,
  numberParser,
  parseDuration,
  parseName,
  RepeatableOption,
} from './option-table.ts';
import type { ServeFlags } from './serve-options.ts';

/** Options of an operator as parsed by commander. */
export interface OperatorFlags
  extends ClusterFlags,
    LogFlags,
    ServeFlags,
    Pick<KubernetesFlags, 'kubeconfig' | 'context' | 'k8sLoad'> {
  readonly clusterId: number;
  readonly maxConnectedClusters: '255' | '511';
  readonly kvstoreLeaseTtl: number;
  readonly manifests?: readonly string[];
  readonly k8sNamespace: string;
  readonly leaderElectionLeaseDuration: number;
  readonly leaderElectionRenewDeadline: number;
  readonly leaderElectionRetryPeriod: number;
  readonly leaderElectionKvstoreDeadline: number;
  readonly k8sEndpoints: 'ciliumendpoints' | 'ciliumendpointslices';
  readonly identityAllocationMode: IdentityAllocation;
  readonly serviceSync: boolean;
  readonly nodeSync: boolean;
  readonly identitySync: boolean;
  readonly ipSync: boolean;
  readonly clusterConfig: boolean;
  readonly heartbeat: boolean;
  readonly serviceV2: 'both' | 'legacy';
  readonly clustermeshDefaultGlobalNamespace?: 'true' | 'false';
  readonly endpointGcInterval?: number;
  readonly identityGcInterval?: number;
  readonly nodesGcInterval?: number;
  readonly cnpStatusGcInterval?: number;
  readonly unmanagedKubeDnsInterval?: number;
  readonly kvstoreIdentityGcInterval?: number;
  readonly lockGcInterval?: number;
  readonly deleteAllEndpoints?: true;
  readonly endpointSlices: 'off' | 'identity' | 'fcfs';
  readonly mcsApi?: true;
  readonly mcsIpFamilies: (typeof FAMILIES)[number];
  readonly endpointSliceSync?: true;
  readonly clustermeshEndpointsPerSlice: number;
  readonly clustermeshEndpointUpdatesBatchPeriod: number;
  readonly dryRun?: true;
}

/** Address families of the Services of a cluster. */
const FAMILIES = ['IPv4,IPv6', 'IPv4', 'IPv6'] as const;

/** Parses a duration. Returns seconds: at least 5, because a shorter lease could expire during one election of etcd. */
function parseLeaseTTL(text: string): number {
  const seconds = parseDuration(text) / 1000;
  if (seconds >= 5) return seconds;
  throw new InvalidArgumentError('It must be at least 5s.');
}

/** Parses a maximum number of endpoints, which Kubernetes limits to 100 by default. */
const parseEndpointsPerSlice = numberParser(1, 100);

function addPublishOptions(command: Command): Command {
  return command
    .optionsGroup('Publishing:')
    .option('--no-service-sync', 'do not publish services')
    .option('--no-node-sync', 'do not publish CiliumNodes')
    .option('--no-identity-sync', 'do not publish CiliumIdentities')
    .option('--no-ip-sync', 'do not publish addresses of endpoints')
    .option('--no-cluster-config', 'do not publish the configuration of the cluster')
    .option('--no-heartbeat', 'do not publish a heartbeat')
    .addOption(
      choice(
        '--service-v2 <mode>',
        'publish services in both formats, services/v1 and endpointslices/v1, or only in the former (legacy)',
        ['both', 'legacy'],
        'both',
      ),
    )
    .addOption(
      new Option(
        '--clustermesh-default-global-namespace <boolean>',
        'publish objects of namespaces without the annotation clustermesh.cilium.io/global (default: true)',
      ).choices(['true', 'false']),
    )
    .addOption(
      choice(
        '--endpoint-slices <mode>',
        'group CiliumEndpoints into CiliumEndpointSlices: by identity, or in the order of their arrival (fcfs)',
        ['off', 'identity', 'fcfs'],
        'off',
      ),
    );
}

function addRemoteClusterOptions(command: Command): Command {
  return command
    .optionsGroup('Remote clusters:')
    .addOption(clustermeshConfigOption())
    .addOption(cacheTTLOption('services and service exports'))
    .option(
      '--mcs-api',
      'export and import services by ServiceExports and ServiceImports (multicluster.x-k8s.io); requires --clustermesh-config',
    )
    .addOption(
      choice(
        '--mcs-ip-families <families>',
        'address families of the Services of this cluster',
        FAMILIES,
        'IPv4,IPv6',
      ),
    )
    .option(
      '--endpoint-slice-sync',
      'write the backends of remote clusters as EndpointSlices, for global services that are headless or have the annotation service.cilium.io/global-sync-endpoint-slices; requires --clustermesh-config',
    )
    .addOption(
      new Option(
        '--clustermesh-endpoints-per-slice <number>',
        'with --endpoint-slice-sync: maximum number of endpoints in a slice',
      )
        .argParser(parseEndpointsPerSlice)
        .default(100),
    )
    .addOption(
      durationOption(
        '--clustermesh-endpoint-updates-batch-period <time>',
        'with --endpoint-slice-sync: time for which changes of a slice are collected before it is written',
        500,
        '500ms',
      ),
    );
}

/** The options of the intervals of garbage collection. */
const INTERVALS = [
  ['endpoint-gc', 'CiliumEndpoints of deleted pods (default: 5m)'],
  ['identity-gc', 'CiliumIdentities that no endpoint uses (default: 15m)'],
  ['nodes-gc', 'CiliumNodes without a Node (default: 5m)'],
  ['kvstore-identity-gc', 'identities in the kvstore that no node uses (default: 15m)'],
  ['lock-gc', 'locks in the kvstore that were not released (default: 25s)'],
  ['cnp-status-gc', 'status of deleted nodes in policies (default: 0)'],
  ['unmanaged-kube-dns', 'restart DNS pods that have no endpoint (default: 0)'],
] as const;

function addCollectorOptions(command: Command): Command {
  command.optionsGroup('Garbage collection (intervals; 0: disabled):');
  for (const [name, text] of INTERVALS) command.option(`--${name}-interval <time>`, text, parseDuration);
  return command.option(
    '--delete-all-endpoints',
    'at each start, delete all CiliumEndpoints, even those in use; set it only if agents no longer write them; requires interval 0 for endpoints and identities',
  );
}

/** Adds the options of {@link OperatorFlags} except those of all processes. */
export function addOperatorOptions(command: Command): Command {
  command
    .option(
      '--dry-run',
      'print every write and delete with its reason, but write nothing; runs without leader election',
    )
    .optionsGroup('Cluster:')
    .addOption(clusterOption())
    .addOption(clusterIDOption('id of the local cluster in the mesh; 0: not in a mesh').default(0))
    .addOption(maxClustersOption())
    .addOption(
      choice(
        '--identity-allocation-mode <mode>',
        'storage of identities: CiliumIdentities, the kvstore, or both',
        ['crd', 'kvstore', 'doublewrite-readkvstore', 'doublewrite-readcrd'],
        'crd',
      ),
    )
    .addOption(kvstoreConfigOption('; required unless --dry-run or --k8s-load is set'))
    .addOption(kvstoreOptOption('qps', 'maxInflight'))
    .addOption(
      new Option('--kvstore-lease-ttl <time>', 'time until published keys expire if the operator stops')
        .argParser(parseLeaseTTL)
        .default(900, '15m'),
    )
    .optionsGroup('Kubernetes:')
    .addOption(kubeconfigOption(' (default: the service account of the pod)'))
    .addOption(contextOption())
    .addOption(k8sLoadOption('; runs without leader election'))
    .addOption(new RepeatableOption('--manifests <path>', 'same as --k8s-load').argParser(appendPath))
    .option('--k8s-namespace <name>', 'namespace of the Lease for the leader election', parseName, 'default')
    .addOption(
      durationOption(
        '--leader-election-lease-duration <time>',
        'time until the Lease expires if it is not renewed',
        15_000,
        '15s',
      ),
    )
    .addOption(
      durationOption(
        '--leader-election-renew-deadline <time>',
        'a leader stops if it cannot renew the Lease for this time',
        10_000,
        '10s',
      ),
    )
    .addOption(
      durationOption(
        '--leader-election-retry-period <time>',
        'time between two attempts to acquire or renew the Lease',
        2000,
        '2s',
      ),
    )
    .addOption(
      durationOption(
        '--leader-election-kvstore-deadline <time>',
        'a leader releases the Lease if its kvstore does not answer for this time',
        60_000,
        '1m',
      ),
    )
    .addOption(
      choice(
        '--k8s-endpoints <kind>',
        'resource with the endpoints',
        ['ciliumendpoints', 'ciliumendpointslices'],
        'ciliumendpoints',
      ),
    );
  addPublishOptions(command);
  addRemoteClusterOptions(command);
  return addCollectorOptions(command).optionsGroup('Options:');
}

/**
 * Returns the problem if an operator needs an etcd but has none. Its published keys would be in the memory of its
 * process, where no agent can read them, while its collectors would delete objects of a real API server.
 */
export function missingKvstore({
  kvstoreConfig,
  dryRun,
  k8sLoad = [],
  manifests = [],
}: OperatorFlags): string | undefined {
  if (kvstoreConfig !== undefined || dryRun === true || k8sLoad.length + manifests.length > 0)
    return undefined;
  return 'no kvstore: add --kvstore-config <file>, or run without one with --dry-run or --k8s-load';
}

/** Returns the contradiction between the flags, if any, before the operator starts. */
export async function operatorContradiction(flags: OperatorFlags): Promise<string | undefined> {
  const { k8sLoad = [], manifests = [], kvstoreConfig, kvstoreOpt } = flags;
  const access = accessContradiction(flags, k8sLoad.length + manifests.length > 0);
  if (access !== undefined) return access;
  if (kvstoreOpt !== undefined && kvstoreConfig === undefined)
    return '--kvstore-opt requires --kvstore-config <file>';
  if (flags.clustermeshDefaultGlobalNamespace !== undefined && flags.identityAllocationMode !== 'crd')
    return '--clustermesh-default-global-namespace requires --identity-allocation-mode crd, because agents publish identities and addresses of all namespaces otherwise';
  if (flags.endpointSliceSync === true && flags.clustermeshConfig === undefined)
    return '--endpoint-slice-sync requires --clustermesh-config <folder>';
  if (flags.mcsApi === true && flags.clustermeshConfig === undefined)
    return '--mcs-api requires --clustermesh-config <folder>';
  if (flags.clustermeshConfig !== undefined && flags.endpointSliceSync !== true && flags.mcsApi !== true)
    return '--clustermesh-config requires --mcs-api or --endpoint-slice-sync, because no other duty reads remote clusters';
  return (await collectorContradiction(flags)) ?? (await electionContradiction(flags));
}

async function collectorContradiction(flags: OperatorFlags): Promise<string | undefined> {
  const { AGENT_LEASE_MS } = await import('../operator/collect/kvstore-collectors.ts');
  const { endpointGcInterval, identityGcInterval, kvstoreIdentityGcInterval = AGENT_LEASE_MS } = flags;
  const hasCRDs = flags.identityAllocationMode !== 'kvstore';
  const needsEndpoints = hasCRDs && identityGcInterval !== 0;
  if (flags.deleteAllEndpoints === true && (endpointGcInterval !== 0 || needsEndpoints))
    return `--delete-all-endpoints requires --endpoint-gc-interval 0${hasCRDs ? ' and --identity-gc-interval 0' : ''}, because CiliumEndpoints no longer show what is in use`;
  if (endpointGcInterval === 0 && needsEndpoints)
    return '--endpoint-gc-interval 0 requires --identity-gc-interval 0, because the remaining CiliumEndpoints keep all identities in use';
  const hasKvstore = flags.identityAllocationMode !== 'crd';
  if (hasKvstore && kvstoreIdentityGcInterval > 0 && kvstoreIdentityGcInterval < AGENT_LEASE_MS)
    return '--kvstore-identity-gc-interval must be 0 or at least 15m, because the references of a running node can be missing for that time';
  return undefined;
}

async function electionContradiction(flags: OperatorFlags): Promise<string | undefined> {
  const { electionFault } = await import('../operator/elect/leader-election.ts');
  const fault = electionFault(electionTimes(flags));
  return fault && `--leader-election-…: ${fault}`;
}

/** Returns the families of `--mcs-ip-families`. */
export function ipFamilies({ mcsIpFamilies: list }: OperatorFlags): readonly SliceAddressType[] {
  return IP_FAMILIES.filter((family) => list.split(',').includes(family));
}

export function electionTimes(flags: OperatorFlags): ElectionTimes {
  return {
    leaseMs: flags.leaderElectionLeaseDuration,
    renewDeadlineMs: flags.leaderElectionRenewDeadline,
    retryMs: flags.leaderElectionRetryPeriod,
  };
}
