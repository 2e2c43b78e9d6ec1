import {
  checkArgument,
  FUNCTION,
  listOf,
  matching,
  OBJECT,
  objectWith,
  optional,
  optionsWith,
  SIGNAL,
} from '../base/arguments.ts';
import { KeyedQueue } from '../base/keyed-queue.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { forEachInSteps, OPEN_GATE, type TurnGate } from '../base/turn-gate.ts';
import { sameEntry } from '../ipcache/change.ts';
import type { IPCache, PrefixClaims } from '../ipcache/ipcache.ts';
import { formatPrefixOf } from '../net/prefix.ts';
import type { NodeConfiguration } from '../nodemanager/address-claims.ts';
import type { Node } from '../nodemanager/node.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import { formatServiceID, type ServiceID } from '../servicecache/service-id.ts';
import {
  type ServiceState,
  withoutCluster,
  withoutNode,
  withService,
  withSlice,
} from '../servicecache/service-state.ts';
import { ClaimOverlay, visibleOf } from './claim-overlay.ts';
import {
  Differences,
  type NodeDifference,
  type NodeSizes,
  nodeDifference,
  type PrefixDifference,
  type PrefixDifferenceKind,
  type ServiceDifference,
  type ServiceDifferenceKind,
  serviceDifference,
  sizesOf,
} from './differences.ts';
import { checkNames } from './edit-names.ts';
import {
  checkEdits,
  clusterOfRemovedServices,
  comparison,
  type Edit,
  orderAfter,
  removalsByScope,
  removesLocalServices,
  scopesOfNode,
} from './edits.ts';

/** The engines read by `whatIf`. They must retain overruled claims (`retainOverruled`, the default). */
export interface WhatIfEngines {
  readonly ipcache: IPCache;
  readonly services?: ServiceCache | undefined;
  readonly nodes?: NodeManager | undefined;
  /** The allocated identities, such as those of `IdentityResolver.entries`; default: none are counted. */
  readonly identities?: (() => Iterable<{ readonly identity: number; readonly cluster: string }>) | undefined;
  /** All followed remote clusters, even those without claims. Default: the clusters with claims. */
  readonly clusters?: (() => Iterable<string>) | undefined;
  /** Name of the local cluster, for the error of an edit that removes it. */
  readonly localCluster?: string | undefined;
}

