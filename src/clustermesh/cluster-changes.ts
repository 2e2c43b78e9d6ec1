import { CallbackGuard } from '../base/guard.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';

/** Receives the name of a cluster of which something has changed. */
export type OnClusterChange = (cluster: string) => void;

/** Who is notified of changes of clusters; a fault of one callback reaches no other (I7). */
export class ClusterChanges {
  readonly #guard = new CallbackGuard();
  readonly #callbacks = new Set<OnClusterChange>();

  add(callback: OnClusterChange): Unsubscribe {
    const own: OnClusterChange = (cluster) => callback(cluster);
    this.#callbacks.add(own);
    return unsubscribeOnce(() => this.#callbacks.delete(own));
  }

  notify(cluster: string): void {
    for (const callback of this.#callbacks) this.#guard.call(callback, cluster);
  }
}
