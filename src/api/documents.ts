import { ascending } from '../base/sorted-map.ts';
import { runToEnd, sortInSteps } from '../base/turn-gate.ts';
import type { DecidingRule, ExplainedClaim, Explanation, K8sMetadata, KeyedEntry } from '../ipcache/types.ts';
import { DEFAULT_WEIGHT } from '../model/backend-weight.ts';
import type { ClusterIdentity } from '../model/identity-cache.ts';
import { type Labels, labelText } from '../model/labels.ts';
import { ownerCluster } from '../model/source.ts';
import { type PortProtocol, protocolName } from '../net/port.ts';
import { prefixOfKey } from '../net/prefix.ts';
import type { Node } from '../nodemanager/node.ts';
import type { NodeExplanation } from '../nodemanager/node-status.ts';
import type { AnnouncedService } from '../servicecache/announcement.ts';
import type { Backend, Endpoints, Ports } from '../servicecache/backend.ts';
import type { BackendVerdict, ExplainedBackend, ServiceExplanation } from '../servicecache/explain.ts';
import type { Service } from '../servicecache/service.ts';
import type { AddressRoleDocument } from './address-roles.ts';
import type { KernelEntryDocument } from './datapath-document.ts';
import type { PastDocument } from './past-document.ts';
import type { ReadModel, RestoredDocument } from './read-model.ts';

/** The effective entry of a prefix. Empty fields are absent. */
export interface EntryDocument {
  /** Canonical CIDR. An endpoint IP is a full-length CIDR. */
  readonly prefix: string;
  readonly identity: number;
  /** Labels such as `k8s:app=checkout`; absent if they are unknown. */
  readonly labels?: readonly string[] | undefined;
  readonly hostIP?: string | undefined;
  readonly encryptKey: number;
  readonly namespace?: string | undefined;
  readonly podName?: string | undefined;
  readonly serviceAccount?: string | undefined;
  /** Ports such as `8080/TCP` by name. */
  readonly namedPorts?: Readonly<Record<string, string>> | undefined;
  readonly source: string;
  readonly owner?: string | undefined;
  /** Present if the entry was restored from a checkpoint and no source has confirmed it. */
  readonly restored?: RestoredDocument | undefined;
  readonly past?: PastDocument | undefined;
}

/**
 * Stores of claims. `memory`: a kvstore in the process, such as a recorded one. `agent`: the process makes the claim
 * itself, without a store.
 */
export const STORES = ['etcd', 'memory', 'kubernetes', 'checkpoint', 'agent'] as const;

export interface OriginDocument {
  /** All fields as text: `atlantic's etcd, cilium/state/ip/v1/default/10.10.0.12, revision 88124`. */
  readonly text: string;
  /** The cluster that wrote the claim; absent if no cluster did. */
  readonly cluster?: string | undefined;
  readonly store: (typeof STORES)[number];
  /** Key in the kvstore, or `pod NAMESPACE/NAME` and `node NAME` of Kubernetes; absent if it is not known. */
  readonly key?: string | undefined;
  /** The last revision of the key, as it was read. */
  readonly revision?: number | undefined;
  /** If the cluster is not ready: the time of its served state, ISO 8601. */
  readonly knownAt?: string | undefined;
}

export interface ClaimDocument extends EntryDocument {
  /** The claimed key: an IP or a CIDR. */
  readonly key: string;
  /** True if lookups of the prefix return this claim. */
  readonly effective: boolean;
  /** True if the key is a full-length CIDR shadowed by an endpoint IP. */
  readonly shadowed: boolean;
  /** The origin of the claim; absent for a claim of an earlier moment. */
  readonly origin?: OriginDocument | undefined;
  /** Start of a claim of an earlier moment, ISO 8601; absent if the history does not contain it. */
  readonly since?: string | undefined;
  /** End of a claim of an earlier moment, ISO 8601; absent if it still exists, or its end is not in the history. */
  readonly until?: string | undefined;
}

/** All claims on a prefix, strongest first, and the rule that selected the first. */
export interface ExplanationDocument {
  readonly prefix: string;
  readonly decidedBy?: DecidingRule | undefined;
  /** Strongest first. Empty for an IP that has `roles`, but that no prefix contains. */
  readonly claims: readonly ClaimDocument[];
  readonly roles?: readonly AddressRoleDocument[] | undefined;
  /** Present if a datapath keeps a map of prefixes; absent for an earlier moment. */
  readonly kernel?: KernelEntryDocument | undefined;
  readonly past?: PastDocument | undefined;
}