/** Options of {@link whatIf}. */
export interface WhatIfOptions {
  /** Spreads the work over turns of the event loop; default: everything in one turn. */
  readonly gate?: TurnGate | undefined;
  /**
   * Maximum number of differences of each kind in the answer; default 1,000. All are counted. The last turn takes about
   * 3 µs for each gone prefix in the answer, whatever the gate.
   */
  readonly limit?: number | undefined;
  /** Ends the evaluation: the promise rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
}

/** The revisions of the engines at one moment. */
export interface EngineRevisions {
  readonly ipcache: number;
  readonly services: number;
  readonly nodes: number;
}

/** The numbers of differences, and the revisions of the engines at the start and the end of the evaluation. */
export interface WhatIfSummary {
  readonly prefixes: Readonly<Record<PrefixDifferenceKind, number>>;
  readonly nodes: {
    readonly gone: number;
    readonly changed: number;
    /** Addresses and pod CIDRs of the gone nodes. */
    readonly addresses: number;
    readonly podCIDRs: number;
  };
  readonly services: Readonly<Record<ServiceDifferenceKind, number>>;
  /** Number of allocated identities of removed clusters, whose labels would be unknown. */
  readonly identities: { readonly unknown: number };
  /** True if a prefix or a service would be gone, or a service would have no backend left. */
  readonly loses: boolean;
  readonly began: EngineRevisions;
  /** The revisions for which the answer is exact. */
  readonly ended: EngineRevisions;
  /** Number of keys read again, because they changed during the evaluation. */
  readonly readAgain: number;
}

/** The answer of {@link whatIf}. */
export interface WhatIfAnswer {
  readonly prefixes: readonly PrefixDifference[];
  readonly nodes: readonly NodeDifference[];
  readonly services: readonly ServiceDifference[];
  readonly summary: WhatIfSummary;
}

const DEFAULT_LIMIT = 1_000;

/**
 * Numbers of keys, nodes, services and identities that one step reads, so that a step takes less than a millisecond.
 */
const KEYS_PER_STEP = 256;
const NODES_PER_STEP = 128;
const SERVICES_PER_STEP = 128;
const IDENTITIES_PER_STEP = 2_048;

/** A step also ends after this cost of services, because the cost of a service grows with its backends. */
const SERVICE_COST_PER_STEP = 256;

/**
 * Returns the changes that listeners of the engines would receive if the edits were made in their order, and what would
 * be lost. Writes nothing and calls no listener. The engines may change during the evaluation: the answer is exact for
 * the moment of its end.
 *
 * Throws {@link EditError} if an edit is invalid, or names a cluster, a node, an owner or a claim that does not exist.
 * If the signal fires, throws its reason. Cost: about 2 µs for each claim that the edits touch, and a scan of the pages
 * of all claims. Memory: 150 to 550 MB until the end for a million prefixes with a difference, in the answer or not,
 * depending on when garbage is collected.
 */
export async function whatIf(
  engines: WhatIfEngines,
  edits: readonly Edit[],
  options: WhatIfOptions = {},
): Promise<WhatIfAnswer> {
  checkArgument('whatIf: engines', engines, objectWith({ ipcache: objectWith({ trackClaims: FUNCTION }) }));
  checkArgument('whatIf: edits', edits, listOf(OBJECT));
  checkArgument('whatIf: options', options, OPTIONS);
  const { gate = OPEN_GATE, limit = DEFAULT_LIMIT, signal } = options;
  using preview = new Preview(engines, edits, limit);
  const isComplete = await gate.runSteps(preview.steps(), signal);
  if (!isComplete) throw signal?.reason;
  return preview.answer();
}

type IndexedEdit = readonly [index: number, edit: Edit];

/** Returns the service in an edit; undefined if it names none. */
function serviceOf(edit: Edit): ServiceID | undefined {
  if (edit.edit === 'service') return edit.service.id;
  return edit.edit === 'slice' ? edit.slice.service : undefined;
}

/** One evaluation of edits. Between its steps the engines may change; observers then mark keys as dirty. */
class Preview implements Disposable {
  readonly #engines: WhatIfEngines;
  readonly #edits: readonly Edit[];
  readonly #removals: ReturnType<typeof removalsByScope>;
  /** The edits that remove services of the local or of remote clusters, or the backends on a node. */
  readonly #serviceRemovals: readonly IndexedEdit[];
  /** By key: each service in edits, and its edits. A manifest may contain thousands. */
  readonly #namedServices = new Map<string, { readonly id: ServiceID; readonly edits: IndexedEdit[] }>();
  /** By node: the edits that drain it. */
  readonly #drains = new Map<string, Edit[]>();
  readonly #overlay: ClaimOverlay;
  readonly #configuration: NodeConfiguration | undefined;
  readonly #changesConfiguration: boolean;
  readonly #compare: ReturnType<typeof comparison>;
  readonly #prefixes: Differences<PrefixDifference>;
  readonly #nodes: Differences<NodeDifference>;
  readonly #services: Differences<ServiceDifference>;
  readonly #began: EngineRevisions;
  readonly #subscriptions: readonly Unsubscribe[];
  /** Prefixes, nodes and services that have changed since they were read, or were not read yet. */
  readonly #dirtyPrefixes = new KeyedQueue<string>();
  readonly #dirtyNodes = new KeyedQueue<string>();
  readonly #dirtyServices = new KeyedQueue<string, ServiceID>();
  /** By node: the prefixes on which the edits change claims of the node. */
  readonly #nodePrefixes = new Map<string, readonly string[]>();
  readonly #matchedEdits = new Set<Edit>();
  /** The remote clusters with a claim or an offer. */
  readonly #clusters = new Set<string>();
  #readAgain = 0;
  /** True if the node manager is known to be closed. Edits then change no nodes. */
  #isClosed = false;
  #unknownIdentities = 0;
  /** Sizes of the gone nodes, by full name. */
  readonly #goneSizes = new Map<string, NodeSizes>();
  #answer: WhatIfAnswer | undefined;

