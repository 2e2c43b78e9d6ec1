import type { LoopDelay } from '../loop-delay.ts';

/** Who follows the API server in Node, each in a process of its own. */
export type NodeFollowerName = 'feed' | 'reflectors' | 'client-node';

/** Who follows the API server. */
export type FollowerName = NodeFollowerName | 'client-go';

/** What a follower's process is told, as its argument. */
export interface FollowerTask {
  readonly server: string;
  /** File of the authority. */
  readonly ca: string;
  readonly token: string;
  /** CiliumEndpoints that are to be there. */
  readonly endpoints: number;
  /** Services, each with a slice, that are to be there. */
  readonly services: number;
  /** CiliumEndpoints that are written as fast as they can be, once it is synced. */
  readonly burst: number;
  /** What their addresses begin with then; nothing had such a one before. */
  readonly burstPrefix: string;
  /** The same for changes of which each is to be reported. */
  readonly changePrefix: string;
}

/** How long a follower held up its event loop, in milliseconds. */
export interface LoopFigures extends LoopDelay {
  /** How much its thread worked between two looks at the loop, 99th percentile: a delay, however busy the machine is. */
  readonly heldP99: number;
}

/** What a follower has needed for one part of its work. */
export interface Part {
  readonly ms: number;
  /** Of its process. */
  readonly cpuMs: number;
  /** The most that was resident so far. */
  readonly peakMB: number;
  /** Left out where there is no event loop. */
  readonly loop?: LoopFigures;
}

/** What a follower's process says: a line of JSON each. */
export type FollowerReport =
  | { readonly type: 'synced'; readonly part: Part; readonly liveMB: number }
  | { readonly type: 'burst'; readonly part: Part }
  /** At which wall time it had that change. */
  | { readonly type: 'change'; readonly ip: string; readonly at: number };
