import { type Check, checkArgument, NUMBER, objectWith, oneOf, TEXT } from '../../base/arguments.ts';
import type { ClusterEndpointSliceKey } from '../../model/cluster-endpoint-slice.ts';
import type { NodeName } from '../../model/cluster-node.ts';
import type { ClusterServiceKey } from '../../model/cluster-service.ts';

/*
 * Names of the keys of a Cilium kvstore (WIRE, "Keys"). All prefixes end in `/`, so that a watch of cluster `a` never
 * includes keys of cluster `ab`.
 */

/** The resources published by a cluster to its mesh. */
export type MeshResource = 'nodes' | 'services' | 'endpointslices' | 'identities' | 'ip';

/** The resources of a mesh, each with keys below a prefix of its own. */
export const MESH_RESOURCES: readonly MeshResource[] = [
  'nodes',
  'services',
  'endpointslices',
  'identities',
  'ip',
];

/**
 * The resources copied by kvstoremesh: also the service exports of the multi-cluster services API, which operators
 * read.
 */
export type CopiedResource = MeshResource | 'serviceexports';

export const COPIED_RESOURCES: readonly CopiedResource[] = [...MESH_RESOURCES, 'serviceexports'];

/** The two formats of published services: whole, or as endpoint slices (1.20). */
export type ServiceResource = 'services' | 'endpointslices';

export const SERVICE_RESOURCES: readonly ServiceResource[] = ['services', 'endpointslices'];

export function isServiceResource(resource: CopiedResource): resource is ServiceResource {
  return resource === 'services' || resource === 'endpointslices';
}

/**
 * Each Cilium client creates a lock below this prefix when it starts, to test its permissions. The usual roles with
 * write permission may write below it.
 */
export const INIT_LOCKS_PREFIX = 'cilium/.initlock/';

/** Keys by which clients verify their leases: `<lease in hex>` (`lease-witnesses.ts`). */
export const LEASE_WITNESSES_PREFIX: string = `${INIT_LOCKS_PREFIX}leases/`;

/** The lock of all processes which copy into one kvstore. Cilium's kvstoremesh has the same lock since 1.19. */
export const KVSTOREMESH_LOCK = 'cilium/kvstoremesh-lock';

/** Written every 60 s with a lease, as proof of life. */
export const HEARTBEAT_KEY = 'cilium/.heartbeat';

/** Identities of the local cluster: `id/` master keys, `value/` slave keys, `locks/`. */
export const IDENTITIES_PREFIX = 'cilium/state/identities/v1/';

/** Locks of the identity allocator, one for each label string. */
export const IDENTITY_LOCKS_PREFIX: string = `${IDENTITIES_PREFIX}locks/`;

/**
 * A fixed part of all `ip` keys, which Cilium calls address space. The address space of a cluster is not in this part,
 * but at the end of the address (`10.1.2.3@5`).
 */
export const DEFAULT_ADDRESS_SPACE = 'default';

/** `state`: the kvstore of a cluster itself. `cache`: a copy by kvstoremesh (`capabilities.cached`). */
export type KeyLayout = 'state' | 'cache';

const RESOURCE: Check = oneOf(...COPIED_RESOURCES);
const LAYOUT: Check = oneOf('state', 'cache');
const NODE_NAME: Check = objectWith({ cluster: TEXT, name: TEXT });
const NAMESPACED_NAME: Check = objectWith({ cluster: TEXT, namespace: TEXT, name: TEXT });

/**
 * Returns the watched prefix of a resource of a cluster. In the kvstore of the cluster itself, the keys of identities
 * and IPs do not contain its name.
 */
export function resourcePrefix(
  resource: CopiedResource,
  cluster: string,
  layout: KeyLayout = 'state',
): string {
  checkArgument('resourcePrefix: resource', resource, RESOURCE);
  checkArgument('resourcePrefix: cluster', cluster, TEXT);
  checkArgument('resourcePrefix: layout', layout, LAYOUT);
  const base = `cilium/${layout}/${resource}/v1/`;
  if (resource === 'identities') return layout === 'state' ? `${base}id/` : `${base}${cluster}/id/`;
  return `${base}${resource === 'ip' && layout === 'state' ? DEFAULT_ADDRESS_SPACE : cluster}/`;
}

/** Returns the key of a node. */
export function nodeKey(node: NodeName): string {
  checkArgument('nodeKey: node', node, NODE_NAME);
  return `${resourcePrefix('nodes', node.cluster)}${node.name}`;
}

