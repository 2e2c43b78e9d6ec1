import type { Clock } from '../../base/clock.ts';
import type { IPCacheSnapshot } from '../../ipcache/snapshot.ts';
import type { ChangeFeed } from '../change-feed.ts';
import type { ReadModel } from '../read-model.ts';

/** A snapshot and its revision of the change feed. */
export interface SnapshotView {
  readonly snapshot: IPCacheSnapshot;
  readonly revision: number;
}

/** If the limit of held snapshots is reached, new lists share the last snapshot if it is younger than this. */
const SHARED_MS = 10_000;

/** Takes the snapshots of lists. Lists of the same revision share a snapshot while one of them is held. */
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

  /** Returns a current view. If `many` is true, the view may be up to {@link SHARED_MS} old. */
  snapshot(many: boolean): SnapshotView {
    const { ipcache } = this.#model;
    const { revision } = this.#feed;
    const last = this.#last?.deref();
    const isNow = last?.revision === revision && last.snapshot.revision === ipcache.revision;
    const isShared = many && this.#clock.now() - this.#createdAt < SHARED_MS;
    if (last !== undefined && (isNow || isShared)) return last;
    const view = { snapshot: ipcache.snapshot(), revision };
    this.#last = new WeakRef(view);
    this.#createdAt = this.#clock.now();
    return view;
  }
}
