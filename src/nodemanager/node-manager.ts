import { Map as ImmutableMap } from 'immutable';
import {
  atLeast,
  BOOLEAN,
  type Check,
  checkArgument,
  checkArguments,
  FUNCTION,
  ITERABLE,
  LIST,
  NUMBER,
  OBJECT,
  type Optional,
  objectWith,
  oneOf,
  optional,
  optionsWith,
  POSITIVE,
  requireAllowed,
  SIGNAL,
  TEXT,
} from '../base/arguments.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Rejection, RejectionLog, rejection } from '../base/rejection.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import { type Runtime, withRuntime } from '../base/system-clock.ts';
import type { NodeName } from '../model/cluster-node.ts';
import type { Source } from '../model/source.ts';
import type { Decoded } from '../net/fields.ts';
import type { AddressClaim, NodeConfiguration } from './address-claims.ts';
import { BackgroundValidation } from './background-validation.ts';
import { type AppliedOutcome, HandlerFeeds } from './handler-feeds.ts';
import type { Node } from './node.ts';
import { NodeAddresses } from './node-addresses.ts';
import { type NodeCheckpoint, nodesOfCheckpoint, specOfPlainNode } from './node-checkpoint.ts';
import { NodeEntry } from './node-entry.ts';
import type { NodeHandler, SweepOutcome } from './node-handler.ts';
import {
  configurationOf,
  type NodeManagerOptions,
  type NodeSubscribeOptions,
  type NodeWithdrawal,
} from './node-manager-options.ts';
import { type NodeSpec, type PlainNode, sameNode } from './node-spec.ts';
import {
  countNodes,
  explainNode,
  NO_OUTCOMES,
  type NodeDeleteOutcome,
  type NodeExplanation,
  type NodeManagerStatus,
  type NodeUpdateOutcome,
} from './node-status.ts';
import { NodeTable } from './node-table.ts';
import { parseNode } from './parse-node.ts';

const NONE: readonly never[] = [];

/** Receives the claims on a node, strongest first, before and after a change. It must not throw or change nodes. */
export type NodeClaimObserver = (fullName: string, before: readonly Node[], after: readonly Node[]) => void;

/** Cilium's `baseBackgroundSyncInterval`: one minute for one or two nodes, ten minutes for 20,000. */
const VALIDATION_BASE_MS = 60_000;

/**
 * Tracks nodes and how to reach them (SEMANTICS 4).
 *
 * Every update is a *claim* of a source on a node (`cluster/name`). The strongest claim is the effective node. Only it
 * writes addresses into the IPCache, with the node's full name as owner, and is delivered to handlers. A change is held
 * back from handlers while a stronger source holds one of the node's addresses in the IPCache.
 *
 * Synchronous: when a write returns, reads and the IPCache show it, and synchronous handlers that are up to date have
 * been called. If a handler writes, handlers are called after the current delivery. The cost of a write depends on its
 * addresses and handlers, not on the number of nodes. It does no I/O.
 */
export class NodeManager implements Disposable {
  readonly #options: NodeManagerOptions & Runtime;
  readonly #retainOverruled: boolean;
  readonly #nodes = new NodeTable();
  readonly #addresses: NodeAddresses;
  readonly #feeds: HandlerFeeds;
  readonly #guard: CallbackGuard;
  readonly #rejections: RejectionLog;
  readonly #reject = (rejection: Rejection): void => this.#rejections.add(rejection);
  /** Counts of outcomes since the manager was created. */
  readonly #outcomes = { ...NO_OUTCOMES };
  #validation: BackgroundValidation<NodeEntry> | undefined;
  #observers: readonly NodeClaimObserver[] = NONE;
  #revision = 0;
  #closed = false;