export interface IdentityDocument {
  readonly identity: number;
  readonly labels: readonly string[];
  readonly cluster?: string | undefined;
  /** Number of prefixes with this identity, shadowed ones included. */
  readonly prefixes: number;
  /** Present if the labels were restored from a checkpoint and no source has confirmed them. */
  readonly restored?: RestoredDocument | undefined;
}

export interface BackendDocument {
  readonly address: string;
  /** Ports such as `8080/TCP` by name. */
  readonly ports: Readonly<Record<string, string>>;
  readonly cluster?: string | undefined;
  readonly nodeName?: string | undefined;
  readonly zone?: string | undefined;
  /** `active`, `terminating`, `not-ready` or `maintenance`. */
  readonly state: string;
  readonly weight?: number | undefined;
}

/** A service and its backends. */
export interface ServiceDocument {
  readonly namespace: string;
  readonly name: string;
  readonly type: string;
  readonly clusterIPs: readonly string[];
  /** Ports such as `80/TCP` by name. */
  readonly ports: Readonly<Record<string, string>>;
  readonly nodePorts?: Readonly<Record<string, number>> | undefined;
  /** Absent if there are none. */
  readonly externalIPs?: readonly string[] | undefined;
  /** Addresses of the load balancer; absent if there are none. */
  readonly loadBalancerIPs?: readonly string[] | undefined;
  readonly global: boolean;
  readonly shared: boolean;
  readonly affinity: string;
  readonly nodeSelector?: string | undefined;
  readonly nodeLabel?: string | undefined;
  readonly exposedType?: string | undefined;
  readonly sourceRanges?: readonly string[] | undefined;
  readonly sourceRangesPolicy?: Service['sourceRangesPolicy'] | undefined;
  readonly backends: readonly BackendDocument[];
  /** Present if parts of the service were restored and not confirmed: the age of the oldest part. */
  readonly restored?: RestoredDocument | undefined;
  readonly past?: PastDocument | undefined;
}

/** The origins of a service's backends, and the verdict on each backend. */
export interface ServiceExplanationDocument {
  readonly ready: boolean;
  readonly announced: boolean;
  readonly origins: readonly {
    /** Empty for the local cluster. */
    readonly cluster: string;
    readonly slice: string;
    readonly backends: number;
  }[];
  readonly backends: readonly (BackendDocument & {
    readonly slice: string;
    readonly verdict: BackendVerdict;
  })[];
}

export interface ExplainedServiceDocument extends ServiceDocument {
  readonly explain: ServiceExplanationDocument;
}

/** A node. Empty fields are absent. */
export interface NodeDocument {
  readonly cluster: string;
  readonly name: string;
  readonly clusterID: number;
  readonly source: string;
  /** In the order of the node's list. */
  readonly addresses: readonly { readonly type: string; readonly ip: string }[];
  readonly ipv4AllocCIDR?: string | undefined;
  readonly ipv6AllocCIDR?: string | undefined;
  readonly ipv4SecondaryAllocCIDRs?: readonly string[] | undefined;
  readonly ipv6SecondaryAllocCIDRs?: readonly string[] | undefined;
  readonly ipv4HealthIP?: string | undefined;
  readonly ipv6HealthIP?: string | undefined;
  readonly ipv4IngressIP?: string | undefined;
  readonly ipv6IngressIP?: string | undefined;
  readonly encryptionKey: number;
  readonly wireguardPubKey?: string | undefined;
  readonly bootID?: string | undefined;
  readonly labels: Readonly<Record<string, string>>;
  /** Present if the node was restored from a checkpoint and no source has confirmed it. */
  readonly restored?: RestoredDocument | undefined;
  readonly past?: PastDocument | undefined;
}

/** The claims on a node, strongest first, and its state for handlers. */
export interface NodeExplanationDocument {
  readonly claims: readonly NodeDocument[];
  /** True if handlers have not received the last change of the node. */
  readonly heldBack: boolean;
  /** Addresses of the node whose IPCache entry belongs to another writer. */
  readonly lostAddresses: readonly {
    readonly ip: string;
    /** The writer of the effective claim; absent if the address has no claim, because the IPCache is full. */
    readonly holder?: { readonly source: string; readonly owner: string } | undefined;
    /** True if the holder's source is stronger than that of the node, so that changes are held back from handlers. */
    readonly stronger: boolean;
  }[];
}

export interface ExplainedNodeDocument extends NodeDocument {
  readonly explain: NodeExplanationDocument;
}

/**
 * Returns a record with sorted keys. `fromEntries` is safe for untrusted keys: even `__proto__` becomes an ordinary
 * field.
 */
