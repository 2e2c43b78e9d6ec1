import type { RejectionStatus } from '../base/rejection.ts';
import type { Source } from '../identity/source.ts';
import type { HandlerFeed } from './handler-feed.ts';
import type { HandlerFeeds } from './handler-feeds.ts';
import type { Node } from './node.ts';
import type { LostAddress, NodeAddresses } from './node-addresses.ts';
import type { NodeEntry } from './node-entry.ts';
import type { HandlerFailure, HandlerStatus } from './node-handler.ts';

/**
 * What became of `nodeUpdated`. `applied` and `unchanged`: this source's node is the effective one. `overruled`: a
 * stronger source's is. `invalid`: rejected, nothing changed, counted and described in `status()`. `closed`: the
 * manager takes nothing any more.
 */
export type NodeUpdateOutcome = 'applied' | 'unchanged' | 'overruled' | 'invalid' | 'closed';

/**
 * What became of `nodeDeleted`. `applied`: this source's claim is gone. `not-found`: no such node. `not-owner`: other
 * sources announce it, this one does not. `closed`: the manager takes nothing any more; Kubernetes deleting the
 * local node has this outcome too, as it closes the manager.
 */
export type NodeDeleteOutcome = 'applied' | 'not-found' | 'not-owner' | 'closed';

/** What calls came to; `deleted` counts deletes that were applied. */
export type CountedNodeOutcome = NodeUpdateOutcome | Exclude<NodeDeleteOutcome, 'applied'> | 'deleted';

/** How one handler stands with one node. */
export interface NodeHandlerState extends Partial<Omit<HandlerFailure, 'node'>> {
  readonly handler: string | undefined;
  /** Whether it has what it is to have. */
  readonly applied: boolean;
}

/** Everything that is known of one node, and why. */
export interface NodeExplanation {
  readonly fullName: string;
  /** What each source says, strongest first: the first one is effective. */
  readonly claims: readonly Node[];
  /** What handlers have received. Lags behind the effective node while that is held back. */
  readonly announced: Node | undefined;
  /** Whether handlers wait because a stronger source holds one of the addresses. */
  readonly heldBack: boolean;
  /** Addresses that another writer holds in the IPCache. */
  readonly lostAddresses: readonly LostAddress[];
  readonly handlers: readonly NodeHandlerState[];
}

/** Gathers what is known of one node. */
export function explainNode(
  entry: NodeEntry,
  addresses: NodeAddresses,
  feeds: HandlerFeeds,
): NodeExplanation {
  const { fullName, effective, announced, overruled } = entry;
  return {
    fullName,
    claims: effective === undefined ? overruled : [effective, ...overruled],
    announced,
    heldBack: announced !== effective,
    lostAddresses: addresses.lost(entry),
    handlers: feeds.current.map((feed) => handlerState(feed, fullName)),
  };
}

function handlerState(feed: HandlerFeed, fullName: string): NodeHandlerState {
  const handler = feed.handler.name;
  const lane = feed.lane(fullName);
  if (lane === undefined) return { handler, applied: true };
  const call = (lane.running ?? lane.nextStep())?.call;
  const { failures, error } = lane;
  return { handler, applied: false, ...(call && { call }), ...(error && { failures, error }) };
}

/** Counts, and everything that is not as it should be, as plain data (I12). */
export interface NodeManagerStatus {
  readonly closed: boolean;
  readonly nodes: number;
  /** Effective nodes per source. */
  readonly nodesBySource: Readonly<Partial<Record<Source, number>>>;
  /** Claims kept while a stronger one is effective. */
  readonly overruledClaims: number;
  readonly revision: number;
  /** Full names of the nodes whose last change is held back from handlers. */
  readonly heldBack: readonly string[];
  /** Addresses that nodes want and another writer holds in the IPCache, by full name. */
  readonly lostAddresses: Readonly<Record<string, readonly LostAddress[]>>;
  readonly outcomes: Readonly<Record<CountedNodeOutcome, number>>;
  readonly rejections: RejectionStatus;
  readonly handlers: readonly HandlerStatus[];
  /** Faults of the callbacks of the options: `onReject`, `onHandlerFault`, `onLocalNodeDeleted`. */
  readonly callbackFaults: number;
}

/** The part of the status that takes a pass over all nodes. */
export function countNodes(
  entries: Iterable<NodeEntry>,
  addresses: NodeAddresses,
): Pick<NodeManagerStatus, 'nodesBySource' | 'overruledClaims' | 'heldBack' | 'lostAddresses'> {
  const nodesBySource: Partial<Record<Source, number>> = {};
  const lostAddresses = new Map<string, readonly LostAddress[]>();
  const heldBack: string[] = [];
  let overruledClaims = 0;
  for (const entry of entries) {
    const source = entry.effective?.source;
    if (source !== undefined) nodesBySource[source] = (nodesBySource[source] ?? 0) + 1;
    overruledClaims += entry.overruled.length;
    if (entry.announced !== entry.effective) heldBack.push(entry.fullName);
    if (entry.lost !== undefined) lostAddresses.set(entry.fullName, addresses.lost(entry));
  }
  return { nodesBySource, overruledClaims, heldBack, lostAddresses: Object.fromEntries(lostAddresses) };
}

/** How often each outcome came. */
export class NodeOutcomeCounts {
  readonly #counts: Record<CountedNodeOutcome, number> = {
    applied: 0,
    unchanged: 0,
    overruled: 0,
    invalid: 0,
    deleted: 0,
    'not-found': 0,
    'not-owner': 0,
    closed: 0,
  };

  count(outcome: CountedNodeOutcome): void {
    this.#counts[outcome]++;
  }

  /** The counts so far: a copy. */
  snapshot(): Readonly<Record<CountedNodeOutcome, number>> {
    return { ...this.#counts };
  }
}
