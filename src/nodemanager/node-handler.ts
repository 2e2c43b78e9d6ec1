import type { Failure } from '../base/failure.ts';
import type { LatencyStatus } from '../base/latency-histogram.ts';
import type { ListenerResult } from '../base/subscription.ts';
import type { NodeConfiguration } from './address-claims.ts';
import type { Node } from './node.ts';

/** The result of a handler's call: nothing if it is done, or a promise. */
export type HandlerResult = void | Promise<void>;

/**
 * Writes nodes into a datapath: routes, tunnels, encryption states (SEMANTICS 4).
 *
 * Calls for one node are strictly ordered, one at a time: `nodeAdd`, then updates, then `nodeDelete`. The next call
 * starts when the previous one has returned or its promise has settled. Changes in between are merged: `old` is always
 * the version of the last successful call. Calls for different nodes are not ordered.
 *
 * A call that throws or rejects is retried with exponential backoff and full jitter until it succeeds, so calls must be
 * idempotent. A failed call may have done a part of its work. If the node has changed since, this part is repaired
 * first. A failed `nodeDelete` is completed. A failed `nodeAdd` is undone by `nodeDelete`. A failed `nodeUpdate` is
 * undone by a `nodeUpdate` to the old version, or, if the node was deleted, by a `nodeDelete` of either version.
 *
 * Handlers may call the node manager. Their changes are delivered after the current delivery (SEMANTICS 9).
 *
 * `signal` is aborted if the handler is unsubscribed or the manager is closed before the call has ended. The call is
 * not repeated then. Each asynchronous call has its own signal, so its abort listeners need not be removed.
 */
export interface NodeHandler {
  /** Name of the handler in status and faults. */
  readonly name?: string | undefined;
  nodeAdd(node: Node, signal: AbortSignal): HandlerResult;
  nodeUpdate(old: Node, node: Node, signal: AbortSignal): HandlerResult;
  /** `node` is the version that the handler has. */
  nodeDelete(node: Node, signal: AbortSignal): HandlerResult;
  /** Called periodically. Checks the datapath state of this node and repairs it. */
  nodeValidateImplementation?(node: Node, signal: AbortSignal): HandlerResult;
  /** Called before the first node, and when the configuration changes. No other call runs until it has succeeded. */
  nodeConfigurationChanged?(configuration: NodeConfiguration, signal: AbortSignal): HandlerResult;
  /**
   * Called when the replay is complete: each node known at the subscription had a call, successful or not.
   * Failed calls are retried but not waited for. The result is not awaited; errors are counted (`callbackFaults`).
   */
  onSynced?(): ListenerResult;
}

/**
 * Outcome of a sweep of a handler. `swept`: a call was made for every node that the handler lacked, had in another
 * version, or must delete. Failed calls are retried. `ended`: the subscription or the manager ended before.
 */
export type SweepOutcome = 'swept' | 'ended';

/** The calls of a {@link NodeHandler}. */
export type NodeCall = 'add' | 'update' | 'delete' | 'validate' | 'configuration';

/** A failed call: it threw or rejected. */
export interface HandlerFault {
  readonly handler: NodeHandler;
  readonly call: NodeCall;
  /** Full name of the node; undefined for the configuration. */
  readonly node: string | undefined;
  readonly error: unknown;
  /** Consecutive failures, this one included. */
  readonly failures: number;
  /** Milliseconds until the retry; undefined if there is none because the manager is closed. */
  readonly retryInMs: number | undefined;
}

/** A failed call until its retry succeeds. */
export interface HandlerFailure {
  readonly call: NodeCall;
  /** Full name of the node; undefined for the configuration. */
  readonly node: string | undefined;
  readonly error: Failure;
  /** Consecutive failures. */
  readonly failures: number;
}

/** The status of one handler. */
export interface HandlerStatus {
  readonly name: string | undefined;
  /** Nodes for which the handler is not up to date, those with a running or failed call included. */
  readonly pending: number;
  /** Running asynchronous calls. */
  readonly running: number;
  /** Failed calls since the subscription. */
  readonly faults: number;
  /** Durations of calls until they returned or their promise settled, failed ones included. */
  readonly durations: LatencyStatus;
  /** Calls that wait for a retry. */
  readonly failing: readonly HandlerFailure[];
}
