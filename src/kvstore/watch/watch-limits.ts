/** Limits on the reads, queues and deliveries of a watch. */
export interface WatchLimits {
  /**
   * Maximum number of events of a batch: about 2 ms of decoding and engine work between two turns of the event loop.
   * Twice the limit of an etcd transaction.
   */
  readonly batchEvents: number;
  /**
   * The source pauses if more than `highWaterBytes` are queued, and continues below `lowWaterBytes`. The difference is
   * about ten batches, so that the reader never waits. The limit is low, because each garbage collection of the young
   * generation moves the queued events: with 8 MiB queued, this took 15 ms each time.
   */
  readonly highWaterBytes: number;
  readonly lowWaterBytes: number;
  /**
   * Maximum number of bytes of a revision that is buffered until it is complete. etcd accepts 1.5 MiB in one
   * transaction by default and advises at most 10 MiB.
   */
  readonly revisionBytes: number;
  /**
   * Number of keys of the first page of a listing. Few, because the code that processes it is not compiled yet: with
   * 128 keys, the first entry appears 9 ms later.
   */
  readonly firstPageKeys: number;
  /** Maximum number of keys of a page: about 1.5 MB of typical values, which the transport reads in 2 ms. */
  readonly pageKeys: number;
  /** Number of listed keys that are processed in one turn: about a millisecond. */
  readonly sliceKeys: number;
  /**
   * Maximum number of pages of later writes that are read after an interruption. If there are more, a listing is
   * faster.
   */
  readonly deltaPages: number;
  /**
   * Maximum number of revisions that a resumed stream replays. etcd replays about 8,000 revisions/s; beyond this
   * number, a read is faster (ETCD.md).
   */
  readonly backlogRevisions: number;
  /**
   * Minimum time from a broken stream until all keys are compared with their values. Without values, a restored store
   * that has put the same keys at the same revisions is not detected.
   */
  readonly rereadMs: number;
}

export const WATCH_LIMITS: WatchLimits = {
  batchEvents: 256,
  highWaterBytes: 1 << 20,
  lowWaterBytes: 512 << 10,
  revisionBytes: 16 << 20,
  firstPageKeys: 16,
  pageKeys: 4096,
  sliceKeys: 512,
  deltaPages: 5,
  backlogRevisions: 20_000,
  rereadMs: 1000,
};
