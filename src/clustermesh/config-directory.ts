import type { ConnectKvstore } from './followed-cluster.ts';

/** A file of the configuration directory. */
export type ConfigFile =
  /** A kvstore configuration. `hash` covers all content used by `connect`. */
  | { readonly kind: 'config'; readonly hash: string; readonly connect: ConnectKvstore }
  /** A folder, or a file without `endpoints:`, such as a certificate. */
  | { readonly kind: 'other' }
  /** Not a file, unreadable, or an invalid configuration. `reason` is the problem. */
  | { readonly kind: 'unusable'; readonly reason: string };

/** Files of the directory by name, without hidden files such as `..data`. */
export type ConfigListing = ReadonlyMap<string, ConfigFile>;

export interface DirectoryState {
  /** The clusters followed because of the directory. */
  readonly clusters: ReadonlyMap<string, FollowedConfig>;
  readonly files: ReadonlySet<string>;
  /** Current problems by file name, one sentence each. */
  readonly problems: ReadonlyMap<string, string>;
}

/** The configuration with which a cluster is followed. */
interface FollowedConfig {
  /** Undefined if the last change of the cluster failed. */
  readonly hash: string | undefined;
  /** Monotonic time since which the file has no `endpoints:`; undefined if it has. */
  readonly invalidSince: number | undefined;
}

export const EMPTY_DIRECTORY: DirectoryState = {
  clusters: new Map(),
  files: new Set(),
  problems: new Map(),
};

/** A change of a cluster. `add`: the cluster is new, or its configuration has changed. */
export type DirectoryChange =
  | { readonly type: 'add'; readonly name: string; readonly connect: ConnectKvstore }
  | { readonly type: 'remove'; readonly name: string };

export interface DirectoryStep {
  readonly state: DirectoryState;
  /** At most one change per cluster. */
  readonly changes: readonly DirectoryChange[];
  /** True if the next scan should be soon, because a file is half-written or unreadable. */
  readonly unsettled: boolean;
  /** Latest time of the next scan, because the grace period of a file ends. */
  readonly nextScanAt: number | undefined;
}

/**
 * Time in which a former configuration may lack `endpoints:` before its cluster is removed, because a file may be
 * rewritten in place. A removal withdraws everything, so a scan during such a write must not cause it.
 */
export const GRACE_MS = 10_000;

/**
 * Returns the state after a step with failed changes, so that the next step returns these changes again.
 * `failures` has the problem of each failed change by name. Pure.
 */
export function withFailedChanges(
  state: DirectoryState,
  failures: ReadonlyMap<string, string>,
): DirectoryState {
  const next = new Map(state.clusters);
  for (const name of failures.keys()) next.set(name, { hash: undefined, invalidSince: undefined });
  return { ...state, clusters: next, problems: new Map([...state.problems, ...failures]) };
}

/**
 * Returns the reason why a name cannot be a remote cluster. The name of the local cluster is ignored without a problem.
 */
export type NameCheck = (name: string) => 'local-cluster' | 'invalid-name' | undefined;

const NO_ENDPOINTS = 'does not contain "endpoints:" any more; the cluster is removed if this does not change';
/** The problem of a file whose name cannot be that of a remote cluster. */
export const INVALID_NAME =
  'the file name is not a valid cluster name: use at most 63 letters, digits, ".", "_" and "-"; the first and the last must be a letter or digit';

/**
 * Returns the changes implied by a listing of the directory (SEMANTICS 6). A new file adds a cluster, another hash
 * changes it, and a deleted file removes it. If a file is unusable, its cluster keeps the last valid configuration and
 * the reason is reported as a problem. Pure.
 */
export function stepDirectory(
  { clusters }: DirectoryState,
  listing: ConfigListing,
  { now, check }: { readonly now: number; readonly check: NameCheck },
): DirectoryStep {
  const next = new Map<string, FollowedConfig>();
  const problems = new Map<string, string>();
  const changes: DirectoryChange[] = [];
  let unsettled = false;
  let nextScanAt: number | undefined;
  for (const [name, file] of listing) {
    const fault = check(name);
    // Of files with invalid names, only those with `endpoints:` are reported, because others are not clusters.
    if (fault === 'invalid-name' && file.kind === 'config') problems.set(name, INVALID_NAME);
    if (fault !== undefined) continue;
    const known = clusters.get(name);
    switch (file.kind) {
      case 'config':
        next.set(name, { hash: file.hash, invalidSince: undefined });
        if (known?.hash !== file.hash) changes.push({ type: 'add', name, connect: file.connect });
        break;
      case 'unusable':
        unsettled = true;
        problems.set(name, file.reason);
        if (known !== undefined) next.set(name, { ...known, invalidSince: undefined });
        break;
      case 'other': {
        const invalidSince = known?.invalidSince ?? now;
        if (known === undefined || now - invalidSince >= GRACE_MS) break;
        unsettled = true;
        nextScanAt = Math.min(nextScanAt ?? Number.POSITIVE_INFINITY, invalidSince + GRACE_MS);
        problems.set(name, NO_ENDPOINTS);
        next.set(name, { ...known, invalidSince });
      }
    }
  }
  for (const name of clusters.keys()) if (!next.has(name)) changes.push({ type: 'remove', name });
  const state = { clusters: next, files: new Set(listing.keys()), problems };
  return { state, changes, unsettled, nextScanAt };
}
