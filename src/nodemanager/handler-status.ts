import type { Failure } from '../base/failure.ts';
import type { NodeCall } from './node-handler.ts';

/** What a handler has not managed so far. */
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
  /** Nodes that it has not been brought up to date with, running and failed ones included. */
  readonly pending: number;
  /** Asynchronous calls under way. */
  readonly running: number;
  /** Calls that have failed since the subscription. */
  readonly faults: number;
  /** What waits for another try. */
  readonly failing: readonly HandlerFailure[];
}
