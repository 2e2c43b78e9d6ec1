import type { LoopDelay } from '../loop-delay.ts';

/** The followers of the API server in Node, each in a separate process. */
export type NodeFollowerName = 'feed' | 'reflectors' | 'client-node';

/** The followers of the API server. */
export type FollowerName = NodeFollowerName | 'client-go';

/** The argument of the process of a follower. */
export interface FollowerTask {
  readonly server: string;
  /** File of the authority. */
  readonly ca: string;
  readonly token: string;
  /** Number of existing CiliumEndpoints. */
  readonly endpoints: number;
  /** Number of existing services, each with a slice. */
  readonly services: number;
  /** Number of CiliumEndpoints that are written at full speed after the sync. */
  readonly burst: number;
  /** Prefix of their new addresses, which no object had before. */
  readonly burstPrefix: string;
  /** Prefix of the new addresses of changes that are reported one by one. */
  readonly changePrefix: string;
}

/** Event-loop delay of a follower, in milliseconds. */
export interface LoopFigures extends LoopDelay {
  /** CPU time of the thread between two checks of the loop, 99th percentile: independent of other processes. */
  readonly ownP99: number;
}

/** Costs of a follower for one part of its work. */
export interface Part {
  readonly ms: number;
  /** CPU time of its process. */
  readonly cpuMs: number;
  /** Maximum resident memory until now. */
  readonly peakMB: number;
  /** Absent if there is no event loop. */
  readonly loop?: LoopFigures;
}

/** Messages of the process of a follower: a line of JSON each. */
export type FollowerReport =
  | { readonly type: 'synced'; readonly part: Part; readonly liveMB: number }
  | { readonly type: 'burst'; readonly part: Part }
  /** `at`: wall time at which the follower had the change. */
  | { readonly type: 'change'; readonly ip: string; readonly at: number };
