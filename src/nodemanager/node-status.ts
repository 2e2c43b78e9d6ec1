import type { RejectionStatus } from '../base/rejection.ts';
import type { Source } from '../model/source.ts';
import type { HandlerFeed } from './handler-feed.ts';
import type { HandlerFeeds } from './handler-feeds.ts';
import type { Node } from './node.ts';
import type { LostAddress, NodeAddresses } from './node-addresses.ts';
import type { NodeEntry } from './node-entry.ts';
import type { HandlerFailure, HandlerStatus } from './node-handler.ts';

/**
 * The outcome of `nodeUpdated`. `applied`: this source's claim is now effective. `unchanged`: an equal claim of this
 * source already was. `overruled`: a stronger source's claim is effective. `invalid`: the node was rejected and
 * counted; `status()` describes it. `closed`: the manager is closed.
 */
export type NodeUpdateOutcome = 'applied' | 'unchanged' | 'overruled' | 'invalid' | 'closed';

/**
 * The outcome of `nodeDeleted`. `applied`: the claim was deleted. `not-found`: the node is unknown. `not-owner`: only
 * other sources claim it. `closed`: the manager is closed, or this call closed it because Kubernetes deleted the local
 * node.
 */
export type NodeDeleteOutcome = 'applied' | 'not-found' | 'not-owner' | 'closed';

/** The counted outcomes. `deleted` counts applied deletes. */
export type CountedNodeOutcome = NodeUpdateOutcome | Exclude<NodeDeleteOutcome, 'applied'> | 'deleted';

/** The state of one node in one handler. */
export interface NodeHandlerState extends Partial<Omit<HandlerFailure, 'node'>> {
  readonly handler: string | undefined;
  /** True if the handler has the desired version. */
  readonly applied: boolean;
}

/** All claims on one node and their consequences. */
export interface NodeExplanation {
  readonly fullName: string;
  /** The claim of each source, strongest first. The first one is effective. */
  readonly claims: readonly Node[];
  /** The version that handlers receive. While a change is held back, it is older than the effective node. */
  readonly announced: Node | undefined;
  /** True if the change is held back because a stronger source holds one of the addresses. */
  readonly heldBack: boolean;
  /** Addresses which the node claims in the IPCache without effect. */
  readonly lostAddresses: readonly LostAddress[];
  readonly handlers: readonly NodeHandlerState[];
}

export function explainNode(
  entry: NodeEntry,
  addresses: NodeAddresses,
  feeds: HandlerFeeds,
): NodeExplanation {
  const { fullName, effective, announced, claims } = entry;
  return {
    fullName,
    claims,
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
  return {
    handler,
    applied: false,
    ...(call === undefined ? {} : { call }),
    ...(error === undefined ? {} : { failures, error }),
  };
}

/** Counts and faults of a node manager as plain data (I12). */
export interface NodeManagerStatus {
  readonly closed: boolean;
  readonly nodes: number;
  readonly nodesBySource: Readonly<Partial<Record<Source, number>>>;
  /** Kept claims without effect. */
  readonly overruledClaims: number;
  readonly revision: number;
  /** Full names of the nodes whose last change is held back from handlers. */
  readonly heldBack: readonly string[];
  /** Addresses which nodes claim in the IPCache without effect, by full name of the node. */
  readonly lostAddresses: Readonly<Record<string, readonly LostAddress[]>>;
  readonly outcomes: Readonly<Record<CountedNodeOutcome, number>>;
  readonly rejections: RejectionStatus;
  readonly handlers: readonly HandlerStatus[];
  /** Faults of the callbacks of the options: `onReject`, `onHandlerFault`, `onLocalNodeDeleted`. */
  readonly callbackFaults: number;
}

/** Returns the part of the status that needs a pass over all nodes. */
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

export const NO_OUTCOMES: Readonly<Record<CountedNodeOutcome, number>> = {
  applied: 0,
  unchanged: 0,
  overruled: 0,
  invalid: 0,
  deleted: 0,
  'not-found': 0,
  'not-owner': 0,
  closed: 0,
};
