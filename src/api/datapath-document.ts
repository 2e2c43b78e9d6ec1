export interface DatapathPartDocument {
  /** `ipcache`, `services`, `nodes`. */
  readonly name: string;
  /** `off`: not enabled. */
  readonly state: 'running' | 'off' | 'unavailable';
  readonly missing: readonly string[];
}

/** State of a kernel table kept equal to the caches: a map, pins, rules or routes. */
export interface DatapathTableDocument {
  readonly name: string;
  /**
   * `unread`: the table has not been read yet. `adopting`: items found at the start are kept until the caches are
   * complete, even if no cache contains them. `in-sync`: the table is kept equal to the caches. `degraded`: some items
   * cannot be written; see `failing` and `noRoom`.
   */
  readonly state: 'unread' | 'adopting' | 'in-sync' | 'degraded';
  readonly desired: number;
  readonly actual: number;
  /** Maximum number of items; absent if there is no limit. */
  readonly capacity?: number | undefined;
  readonly pressure?: number | undefined;
  readonly maps: readonly { readonly name: string; readonly used: number; readonly capacity: number }[];
  /** Number of keys with pending writes or deletes, including those of `waiting`. */
  readonly pending: number;
  /** Number of pending deletes that wait until other tables do not refer to the items. */
  readonly waiting: number;
  /** Number of keys found at the start which no cache has confirmed yet. */
  readonly unconfirmed: number;
  /** Number of keys without room in the table, and number of writes that failed for lack of room. */
  readonly noRoom: number;
  readonly noRoomErrors: number;
  /** Number of retried keys, and some of them. */
  readonly failing: number;
  readonly failures: readonly { readonly key: string; readonly reason: string; readonly attempts: number }[];
  readonly upserts: number;
  readonly deletes: number;
  readonly repairs: number;
}

/** The datapath of the agent's machine. */
export interface DatapathDocument {
  readonly kind: 'linux';
  /** `uname -r`. */
  readonly kernel: string;
  readonly pinFolder: string;
  /** The cgroup whose sockets the datapath handles. */
  readonly cgroup?: string | undefined;
  readonly layout: string;
  /** True if nothing is written. `/v1/datapath/diff` returns the pending writes. */
  readonly dryRun: boolean;
  readonly parts: readonly DatapathPartDocument[];
  readonly tables: readonly DatapathTableDocument[];
  /**
   * Pending conditions for the deletes of items found at the start, one sentence each. Empty if deletes are allowed.
   */
  readonly waitsFor: readonly string[];
  /** Failures of the whole datapath, such as an unreadable map or a missing cgroup. */
  readonly failures: readonly string[];
}

/** A difference between the kernel and a cache. */
export interface DatapathStepDocument {
  readonly table: string;
  readonly key: string;
  readonly kernel?: string | undefined;
  readonly cache?: string | undefined;
}

/** The entry of a prefix in the kernel, beside the entry of the cache. */
export interface KernelEntryDocument {
  /** Value of the longest prefix in the kernel that contains the requested one; absent if there is none. */
  readonly kernel?: string | undefined;
  /** Value in the cache; absent if there is none. */
  readonly cache?: string | undefined;
  /** Why the kernel could not be asked. */
  readonly failure?: string | undefined;
}

/** Number of differences, and the first of them. */
export interface DatapathDiffDocument {
  readonly total: number;
  readonly steps: readonly DatapathStepDocument[];
}
