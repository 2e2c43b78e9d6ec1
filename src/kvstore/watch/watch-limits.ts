/** How much a watch reads, queues and delivers at a time. */
export interface WatchLimits {
  /**
   * Most events of one batch: about 2 ms of decoding and engine work, between which others get their turn. Twice what
   * etcd takes in one transaction.
   */
  readonly batchEvents: number;
  /**
   * Bytes queued above which the source pauses, and below which it goes on: some ten batches, so that the reader has no
   * pause. What is queued outlives the young generation's collections, which hold up everything while they move it: 15 ms
   * each with 8 MiB queued, measured.
   */
  readonly highWaterBytes: number;
  readonly lowWaterBytes: number;
  /** Keys of the first page of a listing: on a link of 50 kB/s a second for most values, and no more than 3 MB of any. */
  readonly firstPageKeys: number;
  /** Most keys of a page: about 1.5 MB of usual values, read by the transport in 2 ms. */
  readonly pageKeys: number;
  /** Keys of a listing that are taken in at once: about a millisecond, between which others get their turn. */
  readonly sliceKeys: number;
  /** How much may have been written while a watch was away, in pages; beyond, a listing is the better way. */
  readonly deltaPages: number;
  /** etcd replays single writes at about 8,000 revisions/s: further behind, reading what was written is faster (ETCD.md). */
  readonly backlogRevisions: number;
  /**
   * After a stream has broken all values are read again, no sooner than after so long: the store may have been restored, and
   * have put the same keys at the same revisions.
   */
  readonly rereadMs: number;
}

export const WATCH_LIMITS: WatchLimits = {
  batchEvents: 256,
  highWaterBytes: 1 << 20,
  lowWaterBytes: 512 << 10,
  firstPageKeys: 128,
  pageKeys: 4096,
  sliceKeys: 512,
  deltaPages: 5,
  backlogRevisions: 20_000,
  rereadMs: 1000,
};
