import type { Clock, Timer } from '../../base/clock.ts';
import { runNowOrInBackground, type TurnGate } from '../../base/turn-gate.ts';
import {
  type FollowedResource,
  objectVersion,
  type ResourceKind,
  type ResourceSink,
  type ResourceSource,
  type ResourceState,
  type ResourceStatus,
} from '../resource.ts';
import type { AnyFeed } from './object-feed.ts';

/** Options of {@link FollowedKind}. */
export interface FollowedKindOptions {
  readonly source: ResourceSource;
  readonly clock: Clock;
  readonly gate: TurnGate | undefined;
  /** If it fires, no more objects are removed. */
  readonly signal?: AbortSignal | undefined;
  /** Called if `state` or `complete` has changed. */
  readonly onChange: () => void;
  /** Called with the number of objects that are forgotten because the API server no longer serves the kind. */
  readonly onForget?: ((objects: number) => void) | undefined;
}

/** Status of one kind. */
export interface KindStatus {
  /** Plural: `ciliumendpoints`. */
  readonly name: string;
  /** `resting` if the kvstore provides the kind, or if no option requests it. Otherwise the state of its reflector. */
  readonly state: ResourceState | 'resting';
  /** True if all objects of the API server were applied or rejected (KUBERNETES 8). */
  readonly complete: boolean;
  /** Number of objects with a value. Valid objects that have no effect are not counted. */
  readonly objects: number;
  /** Number of rejected objects and fields. */
  readonly rejected: number;
  /** Status of the current or last reflector. */
  readonly resource: ResourceStatus | undefined;
}

/**
 * Time without interruption in which the API server answers 404 for a kind, after which its objects are forgotten.
 * While an API server starts, or a CRD is replaced, it answers 404 only for seconds.
 */
export const MISSING_LIMIT_MS: number = 10 * 60_000;

const NO_FAILURES = { failures: 0, last: undefined };

/**
 * One kind of object: its feed, and the current reflector that passes objects to the feed. The feed outlives its
 * reflectors.
 */
export class FollowedKind {
  readonly name: string;
  readonly #feed: AnyFeed;
  readonly #options: FollowedKindOptions;
  /** Ends the current reflector; undefined if there is none. */
  #following: AbortController | undefined;
  #resource: FollowedResource | undefined;
  #state: ResourceState | 'resting' = 'resting';
  /** Increases when a reflector starts or ends. If it changes during a withdrawal, the withdrawal is outdated. */
  #generation = 0;
  /** Runs while the API server does not serve the kind, and objects of it are known. */
  #missingTimer: Timer | undefined;
  #progressAt: number;
  /** The failed discoveries in a row. */
  #discovery: { readonly failures: number; readonly last: string | undefined } = NO_FAILURES;

  constructor(name: string, feed: AnyFeed, options: FollowedKindOptions) {
    this.name = name;
    this.#feed = feed;
    this.#options = options;
    this.#progressAt = options.clock.now();
  }

  get state(): ResourceState | 'resting' {
    return this.#state;
  }

  get complete(): boolean {
    return this.#feed.complete;
  }

  /** Returns the number of objects with a value. */
  get size(): number {
    return this.#feed.size;
  }

  /** The monotonic time of the last progress: objects arrived, a reflector began, or the kind was expected. */
  get progressAt(): number {
    return this.#progressAt;
  }

  /** The number of failures of the current reflector; without a reflector, those of discovery. */
  get failures(): number {
    return this.#following === undefined
      ? this.#discovery.failures
      : (this.#resource?.status().failures ?? 0);
  }

  /** The message of the last failure that {@link failures} counts. */
  get lastFailure(): string | undefined {
    if (this.#following === undefined) return this.#discovery.last;
    return this.#resource?.status().lastFailure?.message;
  }

  /**
   * Sets the state to `listing` without a reflector, because discovery has not ended, or the start is delayed.
   */
  expect(): void {
    this.#progressAt = this.#options.clock.now();
    this.#discovery = NO_FAILURES;
    this.#change('listing');
  }

  /** Counts a failed discovery of the kind to follow. */
  recordDiscoveryFailure(why: string): void {
    this.#discovery = { failures: this.#discovery.failures + 1, last: why };
    this.#options.onChange();
  }

  /**
   * Follows `kind` and ends the current reflector. Known objects stay until the new list is complete.
   *
   * @param state the state before the reflector reports one
   */
  follow(kind: ResourceKind, state: ResourceState = 'listing'): void {
    this.#end();
    const { source, clock, onChange } = this.#options;
    const controller = new AbortController();
    const { signal } = controller;
    this.#following = controller;
    this.#progressAt = clock.now();
    this.#state = state;
    const sink = this.#feed.start(onChange);
    const timedSink: ResourceSink = {
      apply: (events) => {
        this.#progressAt = clock.now();
        sink.apply(events);
      },
      onListed: () => sink.onListed(),
    };
    const onState = (next: ResourceState): void => {
      if (signal.aborted) return;
      this.#limitMissing(kind, next);
      this.#change(next);
    };
    // The feed remembers the values of objects, so that a deleted object needs only its name.
    const { fields, scanner } = this.#feed;
    const options = { signal, keep: objectVersion, fields, scanner, onState };
    this.#resource = source.follow(kind, timedSink, options);
    onChange();
  }

  /** Ends the reflector; known objects stay. */
  rest(): void {
    this.#end();
    this.#change('resting');
  }

  /**
   * Ends the reflector and withdraws all claims. Calls `onDone` when all are withdrawn, unless the kind is followed
   * again before.
   */
  withdraw(onDone?: () => void): void {
    this.rest();
    const steps = this.#feed.withdrawSteps();
    const generation = this.#generation;
    const onEnd = (): void => {
      if (generation === this.#generation) onDone?.();
    };
    const { gate, signal } = this.#options;
    runNowOrInBackground(gate, steps, { signal, onEnd });
  }

  /** Ends the reflector and resolves when it has ended. */
  async stop(): Promise<void> {
    this.#end();
    await this.#resource?.stopped;
  }

  status(): KindStatus {
    const { name, complete, size: objects } = this;
    const resource = this.#resource?.status();
    return { name, state: this.#state, complete, objects, rejected: this.#feed.rejected, resource };
  }

  /**
   * Starts the time limit when the kind is missing. An attempt to list does not end it, because the attempt may fail
   * again.
   */
  #limitMissing(kind: ResourceKind, state: ResourceState): void {
    if (state === 'listing') return;
    if (state === 'missing' && this.size > 0)
      this.#missingTimer ??= this.#options.clock.after(MISSING_LIMIT_MS, () => this.#forget(kind));
    else this.#cancelMissingTimer();
  }

  #cancelMissingTimer(): void {
    this.#missingTimer?.cancel();
    this.#missingTimer = undefined;
  }

  /** Forgets all objects of the kind, which is then not complete, as after a start without the kind. */
  #forget(kind: ResourceKind): void {
    const { gate, signal, onForget } = this.#options;
    onForget?.(this.size);
    this.follow(kind, 'missing');
    runNowOrInBackground(gate, this.#feed.forgetSteps(), { signal });
  }

  #end(): void {
    this.#generation++;
    this.#cancelMissingTimer();
    this.#following?.abort();
    this.#following = undefined;
  }

  /** Sets the state and reports it if it has changed. */
  #change(state: ResourceState | 'resting'): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#options.onChange();
  }
}
