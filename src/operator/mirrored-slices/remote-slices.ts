import { type Rejection, RejectionLog, rejection } from '../../base/rejection.ts';
import type { ServiceSink } from '../../clustermesh/engines.ts';
import { services } from '../../k8s/feed/kinds.ts';
import type { KindReader } from '../../k8s/feed/object-feed.ts';
import { type ObjectFields, readID } from '../../k8s/parse-object.ts';
import { readFlags } from '../../k8s/parse-service.ts';
import type { ClusterEndpointSlice } from '../../model/cluster-endpoint-slice.ts';
import { HEADLESS_LABEL, SERVICE_NAME_LABEL } from '../../model/cluster-endpoint-slice.ts';
import type { ClusterService } from '../../model/cluster-service.ts';
import type { RemoteSliceID } from '../../servicecache/service-cache.ts';
import { formatServiceID, type ServiceID, serviceOfSlice } from '../../servicecache/service-id.ts';
import { field } from '../collect/field.ts';
import { FAMILIES_ANNOTATION } from '../mcs/names.ts';
import type { FollowContext } from '../publish/producer.ts';
import type { RemoteClusters } from '../remote-clusters.ts';
import { SetMap } from '../set-map.ts';
import { FollowedList } from './followed-list.ts';
import {
  MANAGED_BY,
  mirroredName,
  remoteContents,
  SOURCE_CLUSTER,
  selectsSlices,
  type WantedSlice,
} from './slice-content.ts';
import type { KnownSlice, SliceSource } from './slice-writer.ts';

export interface RemoteSlicesOptions extends Pick<FollowContext, 'source' | 'clock' | 'gate'> {
  readonly clusters: Pick<RemoteClusters, 'stateOf' | 'onChange' | 'feed'>;
  /** Maximum number of endpoints in a slice, at most 100. Default 100. */
  readonly endpointsPerSlice?: number | undefined;
  readonly onReject: (rejection: Rejection) => void;
}

/**
 * The value of {@link MANAGED_BY} of slices with backends of other clusters. `OWN_SLICES` excludes these from the feeds
 * of this program.
 */
export const MESH_CONTROLLER = 'endpointslice-mesh-controller.cilium.io';
const MAX_ENDPOINTS = 100;

/** A service whose remote backends become slices. */
interface SelectedService extends ServiceID {
  readonly uid: string;
  readonly isHeadless: boolean;
  readonly labels: ReadonlyMap<string, string>;
  /** The address families of the service, or of its import if it is derived; empty: any family. */
  readonly families: readonly string[];
}

/** A remote slice, or a part of a large one, which becomes one local slice. */
interface RemotePart {
  readonly cluster: string;
  readonly slice: string;
  readonly service: string;
  readonly family: string;
  readonly content: string;
}

/** Returns a service if its annotations select it (OPERATOR 58). */
function readSelected(fields: ObjectFields): SelectedService | undefined {
  const id = readID(fields);
  const metadata = fields.map('metadata');
  const annotations = metadata.strings('annotations');
  const spec = fields.map('spec');
  const isHeadless = spec.string('clusterIP') === 'None';
  if (id === undefined || !readFlags(annotations).global) return undefined;
  if (!selectsSlices(annotations, isHeadless)) return undefined;
  const families =
    annotations.get(FAMILIES_ANNOTATION)?.split(',') ??
    spec.list('ipFamilies').items((list, index) => list.string(index));
  const labels = metadata.strings('labels');
  labels.delete(HEADLESS_LABEL);
  return { ...id, uid: metadata.string('uid') ?? '', isHeadless, labels, families };
}

function sameSelected(a: SelectedService, b: SelectedService): boolean {
  return (
    a.uid === b.uid &&
    a.isHeadless === b.isHeadless &&
    a.families.join() === b.families.join() &&
    a.labels.size === b.labels.size &&
    [...a.labels].every(([name, value]) => b.labels.get(name) === value)
  );
}

/**
 * The slices of remote clusters, as slices of this cluster, for services with the annotations of EndpointSlice
 * synchronization. A pure function of the remote slices and the local services. Stores the slices of all services, as
 * text, because a service may be selected later.
 */
export class RemoteSlices implements SliceSource, ServiceSink {
  readonly name = 'endpoint-slice-sync';
  readonly #options: RemoteSlicesOptions;
  readonly #rejections: RejectionLog;
  readonly #services = new Map<string, SelectedService>();
  /** By key of a local slice. */
  readonly #parts = new Map<string, RemotePart>();
  readonly #keysOfService = new SetMap<string>();
  /** Keys of unwanted slices that are not deleted while their cluster is incomplete, by cluster and by service. */
  readonly #kept = new SetMap<string>();
  /** The clusters which publish services without slices. */
  readonly #withoutSlices = new Set<string>();
  readonly #list = new FollowedList('services');
  #notify: (key: string) => void = () => {};

  constructor(options: RemoteSlicesOptions) {
    this.#options = options;
    this.#rejections = new RejectionLog(options.onReject);
    options.clusters.feed({ services: this });
  }

  get rejected(): number {
    return this.#rejections.status().total;
  }

