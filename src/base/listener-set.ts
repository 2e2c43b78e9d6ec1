import { DeliveryQueue, type Recipient } from './delivery-queue.ts';
import { CallbackGuard } from './guard.ts';
import { type Unsubscribe, unsubscribeOnce } from './subscription.ts';

/** The existing state, which a new listener receives before the changes. */
export interface Replay<L> {
  /**
   * Returns the calls that deliver the current state to a listener. If they are computed lazily, the owner of the state
   * must call {@link ListenerSet.beforeChange} before each change.
   */
  steps(): IterableIterator<(listener: L) => unknown>;
  /** Notifies a listener of the end of its subscription, because a step threw an error. */
  ended(listener: L): unknown;
}

interface Subscription<L> extends Recipient<L> {
  active: boolean;
}

/**
 * Listeners of one kind, called in order of subscription under the guard of the queue (I7). A listener may subscribe,
 * unsubscribe and write to its source during a call; {@link DeliveryQueue} defines the order. If a listener is
 * subscribed twice, it has two subscriptions.
 */
export class ListenerSet<L extends object> {
  readonly #queue: DeliveryQueue;
  /** Copy-on-write: a delivery reaches the subscriptions that existed when it was requested. */
  #subscriptions: readonly Subscription<L>[] = [];
  /** Computes the remaining steps of the running replay; undefined if there are none to compute. */
  #computeSteps: (() => void) | undefined;

  constructor(queue: DeliveryQueue) {
    this.#queue = queue;
  }

  get size(): number {
    return this.#subscriptions.length;
  }

  get current(): readonly L[] {
    return this.#subscriptions.map(({ listener }) => listener);
  }

  /**
   * Adds a listener, which receives all later notifications. With a replay, the listener receives the replay first, as
   * one delivery: now or after the running deliveries. It then receives all notifications since the beginning of the
   * replay, so that none is lost or duplicated. If a step of the replay throws, the replay stops and the subscription
   * ends.
   */
  subscribe(listener: L, replay?: Replay<L>): Unsubscribe {
    const subscription = { listener, active: true };
    if (replay === undefined) this.#add(subscription);
    else this.#queue.run(() => this.#replay(subscription, replay));
    return unsubscribeOnce(() => this.#remove(subscription));
  }

  /**
   * Calls `call` with each listener and `event`, now or after the running deliveries. Because `event` is a parameter,
   * `call` need not be a closure.
   */
  notify<E>(call: (listener: L, event: E) => unknown, event: E): void {
    if (this.#subscriptions.length > 0) this.#queue.deliver(this.#subscriptions, call, event);
  }

  /**
   * Must be called before a change of the state that a replay delivers: computes the remaining steps of a running
   * replay. Cheap if no replay is running.
   */
  beforeChange(): void {
    this.#computeSteps?.();
  }

  #replay(subscription: Subscription<L>, replay: Replay<L>): void {
    if (!subscription.active) return;
    this.#add(subscription);
    let steps = replay.steps();
    this.#computeSteps = () => {
      this.#computeSteps = undefined;
      steps = [...steps].values();
    };
    for (let step = steps.next(); step.done !== true && subscription.active; step = steps.next()) {
      if (this.#queue.guard.call(step.value, subscription.listener)) continue;
      this.#remove(subscription);
      this.#queue.guard.call(replay.ended, subscription.listener);
    }
    this.#computeSteps = undefined;
  }

  #add(subscription: Subscription<L>): void {
    this.#subscriptions = [...this.#subscriptions, subscription];
  }

  #remove(subscription: Subscription<L>): void {
    subscription.active = false;
    this.#subscriptions = this.#subscriptions.filter((other) => other !== subscription);
  }
}

/** Callbacks for values of one type. Their errors are ignored. */
export class CallbackSet<V> extends ListenerSet<(value: V) => unknown> {
  constructor() {
    super(new DeliveryQueue(new CallbackGuard()));
  }

  /** Calls each callback with `value`, now or after the running calls. */
  call(value: V): void {
    this.notify((callback, received) => callback(received), value);
  }
}
