import {
  BOOLEAN,
  checkArgument,
  FUNCTION,
  NUMBER,
  OBJECT,
  objectWith,
  oneOf,
  optional,
  optionsWith,
  TEXT,
} from '../../base/arguments.ts';
import { CallbackGuard, type FaultListener } from '../../base/guard.ts';
import { type Rejection, RejectionLog, type RejectionStatus } from '../../base/rejection.ts';
import { type Unsubscribe, unsubscribeOnce } from '../../base/subscription.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { WORLD_LABELS, type WorldLabels } from '../../metadata/cidr-labels.ts';
import type { IdentityCache } from '../../model/identity-cache.ts';
import { LabelFilter } from '../../model/label-filter.ts';
import type { Labels } from '../../model/labels.ts';
import type { EndpointSlice } from '../../servicecache/backend.ts';
import type { ResourceKind, ResourceSource } from '../resource.ts';
import { AddressHolders, type FedIPCache } from './address-holders.ts';
import { ApiServerAddresses } from './api-server-addresses.ts';
import { bothFeeds } from './both-feeds.ts';
import { EndpointLabels, type LabelledPod } from './endpoint-labels.ts';
import { ciliumEndpointReader, SlicedEndpointReader } from './endpoint-readers.ts';
import { FollowedKind, type KindStatus } from './followed-kind.ts';
import { KindChoice } from './kind-choice.ts';
import {
  CIDR_GROUPS,
  CILIUM_ENDPOINT_SLICES,
  CILIUM_ENDPOINTS,
  CILIUM_IDENTITIES,
  CILIUM_NODES,
  FIXED_KINDS,
  localNode,
  pods,
  type ServiceSelection,
  serviceEndpoints,
  services,
} from './kinds.ts';
import { KubernetesIdentities } from './kubernetes-identities.ts';
import type { HandoverState } from './kvstore-handover.ts';
import { ciliumNodeReader, type FedNodes, LocalNode, localNodeReader } from './node-readers.ts';
import {
  type AnyFeed,
  type CauseListener,
  type FeedTap,
  type KindReader,
  ObjectFeed,
} from './object-feed.ts';
import { podReader } from './pod-reader.ts';
import { PolicyCIDRTable } from './policy-cidrs.ts';
import type { PrefixMetadata } from './prefix-metadata.ts';
import { ResourceHandover } from './resource-handover.ts';
import { endpointSliceReader, endpointsReader, type FedServices, serviceReader } from './service-readers.ts';

/** Resources that a kvstore can provide instead of Kubernetes (KUBERNETES 52). */
export const HANDOVER_RESOURCES = ['nodes', 'ip', 'identities'] as const;

/** One of {@link HANDOVER_RESOURCES}. */
export type HandoverResource = (typeof HANDOVER_RESOURCES)[number];