/** Returns the key of a service. */
export function serviceKey(service: ClusterServiceKey): string {
  checkArgument('serviceKey: service', service, NAMESPACED_NAME);
  return `${resourcePrefix('services', service.cluster)}${service.namespace}/${service.name}`;
}

/** Returns the key of an endpoint slice. */
export function endpointSliceKey(slice: ClusterEndpointSliceKey): string {
  checkArgument('endpointSliceKey: slice', slice, NAMESPACED_NAME);
  return `${resourcePrefix('endpointslices', slice.cluster)}${slice.namespace}/${slice.name}`;
}

/** Returns the key of a ServiceExport of the multi-cluster services API. */
export function serviceExportKey(service: ClusterServiceKey): string {
  checkArgument('serviceExportKey: service', service, NAMESPACED_NAME);
  return `${resourcePrefix('serviceexports', service.cluster)}${service.namespace}/${service.name}`;
}

/** @param prefix an endpoint IP or a CIDR in canonical form */
export function ipKey(prefix: string): string {
  checkArgument('ipKey: prefix', prefix, TEXT);
  return `${resourcePrefix('ip', '')}${prefix}`;
}

/** Returns the master key of an identity. */
export function identityKey(id: number): string {
  checkArgument('identityKey: id', id, NUMBER);
  return `${IDENTITIES_PREFIX}id/${id}`;
}

/** Returns the prefix of the slave keys of a label string. Each node that uses the identity has one. */
export function identityValuePrefix(labels: string): string {
  return `${IDENTITIES_PREFIX}value/${labels}/`;
}

/** Returns the slave key of one node for the identity. */
export function identityValueKey(labels: string, node: string): string {
  checkArgument('identityValueKey: labels', labels, TEXT);
  checkArgument('identityValueKey: node', node, TEXT);
  return `${identityValuePrefix(labels)}${node}`;
}

/** The configurations of clusters. */
export const CLUSTER_CONFIG_PREFIX = 'cilium/cluster-config/';

/** Returns the key of a cluster's configuration. */
export function clusterConfigKey(cluster: string): string {
  checkArgument('clusterConfigKey: cluster', cluster, TEXT);
  return `${CLUSTER_CONFIG_PREFIX}${cluster}`;
}

/** The canaries of a cluster. */
export function syncedPrefix(cluster: string): string {
  checkArgument('syncedPrefix: cluster', cluster, TEXT);
  return `cilium/synced/${cluster}/`;
}

/**
 * Returns the canary that marks the prefix of a resource as complete: `cilium/synced/<cluster>/cilium/state/nodes/v1`.
 */
export function syncedKey(cluster: string, resource: CopiedResource, layout: KeyLayout = 'state'): string {
  checkArgument('syncedKey: resource', resource, RESOURCE);
  checkArgument('syncedKey: layout', layout, LAYOUT);
  return `${syncedPrefix(cluster)}cilium/${layout}/${resource}/v1`;
}

/** The resources whose keys end in `<cluster>/<namespace>/<name>`. */
const NAMESPACED_KINDS = {
  services: 'service',
  endpointslices: 'endpointslice',
  serviceexports: 'serviceexport',
} as const;

/** A parsed key, by kind. */
export type ParsedKey =
  | { readonly kind: 'node'; readonly layout: KeyLayout; readonly cluster: string; readonly name: string }
  | {
      /** For a slice, `name` is the name of the slice, not of its service. */
      readonly kind: (typeof NAMESPACED_KINDS)[keyof typeof NAMESPACED_KINDS];
      readonly layout: KeyLayout;
      readonly cluster: string;
      readonly namespace: string;
      readonly name: string;
    }
  | {
      readonly kind: 'identity';
      readonly layout: KeyLayout;
      /** Undefined in the kvstore of the cluster itself, whose keys do not contain its name. */
      readonly cluster: string | undefined;
      readonly id: string;
    }
  | { readonly kind: 'identity-value'; readonly labels: string; readonly node: string }
  | { readonly kind: 'identity-lock'; readonly path: string }
  | {
      readonly kind: 'ip';
      readonly layout: KeyLayout;
      /** Undefined in the kvstore of the cluster itself, whose keys do not contain its name. */
      readonly cluster: string | undefined;
      /** Undefined in the copy by kvstoremesh. */
      readonly addressSpace: string | undefined;
      /** An endpoint IP or a CIDR. */
      readonly prefix: string;
    }
  | { readonly kind: 'heartbeat' }
  | { readonly kind: 'init-lock' | 'kvstoremesh-lock'; readonly name: string }
  | { readonly kind: 'cluster-config'; readonly cluster: string }
  | { readonly kind: 'synced'; readonly cluster: string; readonly prefix: string };

