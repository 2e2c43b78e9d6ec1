import { createHash } from 'node:crypto';
import type { ResourceKind } from '../../k8s/resource.ts';
import {
  type ClusterEndpointSlice,
  type SliceEndpoint,
  ZONE_TOPOLOGY,
} from '../../model/cluster-endpoint-slice.ts';
import { isObject } from '../../net/fields.ts';
import { protocolName } from '../../net/port.ts';
import { field, items, normalForm } from '../collect/field.ts';

/** EndpointSlices of any controller. */
export const ENDPOINT_SLICES: ResourceKind = {
  group: 'discovery.k8s.io',
  version: 'v1',
  plural: 'endpointslices',
};

/** The label with the controller of a slice. */
export const MANAGED_BY = 'endpointslice.kubernetes.io/managed-by';

/** The label with the cluster of the backends of a slice. */
export const SOURCE_CLUSTER = 'multicluster.kubernetes.io/source-cluster';

/** The annotation with the name of the copied slice. Also a label, if the name is short enough for its value. */
export const LOCAL_SLICE = 'service.cilium.io/local-endpointslice';

/** The annotation of a Service, or of a ServiceImport, that selects its slices of remote clusters. */
const SYNC_SLICES = 'service.cilium.io/global-sync-endpoint-slices';

/**
 * Returns true if the annotations of a global Service select its slices of remote clusters (OPERATOR 58). Without the
 * annotation, only headless Services are selected.
 */
export function selectsSlices(annotations: ReadonlyMap<string, string>, isHeadless: boolean): boolean {
  const setting = annotations.get(SYNC_SLICES);
  return setting === undefined ? isHeadless : setting.toLowerCase() === 'true';
}

/** The field manager of the slices of this operator. */
export const FIELD_MANAGER = 'dpcache-operator';

/** A slice as the API server should have it. */
export interface WantedSlice {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** The owner of the slice, a Service. */
  readonly owner: { readonly name: string; readonly uid: string };
  /** Address type, endpoints and ports as JSON. */
  readonly content: string;
  /** Why the slice is wanted, without a final period. */
  readonly reason: string;
}

/** The object of a {@link WantedSlice}, without identity and version. */
export interface SliceBody {
  readonly metadata: { readonly name: string; readonly namespace: string; readonly [field: string]: unknown };
  readonly [field: string]: unknown;
}

function endpointOf(endpoint: SliceEndpoint, isFamily: (address: string) => boolean): unknown {
  const { addresses, conditions, hostname, zone, forZones, deprecatedTopology } = endpoint;
  return {
    addresses: addresses.filter(isFamily),
    conditions,
    hostname,
    // Without node names, because a node of this cluster may have the name of a node of another cluster.
    zone: zone ?? deprecatedTopology.get(ZONE_TOPOLOGY),
    hints: forZones.length === 0 ? undefined : { forZones: forZones.map((name) => ({ name })) },
  };
}

/**
 * Returns the contents of the local slices that copy a remote slice: one, or several if it has more than `maxEndpoints`
 * endpoints. Endpoints have no node names. IPv4-mapped addresses of an IPv6 slice are left out, because
 * no API server stores them.
 */
export function remoteContents(slice: ClusterEndpointSlice, maxEndpoints: number): readonly string[] {
  const { addressType, ports, endpoints } = slice;
  const isFamily = (address: string): boolean => address.includes(':') === (addressType === 'IPv6');
  const written = endpoints.filter(({ addresses }) => addresses.some(isFamily));
  const named = ports.map((port) => ({ ...port, protocol: protocolName(port.protocol) }));
  const contents: string[] = [];
  let from = 0;
  do {
    const part = written.slice(from, from + maxEndpoints).map((endpoint) => endpointOf(endpoint, isFamily));
    contents.push(JSON.stringify({ addressType, endpoints: part, ports: named }));
    from += maxEndpoints;
  } while (from < written.length);
  return contents;
}

/** Length of a digest in hex digits: 96 bits, so that no cluster can find two slices with equal digests. */
const DIGEST_LENGTH = 24;

/** Returns `<service>-<hex digits>` for a remote slice. The name depends on the arguments only. */
export function mirroredName(service: string, cluster: string, slice: string): string {
  const digest = createHash('sha256').update(`${cluster}/${slice}`).digest('hex');
  return `${service}-${digest.slice(0, DIGEST_LENGTH)}`;
}

/** The metadata of a slice that other programs have written, such as the weight of its backends. Updates keep it. */
export interface ForeignMetadata {
  readonly annotations: Readonly<Record<string, unknown>>;
  readonly finalizers: readonly unknown[];
}

/** Returns the metadata of a slice that updates keep, as in Cilium; undefined if it has none. */
export function foreignMetadata(slice: Readonly<Record<string, unknown>>): ForeignMetadata | undefined {
  const all = field(slice, 'metadata', 'annotations');
  const annotations = Object.entries(isObject(all) ? all : {}).filter(([name]) => name !== LOCAL_SLICE);
  const finalizers = items(slice, 'metadata', 'finalizers');
  if (annotations.length === 0 && finalizers.length === 0) return undefined;
  return { annotations: Object.fromEntries(annotations), finalizers };
}

/** Returns the object of a slice, for a write. */
export function sliceBody(slice: WantedSlice, foreign?: ForeignMetadata): SliceBody {
  const { namespace, name, labels, annotations, owner, content } = slice;
  const fields: unknown = JSON.parse(content);
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    ...(isObject(fields) ? fields : {}),
    metadata: {
      namespace,
      name,
      labels,
      ...(annotations && { annotations }),
      ...(foreign && {
        annotations: { ...foreign.annotations, ...annotations },
        finalizers: foreign.finalizers,
      }),
      ownerReferences: [{ apiVersion: 'v1', kind: 'Service', name: owner.name, uid: owner.uid }],
    },
  };
}

/**
 * Returns a digest of all written fields of a slice; of the annotations, only {@link LOCAL_SLICE}. If two slices have
 * equal digests, no write is needed.
 */
export function digestOf(slice: Readonly<Record<string, unknown>>): string {
  const { addressType, endpoints, ports, metadata } = slice;
  const [labels, owners] = [field(metadata, 'labels'), field(metadata, 'ownerReferences')];
  // An empty text is a missing one in a port or an endpoint, but a value in a label.
  const content = [
    normalForm({ addressType, endpoints, ports, owners }, ''),
    normalForm(labels),
    field(metadata, 'annotations', LOCAL_SLICE),
  ];
  return createHash('sha256').update(JSON.stringify(content)).digest('base64');
}
