import { Map as ImmutableMap } from '#immutable';
import {
  checkArguments,
  FUNCTION,
  ITERABLE,
  NUMBER,
  OBJECT,
  objectWith,
  optional,
  TEXT,
} from '../base/arguments.ts';
import { assert } from '../base/assert.ts';
import type { Random } from '../base/clock.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Rejection, RejectionLog, rejection } from '../base/rejection.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import type { Source } from '../identity/source.ts';
import type { NodeName } from '../net/cluster-node.ts';
import type { Decoded } from '../net/fields.ts';
import type { NodeConfiguration } from './address-claims.ts';
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
  type NodeDeleteOutcome,
  type NodeExplanation,
  type NodeManagerStatus,
  NodeOutcomeCounts,
  type NodeUpdateOutcome,
} from './node-status.ts';
import { NodeTable } from './node-table.ts';
import { parseNode } from './parse-node.ts';

const NONE: readonly never[] = [];

/** Upstream's `baseBackgroundSyncInterval`: a minute for a cluster of one to two nodes, ten for 20,000. */
const VALIDATION_BASE_MS = 60_000;

/**
 * Which nodes exist and how to reach them (SEMANTICS 4).
 *
 * Every update is a *claim* of a source on a node (`cluster/name`); the strongest claim is the effective node. Only
 * that one puts addresses into the IPCache, under the node's full name as owner, and reaches handlers. A change
 * is held back from handlers while a stronger source holds one of the node's addresses in the IPCache.
 *
 * Synchronous: when a write returns, reads and the IPCache show it, and handlers that are synchronous and up to
 * date have been called, unless the write was made by a handler: then they are called after the delivery under way. Cost
 * of a write: its own addresses and handlers, never the number of nodes. No I/O; time comes from the clock given.
 */
export class NodeManager {
  readonly #options: NodeManagerOptions;
  readonly #retain: boolean;
  readonly #random: Random;
  readonly #nodes = new NodeTable();
  readonly #addresses: NodeAddresses;
  readonly #feeds: HandlerFeeds;
  readonly #guard: CallbackGuard;
  readonly #rejections: RejectionLog;
  readonly #reject = (rejection: Rejection): void => this.#rejections.add(rejection);
  readonly #outcomes = new NodeOutcomeCounts();
  #validation: BackgroundValidation<NodeEntry> | undefined;
  #revision = 0;
  #closed = false;

