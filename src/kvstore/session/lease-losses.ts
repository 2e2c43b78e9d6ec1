import type { DeliveryQueue } from '../../base/delivery-queue.ts';
import { ListenerSet } from '../../base/listener-set.ts';
import { type Unsubscribe, unsubscribeOnce } from '../../base/subscription.ts';
import type { LeaseLostListener } from './backend.ts';

/**
 * The listeners of lost leases, by scope. The listeners of a lost key are found by the folders in the key. A client may
 * have a thousand stores with different prefixes, and lose a million keys, so not every listener can check every key.
 */
export class LeaseLosses {
  readonly #queue: DeliveryQueue;
  /** By scope. The scope of a listener of all keys is empty. */
  readonly #listeners = new Map<string, ListenerSet<LeaseLostListener>>();

  constructor(queue: DeliveryQueue) {
    this.#queue = queue;
  }

  subscribe(listener: LeaseLostListener): Unsubscribe {
    const { scopes = [''] } = listener;
    const subscriptions = scopes.map((scope) => this.#subscribe(scope, listener));
    return unsubscribeOnce(() => {
      for (const unsubscribe of subscriptions) unsubscribe();
    });
  }

  #subscribe(scope: string, listener: LeaseLostListener): Unsubscribe {
    const listeners = this.#listeners.get(scope) ?? new ListenerSet<LeaseLostListener>(this.#queue);
    this.#listeners.set(scope, listeners);
    const unsubscribe = listeners.subscribe(listener);
    return unsubscribeOnce(() => {
      unsubscribe();
      if (listeners.size === 0 && this.#listeners.get(scope) === listeners) this.#listeners.delete(scope);
    });
  }

  /** Calls `onLeasesLost` of every listener, once per scope, before the keys of many lost leases are reported. */
  notifyLeasesLost(reported: Promise<unknown>): void {
    for (const listeners of this.#listeners.values())
      listeners.notify((listener, done) => listener.onLeasesLost?.(done), reported);
  }

  /** Notifies each listener of the keys in its scopes. */
  notifyLeaseLost(keys: readonly string[]): void {
    const byScope = new Map<string, string[]>();
    for (const key of keys) {
      for (const scope of scopesOf(key)) {
        if (!this.#listeners.has(scope)) continue;
        const inScope = byScope.get(scope);
        if (inScope === undefined) byScope.set(scope, [key]);
        else inScope.push(key);
      }
    }
    for (const [scope, inScope] of byScope) {
      this.#listeners.get(scope)?.notify((listener, lost) => listener.onLeaseLost(lost), inScope);
    }
  }
}

/** Returns the scopes of a key: all keys, its folders, and the key itself. */
function* scopesOf(key: string): Generator<string, void, void> {
  yield '';
  for (let slash = key.indexOf('/'); slash >= 0; slash = key.indexOf('/', slash + 1)) {
    if (slash < key.length - 1) yield key.slice(0, slash + 1);
  }
  yield key;
}
