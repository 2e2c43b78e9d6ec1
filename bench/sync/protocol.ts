import type { LoopDelay } from '../loop-delay.ts';

/** The programs that follow the IPs of a cluster, each in a separate process. */
export type FollowerName = 'datapath-cache' | 'node' | 'go';

/** The argument of a follower. */
export interface FollowerTask {
  readonly endpoint: string;
  readonly cluster: string;
  /** Prefix of the IPs. */
  readonly prefix: string;
  readonly keys: number;
}

/**
 * A part of the work. A follower begins with `list`. It begins the other parts when it receives their names as lines on
 * its standard input:
 *
 * - `watch`: every key is written once more. The part ends when all changes are applied.
 * - `resync`: the server is killed and started again. The part ends when all keys were compared.
 */
export type PartName = 'list' | 'watch' | 'resync';

/** Costs of one part, one line of JSON on the standard output. */
export interface Part {
  readonly part: PartName;
  readonly ms: number;
  /** CPU time of its process, all threads. The part `list` includes the start of the process. */
  readonly cpuMs: number;
  /** Maximum resident memory of the process until now. */
  readonly peakMB: number;
  /** Resident memory after the part, after a garbage collection. */
  readonly steadyMB: number;
  /** Time from the start of the connection until the first entry can be looked up; only for `list`. */
  readonly firstMs?: number;
  /** Absent if there is no event loop. */
  readonly loop?: LoopDelay;
}

/** The argument of `copies.ts`. Cluster i is copied into the endpoint with index i modulo the number of endpoints. */
export interface CopiesTask {
  readonly endpoints: readonly string[];
  readonly clusters: number;
  /** IPs of each cluster. */
  readonly ips: number;
}

/** Costs of following the copies of many clusters until all are complete. */
export interface CopiesReport {
  readonly ms: number;
  /** CPU time of the process, all threads, with its start. */
  readonly cpuMs: number;
  /** Maximum resident memory of the process. */
  readonly peakMB: number;
  readonly delay: LoopDelay;
}
