import type { DeliveryQueue, Recipient } from './delivery-queue.ts';
import { type Unsubscribe, unsubscribeOnce } from './subscription.ts';

/** What a new listener receives of the state that is there, before the changes. */
export interface Replay<L> {
  /**
   * The calls that make it up, which show the state at the time of this call. May be read lazily, as long as
   * {@link ListenerSet.beforeChange} is called before each change of that state.
   */
  steps(): IterableIterator<(listener: L) => unknown>;
  /** Notifies a listener that its subscription has ended because a step has thrown. */
  ended(listener: L): unknown;
}

interface Subscription<L> extends Recipient<L> {
  active: boolean;
}

/**
 * Listeners of one kind, called in order of subscription, each behind the guard of the queue (I7). They may subscribe,
 * unsubscribe and change what they listen to while they are called; {@link DeliveryQueue} says what that means.
 * One listener subscribed twice has two subscriptions.
 */
export class ListenerSet<L extends object> {
  readonly #queue: DeliveryQueue;
  /** Copy-on-write: a delivery goes to those who were here when it was asked for. */
  #subscriptions: readonly Subscription<L>[] = [];
  #steps: ReplaySteps<(listener: L) => unknown> | undefined;

  constructor(queue: DeliveryQueue) {
    this.#queue = queue;
  }

  get size(): number {
    return this.#subscriptions.length;
  }

  /** The listeners of this moment, in order of subscription. */
  get current(): readonly L[] {
    return this.#subscriptions.map(({ listener }) => listener);
  }

  /**
   * The listener receives what is notified from here on. With a replay it receives that first, as a delivery of its own:
   * now, or after those that are under way, and then what is notified from the beginning of the replay on. So nothing
   * is lost or doubled in between. A replay of which a step throws is not continued: the subscription ends.
   */
  subscribe(listener: L, replay?: Replay<L>): Unsubscribe {
    const subscription = { listener, active: true };
    if (replay === undefined) this.#add(subscription);
    else this.#queue.run(() => this.#replay(subscription, replay));
    return unsubscribeOnce(() => this.#remove(subscription));
  }

  /** Calls `call` for each listener with `what`, passed on so that `call` needs to be no closure: now, or in its turn. */
  notify<W>(call: (listener: L, what: W) => unknown, what: W): void {
    if (this.#subscriptions.length > 0) this.#queue.deliver(this.#subscriptions, call, what);
  }

  /** A change is about to be made to what replays show: reads the rest of the one under way. Cheap without one. */
  beforeChange(): void {
    this.#steps?.readAll();
  }

  #replay(subscription: Subscription<L>, replay: Replay<L>): void {
    if (!subscription.active) return;
    this.#add(subscription);
    const steps = new ReplaySteps(replay.steps());
    this.#steps = steps;
    for (let step = steps.next(); step !== undefined && subscription.active; step = steps.next()) {
      if (this.#queue.guard.call(step, subscription.listener)) continue;
      this.#remove(subscription);
      this.#queue.guard.call(replay.ended, subscription.listener);
    }
    this.#steps = undefined;
  }

  #add(subscription: Subscription<L>): void {
    this.#subscriptions = [...this.#subscriptions, subscription];
  }

  #remove(subscription: Subscription<L>): void {
    subscription.active = false;
    this.#subscriptions = this.#subscriptions.filter((other) => other !== subscription);
  }
}

/** The steps of a replay under way, read one by one until the rest has to be read at once. */
class ReplaySteps<S> {
  #source: IterableIterator<S>;
  #isRead = false;

  constructor(source: IterableIterator<S>) {
    this.#source = source;
  }

  next(): S | undefined {
    const { done, value } = this.#source.next();
    return done === true ? undefined : value;
  }

  readAll(): void {
    if (this.#isRead) return;
    this.#isRead = true;
    this.#source = [...this.#source].values();
  }
}
