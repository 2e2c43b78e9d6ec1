import type { Labels } from '../identity/labels.ts';
import type { DecidingRule, ExplainedClaim, Explanation, KeyedEntry } from '../ipcache/types.ts';
import { type PortProtocol, protocolName } from '../net/port.ts';
import type { Node } from '../nodemanager/node.ts';
import type { NodeExplanation } from '../nodemanager/node-status.ts';
import type { AnnouncedService } from '../servicecache/announcement.ts';
import type { BackendVerdict, ServiceExplanation } from '../servicecache/explain.ts';
import type { KnownIdentity, ReadModel, RestoredDocument } from './read-model.ts';

/** What stands behind a prefix. Fields that have nothing to say are left out. */
export interface EntryDocument {
  /** Canonical CIDR, of an endpoint's IP the full-length one. */
  readonly prefix: string;
  readonly identity: number;
  /** `k8s:app=checkout` each; left out where they are not known. */
  readonly labels?: readonly string[] | undefined;
  readonly hostIP?: string | undefined;
  readonly encryptKey: number;
  readonly namespace?: string | undefined;
  readonly podName?: string | undefined;
  /** `8080/TCP` by name. */
  readonly namedPorts?: Readonly<Record<string, string>> | undefined;
  readonly source: string;
  readonly owner?: string | undefined;
  /** Of an entry that only a checkpoint has said. */
  readonly restored?: RestoredDocument | undefined;
}

/** One claim on a prefix. */
export interface ClaimDocument extends EntryDocument {
  /** The key that is claimed: an IP, or a CIDR. */
  readonly key: string;
  /** Whether it is what the prefix shows. */
  readonly effective: boolean;
  /** A full-length CIDR that an endpoint IP hides. */
  readonly shadowed: boolean;
}

/** Every claim on a prefix, strongest first, and the rule that decided. */
export interface ExplanationDocument {
  readonly prefix: string;
  readonly decidedBy: DecidingRule;
  readonly claims: readonly ClaimDocument[];
}

/** An identity with its labels. */
export interface IdentityDocument {
  readonly identity: number;
  readonly labels: readonly string[];
  readonly cluster?: string | undefined;
  /** Prefixes that have it, shadowed ones included. */
  readonly prefixes: number;
  /** Of labels that only a checkpoint has said. */
  readonly restored?: RestoredDocument | undefined;
}

/** A backend of a service. */
export interface BackendDocument {
  readonly address: string;
  /** `8080/TCP` by name. */
  readonly ports: Readonly<Record<string, string>>;
  /** Left out for the own cluster. */
  readonly cluster?: string | undefined;
  readonly nodeName?: string | undefined;
  readonly zone?: string | undefined;
  readonly state: string;
}

/** A service and where its traffic goes. */
export interface ServiceDocument {
  readonly namespace: string;
  readonly name: string;
  readonly type: string;
  readonly clusterIPs: readonly string[];
  readonly ports: Readonly<Record<string, string>>;
  readonly global: boolean;
  readonly shared: boolean;
  readonly affinity: string;
  readonly backends: readonly BackendDocument[];
  /** Of a service of which at least a part only a checkpoint has said: of the oldest part. */
  readonly restored?: RestoredDocument | undefined;
}

/** Who offers backends to a service, and what became of each. */
export interface ServiceExplanationDocument {
  readonly ready: boolean;
  readonly announced: boolean;
  readonly origins: readonly {
    /** `''`: the own cluster. */
    readonly cluster: string;
    readonly slice: string;
    readonly backends: number;
  }[];
  readonly backends: readonly (BackendDocument & {
    readonly slice: string;
    readonly verdict: BackendVerdict;
  })[];
}

/** A node. Fields that have nothing to say are left out. */
export interface NodeDocument {
  readonly cluster: string;
  readonly name: string;
  readonly clusterID: number;
  readonly source: string;
  /** In the node's order. */
  readonly addresses: readonly { readonly type: string; readonly ip: string }[];
  readonly ipv4AllocCIDR?: string | undefined;
  readonly ipv6AllocCIDR?: string | undefined;
  readonly ipv4HealthIP?: string | undefined;
  readonly ipv6HealthIP?: string | undefined;
  readonly encryptionKey: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Of a node that only a checkpoint has said. */
  readonly restored?: RestoredDocument | undefined;
}

/** What each source says of a node, strongest first, and how handlers stand with it. */
export interface NodeExplanationDocument {
  readonly claims: readonly NodeDocument[];
  readonly heldBack: boolean;
  /** Addresses that another writer holds in the IPCache. */
  readonly lostAddresses: readonly {
    readonly ip: string;
    readonly holder?: { readonly source: string; readonly owner: string } | undefined;
    readonly stronger: boolean;
  }[];
}

