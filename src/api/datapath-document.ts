/** A part of a datapath, and whether it can run. */
export interface DatapathPartDocument {
  /** `ipcache`, `services`, `nodes`. */
  readonly name: string;
  /** `off`: it was not asked for. */
  readonly state: 'runs' | 'off' | 'cannot run';
  /** Why it cannot, or what of it does not: a sentence each, that says what to do about it. */
  readonly missing: readonly string[];
}

/** A key that the kernel has refused, and that is tried again. */
export interface DatapathFailureDocument {
  readonly key: string;
  readonly reason: string;
  readonly attempts: number;
}

/** How full a map in the kernel is. */
export interface DatapathMapDocument {
  readonly name: string;
  readonly used: number;
  readonly capacity: number;
}

/** Something in the kernel that is kept equal to the caches: a map, the routes. */
export interface DatapathTableDocument {
  readonly name: string;
  /**
   * `holding`: what was found at the start and no cache has said yet is kept, until the caches are complete. `degraded`:
   * something cannot be written, see `failing` and `noRoom`.
   */
  readonly state: 'unread' | 'holding' | 'kept' | 'degraded';
  /** Items that are to be there, and items of ours that are there. */
  readonly desired: number;
  readonly actual: number;
  /** Left out where there is no limit. */
  readonly capacity?: number | undefined;
  /** `actual` as a part of `capacity`, or how full the fullest of `maps` is, 0 to 1. */
  readonly pressure?: number | undefined;
  /** Where an item takes entries of several maps: how full they are. */
  readonly maps: readonly DatapathMapDocument[];
  /** Keys that wait for their turn. */
  readonly pending: number;
  /** Those of them that are to be deleted, and wait until other tables do not lead to them any more. */
  readonly waiting: number;
  /** Keys found at the start that no cache has said. */
  readonly held: number;
  /** Keys that there is no room for, and how often there was none. */
  readonly noRoom: number;
  readonly noRoomErrors: number;
  /** Keys that are tried again, counted, and some of them. */
  readonly failing: number;
  readonly failures: readonly DatapathFailureDocument[];
  readonly upserts: number;
  readonly deletes: number;
  /** Items that somebody else had changed, and that were put right. */
  readonly repairs: number;
}

/** A datapath of the machine that the agent runs on. */
export interface DatapathDocument {
  readonly kind: 'linux';
  /** `uname -r`. */
  readonly kernel: string;
  readonly pinFolder: string;
  /** The cgroup whose sockets are steered. */
  readonly cgroup?: string | undefined;
  readonly layout: string;
  /** Nothing is written; `/v1/datapath/diff` says what would be. */
  readonly dryRun: boolean;
  readonly parts: readonly DatapathPartDocument[];
  readonly tables: readonly DatapathTableDocument[];
  /** What the deletes of what was found at the start wait for, a sentence each; empty once they are allowed. */
  readonly waitsFor: readonly string[];
  /** What has failed as a whole: a map that cannot be read, a cgroup that is gone. */
  readonly failures: readonly string[];
}

/** Where the kernel differs from a cache. */
export interface DatapathStepDocument {
  readonly table: string;
  readonly key: string;
  /** What the kernel has; left out when it has nothing. */
  readonly kernel?: string | undefined;
  /** What the cache has; left out when it has nothing. */
  readonly cache?: string | undefined;
}

/** All differences, or the first of many. */
export interface DatapathDiffDocument {
  readonly total: number;
  readonly steps: readonly DatapathStepDocument[];
}
