import type { Delayed } from '../loop-delay.ts';

/** One line of the table: the cost of an operation. */
export interface Row {
  /** CPU nanoseconds of the thread, for one operation; median over the rounds. */
  readonly ns: number;
  /** `ns` divided by that of `Map.set` (writes) or `Map.get` (reads) of the same strings in the same run. */
  readonly ratio: number;
  /** Wall time of one operation in nanoseconds. */
  readonly wallNs: number;
  readonly wallRatio: number;
  /** Part of `wallNs` in pauses of the garbage collector. */
  readonly gcNs: number;
  /** CPU nanoseconds of the helper threads, which collect garbage and compile. */
  readonly helperNs: number;
  /** `ns` divided by that of the same row of the plain workload, if the budget is such a ratio. */
  readonly factor?: number | undefined;
}

/** Longest single operations, in milliseconds. */
export interface Stall {
  readonly maxMs: number;
  /** Pause of the garbage collector within the longest operation. */
  readonly gcMs: number;
  /** In CPU time of the thread. */
  readonly p9999Ms: number;
  /** The longest operation in CPU time of the thread, without pauses of the collector. */
  readonly workMs: number;
}

/** A peer's figures, under the names of the engine's rows. */
export interface PeerReport {
  readonly n: number;
  readonly rounds: number;
  readonly bytesPerEntry: number | undefined;
  readonly rows: Readonly<Record<string, Row>>;
}

/** The result of `bench ipcache`. */
export interface IPCacheReport {
  readonly n: number;
  readonly rounds: number;
  readonly bytesPerEntry: number;
  readonly bytesPerEntryIPv6: number;
  /** For addresses without neighbours. */
  readonly bytesPerEntrySparse: number;
  /** For the table of longest matches. */
  readonly bytesPerPrefix: number;
  readonly mapBytesPerEntry: number;
  readonly rows: Readonly<Record<string, Row>>;
  readonly stalls: Readonly<Record<string, Stall>>;
  /** Snapshots and withdrawals in the turns of an event loop. */
  readonly turns: Readonly<Record<string, Delayed>>;
  /** Minimum time between two readings of the clock for stalls. */
  readonly timerNs: number;
  readonly peers: Readonly<Record<string, PeerReport>>;
  /** Ratios to another program by row, and its number of entries. */
  readonly otherProgram?: { readonly n: number; readonly timesFaster: Readonly<Record<string, number>> };
}
