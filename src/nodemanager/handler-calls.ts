import { type Backoff, backoffDelay } from '../base/backoff.ts';
import type { Clock, Random, Timer } from '../base/clock.ts';
import { DelayCounts, type DelayStatus } from '../base/delay-counts.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import type { NodeConfiguration } from './address-claims.ts';
import type { Node } from './node.ts';
import type { HandlerFault, HandlerResult, NodeCall, NodeHandler } from './node-handler.ts';
import type { NodeStep } from './node-lane.ts';

/** Waits after failed calls: 100 ms doubles to a minute in ten steps, the interval of background validation. */
export const HANDLER_BACKOFF: Backoff = { baseMs: 100, capMs: 60_000 };

/** A call to make. */
export type HandlerCall =
  | NodeStep
  | { readonly call: 'configuration'; readonly configuration: NodeConfiguration };

/** A call that has not ended when it has returned. */
interface CallUnderWay {
  readonly ended: 'later';
  readonly began: number;
  readonly result: HandlerResult;
}

/** How a call has ended, if it has. */
export type CallOutcome =
  | CallUnderWay
  | { readonly ended: 'succeeded' }
  | { readonly ended: 'failed'; readonly error: unknown };

/** The common case, of which one object is enough. */
const SUCCEEDED: CallOutcome = { ended: 'succeeded' };

/** A call that is made until it succeeds. */
export interface Attempt {
  /** Failures in a row. */
  failures: number;
  /** The last one. */
  error: Failure | undefined;
  /** Set while waiting for the next attempt. */
  timer: Timer | undefined;
}

/** Options of {@link HandlerCalls}. */
export interface HandlerCallsOptions {
  readonly clock: Clock;
  readonly random: Random;
  onFault(fault: HandlerFault): void;
  /** A call that was under way has ended, or a backoff is over: others may start. */
  resume(): void;
}

/** Makes the calls of one handler, measures them, counts those that run and those that have failed, and waits between attempts. */
export class HandlerCalls {
  readonly handler: NodeHandler;
  readonly #options: HandlerCallsOptions;
  readonly #abort = new AbortController();
  readonly #signal = this.#abort.signal;
  readonly #durations = new DelayCounts();
  #stopped = false;
  #running = 0;
  #faults = 0;

  constructor(handler: NodeHandler, options: HandlerCallsOptions) {
    this.handler = handler;
    this.#options = options;
  }

  /** Asynchronous calls under way. */
  get running(): number {
    return this.#running;
  }

  get faults(): number {
    return this.#faults;
  }

  /** How long calls took until they had ended, in whatever way. */
  get durations(): DelayStatus {
    return this.#durations.status();
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  /** Fires the signal of the calls under way. */
  stop(): void {
    this.#stopped = true;
    this.#abort.abort();
  }

  /** Makes a call. Gives how it has ended, or what it waits for: that is for {@link HandlerCalls.follow}. */
  begin(call: HandlerCall): CallOutcome {
    const began = this.#options.clock.now();
    let result: HandlerResult;
    try {
      result = this.#call(call);
    } catch (error) {
      this.#measure(began);
      return { ended: 'failed', error };
    }
    if (result !== undefined) return { ended: 'later', began, result };
    this.#measure(began);
    return SUCCEEDED;
  }

  /** Calls one of the other two when a call has ended: before this returns if it has, not at all after `stop`. */
  follow(outcome: CallOutcome, succeed: () => void, fail: (error: unknown) => void): void {
    if (outcome.ended === 'later') {
      this.#await(outcome, succeed, fail);
    } else if (!this.#stopped) {
      if (outcome.ended === 'failed') fail(outcome.error);
      else succeed();
    }
  }

  /** Counts and reports a failure; calls `again` after the backoff, and resumes. */
  retry(
    attempt: Attempt,
    call: NodeCall,
    node: string | undefined,
    error: unknown,
    again: () => void = () => {},
  ): void {
    const failures = attempt.failures + 1;
    attempt.failures = failures;
    attempt.error = failureOf(error, this.#options.clock);
    const retryInMs = backoffDelay(failures, HANDLER_BACKOFF, this.#options.random);
    attempt.timer = this.#options.clock.after(retryInMs, () => {
      attempt.timer = undefined;
      again();
      this.#options.resume();
    });
    // Last: the report may end everything, and then the timer has to be there to be cancelled.
    this.#report({ handler: this.handler, call, node, error, failures, retryInMs });
  }

  /** Has a node deleted after the end: once, as nothing is left to try again. */
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

  #await({ began, result }: CallUnderWay, succeed: () => void, fail: (error: unknown) => void): void {
    this.#running++;
    const settled = (then: () => void): void => {
      this.#running--;
      this.#measure(began);
      if (!this.#stopped) then();
      this.#options.resume();
    };
    // Wrapped, as a handler may return anything that only looks like a promise.
    Promise.resolve(result).then(
      () => settled(succeed),
      (error: unknown) => settled(() => fail(error)),
    );
  }

  #call(call: HandlerCall): HandlerResult {
    const signal = this.#signal;
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