export function sortedRecord<V, W>(
  entries: Iterable<readonly [string, V]>,
  write: (value: V) => W,
): Readonly<Record<string, W>> {
  const sorted = [...entries].sort(([a], [b]) => ascending(a, b));
  return Object.fromEntries(sorted.map(([key, value]) => [key, write(value)]));
}

function portText({ port, protocol }: PortProtocol): string {
  return `${port}/${protocolName(protocol)}`;
}

/** Returns the service account and the named ports of a pod, if it has any. */
export function podDetails(
  k8s: K8sMetadata | undefined,
): Pick<EntryDocument, 'serviceAccount' | 'namedPorts'> {
  return {
    ...(k8s?.serviceAccount && { serviceAccount: k8s.serviceAccount }),
    ...(k8s?.namedPorts?.size && { namedPorts: sortedRecord(k8s.namedPorts, portText) }),
  };
}

/** Cached texts of labels, because many entries share an identity. */
const LABEL_TEXTS = new WeakMap<Labels, readonly string[]>();

/** Returns the {@link labelText} of each label. */
export function labelTexts(labels: Labels): readonly string[] {
  const known = LABEL_TEXTS.get(labels);
  if (known !== undefined) return known;
  const texts = labels.map(labelText);
  LABEL_TEXTS.set(labels, texts);
  return texts;
}

/** Returns the document of an entry, with the labels of its identity. */
export function entryDocument(
  entry: KeyedEntry,
  { labelsOf, restoredOf }: Pick<ReadModel, 'labelsOf' | 'restoredOf'>,
): EntryDocument {
  const { key, identity, hostIP, encryptKey, source, owner, k8s } = entry;
  const labels = labelsOf(identity);
  const restored = source === 'restored' ? restoredOf(ownerCluster(owner)) : undefined;
  return {
    prefix: prefixOfKey(key),
    identity,
    ...(labels && { labels: labelTexts(labels) }),
    ...(hostIP !== undefined && { hostIP }),
    encryptKey,
    ...(k8s?.namespace && { namespace: k8s.namespace }),
    ...(k8s?.podName && { podName: k8s.podName }),
    ...podDetails(k8s),
    source,
    ...(owner && { owner }),
    ...(restored && { restored }),
  };
}

function claimDocument(claim: ExplainedClaim, model: ReadModel): ClaimDocument {
  const { key, effective, shadowed } = claim;
  const origin = model.originOf(claim);
  // A shadowed CIDR has an effective claim, but lookups of the prefix return the endpoint.
  return { ...entryDocument(claim, model), key, effective: effective && !shadowed, shadowed, origin };
}

/** Returns the document of an explanation; `undefined` if the prefix has no claims. */
export function explanationDocument(
  { prefix, claims, decidedBy }: Explanation,
  model: ReadModel,
): ExplanationDocument | undefined {
  if (decidedBy === undefined) return undefined;
  return { prefix, decidedBy, claims: claims.map((claim) => claimDocument(claim, model)) };
}

/** Returns the document of an identity, with the number of its prefixes. */
export function identityDocument(
  { identity, labels, cluster }: ClusterIdentity,
  { ipcache, restoredIdentity }: Pick<ReadModel, 'ipcache' | 'restoredIdentity'>,
): IdentityDocument {
  const restored = restoredIdentity(identity);
  return {
    identity,
    labels: labelTexts(labels),
    ...(cluster && { cluster }),
    prefixes: ipcache.countByIdentity(identity),
    ...(restored && { restored }),
  };
}

/** Number of backends sorted or written in one step: 1 to 2 ms. */
export const BACKENDS_PER_STEP = 512;

/** Cached texts of ports, because the backends of a slice share their ports. */
const PORT_TEXTS = new WeakMap<Ports, Readonly<Record<string, string>>>();

function portTexts(ports: Ports): Readonly<Record<string, string>> {
  const known = PORT_TEXTS.get(ports);
  if (known !== undefined) return known;
  const texts = sortedRecord(ports, portText);
  PORT_TEXTS.set(ports, texts);
  return texts;
}

export function backendDocument(backend: Backend): BackendDocument {
  const { address, ports, cluster, nodeName, zone, state, weight } = backend;
  return {
    address,
    ports: portTexts(ports),
    ...(cluster && { cluster }),
    ...(nodeName && { nodeName }),
    ...(zone && { zone }),
    state,
    ...(weight !== DEFAULT_WEIGHT && { weight }),
  };
}

