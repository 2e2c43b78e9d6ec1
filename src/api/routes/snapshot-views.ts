import type { Clock } from '../../base/clock.ts';
import type { IPCacheSnapshot } from '../../ipcache/snapshot.ts';
import type { ChangeFeed } from '../change-feed.ts';
import type { ReadModel } from '../read-model.ts';

/** A snapshot and its revision of the change feed. */
export interface SnapshotView {
  readonly snapshot: IPCacheSnapshot;
  readonly revision: number;
}

/** Maximum age of a `recent` snapshot. */
const MAX_SHARED_AGE_MS = 10_000;

/** Takes the snapshots of list requests. Requests at the same revision share a snapshot while one of them holds it. */
export class SnapshotViews {
  readonly #model: ReadModel;
  readonly #feed: ChangeFeed;
  readonly #clock: Clock;
  #last: WeakRef<SnapshotView> | undefined;
  #createdAt = 0;

  constructor(model: ReadModel, feed: ChangeFeed, clock: Clock) {
    this.#model = model;
    this.#feed = feed;
    this.#clock = clock;
  }

  /** Returns a view that is current, or at most {@link MAX_SHARED_AGE_MS} old if `recent` is enough. */
  snapshot(age: 'current' | 'recent'): SnapshotView {
    const { ipcache } = this.#model;
    const { revision } = this.#feed;
    const last = this.#last?.deref();
    const isCurrent = last?.revision === revision && last.snapshot.revision === ipcache.revision;
    const isShared = age === 'recent' && this.#clock.now() - this.#createdAt < MAX_SHARED_AGE_MS;
    if (last !== undefined && (isCurrent || isShared)) return last;
    const view = { snapshot: ipcache.snapshot(), revision };
    this.#last = new WeakRef(view);
    this.#createdAt = this.#clock.now();
    return view;
  }
}
