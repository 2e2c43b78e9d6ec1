import { type Context, createContext } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import type { StatusDocument } from '../../src/api/status-document.ts';
import { momentOf, useAddress } from '../address.ts';
import type { Answered } from './ask.ts';
import type { ChangeType, Feed } from './feed.ts';

/** A duty of an operator. */
export interface DutyDocument {
  readonly name: string;
  readonly state: string;
  readonly failures: number;
  readonly lastFailure?: { readonly message: string };
  readonly published?: { readonly keys: number; readonly pending: number };
  readonly rounds?: {
    readonly marked: number;
    readonly deleted: number;
    readonly conflicts: number;
    /** ISO 8601. */
    readonly lastRoundAt?: string;
    readonly nextRoundAt?: string;
  };
}

/** A cluster copied by a kvstoremesh, or followed by an operator. */
export interface FollowedClusterDocument {
  readonly name: string;
  readonly state: string;
  readonly ready: boolean;
  /** Present for a kvstoremesh, like the next two fields. */
  readonly connected?: boolean;
  readonly config?: { readonly id: number };
  readonly copy?: { readonly keys: number; readonly pending: number; readonly failures: number };
  readonly lastFailure?: { readonly message: string };
}

/** The status of a process without engines: an operator or a kvstoremesh. */
export type ProcessStatus = Pick<StatusDocument, 'steps'> & {
  readonly cluster: string;
  readonly blockers: readonly string[];
  /** Present for an operator. */
  readonly duties?: readonly DutyDocument[];
  readonly rejected?: Pick<StatusDocument['rejected'], 'total' | 'recent' | 'lastAt'>;
  readonly clusters?: readonly FollowedClusterDocument[];
  /** Present for a kvstoremesh. */
  readonly problems?: readonly string[];
  readonly configProblems?: readonly string[];
  readonly [field: string]: unknown;
};

/** The shared state of all views. */
export interface Shared {
  readonly feed: Feed;
  readonly status: Answered<StatusDocument | ProcessStatus>;
}

/** The context of {@link Shared}. */
export const SharedContext: Context<Shared | undefined> = createContext<Shared | undefined>(undefined);

/** Returns the shared state of all views. */
export function useShared(): Shared {
  const shared = useContext(SharedContext);
  if (shared === undefined) throw new Error('no context');
  return shared;
}

/** Returns true for the status of an agent. */
export function isAgent(status: StatusDocument | ProcessStatus | undefined): status is StatusDocument {
  return status !== undefined && 'ipcache' in status && 'clusters' in status;
}

/** Returns the name of the process with this status; `agent` before the status is known. */
export function processName(status: StatusDocument | ProcessStatus | undefined): string {
  if (status === undefined || isAgent(status)) return 'agent';
  return 'duties' in status ? 'operator' : 'kvstoremesh';
}

/** Returns the status of the agent; undefined until it is known, and for other processes. */
export function useStatus(): StatusDocument | undefined {
  const { document } = useShared().status;
  return isAgent(document) ? document : undefined;
}

/** Returns a number that increases at this interval while the page is visible, and when it becomes visible. */
export function useTick(ms: number): number {
  const [tick, setTick] = useState(0);
  useEffect(() => {
    const next = (): void => {
      if (!document.hidden) setTick((before) => before + 1);
    };
    const timer = setInterval(next, ms);
    document.addEventListener('visibilitychange', next);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', next);
    };
  }, [ms]);
  return tick;
}

/** Renders again after changes of the feed, at most four times per second. */
export function useFeed(): Feed {
  const { feed } = useShared();
  const [, setCount] = useState(0);
  useEffect(() => feed.onChange(() => setCount((before) => before + 1)), [feed]);
  return feed;
}

/** Returns the shown moment, for `at` parameters; undefined: the present. */
export function useMoment(): string | undefined {
  return momentOf(useAddress()) || undefined;
}

/**
 * Returns a text that changes, at most once per second, after changes of these types or a reconnect. It does not change
 * while the page shows an earlier moment.
 */
export function useVersion(...types: readonly ChangeType[]): string {
  const { feed } = useShared();
  const moment = useMoment();
  const read = (): string => [feed.epoch, ...types.map((type) => feed.counts[type])].join('.');
  const [version, setVersion] = useState(read);
  useEffect(() => {
    const timer = setInterval(() => setVersion(read()), 1_000);
    return () => clearInterval(timer);
  }, [feed, types.join()]);
  return moment ?? version;
}