/** Orders text by UTF-16 code unit, as JSON readers of other languages sort ASCII keys. */
export function ascending(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

/** A record with its keys in order. `fromEntries` makes own fields of all of them, `__proto__` too. */
export function sortedRecord<V, W>(
  entries: Iterable<readonly [string, V]>,
  write: (value: V) => W,
): Readonly<Record<string, W>> {
  const sorted = [...entries].sort(([a], [b]) => ascending(a, b));
  return Object.fromEntries(sorted.map(([key, value]) => [key, write(value)]));
}

/** The CIDR of a key: of an endpoint's IP, the full-length one. */
export function prefixOfKey(key: string): string {
  if (key.includes('/')) return key;
  return key.includes(':') ? `${key}/128` : `${key}/32`;
}

function portText({ port, protocol }: PortProtocol): string {
  return `${port}/${protocolName(protocol)}`;
}

/** Of labels that are asked for again and again: many entries have the same identity. */
const LABEL_TEXTS = new WeakMap<Labels, readonly string[]>();

/** `k8s:app=checkout` each. */
export function labelTexts(labels: Labels): readonly string[] {
  const known = LABEL_TEXTS.get(labels);
  if (known !== undefined) return known;
  const texts = labels.map(({ source, key, value }) =>
    value === '' ? `${source}:${key}` : `${source}:${key}=${value}`,
  );
  LABEL_TEXTS.set(labels, texts);
  return texts;
}

/** An entry, with the labels of its identity. */
export function entryDocument(
  entry: KeyedEntry,
  { labelsOf, restoredOf }: Pick<ReadModel, 'labelsOf' | 'restoredOf'>,
): EntryDocument {
  const { key, identity, hostIP, encryptKey, source, owner, k8s } = entry;
  const labels = labelsOf(identity);
  // The owner is the cluster, or a node of it.
  const restored = source === 'restored' ? restoredOf(owner.split('/', 1)[0] ?? '') : undefined;
  return {
    prefix: prefixOfKey(key),
    identity,
    ...(labels && { labels: labelTexts(labels) }),
    ...(hostIP !== undefined && { hostIP }),
    encryptKey,
    ...(k8s?.namespace && { namespace: k8s.namespace }),
    ...(k8s?.podName && { podName: k8s.podName }),
    ...(k8s?.namedPorts?.size && { namedPorts: sortedRecord(k8s.namedPorts, portText) }),
    source,
    ...(owner && { owner }),
    ...(restored && { restored }),
  };
}

function claimDocument(claim: ExplainedClaim, model: ReadModel): ClaimDocument {
  const { key, effective, shadowed } = claim;
  // Of the prefix: the effective claim of a shadowed CIDR is not what anybody is shown.
  return { ...entryDocument(claim, model), key, effective: effective && !shadowed, shadowed };
}

/** `undefined` for a prefix without a claim. */
export function explanationDocument(
  { prefix, claims, decidedBy }: Explanation,
  model: ReadModel,
): ExplanationDocument | undefined {
  if (decidedBy === undefined) return undefined;
  return { prefix, decidedBy, claims: claims.map((claim) => claimDocument(claim, model)) };
}

/** An identity, and how many prefixes have it. */
export function identityDocument(
  { identity, labels, cluster }: KnownIdentity,
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

type BackendLike = {
  readonly address: string;
  readonly ports: Iterable<readonly [string, PortProtocol]>;
  readonly cluster: string;
  readonly nodeName: string;
  readonly zone: string;
  readonly state: string;
};

function backendDocument({ address, ports, cluster, nodeName, zone, state }: BackendLike): BackendDocument {
  return {
    address,
    ports: sortedRecord(ports, portText),
    ...(cluster && { cluster }),
    ...(nodeName && { nodeName }),
    ...(zone && { zone }),
    state,
  };
}

/** A service with its effective backends, by address. */
export function serviceDocument(
  { service, endpoints }: AnnouncedService,
  { services, restoredOf }: Pick<ReadModel, 'services' | 'restoredOf'>,
): ServiceDocument {
  const ages = services.restoredFrom(service.id).flatMap((cluster) => restoredOf(cluster) ?? []);
  const [restored] = ages.sort((a, b) => b.ageSeconds - a.ageSeconds);
  const { id, type, clusterIPs, ports, global, shared, affinity } = service;
  return {
    namespace: id.namespace,
    name: id.name,
    type,
    clusterIPs: clusterIPs.toArray(),
    ports: sortedRecord(ports, portText),
    global,
    shared,
    affinity,
    backends: [...endpoints.backends.values()]
      .sort((a, b) => ascending(a.address, b.address))
      .map(backendDocument),
    ...(restored && { restored }),
  };
}

/** Who offers what to a service. */
export function serviceExplanationDocument(explanation: ServiceExplanation): ServiceExplanationDocument {
  const { ready, announced, origins, backends } = explanation;
  return {
    ready,
    announced,
    origins: origins.map(({ cluster, slice, backends: named }) => ({ cluster, slice, backends: named })),
    backends: backends.map(({ backend, cluster, slice, verdict }) => ({
      ...backendDocument({ ...backend, cluster }),
      slice,
      verdict,
    })),
  };
}

/** A node. */
export function nodeDocument({ fields }: Node, { restoredOf }: Pick<ReadModel, 'restoredOf'>): NodeDocument {
  const { cluster, name, clusterID, source, addresses, encryptionKey, labels } = fields;
  const { ipv4AllocCIDR, ipv6AllocCIDR, ipv4HealthIP, ipv6HealthIP } = fields;
  const restored = source === 'restored' ? restoredOf(cluster) : undefined;
  return {
    ...{ cluster, name, clusterID, source },
    addresses: addresses.map(({ type, ip }) => ({ type, ip })),
    ...(ipv4AllocCIDR !== undefined && { ipv4AllocCIDR }),
    ...(ipv6AllocCIDR !== undefined && { ipv6AllocCIDR }),
    ...(ipv4HealthIP !== undefined && { ipv4HealthIP }),
    ...(ipv6HealthIP !== undefined && { ipv6HealthIP }),
    encryptionKey,
    labels: sortedRecord(labels, String),
    ...(restored && { restored }),
  };
}

/** What each source says of a node. */
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
