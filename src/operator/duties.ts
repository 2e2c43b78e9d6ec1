import { assert } from '../base/assert.ts';
import type { Rejection } from '../base/rejection.ts';
import type { ConfigSource } from '../clustermesh/config-follower.ts';
import type { KubernetesClient } from '../k8s/kubernetes-client.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import { clusterIdentityRange, type MaxConnectedClusters } from '../model/numeric-identity.ts';
import { type CollectorIntervals, collectors } from './collect/collectors.ts';
import { EndpointRemoval } from './collect/endpoint-removal.ts';
import type { Duty } from './duty.ts';
import type { DutyContext } from './duty-report.ts';
import { fencedWriter, type WriteContext } from './elect/fenced-writer.ts';
import { exportSync } from './mcs/export-sync.ts';
import { McsDuty, type McsDutyOptions } from './mcs/mcs-duty.ts';
import { McsObjects } from './mcs/mcs-objects.ts';
import { endpointSliceSync, exportedSliceCopies, objectWriter } from './mirrored-slices/slice-duties.ts';
import { ClusterConfigKeeper } from './publish/cluster-config.ts';
import { GlobalNamespaces } from './publish/global-namespaces.ts';
import { HeartbeatDuty } from './publish/heartbeat.ts';
import { identitySync } from './publish/identity-sync.ts';
import { ipSync } from './publish/ip-sync.ts';
import { nodeSync } from './publish/node-sync.ts';
import type { Producer, ProducerOptions } from './publish/producer.ts';
import { ServiceObjects } from './publish/service-objects.ts';
import { serviceSync } from './publish/service-sync.ts';
import { sliceSync } from './publish/slice-sync.ts';
import { RemoteClusters } from './remote-clusters.ts';
import type { SliceMode } from './slices/cilium-slices.ts';

/** Switches for the publishing duties. Collectors are switched by their intervals. */
export interface PublishSwitches {
  readonly services: boolean;
  readonly nodes: boolean;
  readonly identities: boolean;
  readonly ips: boolean;
  readonly clusterConfig: boolean;
  readonly heartbeat: boolean;
}

/**
 * Where identities are allocated, by the words of Cilium. With `crd`, identities are CiliumIdentities, and the operator
 * publishes identities and IPs from custom resources. With `kvstore`, agents write identities and IPs to the kvstore
 * themselves. With the other modes, which Cilium uses to migrate from `kvstore` to `crd`, they write CiliumIdentities,
 * too.
 */
export type IdentityAllocation = 'crd' | 'kvstore' | 'doublewrite-readkvstore' | 'doublewrite-readcrd';

export interface OperatorDutiesOptions extends DutyContext, WriteContext {
  readonly clusterName: string;
  readonly clusterID: number;
  readonly maxConnectedClusters: MaxConnectedClusters;
  readonly identityAllocation: IdentityAllocation;
  readonly endpoints: 'ciliumendpoints' | 'ciliumendpointslices';
  readonly publish: PublishSwitches;
  /**
   * True if a Namespace without the annotation {@link GLOBAL_NAMESPACE} is global. Only objects of global namespaces
   * are published. Ignored unless identities are allocated with `crd`, because agents publish all namespaces otherwise.
   * Default: objects of all namespaces are published.
   */
  readonly globalByDefault?: boolean | undefined;
  /**
   * `both`: services are published as `services/v1` and, since 1.20, as `endpointslices/v1`. `legacy`: only as
   * `services/v1`. Default `both`.
   */
  readonly serviceFormats?: 'both' | 'legacy' | undefined;
  readonly intervals: CollectorIntervals;
  /** Delete all CiliumEndpoints, once. Default false. */
  readonly deleteAllEndpoints?: boolean | undefined;
  /** How CiliumEndpoints are batched into slices; `undefined` if they are not. */
  readonly slicing?: SliceMode | undefined;
  /** The configurations of the remote clusters, for the duties that read them. Default: none. */
  readonly remotes?: ConfigSource | undefined;
  /** See `ClusterMeshOptions`. Service exports are withdrawn, too. */
  readonly serviceTTLMs?: number | undefined;
  /** Creates EndpointSlices with the backends of remote clusters. Requires `remotes`. Default: off. */
  readonly endpointSliceSync?: EndpointSliceSyncOptions | undefined;
  /** Exports and imports services by the multi-cluster services API. Requires `remotes`. Default: off. */
  readonly mcs?: Pick<McsDutyOptions, 'families'> | undefined;
  readonly kubernetes: KubernetesClient;
  readonly backend: KvstoreBackend;
  readonly onReject: (rejection: Rejection) => void;
}

