import type { Rejection } from '../base/rejection.ts';
import { systemClock } from '../base/system-clock.ts';
import { fieldsOf } from '../ciliumdump/output-json.ts';
import { hostPort } from '../ciliumdump/service-list.ts';
import type {
  KnownFrontend,
  KnownNode,
  KnownPrefix,
  PrefixValue,
  SourceKind,
  SourceState,
} from '../ciliumdump/source-state.ts';
import { IPCache } from '../ipcache/ipcache.ts';
import { serviceEndpoints as endpointKinds, services as serviceKind } from '../k8s/feed/kinds.ts';
import { KubernetesFeed } from '../k8s/feed/kubernetes-feed.ts';
import { readTime } from '../k8s/parse-object.ts';
import { type KubernetesObject, NO_SOURCE, type ResourceSink } from '../k8s/resource.ts';
import { type LabelSelector, matchesLabels, parseLabelSelector } from '../model/label-selector.ts';
import { MAX_IDENTITY } from '../model/numeric-identity.ts';
import { isObject } from '../net/fields.ts';
import { canonicalAddress, prefixOfKey } from '../net/prefix.ts';
import { NodeManager } from '../nodemanager/node-manager.ts';
import { isRestricted } from '../servicecache/exposure.ts';
import { formatFrontend, frontendsOf } from '../servicecache/frontends.ts';
import { resolvePort } from '../servicecache/resolve.ts';
import { ServiceCache } from '../servicecache/service-cache.ts';
import type { DumpedObject } from './object-files.ts';

/** The plural of each kind of object for the engines. */
export const PLURALS: ReadonlyMap<string, string> = new Map([
  ['CiliumEndpoint', 'ciliumendpoints'],
  ['CiliumEndpointSlice', 'ciliumendpointslices'],
  ['CiliumNode', 'ciliumnodes'],
  ['CiliumIdentity', 'ciliumidentities'],
  ['Service', 'services'],
  ['EndpointSlice', 'endpointslices'],
  ['Endpoints', 'endpoints'],
]);

/** An object that contains an address, and the identity and host of the address. */
export interface Claimant extends PrefixValue {
  /** `CiliumEndpoint shop/cart-1`, `CiliumNode node-1`. */
  readonly object: string;
}

export interface SourceStateOptions {
  readonly clusterName: string;
  readonly clusterID: number;
  /** The kind that has the identities of pods. */
  readonly endpoints: 'ciliumendpoints' | 'ciliumendpointslices';
  /** The kind that has the backends of services. `cilium sysdump` writes Endpoints. */
  readonly serviceEndpoints: 'endpointslices' | 'endpoints';
  readonly onReject: (rejection: Rejection) => void;
}

/** Name of the local node. It is not a valid name, so that all nodes of the archive are remote. */
const NO_LOCAL_NODE = 'no local node';

/** Number of objects applied in one call. */
const BATCH = 256;

/** The receiver of the objects of one kind. */
interface ObjectList {
  readonly sink: ResourceSink;
  /** Selects the objects that an agent would request. */
  readonly selector: LabelSelector;
  /** Objects that are not applied yet. */
  batch: KubernetesObject[];
}

/** Feeds the engines with the objects of an archive and returns their state as {@link SourceState}. */
export class SourceStateBuilder {
  readonly #options: SourceStateOptions;
  readonly #ipcache: IPCache;
  readonly #services: ServiceCache;
  readonly #nodes: NodeManager;
  readonly #feed: KubernetesFeed;
  /** By the plural of the kind. */
  readonly #lists = new Map<string, ObjectList>();
  /** The object that contains each address; if there are several, all of them by {@link Claimant.object}. */
  readonly #claimants = new Map<string, Claimant | Map<string, Claimant>>();
  /** Creation times by prefix. */
  readonly #createdAt = new Map<string, number>();
  /** The node of each agent, by the name of the agent's pod. */
  readonly agents: Map<string, string> = new Map();
  /** Number of objects by kind. */
  readonly counts: Map<string, number> = new Map();
  readonly #incomplete = new Set<SourceKind>();

