import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random, Timer } from '../../base/clock.ts';
import { messageOf } from '../../base/failure.ts';
import type { FaultListener } from '../../base/guard.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { type Rejection, RejectionLog, type RejectionStatus } from '../../base/rejection.ts';
import { sleep } from '../../base/sleep.ts';
import { type Unsubscribe, unsubscribeOnce } from '../../base/subscription.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { LabelFilter } from '../../identity/label-filter.ts';
import type { Labels } from '../../identity/labels.ts';
import type { RemoteIdentityCache } from '../../identity/remote-identity-cache.ts';
import type { WorldLabels } from '../../metadata/cidr-labels.ts';
import type { EndpointSlice } from '../../servicecache/backend.ts';
import type { ResourceKind, ResourceSource } from '../resource.ts';
import { AddressHolders, type FedIPCache } from './address-holders.ts';
import { ApiServerAddresses } from './api-server-addresses.ts';
import { EndpointLabels, type LabelledPod } from './endpoint-labels.ts';
import { ciliumEndpointReader, SlicedEndpointReader } from './endpoint-readers.ts';
import { FollowedKind, type KindStatus } from './followed-kind.ts';
import {
  CIDR_GROUPS,
  CILIUM_ENDPOINT_SLICES,
  CILIUM_ENDPOINTS,
  CILIUM_IDENTITIES,
  CILIUM_NODES,
  CILIUM_POLICIES,
  CLUSTERWIDE_POLICIES,
  NAMESPACES,
  NETWORK_POLICIES,
  ownNode,
  pods,
  type ServiceSelection,
  serviceEndpoints,
  services,
} from './kinds.ts';
import { KubernetesIdentities } from './kubernetes-identities.ts';
import { type HandoverEvent, type HandoverState, handover } from './kvstore-handover.ts';
import { ciliumNodeReader, type FedNodes, ownNodeReader } from './node-readers.ts';
import { ObjectFeed, type ObjectReader } from './object-feed.ts';
import { podReader } from './pod-reader.ts';
import { PolicyCIDRTable } from './policy-cidrs.ts';
import type { PrefixMetadata } from './prefix-metadata.ts';
import { endpointSliceReader, endpointsReader, type FedServices, serviceReader } from './service-readers.ts';

/** What a kvstore may say as well (K 52). */
export const HANDOVER_RESOURCES = ['nodes', 'ip', 'identities'] as const;

/** One of {@link HANDOVER_RESOURCES}. */
export type HandoverResource = (typeof HANDOVER_RESOURCES)[number];

/** Options of {@link KubernetesFeed}. An engine that is left out gets nothing, and what is for it is not asked for. */
export interface KubernetesFeedOptions {
  readonly source: ResourceSource;
  readonly clusterName: string;
  /** Default 0: in no mesh. */
  readonly clusterID?: number | undefined;
  /** The node that this process is for. */
  readonly nodeName: string;
  readonly clock: Clock;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
  readonly gate?: TurnGate | undefined;
  readonly ipcache?: FedIPCache | undefined;
  readonly services?: FedServices | undefined;
  readonly nodes?: FedNodes | undefined;
  /** Labels of CIDRs and of the API server's addresses. Left out: policies are not asked for. */
  readonly metadata?: PrefixMetadata | undefined;
  /** Whether policies and CIDR groups are asked for. Default true, where there is `metadata`. */
  readonly policies?: boolean | undefined;
  /** What says where the endpoints of other nodes are (K 12, 35). Default `ciliumendpoints`. */
  readonly endpoints?: 'ciliumendpoints' | 'ciliumendpointslices' | 'pods' | undefined;
  /**
   * `kvstore` (the default): CiliumIdentities are followed while no kvstore says them. `crd`: always; `none`: never.
   */
  readonly identities?: 'kvstore' | 'crd' | 'none' | undefined;
  /** Which services are asked for. */
  readonly selection?: ServiceSelection | undefined;
  /** Encryption key of the own node, for its pods (K 18). Default 0. */
  readonly encryptKey?: number | undefined;
  /** Default `single-stack`. */
  readonly world?: WorldLabels | undefined;
  /** Whether annotations of the own Node count (K 40). Default false. */
  readonly nodeAnnotations?: boolean | undefined;
  /** Nodes that are only restored are not withdrawn with the first list (K 41): the caller does so. Default false. */
  readonly keepRestoredNodes?: boolean | undefined;
  /**
   * When a kvstore is lost that was complete, Kubernetes is asked after a time up to this, drawn at random: the agents of all
   * nodes lose it at once, and what it has said stays meanwhile (K 52). Default 30 s.
   */
  readonly handoverSpreadMs?: number | undefined;
  readonly labelFilter?: LabelFilter | undefined;
  /** Identity labels of the pods of this node; see `EndpointLabelsOptions`. Left out: namespaces are not asked for. */
  readonly onLabels?: ((pod: LabelledPod, labels: Labels | undefined) => void) | undefined;
  /** Labels of the own Node: the host endpoint's (K 39). */
  readonly onHostLabels?: ((labels: ReadonlyMap<string, string>) => void) | undefined;
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives what callbacks throw. */
  readonly onFault?: FaultListener | undefined;
}

