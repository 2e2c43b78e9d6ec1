import { CallbackGuard } from '../base/guard.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';

/** Receives the name of a changed cluster. */
export type OnClusterChange = (cluster: string) => void;

/** The callbacks for changes of clusters. A fault of one callback does not affect the others (I7). */
export class ClusterChanges {
  readonly #guard = new CallbackGuard();
  readonly #callbacks = new Set<OnClusterChange>();

  add(callback: OnClusterChange): Unsubscribe {
    // A new function, so that the same callback can be added twice.
    const added: OnClusterChange = (cluster) => callback(cluster);
    this.#callbacks.add(added);
    return unsubscribeOnce(() => this.#callbacks.delete(added));
  }

  notify(cluster: string): void {
    for (const callback of this.#callbacks) this.#guard.call(callback, cluster);
  }
}
