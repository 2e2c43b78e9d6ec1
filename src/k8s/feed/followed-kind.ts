import type { Clock } from '../../base/clock.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import {
  type FollowedResource,
  identified,
  type ResourceKind,
  type ResourceSink,
  type ResourceSource,
  type ResourceState,
  type ResourceStatus,
} from '../resource.ts';
import type { AnyFeed } from './object-feed.ts';

/** What {@link FollowedKind} takes from its surroundings. */
export interface FollowedKindOptions {
  readonly source: ResourceSource;
  readonly clock: Clock;
  readonly gate: TurnGate | undefined;
  /** Its state, or whether it is complete, has changed. */
  readonly onChange: () => void;
}

/** What becomes of one kind, as data. */
export interface KindStatus {
  /** Plural: `ciliumendpoints`. */
  readonly name: string;
  /** `resting`: the kvstore says it, or nothing asks for it. Else what its reflector is doing. */
  readonly state: ResourceState | 'resting';
  /** All that the API server has of it has been applied or refused (K 8). */
  readonly complete: boolean;
  /** Objects that say something. */
  readonly objects: number;
  /** Objects and fields that were refused. */
  readonly rejected: number;
  /** Of the reflector that runs, or ran last. */
  readonly resource: ResourceStatus | undefined;
}

/** One kind of object: its feed, and the reflector that hands it the objects. Reflectors come and go; the feed stays. */
export class FollowedKind {
  readonly name: string;
  readonly #feed: AnyFeed;
  readonly #options: FollowedKindOptions;
  #following: AbortController | undefined;
  #resource: FollowedResource | undefined;
  #state: ResourceState | 'resting' = 'resting';
  /** Goes up with each beginning and each end: a withdrawal that another has taken over is not the one that is over. */
  #turns = 0;
  #progressAt: number;
  #attempts = 0;
  #lastAttempt: string | undefined;

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

  /** Objects that say something. */
  get size(): number {
    return this.#feed.size;
  }

  /** When more of it had arrived last, or it was begun, on the clock's monotonic time. */
  get progressAt(): number {
    return this.#progressAt;
  }

  /** Failures of the reflector that runs, or to find out what it is to ask for. */
  get failures(): number {
    return this.#following === undefined ? this.#attempts : (this.#resource?.status().failures ?? 0);
  }

  /** The last of them, in words. */
  get lastFailure(): string | undefined {
    return this.#following === undefined ? this.#lastAttempt : this.#resource?.status().lastFailure?.message;
  }

  /** It is about to be followed: what is to be asked for is still to be found out. */
  expect(): void {
    this.#progressAt = this.#options.clock.now();
    this.#attempts = 0;
    this.#lastAttempt = undefined;
    this.#change('listing');
  }

  /** What is to be asked for could not be found out. */
  attemptFailed(why: string): void {
    this.#attempts++;
    this.#lastAttempt = why;
    this.#options.onChange();
  }

  /** Follows these objects, instead of those that it followed: what it knows stays until they are listed. */
  follow(kind: ResourceKind): void {
    this.#end();
    const { source, clock, onChange } = this.#options;
    const controller = new AbortController();
    const { signal } = controller;
    this.#following = controller;
    this.#progressAt = clock.now();
    this.#state = 'listing';
    const sink = this.#feed.begin(onChange);
    const observed: ResourceSink = {
      apply: (events) => {
        this.#progressAt = clock.now();
        sink.apply(events);
      },
      onListed: () => sink.onListed(),
    };
    const onState = (state: ResourceState): void => {
      if (!signal.aborted) this.#change(state);
    };
    // What an object said is known here: of one that goes its name is enough.
    const { fields } = this.#feed;
    this.#resource = source.follow(kind, observed, { signal, keep: identified, fields, onState });
    onChange();
  }

  /** Ends following; what is known stays. */
  rest(): void {
    this.#end();
    this.#change('resting');
  }

  /** Ends following and takes back what was claimed; calls back when nothing is left, unless it is followed again. */
  withdraw(onDone?: () => void): void {
    this.rest();
    const steps = this.#feed.withdrawSteps();
    const turn = this.#turns;
    const done = (): void => {
      if (turn === this.#turns) onDone?.();
    };
    if (this.#options.gate === undefined) {
      for (const _ of steps);
      done();
    } else void this.#options.gate.runSteps(steps).then(done);
  }

  /** Resolves when its reflector has ended. */
  async stop(): Promise<void> {
    this.#end();
    await this.#resource?.stopped;
  }

  status(): KindStatus {
    const { name, complete, size: objects } = this;
    const resource = this.#resource?.status();
    return { name, state: this.#state, complete, objects, rejected: this.#feed.rejected, resource };
  }

  #end(): void {
    this.#turns++;
    this.#following?.abort();
    this.#following = undefined;
  }

  #change(state: ResourceState | 'resting'): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#options.onChange();
  }
}
