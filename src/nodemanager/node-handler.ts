import type { DelayStatus } from '../base/delay-counts.ts';
import type { Failure } from '../base/failure.ts';
import type { ListenerResult } from '../base/subscription.ts';
import type { NodeConfiguration } from './address-claims.ts';
import type { Node } from './node.ts';

/** What a handler's call may return: nothing when it is done, or a promise of it. */
export type HandlerResult = void | Promise<void>;

/**
 * Carries nodes into a datapath: routes, tunnels, encryption states (port; SEMANTICS 4).
 *
 * For each node: strictly in order and one call at a time; `nodeAdd` first, then updates, then `nodeDelete`; the
 * next call starts when the one before has returned or its promise has settled. Changes that come meanwhile are
 * merged: `old` is always what this handler has, by its last call that succeeded. Between nodes no order is promised.
 *
 * A call that throws or rejects is repeated with exponential backoff and full jitter until it succeeds, so it must be
 * harmless when repeated. It may have done a part of its work, so when the node has changed meanwhile, that is seen to
 * before anything else: a failed `nodeDelete` is finished, a failed `nodeAdd` undone by `nodeDelete`, a failed
 * `nodeUpdate` undone by a `nodeUpdate` back (or, when the node is gone, by a `nodeDelete` of either version).
 *
 * Handlers may call the node manager; what they change is delivered after the delivery under way (SEMANTICS 9).
 *
 * `signal` is aborted when the handler is unsubscribed or the manager closed; what comes of the call then is
 * ignored.
 */
export interface NodeHandler {
  /** Names the handler in status and faults. */
  readonly name?: string | undefined;
  nodeAdd(node: Node, signal: AbortSignal): HandlerResult;
  nodeUpdate(old: Node, node: Node, signal: AbortSignal): HandlerResult;
  /** `node` is what the handler has. */
  nodeDelete(node: Node, signal: AbortSignal): HandlerResult;
  /** Asked now and then: is everything that this node needs in place? Repairs what is not. */
  nodeValidateImplementation?(node: Node, signal: AbortSignal): HandlerResult;
  /**
   * Called on subscription, before the first node, and when the configuration has changed. No other call runs
   * meanwhile, and none starts until it has succeeded.
   */
  nodeConfigurationChanged?(configuration: NodeConfiguration, signal: AbortSignal): HandlerResult;
  /**
   * The replay is complete: for each node known at the subscription a call has succeeded, or failed once and is repeated;
   * no failing node is waited for. Not awaited; what it throws is counted (`callbackFaults`).
   */
  onSynced?(): ListenerResult;
}

/**
 * `swept`: a call has been made for every node that the handler lacked, had in another version, or had without need; those
 * that failed are repeated. `ended`: its subscription, or the manager, has ended before.
 */
export type SweepOutcome = 'swept' | 'ended';

/** The calls of a {@link NodeHandler}. */
export type NodeCall = 'add' | 'update' | 'delete' | 'validate' | 'configuration';

/** A call that threw or rejected. */
export interface HandlerFault {
  readonly handler: NodeHandler;
  readonly call: NodeCall;
  /** Full name of the node; undefined for the configuration. */
  readonly node: string | undefined;
  readonly error: unknown;
  /** How often it has failed in a row, this time included. */
  readonly failures: number;
  /** When it is tried again, in milliseconds from now; undefined when it is not, as the manager is closed. */
  readonly retryInMs: number | undefined;
}

/** A call that has failed and is tried again. */
export interface HandlerFailure {
  readonly call: NodeCall;
  /** Full name of the node; undefined for the configuration. */
  readonly node: string | undefined;
  readonly error: Failure;
  /** How often it has failed in a row. */
  readonly failures: number;
}

/** How one handler is doing. */
export interface HandlerStatus {
  readonly name: string | undefined;
  /** Nodes of which it is not up to date, running and failed ones included. */
  readonly pending: number;
  /** Asynchronous calls under way. */
  readonly running: number;
  /** Calls that have failed since the subscription. */
  readonly faults: number;
  /** How long calls took until they had returned or their promise had settled, those that failed included. */
  readonly durations: DelayStatus;
  /** What waits for its next attempt. */
  readonly failing: readonly HandlerFailure[];
}
