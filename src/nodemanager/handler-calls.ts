import { type Backoff, backoffDelay } from '../base/backoff.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { LatencyHistogram, type LatencyStatus } from '../base/latency-histogram.ts';
import type { Runtime } from '../base/system-clock.ts';
import type { NodeConfiguration } from './address-claims.ts';
import type { Node } from './node.ts';
import type { HandlerFault, HandlerResult, NodeCall, NodeHandler } from './node-handler.ts';
import type { NodeStep } from './node-lane.ts';

/** Backoff of failed calls: 100 ms, doubled up to one minute. */
export const HANDLER_BACKOFF: Backoff = { baseMs: 100, capMs: 60_000 };

/** A call to make. */
export type HandlerCall =
  | NodeStep
  | { readonly call: 'configuration'; readonly configuration: NodeConfiguration };

/** A call whose promise has not settled. */
interface RunningCall {
  readonly state: 'running';
  /** Time of the call on the clock's monotonic scale. */
  readonly began: number;
  readonly result: HandlerResult;
}

/** The outcome of an ended call, or the promise of a running one. */
export type CallOutcome =
  | RunningCall
  | { readonly state: 'succeeded' }
  | { readonly state: 'failed'; readonly error: unknown };

/** The common outcome, as one shared object. */
const SUCCEEDED: CallOutcome = { state: 'succeeded' };

/** The failures of a call, which is retried until it succeeds. */
export interface RetryState {
  failures: number;
  error: Failure | undefined;
}

export interface HandlerCallsOptions extends Runtime {
  onFault(fault: HandlerFault): void;
  /** Called when an asynchronous call ended, because others may start now. */
  resume(): void;
}

/** Calls one handler, measures its calls, and counts running and failed ones. */
export class HandlerCalls {
  readonly handler: NodeHandler;
  readonly #options: HandlerCallsOptions;
  /**
   * The controller of the next call. Each asynchronous call has its own, because a handler may leave its listeners on
   * the signal.
   */
  #next = new AbortController();
  readonly #running = new Map<RunningCall, AbortController>();
  readonly #durations = new LatencyHistogram();
  #faults = 0;
  #stopped = false;

  constructor(handler: NodeHandler, options: HandlerCallsOptions) {
    this.handler = handler;
    this.#options = options;
  }

  get running(): number {
    return this.#running.size;
  }

  get faults(): number {
    return this.#faults;
  }

  /** Durations of calls, failed ones included. */
  get durations(): LatencyStatus {
    return this.#durations.status();
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  /** Aborts the signal of running calls. */
  stop(): void {
    this.#stopped = true;
    for (const controller of [this.#next, ...this.#running.values()]) controller.abort();
  }

  /** Makes a call and returns its outcome, or its promise for {@link HandlerCalls.follow}. */
  begin(call: HandlerCall): CallOutcome {
    const began = this.#options.clock.now();
    let result: HandlerResult;
    try {
      result = this.#call(call);
    } catch (error) {
      this.#measure(began);
      return { state: 'failed', error };
    }
    if (result === undefined) {
      this.#measure(began);
      return SUCCEEDED;
    }
    const running: RunningCall = { state: 'running', began, result };
    this.#running.set(running, this.#next);
    this.#next = new AbortController();
    return running;
  }

  /**
   * Calls `succeed` or `fail` when a call has ended, synchronously if it has already. After `stop`, calls `endLate`
   * instead.
   */
  follow(
    outcome: CallOutcome,
    succeed: () => void,
    fail: (error: unknown) => void,
    endLate: (isSuccess: boolean) => void = () => {},
  ): void {
    if (outcome.state === 'running') this.#await(outcome, succeed, fail, endLate);
    else if (this.stopped) endLate(outcome.state === 'succeeded');
    else if (outcome.state === 'failed') fail(outcome.error);
    else succeed();
  }

  /**
   * Counts and reports a failure. Before the report, `scheduleRetry` is called with the delay until the next attempt.
   */
  recordFailure(
    attempt: RetryState,
    call: NodeCall,
    node: string | undefined,
    error: unknown,
    scheduleRetry: (delayMs: number) => void,
  ): void {
    const failures = attempt.failures + 1;
    attempt.failures = failures;
    attempt.error = failureOf(error, this.#options.clock);
    const retryInMs = backoffDelay(failures, HANDLER_BACKOFF, this.#options.random);
    scheduleRetry(retryInMs);
    // After `scheduleRetry`, because the receiver of the report may stop the feed, which cancels the retry.
    this.#report({ handler: this.handler, call, node, error, failures, retryInMs });
  }

  /** Calls `nodeDelete` once after `stop`. A failure is reported but not retried. */
  deleteFinally(node: Node): void {
    const fail = (error: unknown): void => {
      const failed = { call: 'delete', node: node.fullName, error, failures: 1 } as const;
      this.#report({ handler: this.handler, ...failed, retryInMs: undefined });
    };
    try {
      Promise.resolve(this.handler.nodeDelete(node, new AbortController().signal)).catch(fail);
    } catch (error) {
      fail(error);
    }
  }

  #await(
    running: RunningCall,
    succeed: () => void,
    fail: (error: unknown) => void,
    endLate: (isSuccess: boolean) => void,
  ): void {
    const settle = (record: () => void, isSuccess: boolean): void => {
      this.#running.delete(running);
      this.#measure(running.began);
      if (this.stopped) endLate(isSuccess);
      else record();
      this.#options.resume();
    };
    // Wrapped, because a handler may return any thenable.
    Promise.resolve(running.result).then(
      () => settle(succeed, true),
      (error: unknown) => settle(() => fail(error), false),
    );
  }

  #call(call: HandlerCall): HandlerResult {
    const { signal } = this.#next;
    switch (call.call) {
      case 'add':
        return this.handler.nodeAdd(call.node, signal);
      case 'update':
        return this.handler.nodeUpdate(call.old, call.node, signal);
      case 'delete':
        return this.handler.nodeDelete(call.node, signal);
      case 'validate':
        return this.handler.nodeValidateImplementation?.(call.node, signal);
      case 'configuration':
        return this.handler.nodeConfigurationChanged?.(call.configuration, signal);
    }
  }

  #measure(began: number): void {
    this.#durations.add(this.#options.clock.now() - began);
  }

  #report(fault: HandlerFault): void {
    this.#faults++;
    this.#options.onFault(fault);
  }
}