/** Options of {@link KubernetesFeed}. If an engine is missing, the kinds that only it needs are not followed. */
export interface KubernetesFeedOptions extends RuntimeOptions {
  /** Lists and watches objects: a {@link KubernetesClient}. */
  readonly source: ResourceSource;
  /** Name of the local cluster. */
  readonly clusterName: string;
  /** Default 0: not part of a mesh. */
  readonly clusterID?: number | undefined;
  /** Name of the node of this process. */
  readonly nodeName: string;
  /** Splits the work into short turns. Default: not split. */
  readonly gate?: TurnGate | undefined;
  /** Receives the IPs of pods and nodes. Default: these are not followed. */
  readonly ipcache?: FedIPCache | undefined;
  /** Receives services and endpoint slices. Default: these are not followed. */
  readonly services?: FedServices | undefined;
  /** Receives nodes. Default: these are not followed. */
  readonly nodes?: FedNodes | undefined;
  /** Receives the labels of CIDRs and of the API server's addresses. If it is missing, policies are not followed. */
  readonly metadata?: PrefixMetadata | undefined;
  /** If true, policies and CIDR groups are followed. Requires `metadata`. Default true. */
  readonly policies?: boolean | undefined;
  /** The kind of the endpoints of all nodes (KUBERNETES 12, 33, 34). Default `ciliumendpoints`. */
  readonly endpoints?: 'ciliumendpoints' | 'ciliumendpointslices' | 'pods' | undefined;
  /**
   * `kvstore` (the default): CiliumIdentities are followed until a kvstore is complete. `crd`: always. `none`: never.
   */
  readonly identities?: 'kvstore' | 'crd' | 'none' | undefined;
  /** The services to follow. */
  readonly selection?: ServiceSelection | undefined;
  /**
   * @internal More feeds, by the plural of their kind. They receive the same objects as this feed, if this feed follows
   *   the kind.
   */
  readonly moreFeeds?: ReadonlyMap<string, AnyFeed> | undefined;
  /** Encryption key of the local node, for its pods (KUBERNETES 18). Default 0. */
  readonly encryptKey?: number | undefined;
  /** Default `single-stack`. */
  readonly world?: WorldLabels | undefined;
  /** If true, annotations of the local Node are read (KUBERNETES 40). Default false. */
  readonly nodeAnnotations?: boolean | undefined;
  /**
   * If true, the caller withdraws restored nodes. If false, the feed does this after the first complete list
   * (KUBERNETES 41). Default false.
   */
  readonly keepRestoredNodes?: boolean | undefined;
  /** Selects the labels of identities. Default: the built-in filter of Cilium. */
  readonly labelFilter?: LabelFilter | undefined;
  /**
   * Receives the identity labels of the pods of this node; see `EndpointLabelsOptions`. If it is missing, namespaces
   * are not followed.
   */
  readonly onLabels?: ((pod: LabelledPod, labels: Labels | undefined) => void) | undefined;
  /** Receives the labels of the local Node, which are the labels of the host endpoint (KUBERNETES 39). */
  readonly onHostLabels?: ((labels: ReadonlyMap<string, string>) => void) | undefined;
  /**
   * Called when the objects of a kind are forgotten because the API server has not served the kind for ten minutes
   * (KUBERNETES 15).
   */
  readonly onForget?: ((kind: string, objects: number) => void) | undefined;
  /**
   * Called with the kind and the resourceVersion of each object before it is applied, and with undefined after the
   * batch. Must not throw.
   */
  readonly onCause?: CauseListener | undefined;
  /**
   * @internal
   * Returns the tap of a kind. Called once for each kind. Default: none.
   */
  readonly tap?: ((kind: string) => FeedTap) | undefined;
  /** Receives every rejection after it was counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives the errors of callbacks. */
  readonly onFault?: FaultListener | undefined;
}

/** Status of a {@link KubernetesFeed}. */
export interface KubernetesFeedStatus {
  /** True if all awaited and served kinds are complete. */
  readonly synced: boolean;
  readonly kinds: readonly KindStatus[];
  /** State by resource; `following` if Kubernetes provides it. */
  readonly handover: Readonly<Record<HandoverResource, HandoverState>>;
  /** Number of addresses listed by several pods or by several CiliumEndpoints. */
  readonly contested: number;
  readonly rejections: RejectionStatus;
}

/** Progress of the first list of a kind, in the terms of `waitForSync`. */
export interface KindProgress {
  readonly name: string;
  readonly synced: boolean;
  readonly progressAt: number;
  readonly failures: number;
  /** True if the API server does not serve the kind, so that nothing waits for it. */
  readonly settled: boolean;
}

/** The kind which is not awaited: the local Node, most of whose data is in other sources (KUBERNETES 55). */
const KIND_NOT_AWAITED = 'nodes';

const SERVICE_KINDS = ['services', 'endpointslices', 'endpoints'] as const;

/**
 * Writes the objects of a Kubernetes API server to the engines (KUBERNETES 10 to 55). The result does not depend on the
 * order of kinds (KUBERNETES 54). Each kind is followed independently: if one kind is missing or refused, other kinds
 * are not delayed. The feed is synchronous: when the source has delivered a batch of objects, the engines contain it,
 * except CIDRs of policies, which are applied in steps. The feed does no I/O itself.
 *
 *     ResourceSource ─► FollowedKind ─► ObjectFeed ─► reader ─┬─► IPCache, NodeManager, ServiceCache
 *       reflector       start and end   values of objects     ├─► EndpointLabels, KubernetesIdentities
 *                                                             └─► PrefixMetadata
 *
 * Not promised: that every state of an object is applied, or that two kinds are consistent at any moment.
 */
