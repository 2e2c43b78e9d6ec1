import type { ConnectKvstore } from './followed-cluster.ts';

/** A file of the configuration directory, as found. */
export type ConfigFile =
  /** The configuration of a kvstore. `hash` is of everything that `connect` depends on. */
  | { readonly kind: 'config'; readonly hash: string; readonly connect: ConnectKvstore }
  /** Something else, such as a certificate: it does not say `endpoints:`. */
  | { readonly kind: 'other' }
  /** It is no file, cannot be read, or is a configuration that cannot be used: `why` is what is wrong with it. */
  | { readonly kind: 'unusable'; readonly why: string };

/** The directory: file name → file. Hidden files (`..data` and the like) are left out. */
export type ConfigListing = ReadonlyMap<string, ConfigFile>;

/** What is known of a directory. */
export interface DirectoryState {
  /** The clusters that are followed because of it. */
  readonly clusters: ReadonlyMap<string, FollowedConfig>;
  /** What is wrong now: file name → sentence. */
  readonly problems: ReadonlyMap<string, string>;
}

interface FollowedConfig {
  readonly hash: string;
  /** Since when its file has been there without being a configuration. */
  readonly doubtfulSince: number | undefined;
}

/** An empty directory. */
export const EMPTY_DIRECTORY: DirectoryState = { clusters: new Map(), problems: new Map() };

/** What is to be done about a cluster. */
export type DirectoryChange =
  | { readonly type: 'add' | 'change'; readonly name: string; readonly connect: ConnectKvstore }
  | { readonly type: 'remove'; readonly name: string };

/** The next state, and what follows from it. */
export interface DirectoryStep {
  readonly state: DirectoryState;
  /** At most one for each cluster. */
  readonly changes: readonly DirectoryChange[];
  /** Whether to look again soon: something is half-written, or cannot be read. */
  readonly unsettled: boolean;
  /** When what is doubtful now is to be looked at again at the latest. */
  readonly lookAgainAt: number | undefined;
}

/**
 * How long a file that was a configuration may be something else before its cluster is let go: it is being
 * written, in place. Letting go takes everything back, so it must not be a matter of bad luck.
 */
export const GRACE_MS = 10_000;

/** Why a name cannot be that of a remote cluster; the own one is no problem, only none of ours. */
export type NameCheck = (name: string) => 'own-cluster' | 'invalid-name' | undefined;

const INVALID_NAME =
  'the file name is not a valid cluster name: letters, digits, ".", "_" and "-", at most 63, beginning and ending with a letter or digit';

/**
 * What a listing of the directory means (SEMANTICS 6): a file that is new is a cluster to add, one with another
 * hash a changed one, one that is gone a cluster to remove; equal content is no change. A cluster whose file
 * cannot be used keeps its last good configuration; the reason is a problem. Pure.
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
  let lookAgainAt: number | undefined;
  for (const [name, file] of listing) {
    const known = clusters.get(name);
    const fault = check(name);
    if (fault === 'own-cluster' || (file.kind === 'other' && known === undefined)) continue;
    if (fault === 'invalid-name') {
      // A certificate that cannot be read is no cluster; only what says `endpoints:` is reported.
      if (file.kind === 'config') problems.set(name, INVALID_NAME);
    } else if (file.kind === 'config') {
      next.set(name, { hash: file.hash, doubtfulSince: undefined });
      if (known?.hash === file.hash) continue;
      changes.push({ type: known === undefined ? 'add' : 'change', name, connect: file.connect });
    } else if (file.kind === 'unusable') {
      unsettled = true;
      problems.set(name, file.why);
      if (known !== undefined) next.set(name, { ...known, doubtfulSince: undefined });
    } else if (known !== undefined) {
      const doubtfulSince = known.doubtfulSince ?? now;
      if (now - doubtfulSince >= GRACE_MS) continue;
      unsettled = true;
      lookAgainAt = Math.min(lookAgainAt ?? Number.POSITIVE_INFINITY, doubtfulSince + GRACE_MS);
      problems.set(name, 'does not say "endpoints:" any more; is it being written?');
      next.set(name, { ...known, doubtfulSince });
    }
  }
  for (const name of clusters.keys()) if (!next.has(name)) changes.push({ type: 'remove', name });
  return { state: { clusters: next, problems }, changes, unsettled, lookAgainAt };
}