/** A feed as data. */
export interface KubernetesFeedStatus {
  /** All that is waited for has been applied. */
  readonly synced: boolean;
  readonly kinds: readonly KindStatus[];
  /** Who says what: `following` is Kubernetes. */
  readonly handover: Readonly<Record<HandoverResource, HandoverState>>;
  /** Addresses that several pods, or several CiliumEndpoints, list. */
  readonly contested: number;
  readonly rejections: RejectionStatus;
}

/** How far the first list of a kind has come, in the words of `waitForClusters`. */
export interface KindProgress {
  readonly name: string;
  readonly synced: boolean;
  readonly progressAt: number;
  readonly failures: number;
  /** The API server does not serve the kind: more time would not help. */
  readonly settled: boolean;
}

/** The own Node says little that others do not: it is not waited for (K 55). */
const NOT_AWAITED = 'nodes';

const BACKOFF = { baseMs: 800, capMs: 30_000 };

const HANDOVER_SPREAD_MS = 30_000;

/** Tables that several kinds write to. */
interface Tables {
  readonly pods: AddressHolders | undefined;
  readonly endpoints: AddressHolders | undefined;
}

/**
 * What the objects of a Kubernetes API server say to the engines (K 10 to 55). Kinds come in any order, and the outcome is
 * the same (K 54); each is followed by itself, and one that is missing or refused holds up no other. Synchronous behind
 * the source: when a batch of objects has been handed over, the engines have it. No I/O of its own.
 *
 *     ResourceSource ─► FollowedKind ─► ObjectFeed ─► reader ─┬─► IPCache, NodeManager, ServiceCache
 *       reflector        come and go    what was said         ├─► EndpointLabels, KubernetesIdentities
 *                                                             └─► PrefixMetadata
 *
 * It does not promise that an object was seen in each of its states, nor that two kinds fit together at any moment.
 */