  constructor(engines: WhatIfEngines, edits: readonly Edit[], limit: number) {
    checkEdits(edits);
    const { ipcache, services, nodes } = engines;
    this.#engines = engines;
    this.#edits = edits;
    this.#removals = removalsByScope(edits);
    this.#serviceRemovals = [...edits.entries()].filter(
      ([, edit]) =>
        edit.edit === 'drain-node' ||
        removesLocalServices(edit) ||
        clusterOfRemovedServices(edit) !== undefined,
    );
    for (const indexed of edits.entries()) {
      const id = serviceOf(indexed[1]);
      if (id === undefined) continue;
      const key = formatServiceID(id);
      const named = this.#namedServices.get(key) ?? { id, edits: [] };
      named.edits.push(indexed);
      this.#namedServices.set(key, named);
    }
    for (const edit of edits)
      if (edit.edit === 'drain-node')
        this.#drains.set(edit.node, [...(this.#drains.get(edit.node) ?? []), edit]);
    this.#overlay = new ClaimOverlay(edits, nodes);
    this.#compare = comparison(orderAfter(edits));
    const settings = edits.flatMap((edit) => (edit.edit === 'setting' ? [edit.settings] : []));
    this.#changesConfiguration = settings.length > 0;
    this.#configuration = nodes && Object.assign({}, nodes.configuration, ...settings);
    this.#prefixes = new Differences(limit);
    this.#nodes = new Differences(limit);
    this.#services = new Differences(limit);
    this.#began = this.#revisions();
    this.#subscriptions = [
      ipcache.observeClaims((key) => {
        this.#readAgain++;
        this.#dirtyPrefixes.set(formatPrefixOf('', key), undefined);
      }),
      nodes?.observeClaims((fullName) => {
        this.#readAgain++;
        this.#dirtyNodes.set(fullName, undefined);
      }),
      services?.observeStates((key, before, after) => {
        const id = after?.id ?? before?.id;
        if (id === undefined) return;
        this.#readAgain++;
        this.#dirtyServices.set(key, id);
      }),
    ].flatMap((unsubscribe) => unsubscribe ?? []);
  }

  [Symbol.dispose](): void {
    for (const unsubscribe of this.#subscriptions) unsubscribe();
  }

  answer(): WhatIfAnswer {
    if (this.#answer === undefined) throw new Error('what-if: the answer is incomplete');
    return this.#answer;
  }

  /** Yields after each step. The last step reads the remaining dirty keys and builds the answer, in one turn. */
  *steps(): Generator<void, void, void> {
    yield* this.#readNodes();
    yield* this.#readServices();
    yield* this.#readPrefixes();
    yield* this.#readIdentities();
    yield* this.#readDirty();
    checkNames(this.#edits, this.#engines, { matched: this.#matchedEdits, clusters: this.#clusters });
    this.#answer = this.#finish();
  }

  *#readNodes(): Generator<void, void, void> {
    yield* forEachInSteps(this.#engines.nodes?.claims() ?? [], NODES_PER_STEP, ([fullName, claims]) =>
      this.#evaluateNode(fullName, claims),
    );
  }

  *#readServices(): Generator<void, void, void> {
    const { services } = this.#engines;
    if (services === undefined) return;
    let read = 0;
    let cost = 0;
    // A service in an edit may not exist yet.
    for (const list of [services.states(), this.#namedServices.values()])
      for (const { id } of list) {
        read++;
        cost += this.#evaluateService(id);
        if (read < SERVICES_PER_STEP && cost < SERVICE_COST_PER_STEP) continue;
        yield;
        read = 0;
        cost = 0;
      }
  }

  *#readPrefixes(): Generator<void, void, void> {
    const { ipcache } = this.#engines;
    for (const keys of ipcache.keysOfWriters(this.#overlay.removes)) {
      for (const key of keys) this.#evaluatePrefix(key);
      yield;
    }
    if (this.#overlay.changesOrder)
      yield* forEachInSteps(ipcache.contested(), KEYS_PER_STEP, ([claim]) => {
        if (claim !== undefined) this.#evaluatePrefix(claim.key);
      });
    for (const prefix of this.#overlay.namedPrefixes) this.#dirtyPrefixes.set(prefix, undefined);
  }

  *#readIdentities(): Generator<void, void, void> {
    const removedClusters = this.#edits.flatMap((edit) => clusterOfRemovedServices(edit) ?? []);
    if (removedClusters.length === 0) return;
    yield* forEachInSteps(this.#engines.identities?.() ?? [], IDENTITIES_PER_STEP, ({ cluster }) => {
      const isRemoved = removedClusters.some((removed) =>
        removed === '*' ? this.#clusters.has(cluster) : cluster === removed,
      );
      if (isRemoved) this.#unknownIdentities++;
    });
  }

  /**
   * Reads the dirty nodes, services and prefixes until none is left. Yields between steps, but not after the last one.
   */
  *#readDirty(): Generator<void, void, void> {
    for (;;) {
      this.#checkClosed();
      for (let read = 0; read < KEYS_PER_STEP; ) {
        const cost = this.#readNextDirty();
        if (cost === 0) return;
        read += cost;
      }
      yield;
    }
  }

  /** Reads the next dirty node, else service, else prefix. Returns the cost; 0 if there is none. */
  #readNextDirty(): number {
    const node = this.#dirtyNodes.shift();
    if (node !== undefined) {
      this.#evaluateNode(node[0], this.#engines.nodes?.claimsOf(node[0]) ?? []);
      return 1;
    }
    const service = this.#dirtyServices.shift();
    if (service !== undefined) return 1 + this.#evaluateService(service[1]);
    const prefix = this.#dirtyPrefixes.shift();
    if (prefix === undefined) return 0;
    this.#evaluatePrefix(prefix[0]);
    return 1;
  }

  /** Evaluates all nodes again if the node manager was closed during the evaluation. */
  #checkClosed(): void {
    const { nodes } = this.#engines;
    if (nodes?.closed !== true || this.#isClosed) return;
    this.#isClosed = true;
    for (const [fullName] of nodes.claims()) this.#dirtyNodes.set(fullName, undefined);
  }

  /** Evaluates a node. The prefixes of its changed address claims become dirty. */
  #evaluateNode(fullName: string, claims: readonly Node[]): void {
    const { nodes } = this.#engines;
    if (nodes === undefined) return;
    for (const { source, cluster } of claims) if (source === 'clustermesh') this.#clusters.add(cluster);
    const remaining = claims.filter((node) => !this.#isRemoved(node));
    const [effective] = claims;
    const next = nodes.closed ? effective : remaining.toSorted(this.#compareNodes)[0];
    this.#evaluateAddresses(nodes, fullName, effective, next);
    this.#evaluateDrain(fullName, effective);
    this.#nodes.set(fullName, nodeDifference(effective, next));
    if (effective === undefined || next !== undefined) this.#goneSizes.delete(fullName);
    else this.#goneSizes.set(fullName, sizesOf(effective));
  }

  /** Passes the changed address claims of a node to the overlay, in place of those of an earlier evaluation. */
  #evaluateAddresses(
    nodes: NodeManager,
    fullName: string,
    effective: Node | undefined,
    next: Node | undefined,
  ): void {
    const previous = this.#nodePrefixes.get(fullName) ?? [];
    const isUnchanged = effective === next && (nodes.closed || !this.#changesConfiguration);
    if (isUnchanged && previous.length === 0) return;
    const before = effective === undefined || isUnchanged ? [] : nodes.addressClaims(effective);
    const after = next === undefined || isUnchanged ? [] : nodes.addressClaims(next, this.#configuration);
    const changed = this.#overlay.setNode(fullName, previous, before, after);
    for (const prefix of [...previous, ...changed]) this.#dirtyPrefixes.set(prefix, undefined);
    if (changed.length > 0) this.#nodePrefixes.set(fullName, changed);
    else this.#nodePrefixes.delete(fullName);
  }

  /** If an edit drains the node, passes its addresses to the overlay. The prefixes of its pods become dirty. */
  #evaluateDrain(fullName: string, node: Node | undefined): void {
    const drains = this.#drains.get(fullName);
    if (drains === undefined) return;
    if (node !== undefined) for (const edit of drains) this.#matchedEdits.add(edit);
    const hosts = node?.fields.addresses.map(({ ip }) => ip) ?? [];
    for (const host of this.#overlay.setDrained(fullName, hosts))
      for (const key of this.#engines.ipcache.lookupByHost(host)) this.#dirtyPrefixes.set(key, undefined);
  }

  readonly #compareNodes = (a: Node, b: Node): number =>
    this.#compare({ source: a.source, owner: '' }, { source: b.source, owner: '' });

  /** Returns true if an edit removes the claim on a node, and records the first such edit as matched. */
  #isRemoved(node: Node): boolean {
    const removals = scopesOfNode(node).map(
      (scope) => this.#removals.get(scope)?.first ?? this.#edits.length,
    );
    const first = this.#edits[Math.min(...removals)];
    if (first !== undefined) this.#matchedEdits.add(first);
    return first !== undefined;
  }

  /**
   * Evaluates a service. Returns the cost: for each edit that changes it or reads its backends, 1 and their number.
   */
  #evaluateService(id: ServiceID): number {
    const { services } = this.#engines;
    if (services === undefined) return 0;
    const named = this.#namedServices.get(formatServiceID(id))?.edits ?? [];
    const edits = [...this.#serviceRemovals, ...named].sort(([a], [b]) => a - b);
    let cost = 0;
    const changes = edits.map(([, edit]) => (state: ServiceState): ServiceState => {
      const next = this.#editService(state, edit);
      if (next !== state || edit.edit === 'drain-node') cost += 1 + state.correlation.backends.size;
      return next;
    });
    const event = services.preview(id, changes);
    this.#services.set(formatServiceID(id), event && serviceDifference(event));
    return cost;
  }

  #editService(state: ServiceState, edit: Edit): ServiceState {
    for (const cluster of state.remotes.keys()) this.#clusters.add(cluster);
    if (edit.edit === 'service') return withService(state, this.#engines.services?.served(edit.service));
    if (edit.edit === 'slice') return withSlice(state, edit.slice.name, edit.slice);
    if (edit.edit === 'drain-node') {
      const slash = edit.node.indexOf('/');
      const cluster = edit.node.slice(0, slash);
      const isLocal = cluster === this.#engines.nodes?.localNode.cluster;
      return withoutNode(state, isLocal ? '' : cluster, edit.node.slice(slash + 1));
    }
    let next = state;
    if (removesLocalServices(edit)) {
      for (const name of state.slices.keys()) next = withSlice(next, name, undefined);
      return next.service === undefined ? next : withService(next, undefined);
    }
    const removed = clusterOfRemovedServices(edit);
    for (const cluster of state.remotes.keys()) {
      if (removed !== cluster && removed !== '*') continue;
      this.#matchedEdits.add(edit);
      next = withoutCluster(next, cluster);
    }
    return next;
  }

  #evaluatePrefix(key: string): void {
    const claims = this.#engines.ipcache.claimsOfPrefix(key);
    if (claims === undefined) return;
    this.#prefixes.set(claims.prefix, this.#difference(claims));
  }

  #difference(claims: PrefixClaims): PrefixDifference | undefined {
    const before = visibleOf(claims);
    const after = this.#overlay.after(claims);
    if (sameEntry(before?.claim, after?.claim)) return undefined;
    const { prefix } = claims;
    const difference = { prefix, old: before?.claim, new: after?.claim };
    if (after === undefined) return { kind: 'gone', ...difference };
    if (before === undefined) return { kind: 'created', ...difference };
    const isRevealed = before.form === 'endpoint' && after.form === 'cidr';
    return { kind: isRevealed ? 'revealed' : 'changed', ...difference };
  }

  #finish(): WhatIfAnswer {
    const prefixes = this.#prefixes;
    const services = this.#services;
    const gone = [...this.#goneSizes.values()];
    const counts = {
      prefixes: {
        gone: prefixes.count('gone'),
        changed: prefixes.count('changed'),
        revealed: prefixes.count('revealed'),
        created: prefixes.count('created'),
      },
      nodes: {
        gone: this.#nodes.count('gone'),
        changed: this.#nodes.count('changed'),
        addresses: gone.reduce((sum, { addresses }) => sum + addresses, 0),
        podCIDRs: gone.reduce((sum, { podCIDRs }) => sum + podCIDRs, 0),
      },
      services: {
        gone: services.count('gone'),
        empty: services.count('empty'),
        fewer: services.count('fewer'),
        changed: services.count('changed'),
        created: services.count('created'),
      },
      identities: { unknown: this.#unknownIdentities },
    };
    const loses = counts.prefixes.gone + counts.services.gone + counts.services.empty > 0;
    return {
      prefixes: this.#withCovering(prefixes.kept),
      nodes: this.#nodes.kept,
      services: services.kept,
      summary: {
        ...counts,
        loses,
        began: this.#began,
        ended: this.#revisions(),
        readAgain: this.#readAgain,
      },
    };
  }

  /** Adds to each prefix that would be gone the longest remaining prefix that contains it. */
  #withCovering(kept: readonly PrefixDifference[]): readonly PrefixDifference[] {
    const { namedPrefixes } = this.#overlay;
    // An edit can add a claim to a prefix without claims.
    const lengths = new Set(
      Array.from(namedPrefixes, (prefix) => Number.parseInt(prefix.split('/')[1] ?? '', 10)),
    );
    return kept.map((difference) => {
      if (difference.kind !== 'gone') return difference;
      for (const claims of this.#engines.ipcache.claimsOfCovering(difference.prefix, lengths)) {
        const after = this.#overlay.after(claims);
        if (after !== undefined)
          return { coveredBy: { prefix: claims.prefix, claim: after.claim }, ...difference };
      }
      return difference;
    });
  }

  #revisions(): EngineRevisions {
    const { ipcache, services, nodes } = this.#engines;
    return {
      ipcache: ipcache.revision,
      services: services?.revision ?? 0,
      nodes: nodes?.revision ?? 0,
    };
  }
}

const OPTIONS = optionsWith({
  limit: optional(
    matching(
      'must be an integer of at least 0, or Infinity',
      (limit) => limit === Number.POSITIVE_INFINITY || (Number.isInteger(limit) && Number(limit) >= 0),
    ),
  ),
  signal: optional(SIGNAL),
});
