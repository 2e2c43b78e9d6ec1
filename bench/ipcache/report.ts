import type { Delayed } from '../loop-delay.ts';

/** One line of the table: what an operation costs. */
export interface Row {
  /** Nanoseconds of CPU of the thread that does it, for one operation; median over the rounds. */
  readonly ns: number;
  /** `ns` by that of `Map.set` (writes) or `Map.get` (reads) of the same strings in the same run. */
  readonly ratio: number;
  /** The same by the clock on the wall. */
  readonly wallNs: number;
  readonly wallRatio: number;
  /** Part of `wallNs` in pauses of the garbage collector. */
  readonly gcNs: number;
  /** CPU nanoseconds of the threads beside it, which collect garbage and compile. */
  readonly helperNs: number;
  /** `ns` by that of the same row of the plain workload, where the budget is stated so. */
  readonly factor?: number | undefined;
}

/** Longest single operations, in milliseconds. */
export interface Stall {
  readonly maxMs: number;
  /** The part of the longest one in a pause of the garbage collector. */
  readonly gcMs: number;
  /** Of what the thread had the CPU for. */
  readonly p9999Ms: number;
  /** The longest one, by what the thread had the CPU for outside of such pauses. */
  readonly workMs: number;
}

/** A peer's figures, under the names of the engine's rows. */
export interface PeerReport {
  readonly n: number;
  readonly rounds: number;
  readonly bytesPerEntry: number | undefined;
  readonly rows: Readonly<Record<string, Row>>;
}

/** What `bench ipcache` measured. */
export interface IPCacheReport {
  readonly n: number;
  readonly rounds: number;
  readonly bytesPerEntry: number;
  readonly bytesPerEntryIPv6: number;
  /** Of addresses that are nowhere near each other. */
  readonly bytesPerEntrySparse: number;
  /** Of the table for longest matches. */
  readonly bytesPerPrefix: number;
  readonly mapBytesPerEntry: number;
  readonly rows: Readonly<Record<string, Row>>;
  readonly stalls: Readonly<Record<string, Stall>>;
  /** What takes stock or takes away, in the turns of an event loop. */
  readonly turns: Readonly<Record<string, Delayed>>;
  /** Time between two readings of the clock that stalls are taken with. */
  readonly timerNs: number;
  readonly peers: Readonly<Record<string, PeerReport>>;
  /** How many times faster than another program, by row, and of how many entries that one was. */
  readonly otherProgram?: { readonly n: number; readonly timesFaster: Readonly<Record<string, number>> };
}