export class KubernetesFeed {
  readonly #identities = new KubernetesIdentities();
  /** Number ↔ labels, as the CiliumIdentities have them: of the same labels the oldest, then the lower number (K 45). */
  readonly identities: RemoteIdentityCache = this.#identities.cache;
  readonly #options: KubernetesFeedOptions;
  readonly #guard: CallbackGuard;
  readonly #rejections: RejectionLog;
  readonly #kinds = new Map<string, FollowedKind>();
  readonly #tables: Tables;
  readonly #labels: EndpointLabels | undefined;
  readonly #apiServer: ApiServerAddresses | undefined;
  readonly #listeners = new Set<(name: string) => void>();
  readonly #handover = new Map<HandoverResource, HandoverState>(
    HANDOVER_RESOURCES.map((resource) => [resource, 'following']),
  );
  /** Resources that the kvstore has lost, and that Kubernetes is soon asked for. */
  readonly #returning = new Map<HandoverResource, Timer>();
  readonly #ended = new AbortController();
  #started = false;
  /** What is followed of pods: those of all nodes, or of the own. Undefined before the start. */
  #allPods: boolean | undefined;
  /** What is followed in place of EndpointSlices v1, once that is known. */
  #serviceEndpoints: ResourceKind | undefined;
  #isChoosing = false;

  constructor(options: KubernetesFeedOptions) {
    this.#options = options;
    this.#guard = new CallbackGuard(options.onFault);
    this.#rejections = new RejectionLog(options.onReject, this.#guard);
    const { ipcache, metadata, clock, random = Math.random, clusterName, onLabels } = options;
    this.#tables = {
      pods: ipcache && new AddressHolders(ipcache),
      endpoints: ipcache && new AddressHolders(ipcache),
    };
    const filter = options.labelFilter ?? new LabelFilter();
    this.#labels =
      onLabels && new EndpointLabels({ clusterName, filter, clock, random, guard: this.#guard, onLabels });
    this.#apiServer = metadata && new ApiServerAddresses(metadata, clock);
    this.#addEndpoints();
    this.#addNodes();
    this.#addServices();
    this.#addPolicies();
    if (options.identities !== 'none') this.#add('ciliumidentities', this.#identities.reader());
  }

  /** Begins to follow. Once only. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    const { nodeName, selection = {} } = this.#options;
    const handedOver = HANDOVER_RESOURCES.filter((resource) => this.#handover.get(resource) !== 'following');
    const resting = new Set(handedOver.flatMap((resource) => this.#handedOver(resource)));
    for (const kind of FIXED_KINDS) if (!resting.has(kind)) this.#kinds.get(kind.plural)?.follow(kind);
    this.#kinds.get('nodes')?.follow(ownNode(nodeName));
    this.#kinds.get('services')?.follow(services(selection));
    this.#kinds.get('endpointslices')?.expect();
    if (this.#kinds.has('endpointslices')) void this.#chooseServiceEndpoints();
    this.#review();
  }

  /**
   * The kvstore has said all of a resource that it has to say, or is lost (K 52). Before it has said so, and after it was
   * lost, the feed says what Kubernetes has.
   */
  kvstore(resource: HandoverResource, event: 'complete' | 'lost'): void {
    this.#step(resource, event);
  }

  /** Kinds that are waited for (K 55): all that are followed but the own Node. */
  get names(): readonly string[] {
    return [...this.#kinds.values()].filter(isAwaited).map(({ name }) => name);
  }

  /** Whether an identity is marked for deletion: who allocates it takes the mark away (K 46). */
  isIdentityMarked(id: number): boolean {
    return this.#identities.isMarked(id);
  }

  /** How far a kind is; `undefined` for one that is not waited for. */
  progressOf(name: string): KindProgress | undefined {
    const kind = this.#kinds.get(name);
    if (kind === undefined || !isAwaited(kind)) return undefined;
    const { complete: synced, progressAt, failures, state } = kind;
    return { name, synced, progressAt, failures, settled: state === 'missing' };
  }

  /** Calls back with the name of a kind whose state has changed, or that has become complete. */
  onChange(callback: (name: string) => void): Unsubscribe {
    this.#listeners.add(callback);
    return unsubscribeOnce(() => this.#listeners.delete(callback));
  }

  /** Whether all that is waited for, and that the API server serves, has been applied. */
  get synced(): boolean {
    return this.#started && this.blockers().length === 0;
  }

  /** What is not complete, a sentence for each kind. */
  blockers(): readonly string[] {
    return [...this.#kinds.values()].flatMap((kind) => {
      if (!isAwaited(kind) || kind.complete || kind.state === 'missing') return [];
      const why = kind.lastFailure;
      return `Kubernetes: ${kind.name} not complete, ${kind.state}${why === undefined ? '' : `: ${why}`}`;
    });
  }

  status(): KubernetesFeedStatus {
    const stateOf = (resource: HandoverResource): HandoverState =>
      this.#handover.get(resource) ?? 'following';
    return {
      synced: this.synced,
      kinds: [...this.#kinds.values()].map((kind) => kind.status()),
      handover: { nodes: stateOf('nodes'), ip: stateOf('ip'), identities: stateOf('identities') },
      contested: (this.#tables.pods?.contested ?? 0) + (this.#tables.endpoints?.contested ?? 0),
      rejections: this.#rejections.status(),
    };
  }

  /** Ends following; the engines keep what they know. Resolves when nothing is handed over any more. */
  async stop(): Promise<void> {
    this.#ended.abort();
    for (const timer of this.#returning.values()) timer.cancel();
    this.#labels?.stop();
    this.#apiServer?.stop();
    await Promise.all([...this.#kinds.values()].map((kind) => kind.stop()));
  }

  #add<T>(name: string, reader: ObjectReader<T>): ObjectFeed<T> {
    const { source, clock, gate } = this.#options;
    const feed = new ObjectFeed(reader, { rejections: this.#rejections, gate });
    const onChange = (): void => this.#changed(name);
    this.#kinds.set(name, new FollowedKind(name, feed, { source, clock, gate, onChange }));
    return feed;
  }

  #addEndpoints(): void {
    const { ipcache, nodeName, encryptKey = 0, endpoints = 'ciliumendpoints' } = this.#options;
    const { pods: podHolders, endpoints: holders } = this.#tables;
    if (ipcache === undefined || podHolders === undefined || holders === undefined) return;
    const labels = this.#labels;
    this.#add('pods', podReader({ ipcache, holders: podHolders, labels, nodeName, encryptKey }));
    if (labels !== undefined) this.#add('namespaces', labels.namespaceReader());
    if (endpoints === 'ciliumendpoints') this.#add(endpoints, ciliumEndpointReader({ ipcache, holders }));
    if (endpoints === 'ciliumendpointslices')
      this.#add(endpoints, new SlicedEndpointReader({ ipcache, holders }));
  }

  #addNodes(): void {
    const { nodes, clusterName, clusterID = 0, nodeName, nodeAnnotations = false } = this.#options;
    if (nodes === undefined) return;
    const engine = { nodes, clusterName, clusterID, nodeName };
    const onLabels = (labels: ReadonlyMap<string, string>): void => {
      this.#guard.call(this.#options.onHostLabels, labels);
    };
    this.#add('ciliumnodes', ciliumNodeReader(engine, this.#options.keepRestoredNodes));
    this.#add('nodes', ownNodeReader(engine, { annotations: nodeAnnotations, onLabels }));
  }

  #addServices(): void {
    const { services: cache } = this.#options;
    if (cache === undefined) return;
    this.#add('services', serviceReader(cache));
    const slices: ObjectFeed<EndpointSlice> = this.#add(
      'endpointslices',
      this.#sliceReader(endpointSliceReader(cache), () => endpoints),
    );
    const endpoints = this.#add(
      'endpoints',
      this.#sliceReader(endpointsReader(cache), () => slices),
    );
  }

  /**
   * The addresses of the API server are taken from slices, too. What slices and Endpoints both say, while one takes the place
   * of the other, stays when one of them goes: those of `kubernetes` have the same name.
   */
  #sliceReader(
    reader: ObjectReader<EndpointSlice>,
    other: () => ObjectFeed<EndpointSlice>,
  ): ObjectReader<EndpointSlice> {
    return {
      ...reader,
      change: (now, before) => {
        if (now === undefined && before !== undefined) {
          const { namespace, name } = before.service;
          if (other().said(namespace, before.name)?.service.name === name) return;
        }
        reader.change(now, before);
        this.#apiServer?.change(now, before);
      },
    };
  }

  #addPolicies(): void {
    const { metadata, policies = true, world = 'single-stack' } = this.#options;
    if (metadata === undefined || !policies) return;
    const table = new PolicyCIDRTable(metadata, world, (rejected) => this.#rejections.add(rejected));
    this.#add('networkpolicies', table.networkPolicies());
    this.#add('ciliumnetworkpolicies', table.ciliumPolicies());
    this.#add('ciliumclusterwidenetworkpolicies', table.clusterwidePolicies());
    this.#add('ciliumcidrgroups', table.groups());
  }

  #changed(name: string): void {
    if (this.#started && !this.#ended.signal.aborted) {
      this.#review();
      // An API server that was upgraded has another version of it.
      if (name === this.#serviceEndpoints?.plural && this.#kinds.get(name)?.state === 'missing')
        void this.#chooseServiceEndpoints();
    }
    for (const listener of [...this.#listeners]) this.#guard.call(listener, name);
  }

  /** What one kind has become may decide what is asked for of another. */
  #review(): void {
    this.#reviewPods();
    const followed = this.#serviceEndpoints?.plural;
    if (followed !== undefined && this.#kinds.get(followed)?.complete === true) {
      const other = this.#kinds.get(otherEndpoints(followed));
      if (other !== undefined && other.size > 0) other.withdraw();
    }
  }

  /**
   * Pods of all nodes are followed while nothing else says where the endpoints of other nodes are: no CiliumEndpoints are
   * served, or they are not wanted, and no kvstore says them (K 12). They are let go once the CiliumEndpoints are listed.
   */
  #reviewPods(): void {
    const kind = this.#kinds.get('pods');
    if (kind === undefined) return;
    const endpoints = this.#kinds.get('ciliumendpoints') ?? this.#kinds.get('ciliumendpointslices');
    const areSaid =
      endpoints?.complete === true ||
      (endpoints !== undefined && endpoints.state !== 'missing' && this.#allPods !== true);
    const all = this.#handover.get('ip') === 'following' && !this.#returning.has('ip') && !areSaid;
    if (all === this.#allPods) return;
    this.#allPods = all;
    kind.follow(pods(all ? undefined : this.#options.nodeName));
  }

  /** Asks the API server for the best that it has (K 13): never slices and Endpoints both. Each failure is a change. */
  async #chooseServiceEndpoints(): Promise<void> {
    if (this.#isChoosing) return;
    this.#isChoosing = true;
    await this.#askForServiceEndpoints();
    this.#isChoosing = false;
  }

  async #askForServiceEndpoints(): Promise<void> {
    const { source, clock, random = Math.random, selection = {} } = this.#options;
    const { signal } = this.#ended;
    const kinds = serviceEndpoints(selection);
    for (let failures = 1; !signal.aborted; failures++) {
      try {
        const served = (await source.firstServed(kinds, signal)) ?? kinds.at(-1);
        if (served !== undefined && !signal.aborted) this.#followServiceEndpoints(served);
        return;
      } catch (error) {
        if (!signal.aborted) this.#kinds.get('endpointslices')?.attemptFailed(messageOf(error));
        await sleep(clock, backoffDelay(failures, BACKOFF, random), signal);
      }
    }
  }

  /** What the others have said stays until these are listed. */
  #followServiceEndpoints(kind: ResourceKind): void {
    const { plural, version } = this.#serviceEndpoints ?? {};
    if (plural === kind.plural && version === kind.version) return; // its reflector looks for it
    this.#serviceEndpoints = kind;
    this.#kinds.get(otherEndpoints(kind.plural))?.rest();
    this.#kinds.get(kind.plural)?.follow(kind);
  }

  #step(resource: HandoverResource, event: HandoverEvent): void {
    const before = this.#handover.get(resource) ?? 'following';
    const next = handover(before, event);
    this.#handover.set(resource, next.state);
    const kinds = this.#handedOver(resource);
    if (next.action === 'follow' && this.#started) this.#comeBack(resource, before === 'resting');
    if (next.action === 'withdraw') {
      this.#returning.get(resource)?.cancel();
      this.#returning.delete(resource);
      let left = kinds.length;
      const done = (): void => {
        if (--left === 0) this.#step(resource, 'withdrawn');
      };
      if (left === 0) this.#step(resource, 'withdrawn');
      for (const kind of kinds) this.#kinds.get(kind.plural)?.withdraw(done);
    }
    if (next.action !== undefined && this.#started) this.#reviewPods();
  }

  /** Follows again what the kvstore has lost: after a while, unless some of it is being withdrawn. */
  #comeBack(resource: HandoverResource, isWithdrawn: boolean): void {
    const { clock, random = Math.random, handoverSpreadMs = HANDOVER_SPREAD_MS } = this.#options;
    const kinds = this.#handedOver(resource);
    const follow = (): void => {
      this.#returning.delete(resource);
      for (const kind of kinds) this.#kinds.get(kind.plural)?.follow(kind);
      this.#reviewPods();
    };
    const delay = isWithdrawn ? Math.floor(random() * handoverSpreadMs) : 0;
    if (delay === 0) follow();
    else {
      for (const { plural } of kinds) this.#kinds.get(plural)?.expect();
      this.#returning.set(resource, clock.after(delay, follow));
    }
  }

  /** The kinds that say what the kvstore's resource says. */
  #handedOver(resource: HandoverResource): readonly ResourceKind[] {
    const kinds = {
      nodes: [CILIUM_NODES],
      ip: [CILIUM_ENDPOINTS, CILIUM_ENDPOINT_SLICES],
      identities: this.#options.identities === 'crd' ? [] : [CILIUM_IDENTITIES],
    };
    return kinds[resource].filter(({ plural }) => this.#kinds.has(plural));
  }
}

/** Kinds that are asked for as they are. */
const FIXED_KINDS: readonly ResourceKind[] = [
  NAMESPACES,
  CILIUM_ENDPOINTS,
  CILIUM_ENDPOINT_SLICES,
  CILIUM_NODES,
  CILIUM_IDENTITIES,
  NETWORK_POLICIES,
  CILIUM_POLICIES,
  CLUSTERWIDE_POLICIES,
  CIDR_GROUPS,
];

function otherEndpoints(plural: string): 'endpoints' | 'endpointslices' {
  return plural === 'endpoints' ? 'endpointslices' : 'endpoints';
}

function isAwaited({ name, state }: FollowedKind): boolean {
  return name !== NOT_AWAITED && state !== 'resting';
}