export class KubernetesFeed implements AsyncDisposable {
  readonly #identities = new KubernetesIdentities();
  /**
   * Identities by number and by labels, from CiliumIdentities. If several identities have the same labels, the lookup
   * returns the oldest, then the lowest number (KUBERNETES 45).
   */
  readonly identities: IdentityCache = this.#identities.cache;
  readonly #options: KubernetesFeedOptions & Runtime;
  readonly #guard: CallbackGuard;
  readonly #rejections: RejectionLog;
  readonly #kinds = new Map<string, FollowedKind>();
  readonly #feeds = new Map<string, ObjectFeed<unknown>>();
  readonly #podHolders: AddressHolders | undefined;
  readonly #endpointHolders: AddressHolders | undefined;
  readonly #labels: EndpointLabels | undefined;
  readonly #apiServer: ApiServerAddresses | undefined;
  readonly #listeners = new Set<(name: string) => void>();
  readonly #handovers: Readonly<Record<HandoverResource, ResourceHandover>>;
  readonly #ended = new AbortController();
  #started = false;
  /** True if pods of all nodes are followed, false for pods of the local node. Undefined before the start. */
  #followsAllPods: boolean | undefined;
  readonly #serviceEndpoints: KindChoice;
  readonly #choices: readonly KindChoice[];