/** Splits `text` at the first `count - 1` slashes. Returns `undefined` if a part is missing or empty. */
function splitParts(text: string, count: number): readonly string[] | undefined {
  const parts: string[] = [];
  let from = 0;
  while (parts.length < count - 1) {
    const slash = text.indexOf('/', from);
    if (slash <= from) return undefined;
    parts.push(text.slice(from, slash));
    from = slash + 1;
  }
  return from < text.length ? [...parts, text.slice(from)] : undefined;
}

/** Returns the text after `prefix`; `undefined` if it does not start with the prefix, or if nothing follows. */
function textAfter(prefix: string, text: string): string | undefined {
  return text.length > prefix.length && text.startsWith(prefix) ? text.slice(prefix.length) : undefined;
}

/** @param rest the key after `identities/v1/`, and after the cluster in the layout `cache` */
function parseIdentityRest(
  rest: string,
  layout: KeyLayout,
  cluster: string | undefined,
): ParsedKey | undefined {
  const id = textAfter('id/', rest);
  if (id !== undefined) return { kind: 'identity', layout, cluster, id };
  const path = textAfter('locks/', rest);
  if (path !== undefined) return { kind: 'identity-lock', path };
  const value = textAfter('value/', rest) ?? '';
  const slash = value.lastIndexOf('/'); // labels may contain slashes, the node name may not
  const node = value.slice(slash + 1);
  if (slash <= 0 || node === '') return undefined;
  return { kind: 'identity-value', labels: value.slice(0, slash), node };
}

/** @param rest the key after `v1/` */
function parseResource(layout: KeyLayout, resource: string, rest: string): ParsedKey | undefined {
  switch (resource) {
    case 'nodes': {
      const [cluster, name] = splitParts(rest, 2) ?? [];
      if (cluster === undefined || name === undefined || name.includes('/')) return undefined;
      return { kind: 'node', layout, cluster, name };
    }
    case 'services':
    case 'endpointslices':
    case 'serviceexports': {
      const [cluster, namespace, name] = splitParts(rest, 3) ?? [];
      if (cluster === undefined || namespace === undefined || name === undefined) return undefined;
      const kind = NAMESPACED_KINDS[resource];
      return name.includes('/') ? undefined : { kind, layout, cluster, namespace, name };
    }
    case 'identities': {
      if (layout === 'state') return parseIdentityRest(rest, layout, undefined);
      const [cluster, inner] = splitParts(rest, 2) ?? [];
      return inner === undefined ? undefined : parseIdentityRest(inner, layout, cluster);
    }
    case 'ip': {
      const [folder, prefix] = splitParts(rest, 2) ?? [];
      if (prefix === undefined) return undefined;
      return layout === 'state'
        ? { kind: 'ip', layout, cluster: undefined, addressSpace: folder, prefix }
        : { kind: 'ip', layout, cluster: folder, addressSpace: undefined, prefix };
    }
    default:
      return undefined;
  }
}

/**
 * Returns the parts of a key; `undefined` if it is no {@link ParsedKey}. Does not check the names and numbers in the
 * key.
 */
export function parseKvstoreKey(key: string): ParsedKey | undefined {
  checkArgument('parseKvstoreKey: key', key, TEXT);
  if (key === HEARTBEAT_KEY) return { kind: 'heartbeat' };
  const [root, area, name, rest] = splitParts(key, 4) ?? splitParts(key, 3) ?? [];
  if (root !== 'cilium' || area === undefined || name === undefined) return undefined;
  if (area === '.initlock') return { kind: 'init-lock', name: rest === undefined ? name : `${name}/${rest}` };
  if (area === 'kvstoremesh-lock' && rest === undefined) return { kind: area, name };
  if (area === 'cluster-config' && rest === undefined) return { kind: 'cluster-config', cluster: name };
  if (rest === undefined) return undefined;
  if (area === 'synced') return { kind: 'synced', cluster: name, prefix: rest };
  if (area !== 'state' && area !== 'cache') return undefined;
  const inner = textAfter('v1/', rest);
  return inner === undefined ? undefined : parseResource(area, name, inner);
}