/** Returns the document of a service, with its effective backends sorted by address. */
export function serviceDocument(
  { service, endpoints }: AnnouncedService,
  { services, restoredOf }: Pick<ReadModel, 'services' | 'restoredOf'>,
): ServiceDocument {
  const ages = services.restoredFrom(service.id).flatMap((cluster) => restoredOf(cluster) ?? []);
  const [oldest] = ages.sort((a, b) => b.ageSeconds - a.ageSeconds);
  const { id, type, clusterIPs, ports, externalIPs, ingressIPs, global, shared, affinity } = service;
  const nodePorts = ports.filter(({ nodePort }) => nodePort > 0);
  return {
    namespace: id.namespace,
    name: id.name,
    type,
    clusterIPs: clusterIPs.toArray(),
    ports: sortedRecord(ports, portText),
    ...(nodePorts.size > 0 && { nodePorts: sortedRecord(nodePorts, ({ nodePort }) => nodePort) }),
    ...(externalIPs.size > 0 && { externalIPs: [...externalIPs].sort(ascending) }),
    ...(ingressIPs.size > 0 && { loadBalancerIPs: [...ingressIPs].sort(ascending) }),
    global,
    shared,
    affinity,
    ...(service.nodeSelector !== undefined && { nodeSelector: service.nodeSelector }),
    ...(service.nodeLabel !== undefined && { nodeLabel: service.nodeLabel }),
    ...(service.exposedType !== undefined && { exposedType: service.exposedType }),
    ...(service.sourceRanges !== undefined && {
      sourceRanges: [...service.sourceRanges].sort(ascending),
      sourceRangesPolicy: service.sourceRangesPolicy,
    }),
    backends: runToEnd(sortedBackends(endpoints)).map(backendDocument),
    ...(oldest && { restored: oldest }),
  };
}

/** Returns the backends of a service, sorted by address in steps. */
export function sortedBackends({ backends }: Endpoints): Generator<undefined, readonly Backend[], void> {
  return sortInSteps(backends.values(), BACKENDS_PER_STEP, (a, b) => ascending(a.address, b.address));
}

export function serviceExplanationDocument(explanation: ServiceExplanation): ServiceExplanationDocument {
  const { ready, announced, origins, backends } = explanation;
  return {
    ready,
    announced,
    origins: origins.map(({ cluster, slice, backends: count }) => ({ cluster, slice, backends: count })),
    backends: backends.map(explainedBackendDocument),
  };
}

export function explainedBackendDocument({
  backend,
  cluster,
  slice,
  verdict,
}: ExplainedBackend): ServiceExplanationDocument['backends'][number] {
  return Object.assign(backendDocument({ ...backend, cluster }), { slice, verdict });
}

export function nodeDocument({ fields }: Node, { restoredOf }: Pick<ReadModel, 'restoredOf'>): NodeDocument {
  const { cluster, name, clusterID, source, addresses, encryptionKey, labels } = fields;
  const { ipv4AllocCIDR, ipv6AllocCIDR, ipv4HealthIP, ipv6HealthIP, ipv4IngressIP, ipv6IngressIP } = fields;
  const { ipv4SecondaryAllocCIDRs, ipv6SecondaryAllocCIDRs, wireguardPubKey, bootID } = fields;
  const restored = source === 'restored' ? restoredOf(cluster) : undefined;
  return {
    cluster,
    name,
    clusterID,
    source,
    addresses: addresses.map(({ type, ip }) => ({ type, ip })),
    ...(ipv4AllocCIDR !== undefined && { ipv4AllocCIDR }),
    ...(ipv6AllocCIDR !== undefined && { ipv6AllocCIDR }),
    ...(ipv4SecondaryAllocCIDRs.length > 0 && { ipv4SecondaryAllocCIDRs }),
    ...(ipv6SecondaryAllocCIDRs.length > 0 && { ipv6SecondaryAllocCIDRs }),
    ...(ipv4HealthIP !== undefined && { ipv4HealthIP }),
    ...(ipv6HealthIP !== undefined && { ipv6HealthIP }),
    ...(ipv4IngressIP !== undefined && { ipv4IngressIP }),
    ...(ipv6IngressIP !== undefined && { ipv6IngressIP }),
    encryptionKey,
    ...(wireguardPubKey !== '' && { wireguardPubKey }),
    ...(bootID !== '' && { bootID }),
    labels: sortedRecord(labels, String),
    ...(restored && { restored }),
  };
}

export function nodeExplanationDocument(
  { claims, heldBack, lostAddresses }: NodeExplanation,
  model: Pick<ReadModel, 'restoredOf'>,
): NodeExplanationDocument {
  return {
    claims: claims.map((claim) => nodeDocument(claim, model)),
    heldBack,
    lostAddresses: lostAddresses.map(({ ip, holder, stronger }) => ({
      ip,
      ...(holder && { holder }),
      stronger,
    })),
  };
}