  constructor(options: KubernetesFeedOptions) {
    checkArgument('new KubernetesFeed: options', options, OPTIONS);
    this.#options = withRuntime(options);
    this.#guard = new CallbackGuard(options.onFault);
    this.#rejections = new RejectionLog(options.onReject, this.#guard);
    const { ipcache, metadata, clock, random, clusterName, onLabels, selection = {} } = this.#options;
    this.#serviceEndpoints = this.#choiceOf('endpointslices', serviceEndpoints(selection));
    this.#choices = [this.#serviceEndpoints, this.#choiceOf('ciliumcidrgroups', CIDR_GROUPS)];
    this.#podHolders = ipcache && new AddressHolders(ipcache);
    this.#endpointHolders = ipcache && new AddressHolders(ipcache);
    const filter = options.labelFilter ?? new LabelFilter();
    this.#labels =
      onLabels && new EndpointLabels({ clusterName, filter, clock, random, guard: this.#guard, onLabels });
    this.#apiServer = metadata && new ApiServerAddresses(metadata, clock);
    this.#addEndpoints();
    this.#addNodes();
    this.#addServices();
    this.#addPolicies();
    if (options.identities !== 'none') this.#add('ciliumidentities', this.#identities.reader());
    this.#handovers = {
      nodes: this.#handoverOf(CILIUM_NODES),
      ip: this.#handoverOf(CILIUM_ENDPOINTS, CILIUM_ENDPOINT_SLICES),
      identities: options.identities === 'crd' ? this.#handoverOf() : this.#handoverOf(CILIUM_IDENTITIES),
    };
  }

  /** Starts to follow all kinds. Later calls do nothing. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    const { nodeName, selection = {} } = this.#options;
    const handedOver = Object.values(this.#handovers).filter(({ state }) => state !== 'following');
    const delegated = new Set(handedOver.flatMap(({ kinds }) => kinds));
    for (const kind of FIXED_KINDS) if (!delegated.has(kind)) this.#kinds.get(kind.plural)?.follow(kind);
    this.#kinds.get('nodes')?.follow(localNode(nodeName));
    this.#kinds.get('services')?.follow(services(selection));
    for (const choice of this.#choices) choice.start();
    this.#followDependentKinds();
  }

  /**
   * Reports that the kvstore has delivered a resource completely, or that the kvstore was lost (KUBERNETES 52). The
   * feed follows the resource until it is complete in the kvstore, and again after the kvstore was lost.
   */
  reportKvstore(resource: HandoverResource, event: 'complete' | 'lost'): void {
    if (!this.#ended.signal.aborted) this.#handovers[resource].apply(event);
  }

  /**
   * @internal Returns the feed of a kind, for objects that the caller delivers in place of the source. `start` must not
   * have been called.
   */
  feedOf(kind: string): ObjectFeed<unknown> | undefined {
    return this.#feeds.get(kind);
  }

  /** Returns the awaited kinds (KUBERNETES 55): all followed kinds except the local Node. */
  get names(): readonly string[] {
    return [...this.#kinds.values()].filter(isAwaited).map(({ name }) => name);
  }

  /**
   * Returns true if an identity is marked for deletion. An allocator that uses it must remove the mark (KUBERNETES 46).
   */
  isIdentityMarked(id: number): boolean {
    return this.#identities.isMarked(id);
  }

  /** Returns the progress of a kind, or undefined if it is not awaited. */
  progressOf(name: string): KindProgress | undefined {
    const kind = this.#kinds.get(name);
    if (kind === undefined || !isAwaited(kind)) return undefined;
    const { complete: synced, progressAt, failures, state } = kind;
    return { name, synced, progressAt, failures, settled: state === 'missing' };
  }

  /** Calls `callback` with the name of a kind when its state changes or when it becomes complete. */
  onChange(callback: (name: string) => void): Unsubscribe {
    this.#listeners.add(callback);
    return unsubscribeOnce(() => this.#listeners.delete(callback));
  }

  /** Returns true if all awaited and served kinds are complete. */
  get synced(): boolean {
    return this.#started && this.blockers().length === 0;
  }

  /**
   * Returns true if services and their endpoints are complete. Kinds that are not followed or not served are ignored.
   */
  get servicesComplete(): boolean {
    const kinds = SERVICE_KINDS.flatMap((name) => this.#kinds.get(name) ?? []);
    return this.#started && !kinds.some(isIncomplete);
  }

  /** Returns one sentence for each incomplete kind. */
  blockers(): readonly string[] {
    return [...this.#kinds.values()].filter(isIncomplete).map(({ name, state, lastFailure: why }) => {
      return `Kubernetes: ${name} are not complete (${state})${why === undefined ? '' : `: ${why}`}`;
    });
  }

  status(): KubernetesFeedStatus {
    const { nodes, ip, identities } = this.#handovers;
    return {
      synced: this.synced,
      kinds: [...this.#kinds.values()].map((kind) => kind.status()),
      handover: { nodes: nodes.state, ip: ip.state, identities: identities.state },
      contested: (this.#podHolders?.contested ?? 0) + (this.#endpointHolders?.contested ?? 0),
      rejections: this.#rejections.status(),
    };
  }

  /** Ends all reflectors; the claims stay in the engines. Resolves when no more objects are delivered. */
  async stop(): Promise<void> {
    this.#ended.abort();
    for (const handover of Object.values(this.#handovers)) handover.stop();
    this.#labels?.stop();
    this.#apiServer?.stop();
    await Promise.all([...this.#kinds.values()].map((kind) => kind.stop()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #add<T>(name: string, reader: KindReader<T>): ObjectFeed<T> {
    const { source, clock, gate, moreFeeds, onCause, tap } = this.#options;
    const { signal } = this.#ended;
    const rejections = this.#rejections;
    const feed = new ObjectFeed(reader, { rejections, gate, signal, onCause, tap: tap?.(name) });
    this.#feeds.set(name, feed);
    const more = moreFeeds?.get(name);
    const followed = more ? bothFeeds(feed, more) : feed;
    const onChange = (): void => this.#kindChanged(name);
    const onForget = (objects: number): void => {
      this.#guard.call(this.#options.onForget, name, objects);
    };
    this.#kinds.set(
      name,
      new FollowedKind(name, followed, { source, clock, gate, signal, onChange, onForget }),
    );
    return feed;
  }

  #choiceOf(name: string, candidates: readonly ResourceKind[]): KindChoice {
    const { source, clock, random } = this.#options;
    const { signal } = this.#ended;
    return new KindChoice({ source, clock, random, name, candidates, kinds: this.#kinds, signal });
  }

  #handoverOf(...kinds: readonly ResourceKind[]): ResourceHandover {
    return new ResourceHandover({
      ...this.#options,
      kinds: kinds.filter(({ plural }) => this.#kinds.has(plural)),
      followed: this.#kinds,
      isStarted: () => this.#started,
      onChange: () => this.#followPods(),
    });
  }

  #addEndpoints(): void {
    const { ipcache, nodeName, encryptKey = 0, endpoints = 'ciliumendpoints' } = this.#options;
    const [podHolders, holders, labels] = [this.#podHolders, this.#endpointHolders, this.#labels];
    if (ipcache === undefined || podHolders === undefined || holders === undefined) return;
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
    const local = new LocalNode(nodes);
    this.#add('ciliumnodes', ciliumNodeReader(engine, local, this.#options.keepRestoredNodes));
    this.#add('nodes', localNodeReader(engine, local, nodeAnnotations, onLabels));
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
   * Returns a reader that also passes slices to the addresses of the API server. Slices and Endpoints of `kubernetes`
   * have the same name. While one kind replaces the other, a deletion is ignored if the other kind has the same object.
   */
  #sliceReader(
    reader: KindReader<EndpointSlice>,
    other: () => ObjectFeed<EndpointSlice>,
  ): KindReader<EndpointSlice> {
    return {
      ...reader,
      change: (current, previous) => {
        if (current === undefined && previous !== undefined) {
          const { namespace, name } = previous.service;
          if (other().value(namespace, previous.name)?.service.name === name) return;
        }
        reader.change(current, previous);
        this.#apiServer?.change(current, previous);
      },
    };
  }

  #addPolicies(): void {
    const { metadata, policies = true, world = 'single-stack', gate } = this.#options;
    if (metadata === undefined || !policies) return;
    const onReject = (rejected: Rejection): void => this.#rejections.add(rejected);
    const table = new PolicyCIDRTable(metadata, world, onReject, gate, this.#ended.signal);
    this.#add('networkpolicies', table.networkPolicies());
    this.#add('ciliumnetworkpolicies', table.ciliumPolicies());
    this.#add('ciliumclusterwidenetworkpolicies', table.clusterwidePolicies());
    this.#add('ciliumcidrgroups', table.groups());
  }

  #kindChanged(name: string): void {
    if (this.#started && !this.#ended.signal.aborted) {
      this.#followDependentKinds();
      for (const choice of this.#choices) choice.kindChanged(name);
    }
    for (const listener of [...this.#listeners]) this.#guard.call(listener, name);
  }

  /** Starts or ends the kinds which depend on the state of another kind. */
  #followDependentKinds(): void {
    this.#followPods();
    const { followed } = this.#serviceEndpoints;
    if (followed !== undefined && this.#kinds.get(followed)?.complete === true) {
      const other = this.#kinds.get(otherEndpoints(followed));
      if (other !== undefined && other.size > 0) other.withdraw();
    }
  }

  /**
   * Follows pods of all nodes while no other source has the endpoints of other nodes: CiliumEndpoints are not served or
   * not configured, and no kvstore has them (KUBERNETES 12). When the CiliumEndpoints are listed, only the pods of the
   * local node are followed.
   */
  #followPods(): void {
    const kind = this.#kinds.get('pods');
    if (kind === undefined) return;
    const endpoints = this.#kinds.get('ciliumendpoints') ?? this.#kinds.get('ciliumendpointslices');
    const isComplete = endpoints?.complete === true;
    const isPending = endpoints !== undefined && !isComplete && endpoints.state !== 'missing';
    // While the first list is pending, the selection does not change. At the start, it is the local node.
    const isProvided = isPending ? this.#followsAllPods !== true : isComplete;
    const needsAll = this.#handovers.ip.isFollowed && !isProvided;
    if (needsAll === this.#followsAllPods) return;
    this.#followsAllPods = needsAll;
    kind.follow(pods(needsAll ? undefined : this.#options.nodeName));
  }
}

const OPTIONS = optionsWith({
  source: objectWith({ follow: FUNCTION }),
  clusterName: TEXT,
  clusterID: optional(NUMBER),
  nodeName: TEXT,
  ipcache: optional(objectWith({ upsert: FUNCTION, delete: FUNCTION })),
  services: optional(objectWith({ updateService: FUNCTION, updateEndpoints: FUNCTION })),
  nodes: optional(objectWith({ nodeUpdated: FUNCTION, nodeDeleted: FUNCTION })),
  metadata: optional(OBJECT),
  policies: optional(BOOLEAN),
  endpoints: optional(oneOf('ciliumendpoints', 'ciliumendpointslices', 'pods')),
  identities: optional(oneOf('kvstore', 'crd', 'none')),
  selection: optional(OBJECT),
  encryptKey: optional(NUMBER),
  world: optional(WORLD_LABELS),
  nodeAnnotations: optional(BOOLEAN),
  keepRestoredNodes: optional(BOOLEAN),
  labelFilter: optional(objectWith({ keeps: FUNCTION })),
  onLabels: optional(FUNCTION),
  onHostLabels: optional(FUNCTION),
  onForget: optional(FUNCTION),
  onCause: optional(FUNCTION),
});

function otherEndpoints(plural: string): 'endpoints' | 'endpointslices' {
  return plural === 'endpoints' ? 'endpointslices' : 'endpoints';
}

function isAwaited({ name, state }: FollowedKind): boolean {
  return name !== KIND_NOT_AWAITED && state !== 'resting';
}

/** Returns true if a kind is awaited and served, but not complete. */
function isIncomplete(kind: FollowedKind): boolean {
  return isAwaited(kind) && !kind.complete && kind.state !== 'missing';
}