  constructor(options: SourceStateOptions) {
    const { clusterName, clusterID, endpoints, serviceEndpoints, onReject } = options;
    const clock = systemClock;
    this.#options = options;
    this.#ipcache = new IPCache({ onReject });
    this.#services = new ServiceCache({ clusterName, onReject });
    this.#nodes = new NodeManager({
      ipcache: this.#ipcache,
      clock,
      clusterName,
      nodeName: NO_LOCAL_NODE,
      onReject,
      remoteNodeIdentities: true,
      encryption: false,
      nodeEncryption: false,
      hostFirewall: false,
      underlay: 'ipv4',
    });
    this.#feed = new KubernetesFeed({
      source: NO_SOURCE,
      clusterName,
      clusterID,
      nodeName: NO_LOCAL_NODE,
      clock,
      ipcache: this.#ipcache,
      services: this.#services,
      nodes: this.#nodes,
      endpoints,
      identities: 'crd',
      onReject,
    });
    const selected = [serviceKind({}), ...endpointKinds({})];
    for (const plural of [endpoints, 'ciliumnodes', 'ciliumidentities', 'services', serviceEndpoints]) {
      const sink = this.#feed.feedOf(plural)?.start();
      const { labelSelector = '' } = selected.find((kind) => kind.plural === plural) ?? {};
      if (sink !== undefined)
        this.#lists.set(plural, { sink, selector: parseLabelSelector(labelSelector), batch: [] });
    }
  }

  /** Counts an object, and uses it if its kind is needed. */
  add({ kind, object }: DumpedObject): void {
    this.counts.set(kind, (this.counts.get(kind) ?? 0) + 1);
    const list = this.#lists.get(PLURALS.get(kind) ?? '');
    if (list !== undefined) addToList(list, object);
    if (kind === 'CiliumEndpoint') this.#noteEndpoint(object);
    if (kind === 'CiliumNode') this.#noteNode(object);
    if (kind === 'Pod') this.#notePod(object);
  }

  /** Records that a part of the objects of a kind cannot be read. */
  markIncomplete(kind: string): void {
    const { endpoints, serviceEndpoints } = this.#options;
    const sources: Readonly<Record<string, SourceKind>> = {
      [endpoints]: 'endpoints',
      ciliumnodes: 'nodes',
      ciliumidentities: 'identities',
      services: 'services',
      [serviceEndpoints]: 'backends',
    };
    const source = sources[PLURALS.get(kind) ?? ''];
    if (source !== undefined) this.#incomplete.add(source);
  }

  /** Returns the creation time of the object with a prefix, in milliseconds since the epoch; 0 if unknown. */
  createdAt(prefix: string): number {
    return this.#createdAt.get(prefix) ?? 0;
  }

  /** Yields each address that several objects contain, with the objects. */
  *sharedAddresses(): Generator<readonly [string, readonly Claimant[]], void, void> {
    for (const [address, claimants] of this.#claimants)
      if (claimants instanceof Map) yield [address, [...claimants.values()]];
  }

  /** Ends the input and returns the state. May be called once. */
  async finish(): Promise<SourceState> {
    for (const list of this.#lists.values()) {
      applyBatch(list);
      list.sink.onListed();
    }
    const { clusterName, clusterID, endpoints, serviceEndpoints } = this.#options;
    const hasAny = (plural: string): boolean =>
      [...this.counts.keys()].some((kind) => PLURALS.get(kind) === plural);
    const kinds = {
      endpoints: hasAny(endpoints),
      nodes: hasAny('ciliumnodes'),
      services: hasAny('services') && hasAny(serviceEndpoints),
      identities: hasAny('ciliumidentities'),
    };
    const nodes = this.#knownNodes();
    const sources: SourceState = {
      clusterName,
      clusterID,
      hasAllClusters: false,
      incomplete: this.#incomplete,
      kinds,
      prefixes: this.#prefixes(nodes),
      nodes,
      frontends: this.#frontends(),
      labelsOf: (identity) => this.#feed.identities.lookupByID(identity),
    };
    await this.#feed.stop();
    this.#nodes.close();
    return sources;
  }

  #prefixes(nodes: ReadonlyMap<string, KnownNode>): ReadonlyMap<string, KnownPrefix> {
    const prefixes = new Map<string, KnownPrefix>();
    const nodeOf = new Map<string, string>();
    for (const [name, { addresses }] of nodes) for (const address of addresses) nodeOf.set(address, name);
    const unsubscribe = this.#ipcache.subscribe({
      onChanges: (changes) => {
        for (const { prefix, new: entry } of changes) {
          if (entry === undefined) continue;
          const { identity, hostIP, k8s } = entry;
          const address = prefix.slice(0, prefix.indexOf('/'));
          const claimants = this.#claimants.get(address);
          const claims = claimants instanceof Map ? [...claimants.values()] : undefined;
          const pod = k8s && `${k8s.namespace}/${k8s.podName}`;
          const kind = pod === undefined ? 'node' : 'endpoint';
          prefixes.set(prefix, { identity, hostIP, kind, name: pod ?? nodeOf.get(address) ?? '', claims });
        }
      },
    });
    unsubscribe();
    return prefixes;
  }

  #knownNodes(): ReadonlyMap<string, KnownNode> {
    const known = new Map<string, KnownNode>();
    for (const { fullName, fields } of this.#nodes.nodes()) {
      const { ipv4HealthIP, ipv6HealthIP, ipv4IngressIP, ipv6IngressIP } = fields;
      const extra = [ipv4HealthIP, ipv6HealthIP, ipv4IngressIP, ipv6IngressIP];
      const primary = [fields.ipv4AllocCIDR, fields.ipv6AllocCIDR];
      const secondary = [
        ...(fields.ipv4SecondaryAllocCIDRs ?? []),
        ...(fields.ipv6SecondaryAllocCIDRs ?? []),
      ];
      known.set(fullName, {
        cluster: fields.cluster,
        name: fields.name,
        addresses: [...fields.addresses.map(({ ip }) => ip), ...extra.flatMap((ip) => ip ?? [])],
        podCIDRs: [...primary.flatMap((cidr) => cidr ?? []), ...secondary],
      });
    }
    return known;
  }

  #frontends(): ReadonlyMap<string, KnownFrontend> {
    const frontends = new Map<string, KnownFrontend>();
    for (const service of this.#services.services().values()) {
      const name = `${service.id.namespace}/${service.id.name}`;
      const announced = this.#services.get(service.id);
      const perNode = service.internalTrafficPolicy === 'Local' || service.trafficDistribution !== 'none';
      for (const front of frontendsOf(service, { enabled: false })) {
        if (front.kind !== 'cluster-ip') continue;
        const backends = announced === undefined ? [] : (resolvePort(announced, front.portName) ?? []);
        const sameFamily = backends.filter(
          ({ address, backend }) =>
            backend.state === 'active' && address.includes(':') === front.ip.includes(':'),
        );
        const active = new Set(sameFamily.map(({ address, port }) => hostPort(address, port)));
        const frontend = formatFrontend(front);
        frontends.set(frontend, {
          frontend,
          service: name,
          active: [...active].sort(),
          perNode,
          restricted: isRestricted(service),
          global: service.global,
        });
      }
    }
    return frontends;
  }

  #noteEndpoint(object: Readonly<Record<string, unknown>>): void {
    const fields = fieldsOf(object);
    if (fields === undefined) return;
    const metadata = fields.map('metadata');
    if (metadata.value('deletionTimestamp') !== undefined) return;
    const status = fields.map('status');
    const networking = status.map('networking');
    const identity = status.map('identity').integer('id', 0, MAX_IDENTITY);
    const hostIP = networking.address('node');
    if (identity === undefined || hostIP === undefined) return;
    const createdAt = readTime(metadata, 'creationTimestamp');
    const claimant = {
      object: `CiliumEndpoint ${metadata.string('namespace') ?? 'default'}/${metadata.string('name')}`,
      identity,
      hostIP,
    };
    const pairs = networking.list('addressing');
    for (let index = 0; index < pairs.size; index++)
      for (const family of ['ipv4', 'ipv6']) {
        const ip = pairs.item(index)?.address(family);
        if (ip === undefined) continue;
        this.#addClaimant(ip, claimant);
        if (createdAt > 0) this.#createdAt.set(prefixOfKey(ip), createdAt);
      }
  }

  #noteNode(object: Readonly<Record<string, unknown>>): void {
    const fields = fieldsOf(object);
    if (fields === undefined) return;
    const spec = fields.map('spec');
    const claimant = {
      object: `CiliumNode ${fields.map('metadata').string('name')}`,
      identity: 0,
      hostIP: undefined,
    };
    const list = spec.list('addresses');
    const listed = list.items((addresses, index) => addresses.item(index)?.string('ip'));
    const [health, ingress] = [spec.map('health'), spec.map('ingress')];
    const extra = [health, ingress].flatMap((one) => [one.string('ipv4'), one.string('ipv6')]);
    // A node may list an address under several types.
    const addresses = new Set([...listed, ...extra].flatMap((ip) => canonicalAddress(ip ?? '') ?? []));
    for (const address of addresses) this.#addClaimant(address, claimant);
  }

  /** Records an object with an address. Several files may contain the object. */
  #addClaimant(address: string, claimant: Claimant): void {
    const known = this.#claimants.get(address);
    if (known === undefined) this.#claimants.set(address, claimant);
    else if (known instanceof Map) {
      if (!known.has(claimant.object)) known.set(claimant.object, claimant);
    } else if (known.object !== claimant.object)
      this.#claimants.set(address, new Map([known, claimant].map((one) => [one.object, one])));
  }

  #notePod(object: Readonly<Record<string, unknown>>): void {
    const { metadata, spec } = object;
    const name = isObject(metadata) ? metadata['name'] : undefined;
    const node = isObject(spec) ? spec['nodeName'] : undefined;
    if (typeof name === 'string' && typeof node === 'string' && name.includes('cilium'))
      this.agents.set(name, node);
  }
}

/**
 * Adds an object, unless an agent would not request it. A missing uid or resource version is added, because a printed
 * list may lack them.
 */
function addToList(list: ObjectList, object: Readonly<Record<string, unknown>>): void {
  const fields = fieldsOf(object)?.map('metadata');
  if (fields === undefined || !matchesLabels(list.selector, fields.strings('labels'))) return;
  const metadata = isObject(object['metadata']) ? object['metadata'] : {};
  const { name, uid = name, resourceVersion = '0' } = metadata;
  if (typeof name !== 'string' || typeof uid !== 'string' || typeof resourceVersion !== 'string') return;
  list.batch.push({ ...object, metadata: { ...metadata, name, uid, resourceVersion } });
  if (list.batch.length >= BATCH) applyBatch(list);
}

function applyBatch(list: ObjectList): void {
  const events = list.batch.map((object) => ({ type: 'put' as const, object }));
  list.batch = [];
  if (events.length > 0) list.sink.apply(events);
}