  constructor(options: NodeManagerOptions) {
    this.#options = options;
    this.#retain = options.retainOverruled ?? true;
    this.#random = options.random ?? Math.random;
    this.#guard = new CallbackGuard();
    this.#rejections = new RejectionLog(options.onReject, this.#guard);
    this.#addresses = new NodeAddresses(options.ipcache, {
      rewrite: !this.#retain,
      configuration: configurationOf(options),
      entryOf: (owner) => this.#nodes.find(owner),
      onOwnership: (entry) => this.#announce(entry),
    });
    this.#feeds = new HandlerFeeds({
      clock: options.clock,
      random: this.#random,
      guard: this.#guard,
      onFault: (fault) => this.#guard.call(options.onHandlerFault, fault),
    });
  }

  /** A source announces a node, or a new version of it. Rejected fields are counted; see {@link parseNode}. */
  nodeUpdated(spec: NodeSpec): NodeUpdateOutcome {
    this.#assertNotWriting();
    const outcome = this.#closed ? 'closed' : this.#update(spec);
    this.#outcomes.count(outcome);
    return outcome;
  }

  /**
   * A source takes its node back. When Kubernetes deletes the local node while another source announces it, the
   * agent is about to be stopped: the manager closes itself and leaves everything as it is.
   */
  nodeDeleted(node: NodeName & { readonly source: Source }): NodeDeleteOutcome {
    this.#assertNotWriting();
    const outcome = this.#closed ? 'closed' : this.#delete(node);
    this.#outcomes.count(outcome === 'applied' ? 'deleted' : outcome);
    return outcome;
  }

  /**
   * Withdraws every claim of a source, on nodes of one cluster if one is given, and says how many there were: a
   * cluster that is removed leaves nothing behind (I10). Synchronous: a look at each node of the cluster, or at all, and
   * some 10 µs for each that is withdrawn, with its addresses and handlers: 0.3 s for 20,000.
   */
  withdraw({ source, cluster }: NodeWithdrawal): number {
    return this.#withdraw(cluster, (entry) => entry.remove(source));
  }

  /**
   * The nodes to restore after a restart: all but the local one, which announces itself. Synchronous: a copy of each, of
   * about 1 µs.
   */
  checkpoint(): NodeCheckpoint {
    return { version: 1, nodes: [...this.restorable()] };
  }

  /** The nodes of a {@link NodeManager.checkpoint}, one by one, for a reader that takes its time: nodes may change meanwhile. */
  *restorable(): Generator<PlainNode, void, void> {
    for (const node of this.nodes()) {
      if (node.source !== 'local' && !this.#isLocal(node)) yield node.toJSON();
    }
  }

  /**
   * Claims the nodes of a checkpoint with source `restored`, which any real source overrules; gives how many there
   * were. Withdraw what is left of them once the sources of a cluster have reported synced:
   * `withdraw({ source: 'restored', cluster })`. What is not a node is rejected and counted. Costs as updating each.
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

  /** Withdraws every claim of every source. Costs as {@link NodeManager.withdraw} of all. */
  deleteAllNodes(): void {
    this.#withdraw(undefined, (entry) => entry.removeAll());
  }

  /**
   * Replaces the configuration: every node's claims in the IPCache follow it, and handlers receive it. Fields that
   * are left out stay as they are. Synchronous: some 10 µs a node.
   */
  configure(changes: Partial<NodeConfiguration>): void {
    this.#assertNotWriting();
    if (this.#closed) return;
    const configuration = { ...this.configuration, ...changes };
    this.#feeds.hold(() => {
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
   * Adds a handler: it receives the configuration, `nodeAdd` for every node that is announced, then every change.
   * Subscribing one that is subscribed already starts it anew. On a closed manager it is never called.
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
   * Deletes from a handler the nodes that it `had` and that are not announced: call it once the inputs are complete.
   * Resolves when everything was given to the handler. No failing call is waited for; it is repeated.
   */
  sweep(handler: NodeHandler): Promise<SweepOutcome> {
    return this.#closed ? Promise.resolve('ended') : this.#feeds.sweep(handler, this.#revision);
  }

  /**
   * Has handlers validate every node once in `base` × ln(1 + nodes) milliseconds, spread evenly, until it is ended
   * or the manager closed; base is a minute by default (SEMANTICS 4). Starting it again replaces the one before.
   */
  startValidation(baseMs: number = VALIDATION_BASE_MS): Unsubscribe {
    this.#validation?.stop();
    const validation = new BackgroundValidation<NodeEntry>({
      clock: this.#options.clock,
      random: this.#random,
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
   * Resolves when every handler has applied what was announced up to a revision (by default the present one), or
   * what was announced of one node so far. Held back changes are not waited for; failing calls are.
   */
  whenApplied(upTo: number | string = this.#revision): Promise<AppliedOutcome> {
    if (this.#closed) return Promise.resolve('closed');
    return typeof upTo === 'number'
      ? this.#feeds.whenApplied(upTo, undefined)
      : this.#feeds.whenApplied(this.#revision, upTo);
  }

  /** Goes up by one with every change that handlers are to receive. */
  get revision(): number {
    return this.#revision;
  }

  get size(): number {
    return this.#nodes.size;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** The effective node of this full name, `cluster/name`. */
  get(fullName: string): Node | undefined {
    return this.#nodes.find(fullName)?.effective;
  }

  exists(fullName: string): boolean {
    return this.#nodes.find(fullName) !== undefined;
  }

  /** The effective nodes, in no order that is promised. Nodes may change meanwhile. */
  *nodes(): Generator<Node, void, void> {
    for (const { effective } of this.#nodes.entries()) if (effective !== undefined) yield effective;
  }

  /** The effective nodes by full name, as they are now. Cost: a new map, about 2 µs a node. */
  snapshot(): ImmutableMap<string, Node> {
    return ImmutableMap(Array.from(this.nodes(), (node): [string, Node] => [node.fullName, node]));
  }

  /** Every claim on a node, what handlers have of it and what is in the way; `undefined` for an unknown node. */
  explain(fullName: string): NodeExplanation | undefined {
    const entry = this.#nodes.find(fullName);
    return entry && explainNode(entry, this.#addresses, this.#feeds);
  }

  /**
   * How often something should be done once for each node of the cluster: `base` × ln(1 + nodes), whole, in the
   * unit of `base`; `base` itself while there are no nodes. Grows slower than the cluster, so that the load of a
   * single node stays about the same.
   */
  clusterSizeDependantInterval(base: number): number {
    return this.#nodes.size === 0 ? base : Math.trunc(base * Math.log1p(this.#nodes.size));
  }

  /**
   * Stops for good: handlers are called no more, running calls are aborted. Nodes can still be read; the IPCache
   * and the datapath stay as they are (but see {@link NodeManagerOptions.deleteOnClose}).
   */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#addresses.close();
    this.#validation?.stop();
    this.#feeds.stop(this.#options.deleteOnClose === true ? [...this.#nodes.entries()] : NONE);
  }

  /** What the manager holds, and how its handlers are doing, as plain data. Cost: one pass, about 0.1 µs a node. */
  status(): NodeManagerStatus {
    return {
      ...countNodes(this.#nodes.entries(), this.#addresses),
      closed: this.#closed,
      nodes: this.#nodes.size,
      revision: this.#revision,
      outcomes: this.#outcomes.snapshot(),
      rejections: this.#rejections.status(),
      handlers: this.#feeds.status(),
      callbackFaults: this.#guard.faults,
    };
  }

  #update(spec: NodeSpec): NodeUpdateOutcome {
    const known = this.#nodes.get(spec);
    const claim = known?.claimOf(spec.source);
    if (known !== undefined && claim !== undefined && sameNode(claim.fields, spec))
      return this.#repeated(known, claim);
    const node = parseNode(spec, this.#reject, known?.effective);
    if (node === undefined) return 'invalid';
    if (known !== undefined && claim?.equals(node)) return this.#repeated(known, claim);
    const entry = known ?? new NodeEntry(node.fullName);
    const before = entry.effective;
    entry.put(node, this.#retain);
    if (known === undefined) this.#nodes.add(node, entry);
    if (entry.effective === before) return 'overruled';
    this.#changed(entry);
    return 'applied';
  }

  /** A source repeats itself. In single-slot mode another writer may have taken the addresses since. */
  #repeated(entry: NodeEntry, claim: Node): NodeUpdateOutcome {
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
    const before = entry.effective;
    if (!entry.remove(node.source)) return 'not-owner';
    if (entry.effective !== before) this.#changed(entry);
    return 'applied';
  }

  /** Claims addresses again that there was no room for, and has handlers look after the node. */
  #validate(entry: NodeEntry): void {
    if (this.#addresses.mayRefresh(entry)) this.#write(entry);
    if (entry.announced !== undefined) this.#feeds.validate(entry.announced);
  }

  #isLocal({ cluster, name }: NodeName): boolean {
    return cluster === this.#options.clusterName && name === this.#options.localNodeName;
  }

  #withdraw(cluster: string | undefined, remove: (entry: NodeEntry) => boolean): number {
    this.#assertNotWriting();
    if (this.#closed) return 0;
    const changed: NodeEntry[] = [];
    let count = 0;
    for (const entry of this.#nodes.entries(cluster)) {
      const before = entry.effective;
      if (!remove(entry)) continue;
      count++;
      if (entry.effective === before) continue;
      changed.push(entry);
      if (before !== undefined && entry.effective === undefined) this.#nodes.remove(before);
    }
    this.#feeds.hold(() => {
      this.#addresses.updateAll(changed);
      for (const entry of changed) this.#announce(entry);
    });
    return count;
  }

  /** The effective node has changed, or has gone. */
  #changed(entry: NodeEntry): void {
    if (entry.effective === undefined && entry.written !== undefined) this.#nodes.remove(entry.written);
    this.#write(entry);
  }

  /** Brings the IPCache up to date with the effective node, then the handlers. */
  #write(entry: NodeEntry): void {
    this.#feeds.hold(() => {
      this.#addresses.update(entry);
      this.#announce(entry);
    });
  }

  /** Delivers the effective node to handlers unless they have it, or it is held back. */
  #announce(entry: NodeEntry): void {
    const { announced, effective } = entry;
    if (announced === effective || this.#closed) return;
    if (effective !== undefined && this.#addresses.isHeldBack(entry)) return;
    entry.announced = effective;
    if (announced?.equals(effective) === true) return; // it has changed back while it was held back
    this.#revision++;
    this.#feeds.change({
      node: entry.fullName,
      old: announced,
      next: effective,
      revision: this.#revision,
    });
  }

  #assertNotWriting(): void {
    assert(
      !this.#addresses.writing,
      'a listener of the IPCache must not change nodes that are being written',
    );
  }
}

checkArguments(NodeManager, {
  nodeUpdated: { spec: OBJECT },
  nodeDeleted: { node: OBJECT },
  withdraw: { by: OBJECT },
  configure: { changes: OBJECT },
  subscribe: {
    handler: objectWith({
      name: optional(TEXT),
      nodeAdd: FUNCTION,
      nodeUpdate: FUNCTION,
      nodeDelete: FUNCTION,
    }),
    options: optional(objectWith({ concurrency: optional(NUMBER), had: optional(ITERABLE) })),
  },
  sweep: { handler: OBJECT },
  startValidation: { baseMs: optional(NUMBER) },
  get: { fullName: TEXT },
  exists: { fullName: TEXT },
  explain: { fullName: TEXT },
  clusterSizeDependantInterval: { base: NUMBER },
});
