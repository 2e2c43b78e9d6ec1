import type { Context } from 'hono';
import type { Clock } from '../../base/clock.ts';
import type { ChangedSince } from '../../history/past/changed-since.ts';
import type { PastClaim, PrefixMoment } from '../../history/types.ts';
import type { IPCacheSnapshot } from '../../ipcache/snapshot.ts';
import type { KeyedEntry } from '../../ipcache/types.ts';
import { prefixOfKey } from '../../net/prefix.ts';
import type { ApiContext, ApiEnv } from '../api-context.ts';
import { type EntryDocument, entryDocument } from '../documents.ts';
import {
  historyOf,
  notFoundProblem,
  notListedProblem,
  notRetainedProblem,
  pastDocument,
  whenParameter,
} from '../history-documents.ts';
import type { PastDocument } from '../past-document.ts';
import { ProblemError } from '../problem.ts';
import type { ReadModel } from '../read-model.ts';
import { limitConcurrency } from '../server/request-limits.ts';
import { type FilterValues, type IPFilters, parseFilters } from './ip-filters.ts';
import type { PagedSource } from './list-pages.ts';
import { listName } from './route-parts.ts';
import type { SnapshotViews } from './snapshot-views.ts';

/** Maximum number of prefixes that changed since the moment of a list. Limits its memory: about 700 bytes each. */
const MAX_CHANGED = 100_000;

/** Maximum number of concurrent reads of changes over TCP, and as many over the unix socket. Each takes up to 70 MB. */
const MAX_READS = 4;

/**
 * Resolves to the claims on an IP or a CIDR at the moment `at`; to undefined if the history knows nothing about this
 * key.
 */
export function prefixMoment(
  model: ReadModel,
  clock: Clock,
  key: string,
  at: string,
): Promise<PrefixMoment | undefined> {
  const history = historyOf(model);
  const { past } = history;
  const when = whenParameter(history, 'at', at, clock.wallTime());
  return key.includes('/') ? past.at(key, when) : past.lookup(key, when);
}

/** Returns the problem of an unknown IP or CIDR. */
export function unknownProblem(ip: string): ProblemError {
  return new ProblemError('not-found', `No entry for ${ip}.`, { field: 'ip', value: ip });
}

/** A moment with an effective claim. */
type EffectiveMoment = PrefixMoment & { readonly effective: PastClaim };

/**
 * Returns the moment of a request for an IP or CIDR. Throws `ProblemError` if it is not retained or has no claims.
 */
export function effectiveMoment(key: string, at: string, moment: PrefixMoment | undefined): EffectiveMoment {
  if (moment === undefined) throw unknownProblem(key);
  const { reason, retained, effective } = moment;
  if (reason === 'not-retained') throw notRetainedProblem(at, retained);
  if (effective === undefined) throw notFoundProblem('ip', key, moment);
  return { ...moment, effective };
}

/** Returns the entry of a moment. */
export function pastEntry(moment: EffectiveMoment, model: ReadModel): EntryDocument {
  return { ...entryDocument({ ...moment.effective, shadowed: false }, model), past: pastDocument(moment) };
}

/**
 * Returns a function that returns the list of the moment `at`. It throws `ProblemError` if the moment cannot be listed.
 */
export function pastLists(
  { model, clock, instance }: ApiContext,
  views: SnapshotViews,
): (c: Context<ApiEnv>, at: string, query: FilterValues) => Promise<PagedSource<EntryDocument>> {
  const limitReads = limitConcurrency(MAX_READS, 'lists of the past');
  let count = 0;
  return async (c, at, query) => {
    const history = historyOf(model);
    const { past: reader } = history;
    const filters = parseFilters(query, model);
    const when = whenParameter(history, 'at', at, clock.wallTime());
    const { snapshot, revision, changed } = await limitReads(c, async () => {
      // Taken in the turn in which the read of the history begins, so that the read changes end at this snapshot.
      const view = views.snapshot('current');
      return { ...view, changed: await reader.changedSince(when, MAX_CHANGED) };
    });
    if (changed === 'earlier') throw notListedProblem(reader.retained);
    if (changed === 'too-many')
      throw new ProblemError(
        'invalid-parameter',
        `More than ${MAX_CHANGED} prefixes have changed since then.`,
        { field: 'at', value: at },
      );
    // A unique name, so that no two of these lists share a cursor.
    const name = listName(instance, `ipcache ${++count}`, snapshot.revision, query);
    const past = pastDocument({ ...changed, effectiveSince: undefined, effectiveUntil: undefined });
    const items = pastEntries(model, { snapshot, changed, filters, past });
    // The changes count as the view, because no other list shares them, and they use more memory than the snapshot.
    return { name, revision, view: changed, past, items };
  };
}

interface PastList {
  readonly snapshot: IPCacheSnapshot;
  readonly changed: ChangedSince;
  readonly filters: IPFilters;
  readonly past: PastDocument;
}

/** Yields the entries of an earlier moment that match, and `undefined` for others. */
function* pastEntries(
  model: ReadModel,
  { snapshot, changed, filters: { exact, matches }, past }: PastList,
): Generator<EntryDocument | undefined, void, void> {
  const requested = exact?.toString();
  const documentOf = (entry: KeyedEntry): EntryDocument | undefined => {
    const isRequested = requested === undefined || prefixOfKey(entry.key) === requested;
    return isRequested && matches(entry) ? Object.assign(entryDocument(entry, model), { past }) : undefined;
  };
  for (const entry of snapshot.entries()) {
    const hasChanged = changed.prefixes.has(prefixOfKey(entry.key));
    yield hasChanged ? undefined : documentOf(entry);
  }
  for (const claim of changed.prefixes.values()) yield claim && documentOf({ shadowed: false, ...claim });
}