/** Options of the synchronization of EndpointSlices. */
export interface EndpointSliceSyncOptions {
  /** Maximum number of endpoints in a slice, at most 100. */
  readonly endpointsPerSlice: number;
  /** Time to gather changes. */
  readonly batchMs: number;
}

/** The duties of an operator, and some of them by their role. */
export interface OperatorDuties {
  readonly all: readonly Duty[];
  /** The operator is ready when each of these has published everything. */
  readonly published: readonly Duty[];
  /** Selects the namespaces whose objects are published; also in `all`. Undefined: all namespaces. */
  readonly namespaces?: GlobalNamespaces | undefined;
  /** The followed clusters; also in `all`. Undefined: no duty reads them. */
  readonly clusters?: RemoteClusters | undefined;
  /** The exports and imports of services; also in `all`. Undefined: the multi-cluster services API is off. */
  readonly mcs?: McsDuty | undefined;
}

/** Name of a cluster outside of any mesh. Its configuration is not published (OPERATOR 16). */
export const NO_MESH = 'default';

/** Rate limit of the explicit removal of all CiliumEndpoints. */
const REMOVALS_PER_SECOND = 50;

/**
 * Returns all duties; none runs yet. Throws an `AssertionError` if a collector could delete objects in use with these
 * intervals.
 */
export function operatorDuties(options: OperatorDutiesOptions): OperatorDuties {
  const { publish, kubernetes: source, identityAllocation, globalByDefault } = options;
  const { backend, clock, random, onFailure } = options;
  const namespaces =
    identityAllocation === 'crd' && globalByDefault !== undefined
      ? new GlobalNamespaces({ ...options, source, globalByDefault, print: options.dryRun })
      : undefined;
  const mcsObjects = options.mcs && new McsObjects({ ...options, source });
  const published = publishDuties(options, namespaces, mcsObjects);
  const heartbeat = publish.heartbeat
    ? [new HeartbeatDuty({ backend, clock, random, onFailure: (error) => onFailure?.(error, 'heartbeat') })]
    : [];
  const { all: imports, clusters, mcs } = importDuties(options, mcsObjects);
  const all = [
    ...(namespaces ? [namespaces] : []),
    ...published,
    ...heartbeat,
    ...collectorDuties(options),
    ...removalDuties(options),
    ...imports,
  ];
  return { all, published, namespaces, clusters, mcs };
}

/** Returns the duties that publish the local cluster, and then its configuration. */
function publishDuties(
  options: OperatorDutiesOptions,
  namespaces: GlobalNamespaces | undefined,
  mcsObjects: McsObjects | undefined,
): readonly Duty[] {
  const { publish, kubernetes: source, clusterName, clusterID, endpoints, serviceFormats = 'both' } = options;
  const isCRD = options.identityAllocation === 'crd';
  const hasSlices = serviceFormats === 'both';
  // A former operator may have left keys of a namespace that is no longer global. Identities are deleted last, because
  // the other keys contain their numbers.
  const sweepAfter = async (): Promise<void> => {
    if (namespaces === undefined) return;
    const others = producers.filter(({ resource }) => resource !== 'identities' && resource !== 'nodes');
    await Promise.all(others.map((producer) => producer.synced()));
  };
  const producerOptions: ProducerOptions = { ...options, source, namespaces };
  const objects = new ServiceObjects({
    ...producerOptions,
    selection: { headless: true },
    producers: hasSlices ? 2 : 1,
  });
  const switches: (readonly [isOn: boolean, create: () => Producer])[] = [
    [isCRD && publish.identities, () => identitySync({ ...producerOptions, sweepAfter })],
    [publish.nodes, () => nodeSync(producerOptions)],
    [isCRD && publish.ips, () => ipSync({ ...producerOptions, endpoints })],
    [publish.services, () => serviceSync(producerOptions, objects)],
  ];
  if (hasSlices) switches.push([publish.services, () => sliceSync(producerOptions, objects)]);
  if (mcsObjects) switches.push([publish.services, () => exportSync(producerOptions, mcsObjects)]);
  const producers = switches.flatMap(([isOn, create]) => (isOn ? create() : []));
  if (!publish.clusterConfig || clusterID === 0 || clusterName === NO_MESH) return producers;
  const config = new ClusterConfigKeeper({
    ...options,
    // Readers wait for the canary of each resource, so canaries are promised only if all of them are written.
    promised: producers.length === switches.length ? producers : undefined,
    endpointSlicesExportMode: hasSlices && publish.services ? 'services-and-endpointslices' : undefined,
    serviceExportsEnabled: mcsObjects && publish.services ? true : undefined,
  });
  return [...producers, config];
}