  start(onChange: (key: string) => void, signal: AbortSignal): void {
    const { clusters, source, clock, gate } = this.#options;
    for (const state of [this.#services, this.#parts, this.#keysOfService, this.#kept]) state.clear();
    this.#notify = onChange;
    // An empty name stands for all clusters. `#kept` also has the names of services, whose review changes nothing.
    const leave = clusters.onChange((cluster) => {
      for (const name of cluster === '' ? [...this.#kept.keys()] : [cluster])
        if (clusters.stateOf(name) !== 'incomplete') this.#review(name);
    });
    const context = { source, clock, gate, rejections: this.#rejections };
    this.#list.follow(services({ headless: true }), this.#reader(), context, { signal, leave });
  }

  notReadyReason(): string | undefined {
    return this.#list.notReadyReason();
  }

  wantedSlice(key: string): WantedSlice | undefined {
    const part = this.#parts.get(key);
    const service = this.#services.get(part?.service ?? '');
    if (part === undefined || service === undefined || !hasFamily(service, part)) return undefined;
    const { namespace, name, uid, isHeadless, labels } = service;
    return {
      namespace,
      name: key.slice(namespace.length + 1),
      labels: {
        // As Kubernetes does. CoreDNS finds the slices of a derived Service by one of its labels.
        ...Object.fromEntries(labels),
        [SERVICE_NAME_LABEL]: name,
        [MANAGED_BY]: MESH_CONTROLLER,
        [SOURCE_CLUSTER]: part.cluster,
        ...(isHeadless ? { [HEADLESS_LABEL]: '' } : {}),
      },
      owner: { name, uid },
      content: part.content,
      reason: `cluster ${part.cluster} shares ${part.service} in slice ${part.slice}`,
    };
  }

  unwantedReason(slice: KnownSlice): string | undefined {
    const { namespace = '', name: local } = slice.metadata;
    const key = `${namespace}/${local}`;
    const name = String(field(slice.labels, SERVICE_NAME_LABEL) ?? '');
    const cluster = String(field(slice.labels, SOURCE_CLUSTER) ?? '');
    const id = formatServiceID({ namespace, name });
    const service = this.#services.get(id);
    if (service === undefined) return `no service ${id} exists that selects slices of other clusters`;
    const part = this.#parts.get(key);
    if (part !== undefined && !hasFamily(service, part)) return `${id} has no ${part.family} addresses`;
    switch (this.#options.clusters.stateOf(cluster)) {
      case 'incomplete':
        this.#kept.add(cluster, key);
        this.#kept.add(id, key);
        return undefined;
      case 'gone':
        return `cluster ${cluster} is not part of the mesh`;
      case 'expired':
        return `cluster ${cluster} has been unreachable for the time of --clustermesh-cache-ttl`;
      case 'complete':
        return `cluster ${cluster} does not share this slice of ${id}`;
    }
  }

  /** Reports a cluster that publishes services without slices. */
  mergeExternalServiceUpdate({ cluster }: ClusterService): void {
    if (this.#withoutSlices.has(cluster)) return;
    this.#withoutSlices.add(cluster);
    const reason = 'publishes its services without endpoint slices, so its backends get none here';
    this.#rejections.add(rejection('unread-format', 'cluster', cluster, reason));
  }

  mergeExternalServiceDelete(): void {}

  mergeExternalSliceUpdate(slice: ClusterEndpointSlice): void {
    const { cluster, namespace, name } = slice;
    const id = serviceOfSlice(slice);
    const service = formatServiceID(id);
    const { endpointsPerSlice = MAX_ENDPOINTS } = this.#options;
    const contents = remoteContents(slice, endpointsPerSlice);
    const local = `${namespace}/${mirroredName(id.name, cluster, name)}`;
    const family = slice.addressType;
    contents.forEach((content, part) => {
      this.#put(partKey(local, part), { cluster, slice: name, service, family, content });
    });
    this.#removeFrom(local, contents.length);
  }

  mergeExternalSliceDelete({ cluster, id, name }: RemoteSliceID): void {
    this.#removeFrom(`${id.namespace}/${mirroredName(id.name, cluster, name)}`, 0);
  }

  /** Does nothing, because the slices of the cluster are deleted one by one before this call. */
  withdrawCluster(): void {}

  #reader(): KindReader<SelectedService> {
    return {
      kind: 'Service',
      fields: ['metadata.annotations', 'metadata.labels', 'spec.clusterIP', 'spec.ipFamilies'],
      read: readSelected,
      same: sameSelected,
      change: (current, previous) => {
        const service = current ?? previous;
        if (service === undefined) return;
        const id = formatServiceID(service);
        if (current === undefined) this.#services.delete(id);
        else this.#services.set(id, current);
        for (const key of this.#keysOfService.get(id)) this.#notify(key);
        this.#review(id);
      },
    };
  }

  #put(key: string, part: RemotePart): void {
    this.#parts.set(key, part);
    this.#keysOfService.add(part.service, key);
    if (this.#services.has(part.service)) this.#notify(key);
  }

  /** Removes the parts of a slice from number `from` on. */
  #removeFrom(local: string, from: number): void {
    for (let part = from; ; part++) {
      const key = partKey(local, part);
      const removed = this.#parts.get(key);
      if (removed === undefined) return;
      this.#parts.delete(key);
      this.#keysOfService.delete(removed.service, key);
      if (this.#services.has(removed.service)) this.#notify(key);
    }
  }

  /** Compares the kept slices of a cluster or service again. */
  #review(name: string): void {
    for (const key of this.#kept.take(name)) this.#notify(key);
  }
}

function hasFamily({ families }: SelectedService, { family }: RemotePart): boolean {
  return families.length === 0 || families.includes(family);
}

function partKey(local: string, part: number): string {
  return part === 0 ? local : `${local}-${part}`;
}