  constructor(options: NodeManagerOptions) {
    checkArgument('new NodeManager: options', options, OPTIONS);
    this.#options = withRuntime(options);
    this.#retainOverruled = options.retainOverruled ?? true;
    this.#guard = new CallbackGuard();
    this.#rejections = new RejectionLog(options.onReject, this.#guard);
    this.#addresses = new NodeAddresses(options.ipcache, {
      rewrite: !this.#retainOverruled,
      configuration: configurationOf(options),
      isLocal: (node) => node.source === 'local' || (options.localNodeIsHost === true && this.#isLocal(node)),
      entryOf: (owner) => this.#nodes.find(owner),
      onOwnerChange: (entry) => this.#announce(entry),
    });
    this.#feeds = new HandlerFeeds({
      clock: this.#options.clock,
      random: this.#options.random,
      guard: this.#guard,
      onFault: (fault) => this.#guard.call(options.onHandlerFault, fault),
    });
  }

  /** Cluster and name of the local node, as given in the options. */
  get localNode(): NodeName {
    const { clusterName, nodeName } = this.#options;
    return { cluster: clusterName, name: nodeName };
  }

  /** Sets a source's claim on a node. Rejected fields are counted; see {@link parseNode}. */
  nodeUpdated(spec: NodeSpec): NodeUpdateOutcome {
    this.#assertNotWriting();
    const outcome = this.#closed ? 'closed' : this.#update(spec);
    this.#outcomes[outcome]++;
    return outcome;
  }

  /**
   * Deletes a source's claim on a node. If Kubernetes deletes the local node while another source is effective, the
   * manager closes itself and leaves everything as it is, because the agent is about to be stopped.
   */
  nodeDeleted(node: NodeName & { readonly source: Source }): NodeDeleteOutcome {
    this.#assertNotWriting();
    const outcome = this.#closed ? 'closed' : this.#delete(node);
    this.#outcomes[outcome === 'applied' ? 'deleted' : outcome]++;
    return outcome;
  }

  /**
   * Deletes all claims of a source, or those on the nodes of one cluster, and returns their number (I10). Synchronous:
   * it scans the nodes, and takes about 10 µs for each deleted claim and 2 µs for each of its addresses (0.3 s for
   * 20,000 nodes with a few addresses, 2.4 s for 10,000 nodes with 100).
   */
  withdraw({ source, cluster }: NodeWithdrawal): number {
    return this.#withdraw(cluster, (entry) => entry.remove(source));
  }

  /** Returns the nodes to restore after a restart: all except the local one. It copies each node, about 1 µs. */
  checkpoint(): NodeCheckpoint {
    return { version: 1, nodes: [...this.restorable()] };
  }

  /** Yields the nodes of a {@link NodeManager.checkpoint} for a slow reader. Nodes may change during the iteration. */
  *restorable(): Generator<PlainNode, void, void> {
    for (const node of this.nodes()) {
      if (node.source !== 'local' && !this.#isLocal(node)) yield node.toJSON();
    }
  }

  /**
   * Claims the nodes of a checkpoint with source `restored`, which every real source overrules, and returns their
   * number. Invalid nodes are rejected and counted. When the sources of a cluster are synced, call
   * `withdraw({ source: 'restored', cluster })`. The cost is that of an update for each node.
   */
  restore(checkpoint: unknown): number {
    const nodes = nodesOfCheckpoint(checkpoint);
    if (nodes === undefined) {
      this.#rejections.add(
        rejection('invalid-checkpoint', 'version', checkpoint, 'is not a node checkpoint'),
      );
      return 0;
    }
    return nodes.filter((node) => this.#restore(specOfPlainNode(node))).length;
  }

  /** Deletes all claims of all sources. */
  deleteAllNodes(): void {
    this.#withdraw(undefined, (entry) => entry.removeAll());
  }

  /**
   * Changes settings. The claims of all nodes are updated, and handlers receive the new configuration. Omitted and
   * undefined fields are kept. Synchronous: about 10 µs a node.
   */
  configure(changes: Optional<NodeConfiguration>): void {
    this.#assertNotWriting();
    if (this.#closed) return;
    const configuration = configurationOf(changes, this.configuration);
    this.#feeds.deliverAfter(() => {
      const entries = [...this.#nodes.entries()];
      this.#addresses.updateAll(entries, configuration);
      this.#feeds.configure(configuration);
      for (const entry of entries) this.#announce(entry);
    });
  }

  get configuration(): NodeConfiguration {
    return this.#addresses.configuration;
  }

  /**
   * Adds a handler. It receives the configuration, `nodeAdd` for every announced node, then every change. A handler
   * that is already subscribed is restarted. On a closed manager it is never called.
   */
  subscribe(handler: NodeHandler, options: NodeSubscribeOptions = {}): Unsubscribe {
    if (this.#closed) return unsubscribeOnce(() => {});
    return this.#feeds.subscribe(handler, options, () => ({
      configuration: this.configuration,
      nodes: this.#nodes.entries(),
      revision: this.#revision,
    }));
  }

  /**
   * Deletes the nodes of {@link NodeSubscribeOptions.previous} from a handler if they are not announced. Call it when
   * the inputs are complete. Resolves when all calls were made. Failed calls are retried but not waited for.
   */
  sweep(handler: NodeHandler): Promise<SweepOutcome> {
    return this.#closed ? Promise.resolve('ended') : this.#feeds.sweep(handler, this.#revision);
  }

  /**
   * Starts background validation: handlers validate every node once in `baseMs` × ln(1 + nodes) milliseconds, spread
   * evenly (SEMANTICS 4). The default base is one minute. A second call replaces the first.
   */
  startValidation(baseMs: number = VALIDATION_BASE_MS): Unsubscribe {
    this.#validation?.stop();
    const validation = new BackgroundValidation<NodeEntry>({
      clock: this.#options.clock,
      random: this.#options.random,
      intervalMs: () => Math.max(1, this.clusterSizeDependantInterval(baseMs)),
      size: () => this.#nodes.size,
      items: () => this.#nodes.entries(),
      validate: (entry) => this.#validate(entry),
    });
    this.#validation = validation;
    if (!this.#closed) validation.start();
    return unsubscribeOnce(() => validation.stop());
  }

  /**
   * Resolves when every handler has applied all changes up to a revision (default: the current one), or all changes of
   * one node. It waits for failing calls, but not for changes held back. Resolves to `aborted` if `signal` fires first.
   */
  whenApplied(upTo: number | string = this.#revision, signal?: AbortSignal): Promise<AppliedOutcome> {
    if (this.#closed) return Promise.resolve('closed');
    return typeof upTo === 'number'
      ? this.#feeds.whenApplied(upTo, { signal })
      : this.#feeds.whenApplied(this.#revision, { fullName: upTo, signal });
  }

  /** Number of changes delivered to handlers. */
  get revision(): number {
    return this.#revision;
  }

  get size(): number {
    return this.#nodes.size;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Returns the effective node of a full name, `cluster/name`. */
  get(fullName: string): Node | undefined {
    return this.#nodes.find(fullName)?.effective;
  }

  exists(fullName: string): boolean {
    return this.#nodes.find(fullName) !== undefined;
  }

  /** Yields the effective nodes, unordered. Nodes may change during the iteration. */
  *nodes(): Generator<Node, void, void> {
    for (const { effective } of this.#nodes.entries()) if (effective !== undefined) yield effective;
  }

  /** Returns the current effective nodes by full name. Cost: a new map, about 2 µs a node. */
  snapshot(): ImmutableMap<string, Node> {
    return ImmutableMap(Array.from(this.nodes(), (node): [string, Node] => [node.fullName, node]));
  }

  /** Yields the claims on each node, strongest first, unordered. Nodes may change during the iteration. */
  *claims(): Generator<readonly [fullName: string, claims: readonly Node[]], void, void> {
    for (const entry of this.#nodes.entries()) yield [entry.fullName, entry.claims];
  }

  /** Returns the claims on a node, strongest first; none if it is unknown. */
  claimsOf(fullName: string): readonly Node[] {
    return this.#nodes.find(fullName)?.claims ?? NONE;
  }

  /** Returns the claims that an effective node has in the IPCache under a configuration; default: the current one. */
  addressClaims(node: Node, configuration: NodeConfiguration = this.configuration): Iterable<AddressClaim> {
    return this.#addresses.claimsOf(node, configuration);
  }

  /**
   * Calls `observer` for every later change of a claim on a node, effective or not, synchronously and before handlers
   * are called. If there are no observers, a write costs one comparison more.
   */
  observeClaims(observer: NodeClaimObserver): Unsubscribe {
    this.#observers = [...this.#observers, observer];
    return unsubscribeOnce(() => {
      this.#observers = this.#observers.filter((other) => other !== observer);
    });
  }

  /** Returns all claims on a node, the state of each handler, and lost addresses; `undefined` for an unknown node. */
  explain(fullName: string): NodeExplanation | undefined {
    const entry = this.#nodes.find(fullName);
    return entry && explainNode(entry, this.#addresses, this.#feeds);
  }

  /**
   * Returns the interval of a periodic task for each node: `base` × ln(1 + nodes), truncated, in the unit of `base`;
   * `base` if there are no nodes.
   */
  clusterSizeDependantInterval(base: number): number {
    return this.#nodes.size === 0 ? base : Math.trunc(base * Math.log1p(this.#nodes.size));
  }

  /**
   * Closes the manager. Running calls are aborted and handlers are not called any more. Nodes can still be read. The
   * IPCache and the datapath are left as they are (see {@link NodeManagerOptions.deleteOnClose}).
   */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#addresses.close();
    this.#validation?.stop();
    this.#feeds.stop(this.#options.deleteOnClose === true ? [...this.#nodes.entries()] : undefined);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Returns counts, rejections and the state of handlers as plain data. Cost: one pass, about 0.1 µs a node. */
  status(): NodeManagerStatus {
    return {
      ...countNodes(this.#nodes.entries(), this.#addresses),
      closed: this.#closed,
      nodes: this.#nodes.size,
      revision: this.#revision,
      outcomes: { ...this.#outcomes },
      rejections: this.#rejections.status(),
      handlers: this.#feeds.status(),
      callbackFaults: this.#guard.faults,
    };
  }

  #update(spec: NodeSpec): NodeUpdateOutcome {
    const known = this.#nodes.get(spec);
    const claim = known?.claimOf(spec.source);
    if (known !== undefined && claim !== undefined && sameNode(claim.fields, spec))
      return this.#updateUnchanged(known, claim);
    const node = parseNode(spec, this.#reject, known?.effective);
    if (node === undefined) return 'invalid';
    if (known !== undefined && claim?.equals(node)) return this.#updateUnchanged(known, claim);
    const entry = known ?? new NodeEntry(node.fullName);
    const previous = entry.effective;
    this.#edit(entry, () => entry.put(node, this.#retainOverruled));
    if (known === undefined) this.#nodes.add(node, entry);
    if (entry.effective === previous) return 'overruled';
    this.#effectiveChanged(entry);
    return 'applied';
  }

  /**
   * Handles an update that equals the source's claim. If the IPCache keeps one claim per key, the addresses are written
   * again, because another writer may have taken them.
   */
  #updateUnchanged(entry: NodeEntry, claim: Node): NodeUpdateOutcome {
    if (entry.effective !== claim) return 'overruled';
    if (this.#addresses.mayRefresh(entry)) this.#write(entry);
    return 'unchanged';
  }

  #restore(node: Decoded<NodeSpec>): boolean {
    if (node.ok) return this.nodeUpdated(node.value) !== 'invalid';
    this.#rejections.add(node.rejection);
    return false;
  }

  #delete(node: NodeName & { readonly source: Source }): NodeDeleteOutcome {
    const entry = this.#nodes.get(node);
    if (entry === undefined) return 'not-found';
    if (node.source === 'k8s' && entry.effective?.source !== 'k8s' && this.#isLocal(node)) {
      this.close();
      this.#guard.call(this.#options.onLocalNodeDeleted);
      return 'closed';
    }
    const previous = entry.effective;
    if (!this.#edit(entry, () => entry.remove(node.source))) return 'not-owner';
    if (entry.effective !== previous) this.#effectiveChanged(entry);
    return 'applied';
  }

  /** Writes the addresses of a node again if it does not hold all of them. Then handlers validate the node. */
  #validate(entry: NodeEntry): void {
    if (this.#addresses.mayRefresh(entry)) this.#write(entry);
    if (entry.announced !== undefined) this.#feeds.validate(entry.announced);
  }

  #isLocal({ cluster, name }: NodeName): boolean {
    return cluster === this.#options.clusterName && name === this.#options.nodeName;
  }

  #withdraw(cluster: string | undefined, remove: (entry: NodeEntry) => boolean): number {
    this.#assertNotWriting();
    if (this.#closed) return 0;
    const changed: NodeEntry[] = [];
    let count = 0;
    for (const entry of this.#nodes.entries(cluster)) {
      const previous = entry.effective;
      if (!this.#edit(entry, () => remove(entry))) continue;
      count++;
      if (entry.effective === previous) continue;
      changed.push(entry);
      if (previous !== undefined && entry.effective === undefined) this.#nodes.remove(previous);
    }
    this.#feeds.deliverAfter(() => {
      this.#addresses.updateAll(changed);
      for (const entry of changed) this.#announce(entry);
    });
    return count;
  }

  /** Runs a change of the claims on a node and reports it to the observers. */
  #edit<T>(entry: NodeEntry, change: () => T): T {
    if (this.#observers.length === 0) return change();
    const before = entry.claims;
    const result = change();
    const after = entry.claims;
    for (const observer of this.#observers) observer(entry.fullName, before, after);
    return result;
  }

  /** Handles a change or deletion of the effective node. */
  #effectiveChanged(entry: NodeEntry): void {
    if (entry.effective === undefined && entry.written !== undefined) this.#nodes.remove(entry.written);
    this.#write(entry);
  }

  /** Updates the IPCache, then the handlers, with the effective node. */
  #write(entry: NodeEntry): void {
    this.#feeds.deliverAfter(() => {
      this.#addresses.update(entry);
      this.#announce(entry);
    });
  }

  /** Delivers the effective node to handlers unless they have it or it is held back. */
  #announce(entry: NodeEntry): void {
    const { announced, effective } = entry;
    if (announced === effective || this.#closed) return;
    if (effective !== undefined && this.#addresses.isHeldBack(entry)) return;
    entry.announced = effective;
    if (announced?.equals(effective) === true) return; // the node changed back while the change was held back
    this.#revision++;
    this.#feeds.change({
      fullName: entry.fullName,
      old: announced,
      next: effective,
      revision: this.#revision,
    });
  }

  #assertNotWriting(): void {
    requireAllowed(
      !this.#addresses.writing,
      'a listener of the IPCache must not change nodes that are being written',
    );
  }
}

