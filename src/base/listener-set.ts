import { type Unsubscribe, unsubscribeOnce } from './subscription.ts';

/**
 * What a listener threw, and which one. The set goes on with the next listener (I7), also when this throws: a
 * broken report must not do what a broken listener may not.
 */
export type ListenerFault<L> = (error: unknown, listener: L) => void;

/**
 * Listeners in order of subscription, isolated from each other (I7): one that throws is reported to `onFault`
 * and harms neither the others nor the caller. Copy-on-write, so that a listener may subscribe or unsubscribe
 * while it is being called: one added during a `notify` is not called by it, one removed is not called any more.
 */
export class ListenerSet<L extends object> {
  readonly #onFault: ListenerFault<L>;
  #listeners: readonly L[] = [];

  constructor(onFault: ListenerFault<L>) {
    this.#onFault = onFault;
  }

  get size(): number {
    return this.#listeners.length;
  }

  /** The listeners of this moment; never changed in place, so it is safe to keep for a later delivery. */
  get current(): readonly L[] {
    return this.#listeners;
  }

  /** The same object added twice is called twice and must be removed twice. */
  add(listener: L): Unsubscribe {
    this.#listeners = [...this.#listeners, listener];
    return unsubscribeOnce(() => this.#remove(listener));
  }

  /** Calls `call` for each of `listeners` (by default all) that is still subscribed. Never throws. */
  notify(call: (listener: L) => void, listeners: readonly L[] = this.#listeners): void {
    for (const listener of listeners) {
      if (listeners !== this.#listeners && !this.#listeners.includes(listener)) continue;
      this.guard(listener, call);
    }
  }

  /**
   * As {@link ListenerSet.notify}, for what is told very often: `what` is passed on, so that `call` needs to be no
   * closure.
   */
  tell<W>(call: (listener: L, what: W) => void, what: W, listeners: readonly L[] = this.#listeners): void {
    for (const listener of listeners) {
      if (listeners !== this.#listeners && !this.#listeners.includes(listener)) continue;
      try {
        call(listener, what);
      } catch (error) {
        this.#report(error, listener);
      }
    }
  }

  /** Calls one listener, under the same isolation. */
  guard(listener: L, call: (listener: L) => void): void {
    try {
      call(listener);
    } catch (error) {
      this.#report(error, listener);
    }
  }

  #report(error: unknown, listener: L): void {
    try {
      this.#onFault(error, listener);
    } catch {
      // There is nobody left to tell.
    }
  }

  #remove(listener: L): void {
    const index = this.#listeners.indexOf(listener);
    if (index >= 0) this.#listeners = this.#listeners.toSpliced(index, 1);
  }
}
