import {
  BOOLEAN,
  checkArgument,
  checkArguments,
  ITERABLE,
  LIST,
  NUMBER,
  OBJECT,
  type Optional,
  objectWith,
  oneOf,
  optional,
  optionsWith,
  requireAllowed,
  SIGNAL,
  TEXT,
} from '../../base/arguments.ts';
import { type Rejection, RejectionLog, rejection } from '../../base/rejection.ts';
import { deferred } from '../../base/sleep.ts';
import { type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { TurnGate } from '../../base/turn-gate.ts';
import { ClusterDecoders, clusterLimits } from '../../clustermesh/decoders.ts';
import { encodeClusterEndpointSlice } from '../../kvstore/codec/cluster-endpoint-slice.ts';
import { encodeClusterService } from '../../kvstore/codec/cluster-service.ts';
import { encodeIdentity } from '../../kvstore/codec/identity.ts';
import { type IPIdentityPair, viewOfIPIdentityPair } from '../../kvstore/codec/ip-identity-pair.ts';
import { type CopiedResource, resourcePrefix, syncedKey } from '../../kvstore/codec/keys.ts';
import { encodeNode } from '../../kvstore/codec/node.ts';
import { encodeServiceExport } from '../../kvstore/codec/service-export.ts';
import type { KvstoreBackend } from '../../kvstore/session/backend.ts';
import { withClusterLabel } from '../../model/cluster-label.ts';
import { ClusterNameError, isClusterName } from '../../model/cluster-name.ts';
import type { ClusterNode, NodeName } from '../../model/cluster-node.ts';
import type { ClusterService } from '../../model/cluster-service.ts';
import type { Labels } from '../../model/labels.ts';
import {
  isNumericIdentity,
  MINIMAL_ALLOCATED_IDENTITY,
  requireClusterID,
} from '../../model/numeric-identity.ts';
import type { ServiceExport } from '../../model/service-export.ts';
import { canonicalKey } from '../../net/prefix.ts';
import { NO_STRINGS } from '../../nodemanager/node-spec.ts';
import { formatServiceID } from '../../servicecache/service-id.ts';
import type { DutyStatus } from '../duty.ts';
import { ClusterConfigKeeper } from './cluster-config.ts';
import { HeartbeatDuty } from './heartbeat.ts';
import { type KeyOwner, keyRules } from './mesh-keys.ts';
import { PublishedPrefix, type PublishedPrefixStatus } from './published-prefix.ts';
import { slicesOfService } from './service-slices.ts';

/** Options of {@link ClusterPublisher}. */
export interface ClusterPublisherOptions extends RuntimeOptions, KeyOwner {
  /** The kvstore of the cluster. The caller closes it. */
  readonly backend: KvstoreBackend;
  /**
   * `both`: services are published as `services/v1` and, since 1.20, as `endpointslices/v1`. `legacy`: only as
   * `services/v1`. Default `both`.
   */
  readonly serviceFormats?: 'both' | 'legacy' | undefined;
  /**
   * True to publish service exports of the multi-cluster services API, and the capability `serviceExportsEnabled` for
   * readers. Default false.
   */
  readonly serviceExports?: boolean | undefined;
  /** Splits the work on many keys into short turns. All parts of a process should share a gate. Default: a new one. */
  readonly gate?: TurnGate | undefined;
  /** Receives each value that is not published because readers would reject it, after the rejection was counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /**
   * Receives failures of the heartbeat, of background tasks and of writes of keys, with the name of the task. All are
   * retried. The failed writes of a prefix are reported once for each error code, and again after all of them have
   * succeeded.
   */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** A value for each published resource. `endpointslices` and `serviceexports` are present only if they are enabled. */
export type PublishedResources<T> = Readonly<
  Record<Exclude<CopiedResource, 'endpointslices' | 'serviceexports'>, T>
> & {
  readonly endpointslices?: T;
  readonly serviceexports?: T;
};

/** A node of the published cluster. The cluster's name and id are added. Absent fields have the zero value. */
export type PublishedNode = Pick<ClusterNode, 'name'> &
  Optional<Omit<ClusterNode, keyof NodeName | 'clusterID'>>;

/**
 * A service shared by the cluster. The cluster's name and id are added. Defaults: `shared` and `includeExternal` are
 * true, `labels` and `selector` are empty.
 */
export type PublishedService = Pick<
  ClusterService,
  'namespace' | 'name' | 'frontends' | 'backends' | 'hostnames' | 'zones'
> &
  Optional<Pick<ClusterService, 'labels' | 'selector' | 'includeExternal' | 'shared'>>;

/**
 * A service exported by the cluster with a ServiceExport. The cluster's name is added. Defaults: `annotations`,
 * `labels` and `ipFamilies` are empty.
 */
export type PublishedServiceExport = Omit<ServiceExport, 'cluster' | ExportDefaults> &
  Optional<Pick<ServiceExport, ExportDefaults>>;
type ExportDefaults = 'annotations' | 'labels' | 'ipFamilies';

/** Status of a {@link ClusterPublisher}. */
export interface ClusterPublisherStatus {
  /** True if everything published so far is in the kvstore, and canaries and configuration are written. */
  readonly synced: boolean;
  readonly resources: PublishedResources<PublishedPrefixStatus>;
  readonly config: DutyStatus;
  readonly heartbeat: DutyStatus;
}

/**
 * Publishes a cluster in the formats of Cilium, so that any reader can follow it (OPERATOR 9 to 13, 15, 35 to 43, 57).
 * The caller sets the desired content in any order and at any time, and the publisher makes the kvstore equal to it.
 *
 *     nodes, services, identities, IPs ─► leftovers of earlier runs are deleted ─► canaries ─► configuration
 *                                                                                             heartbeat
 *
 * Values invalid for readers of the mesh are counted and not published.
 *
 * The configuration is written when the content is complete ({@link ClusterPublisher.markSynced}) and all of it is in
 * the kvstore. If this process dies, the configuration expires before all other keys. Readers therefore never lose
 * published content, whenever the process or its leases end. If a lease is lost, its keys are written again in the same
 * order.
 *
 * Nodes have no lease and stay when the publisher ends. The other keys expire with the client's leases, unless the next
 * publisher of this cluster adopts them. Run only one publisher per cluster. Other clients may write only nodes
 * of the cluster.
 */
export class ClusterPublisher {
  readonly #owner: KeyOwner;
  /** The published resources. Disabled resources are missing. */
  readonly #prefixes: PublishedResources<PublishedPrefix>;
  /** Names of the slices of each service, by `namespace/name` of the service. */
  readonly #slices = new Map<string, Iterable<string>>();
  /** Decodes each value as readers of the mesh do, before it is published. */
  readonly #decoders: ClusterDecoders;
  readonly #config: ClusterConfigKeeper;
  readonly #heartbeat: HeartbeatDuty;
  readonly #contentComplete = deferred();
  #isRunning = false;

  /**
   * Throws a {@link ClusterNameError} if readers of Cilium 1.17 would reject the name of the cluster, and a
   * `UsageError` unless its id is from 1 to `maxConnectedClusters`.
   */
  constructor(options: ClusterPublisherOptions) {
    checkArgument('new ClusterPublisher: options', options, OPTIONS);
    const { clusterName, clusterID, maxConnectedClusters } = options;
    requireClusterID('new ClusterPublisher: options.clusterID', clusterID, maxConnectedClusters, 1);
    if (!isClusterName(clusterName)) throw new ClusterNameError(clusterName);
    const { backend, clock, random, onFailure } = withRuntime(options);
    const { gate = new TurnGate({ clock, nextTurn: setImmediate }) } = options;
    const common = { backend, clock, random, onFailure };
    this.#owner = options;
    const prefixOf = (resource: CopiedResource): PublishedPrefix =>
      new PublishedPrefix({
        ...common,
        gate,
        ...keyRules(resource, options),
        rejections: new RejectionLog(options.onReject),
        prefix: resourcePrefix(resource, clusterName),
        canary: syncedKey(clusterName, resource),
      });
    this.#prefixes = {
      nodes: prefixOf('nodes'),
      services: prefixOf('services'),
      ...(options.serviceFormats === 'legacy' ? {} : { endpointslices: prefixOf('endpointslices') }),
      ...(options.serviceExports === true ? { serviceexports: prefixOf('serviceexports') } : {}),
      identities: prefixOf('identities'),
      ip: prefixOf('ip'),
    };
    const promised = Object.values(this.#prefixes).map((prefix) => ({
      synced: async (): Promise<void> => {
        await this.#contentComplete.promise;
        await prefix.markSynced(); // resolves when its canary is stored
      },
    }));
    const limits = clusterLimits(clusterID, maxConnectedClusters);
    this.#decoders = new ClusterDecoders({ cluster: clusterName, limits: () => limits });
    this.#config = new ClusterConfigKeeper({
      ...common,
      clusterName,
      clusterID,
      maxConnectedClusters,
      promised,
      endpointSlicesExportMode: this.#prefixes.endpointslices && 'services-and-endpointslices',
      serviceExportsEnabled: this.#prefixes.serviceexports && true,
    });
    this.#heartbeat = new HeartbeatDuty({ backend, clock, random, onFailure });
  }

  upsertNode(node: PublishedNode): void {
    const complete: Required<ClusterNode> = {
      name: node.name,
      cluster: this.#owner.clusterName,
      clusterID: this.#owner.clusterID,
      addresses: node.addresses ?? [],
      ipv4AllocCIDR: node.ipv4AllocCIDR,
      ipv6AllocCIDR: node.ipv6AllocCIDR,
      ipv4SecondaryAllocCIDRs: node.ipv4SecondaryAllocCIDRs ?? [],
      ipv6SecondaryAllocCIDRs: node.ipv6SecondaryAllocCIDRs ?? [],
      ipv4HealthIP: node.ipv4HealthIP,
      ipv6HealthIP: node.ipv6HealthIP,
      ipv4IngressIP: node.ipv4IngressIP,
      ipv6IngressIP: node.ipv6IngressIP,
      encryptionKey: node.encryptionKey ?? 0,
      labels: node.labels ?? NO_STRINGS,
      annotations: node.annotations ?? NO_STRINGS,
      nodeIdentity: node.nodeIdentity ?? 0,
      wireguardPubKey: node.wireguardPubKey ?? '',
      bootID: node.bootID ?? '',
    };
    this.#upsert('nodes', node.name, encodeNode(complete, { source: 'custom-resource' }));
  }

  deleteNode(name: string): void {
    this.#prefixes.nodes.delete(name);
  }

  upsertService(service: PublishedService): void {
    const { clusterName: cluster, clusterID } = this.#owner;
    const { namespace, name } = service;
    const { labels = NO_STRINGS, selector = NO_STRINGS, includeExternal = true, shared = true } = service;
    const published = { ...service, cluster, clusterID, labels, selector, includeExternal, shared };
    this.#upsert('services', `${namespace}/${name}`, encodeClusterService(published));
    if (this.#prefixes.endpointslices !== undefined) this.#setSlices(published);
  }

  /** Publishes the backends of a service as slices, and deletes its other slices. */
  #setSlices(service: ClusterService): void {
    const { namespace } = service;
    const id = formatServiceID(service);
    const slices = slicesOfService(service);
    for (const [name, slice] of slices)
      this.#upsert('endpointslices', `${namespace}/${name}`, encodeClusterEndpointSlice(slice));
    for (const name of this.#slices.get(id) ?? [])
      if (!slices.has(name)) this.#prefixes.endpointslices?.delete(`${namespace}/${name}`);
    this.#slices.set(id, [...slices.keys()]);
  }

  deleteService({ namespace, name }: { readonly namespace: string; readonly name: string }): void {
    const id = formatServiceID({ namespace, name });
    this.#prefixes.services.delete(id);
    for (const slice of this.#slices.get(id) ?? [])
      this.#prefixes.endpointslices?.delete(`${namespace}/${slice}`);
    this.#slices.delete(id);
  }

  /** Publishes a service export. Throws if service exports are switched off, because readers would not wait for it. */
  upsertServiceExport(service: PublishedServiceExport): void {
    const { namespace, name } = service;
    requireAllowed(this.#prefixes.serviceexports !== undefined, 'the option serviceExports must be true');
    const { annotations = NO_STRINGS, labels = NO_STRINGS, ipFamilies = [] } = service;
    const { clusterName: cluster } = this.#owner;
    const value = encodeServiceExport({ ...service, cluster, annotations, labels, ipFamilies });
    this.#upsert('serviceexports', `${namespace}/${name}`, value);
  }

  deleteServiceExport({ namespace, name }: { readonly namespace: string; readonly name: string }): void {
    this.#prefixes.serviceexports?.delete(`${namespace}/${name}`);
  }

  /**
   * Publishes an identity. Adds the label `k8s:io.cilium.k8s.policy.cluster=<cluster>` if it is missing, because Cilium
   * 1.17 ignores identities without it.
   *
   * @param id in the cluster's range, see {@link clusterIdentityRange}
   * @param labels at least one
   */
  upsertIdentity(id: number, labels: Labels): void {
    const fault = this.#identityFault(id, labels);
    if (fault !== undefined) {
      this.#prefixes.identities.reject(String(id), fault);
      return;
    }
    const published = withClusterLabel(labels, this.#owner.clusterName);
    this.#upsert('identities', String(id), encodeIdentity(published));
  }

  /**
   * Returns a rejection for a reserved number and for an empty list, which this library accepts from other clusters.
   * Cilium rejects reserved numbers (pkg/identity/cache, `clusterIDValidator`), and allocates no number without labels.
   */
  #identityFault(id: number, labels: Labels): Rejection | undefined {
    const at = `${this.#prefixes.identities.prefix}${id}`;
    if (labels.length === 0) return rejection('invalid-labels', 'labels', '', 'must not be empty', at);
    if (!isNumericIdentity(id) || id >= MINIMAL_ALLOCATED_IDENTITY) return undefined;
    return rejection('identity-out-of-range', 'key', id, 'is reserved', at);
  }

  deleteIdentity(id: number): void {
    this.#prefixes.identities.delete(String(id));
  }

  /** Publishes an endpoint's address or a CIDR. The key is made canonical because readers reject other spellings. */
  upsertIP(pair: IPIdentityPair): void {
    const key = canonicalKey(pair.key) ?? pair.key;
    const canonical = key === pair.key ? pair : { ...pair, key };
    const value = viewOfIPIdentityPair(canonical);
    // `checkIP` is faster than the decoder, which is called only for its rejection.
    if (this.#decoders.checkIP(canonical, value)) this.#prefixes.ip.upsert(key, value);
    else this.#upsert('ip', key, value);
  }

  /** @param key as in `upsertIP` */
  deleteIP(key: string): void {
    this.#prefixes.ip.delete(canonicalKey(key) ?? key);
  }

  /**
   * Declares the content complete: keys of earlier runs are deleted unless this run has published them. Resolves when
   * canaries and configuration are written. Until then, readers keep their previous state.
   */
  markSynced(): Promise<void> {
    this.#contentComplete.resolve();
    return this.#config.written;
  }

  /**
   * Publishes a value if readers accept all of it. Otherwise the value is counted as rejected, and its key is deleted.
   */
  #upsert(resource: CopiedResource, name: string, value: Uint8Array): void {
    const prefix = this.#prefixes[resource];
    if (prefix === undefined) return;
    const decoded = this.#decoders[resource](name, value, `${prefix.prefix}${name}`);
    const fault = decoded.ok ? decoded.dropped?.[0] : decoded.rejection;
    if (fault === undefined) prefix.upsert(name, value);
    else prefix.reject(name, fault);
  }

  status(): ClusterPublisherStatus {
    const { nodes, services, endpointslices, serviceexports, identities, ip } = this.#prefixes;
    const resources = {
      nodes: nodes.status(),
      services: services.status(),
      ...(endpointslices && { endpointslices: endpointslices.status() }),
      ...(serviceexports && { serviceexports: serviceexports.status() }),
      identities: identities.status(),
      ip: ip.status(),
    };
    const config = this.#config.status();
    const areKeysSynced = Object.values(resources).every((prefix) => prefix.synced && prefix.pending === 0);
    const synced = areKeysSynced && config.published?.synced === true;
    return { synced, resources, config, heartbeat: this.#heartbeat.status() };
  }

  /**
   * Publishes until the signal fires. Only one run at a time. Close the backend with `keepLeases`, so that the next
   * publisher can adopt the keys.
   */
  async run(signal: AbortSignal): Promise<void> {
    requireAllowed(!this.#isRunning, 'run: the publisher is running already');
    this.#isRunning = true;
    try {
      const prefixes = Object.values(this.#prefixes);
      await Promise.all([
        ...prefixes.map((prefix) => prefix.run(signal)),
        this.#config.run(signal),
        this.#heartbeat.run(signal),
      ]);
    } finally {
      this.#isRunning = false;
    }
  }
}

const NODE = objectWith({
  name: TEXT,
  encryptionKey: optional(NUMBER),
  nodeIdentity: optional(NUMBER),
  wireguardPubKey: optional(TEXT),
  bootID: optional(TEXT),
  addresses: optional(LIST),
  ipv4SecondaryAllocCIDRs: optional(LIST),
  ipv6SecondaryAllocCIDRs: optional(LIST),
  labels: optional(ITERABLE),
  annotations: optional(ITERABLE),
});
const SERVICE_ID = objectWith({ namespace: TEXT, name: TEXT });
const SERVICE = objectWith({
  namespace: TEXT,
  name: TEXT,
  frontends: ITERABLE,
  backends: ITERABLE,
  labels: optional(ITERABLE),
  selector: optional(ITERABLE),
});

const EXPORT = objectWith({
  namespace: TEXT,
  name: TEXT,
  ports: LIST,
  type: TEXT,
  createdAt: NUMBER,
  annotations: optional(ITERABLE),
  labels: optional(ITERABLE),
  ipFamilies: optional(LIST),
});

const OPTIONS = optionsWith({
  backend: OBJECT,
  clusterName: TEXT,
  clusterID: NUMBER,
  maxConnectedClusters: optional(oneOf(255, 511)),
  serviceFormats: optional(oneOf('both', 'legacy')),
  serviceExports: optional(BOOLEAN),
});

checkArguments(ClusterPublisher, {
  upsertNode: { node: NODE },
  deleteNode: { name: TEXT },
  upsertService: { service: SERVICE },
  deleteService: { service: SERVICE_ID },
  upsertServiceExport: { service: EXPORT },
  deleteServiceExport: { service: SERVICE_ID },
  upsertIdentity: { id: NUMBER, labels: LIST },
  deleteIdentity: { id: NUMBER },
  upsertIP: { pair: objectWith({ key: TEXT, identity: NUMBER, encryptKey: NUMBER }) },
  deleteIP: { key: TEXT },
  run: { signal: SIGNAL },
});