const REVISION_OR_NAME: Check = (value) =>
  typeof value === 'string' || typeof value === 'number' ? undefined : ' must be a revision or a full name';

const CONFIGURATION: Readonly<Record<keyof NodeConfiguration, Check>> = {
  remoteNodeIdentities: optional(BOOLEAN),
  encryption: optional(BOOLEAN),
  nodeEncryption: optional(BOOLEAN),
  hostFirewall: optional(BOOLEAN),
  underlay: optional(oneOf('ipv4', 'ipv6')),
};

const OPTIONS: Check = optionsWith({
  ...CONFIGURATION,
  ipcache: objectWith({
    upsert: FUNCTION,
    delete: FUNCTION,
    batch: FUNCTION,
    get: FUNCTION,
    subscribeOwners: FUNCTION,
  }),
  clusterName: TEXT,
  nodeName: TEXT,
  localNodeIsHost: optional(BOOLEAN),
  retainOverruled: optional(BOOLEAN),
  deleteOnClose: optional(BOOLEAN),
  onHandlerFault: optional(FUNCTION),
  onLocalNodeDeleted: optional(FUNCTION),
});

checkArguments(NodeManager, {
  nodeUpdated: { spec: OBJECT },
  nodeDeleted: { node: OBJECT },
  withdraw: { withdrawal: OBJECT },
  configure: { changes: objectWith(CONFIGURATION) },
  subscribe: {
    handler: objectWith({
      name: optional(TEXT),
      nodeAdd: FUNCTION,
      nodeUpdate: FUNCTION,
      nodeDelete: FUNCTION,
    }),
    options: optional(objectWith({ concurrency: optional(atLeast(1)), previous: optional(ITERABLE) })),
  },
  sweep: { handler: OBJECT },
  startValidation: { baseMs: optional(POSITIVE) },
  get: { fullName: TEXT },
  claimsOf: { fullName: TEXT },
  addressClaims: {
    node: objectWith({ fullName: TEXT, source: TEXT, fields: objectWith({ addresses: LIST }) }),
    configuration: optional(OBJECT),
  },
  whenApplied: { upTo: optional(REVISION_OR_NAME), signal: optional(SIGNAL) },
  observeClaims: { observer: FUNCTION },
  exists: { fullName: TEXT },
  explain: { fullName: TEXT },
  clusterSizeDependantInterval: { base: NUMBER },
});
