import type { RejectionStatus } from '../base/rejection.ts';
import type { Source } from '../identity/source.ts';
import type { HandlerFailure, HandlerStatus } from './handler-feed.ts';
import type { Node } from './node.ts';
import type { LostAddress } from './node-addresses.ts';

/**
 * What became of `nodeUpdated`. `applied` and `unchanged`: this source's node is the effective one. `overruled`: a
 * stronger source's is. `invalid`: refused, nothing changed, counted and described in `status()`. `closed`: the
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
  /** What handlers were told. Lags behind the effective node while that is held back. */
  readonly announced: Node | undefined;
  /** Whether handlers wait because a stronger source holds one of the addresses. */
  readonly heldBack: boolean;
  /** Addresses that the IPCache gives to somebody else. */
  readonly lostAddresses: readonly LostAddress[];
  readonly handlers: readonly NodeHandlerState[];
}

/** Counts, and everything that is not as it should be, as plain data (I12). */
export interface NodeManagerStatus {
  readonly closed: boolean;
  readonly nodes: number;
  /** Effective nodes per source. */
  readonly nodesBySource: ReadonlyMap<Source, number>;
  /** Claims kept while a stronger one is in force. */
  readonly overruledClaims: number;
  readonly revision: number;
  /** Full names of the nodes of whose last change handlers were not told. */
  readonly heldBack: readonly string[];
  /** Addresses that nodes want and the IPCache gives to somebody else, by full name. */
  readonly lostAddresses: ReadonlyMap<string, readonly LostAddress[]>;
  readonly outcomes: ReadonlyMap<CountedNodeOutcome, number>;
  readonly rejections: RejectionStatus;
  readonly handlers: readonly HandlerStatus[];
}