/**
 * Returns the duties that read remote clusters, and the objects of the multi-cluster services API. Duties register with
 * `RemoteClusters` when they are created, because it accepts no receivers after its start. The order of the duties has
 * no effect: when they start, all clear their state in the same turn, before the first cluster is connected.
 */
function importDuties(
  options: OperatorDutiesOptions,
  objects: McsObjects | undefined,
): Pick<OperatorDuties, 'all' | 'clusters' | 'mcs'> {
  const { remotes: source, endpointSliceSync: sliceOptions, mcs: mcsOptions, kubernetes } = options;
  const objectDuties = objects ? [objects] : [];
  if (source === undefined || (sliceOptions ?? mcsOptions) === undefined) return { all: objectDuties };
  const clusters = new RemoteClusters({ ...options, source });
  // The writer limits the writes of all these duties together.
  const context = { ...options, ...sliceOptions, clusters, writer: objectWriter(options) };
  const all = [...(sliceOptions ? [endpointSliceSync(context)] : []), clusters, ...objectDuties];
  if (mcsOptions === undefined || objects === undefined) return { all, clusters };
  const globalByDefault = options.identityAllocation === 'crd' ? options.globalByDefault : undefined;
  const reader = kubernetes.reader();
  const hasSliceSync = sliceOptions !== undefined;
  const mcs = new McsDuty({ ...context, ...mcsOptions, objects, globalByDefault, hasSliceSync, reader });
  return { all: [...all, mcs, exportedSliceCopies({ ...context, objects })], clusters, mcs };
}

/** Returns the duties which run once, on explicit request. */
function removalDuties(options: OperatorDutiesOptions): readonly Duty[] {
  if (options.deleteAllEndpoints !== true) return [];
  const { endpoints, identities } = intervalsOf(options);
  assert(endpoints === 0 && identities === 0, 'the collectors that rely on CiliumEndpoints are off');
  const reader = options.kubernetes.reader();
  const writer = fencedWriter(options, { perSecond: REMOVALS_PER_SECOND });
  return [new EndpointRemoval({ ...options, reader, writer })];
}

/**
 * Returns the intervals. A collector of identities is off (0) if agents do not write these identities: both run in the
 * modes with both, as in Cilium (operator/identitygc/gc.go).
 */
function intervalsOf({ identityAllocation, intervals }: OperatorDutiesOptions): CollectorIntervals {
  if (identityAllocation === 'crd') return { ...intervals, kvstoreIdentities: 0 };
  return identityAllocation === 'kvstore' ? { ...intervals, identities: 0 } : intervals;
}

function collectorDuties(options: OperatorDutiesOptions): readonly Duty[] {
  const { backend, clusterName, clusterID, maxConnectedClusters, slicing } = options;
  const identities = clusterIdentityRange(clusterID, maxConnectedClusters);
  return collectors({
    ...options,
    intervals: intervalsOf(options),
    kvstore: { backend, cluster: clusterName, identities },
    slices: slicing && { mode: slicing },
  });
}
