import { ListenerSet } from '../base/listener-set.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { ServiceEvent, ServiceListener } from './events.ts';

interface Delivery {
  readonly events: readonly ServiceEvent[];
  /** Who was subscribed when it happened: who came later has seen it in the replay. */
  readonly listeners: readonly ServiceListener[];
}

/**
 * Hands events to listeners in order, one delivery at a time: what a listener changes while it is being told is
 * told after that, to everybody. Holds only what was caused during one delivery, so it is bounded by what the
 * listeners do (I11).
 */
export class EventQueue {
  readonly #listeners: ListenerSet<ServiceListener>;
  readonly #waiting: Delivery[] = [];
  #delivering = false;
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

  /** Adds a listener and gives it `replay`, then `onSynced`. */
  subscribe(listener: ServiceListener, replay: readonly ServiceEvent[]): Unsubscribe {
    const unsubscribe = this.#listeners.add(listener);
    if (replay.length > 0) this.#listeners.guard(listener, (each) => each.onEvents(replay));
    this.#listeners.guard(listener, (each) => each.onSynced?.());
    return unsubscribe;
  }

  /** Tells `events`, now or after what is being told. */
  push(events: readonly ServiceEvent[]): void {
    if (events.length === 0 || this.#listeners.size === 0) return;
    this.#waiting.push({ events, listeners: this.#listeners.current });
    if (this.#delivering) return;
    this.#delivering = true;
    try {
      for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
        const { events: told, listeners } = next;
        this.#listeners.notify((listener) => listener.onEvents(told), listeners);
      }
    } finally {
      this.#delivering = false;
    }
  }
}
