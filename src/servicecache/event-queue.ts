import { DeliveryQueue } from '../base/delivery-queue.ts';
import { ListenerSet } from '../base/listener-set.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { ServiceEvent, ServiceListener } from './events.ts';

function tellEvents(listener: ServiceListener, events: readonly ServiceEvent[]): void {
  listener.onEvents(events);
}

function tellComplete(listener: ServiceListener): void {
  listener.onInputsComplete?.();
}

/**
 * Hands events to listeners in order, one delivery at a time: what a listener changes while it is being told is
 * told after that, to everybody who was subscribed when it happened. Holds only what was caused during one
 * delivery, so it is bounded by what the listeners do (I11).
 */
export class EventQueue {
  readonly #listeners: ListenerSet<ServiceListener>;
  readonly #deliveries = new DeliveryQueue();
  #faults = 0;

  /** `onFault` hears of listeners that throw. */
  constructor(onFault: ((error: unknown, listener: ServiceListener) => void) | undefined) {
    this.#listeners = new ListenerSet((error, listener) => {
      this.#faults++;
      onFault?.(error, listener);
    });
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  /** How often a listener has thrown. */
  get faults(): number {
    return this.#faults;
  }

  /** Adds a listener and gives it `replay`, then `onSynced`, then `onInputsComplete` where that has been. */
  subscribe(
    listener: ServiceListener,
    replay: readonly ServiceEvent[],
    inputsComplete: boolean,
  ): Unsubscribe {
    const unsubscribe = this.#listeners.add(listener);
    if (replay.length > 0) this.#listeners.guard(listener, (each) => each.onEvents(replay));
    this.#listeners.guard(listener, (each) => each.onSynced?.());
    if (inputsComplete) this.#listeners.guard(listener, tellComplete);
    return unsubscribe;
  }

  /** Tells `events`, now or after what is being told. */
  push(events: readonly ServiceEvent[]): void {
    this.#deliveries.deliver(this.#listeners, tellEvents, events);
  }

  /** Tells that the inputs are complete, after what is being told. */
  pushInputsComplete(): void {
    this.#deliveries.deliver(this.#listeners, tellComplete, undefined);
  }
}
