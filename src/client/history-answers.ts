import { isDeepStrictEqual } from 'node:util';
import type { Ask } from '../api/api-client.ts';
import type { EntryDocument, ExplanationDocument, NodeDocument } from '../api/documents.ts';
import type {
  CauseDocument,
  CausesDocument,
  HistoryDocument,
  HistoryRecordDocument,
} from '../api/history-documents.ts';
import { namePath } from '../api/name-path.ts';
import { type PastDocument, type RetainedDocument, uncertaintyText } from '../api/past-document.ts';
import { counted } from '../base/show-value.ts';
import { alignColumns, localTimeText } from '../process/terminal.ts';
import { type Answer, findDocument, identityCell, notFoundAnswer, podCell, type Question } from './answer.ts';
import { changeSign, difference, nodeDifference, nodeText } from './change-text.ts';
import { MAX_PAGE_ITEMS, withQuery } from './list.ts';

/** Returns the sentences that explain why an answer about a moment is not certain, or lacks claims. */
export function uncertaintyLines(past: PastDocument): readonly string[] {
  const { certain, reason, claimsComplete } = past;
  const incomplete = 'before the last start of the agent: only claims with a recorded change are known';
  return [
    ...(claimsComplete === false ? [incomplete] : []),
    ...(certain || reason === undefined ? [] : [`not certain: ${uncertaintyText(reason, past)}`]),
  ];
}

/** Returns the lines below an object of an earlier moment. */
export function pastLines(past: PastDocument | undefined): readonly string[] {
  if (past === undefined) return [];
  const { at, effectiveSince, effectiveUntil, claimsComplete } = past;
  const end = claimsComplete === false ? 'the end of that agent' : 'now';
  const since = effectiveSince === undefined ? 'before the retained changes' : localTimeText(effectiveSince);
  const until = effectiveUntil === undefined ? end : localTimeText(effectiveUntil);
  return [`as of ${localTimeText(at)}; unchanged from ${since} to ${until}`, ...uncertaintyLines(past)];
}

/** Returns the question for all claims on a prefix at the moment `at`, as the API accepts it. */
export function explainPast(key: string, at: string): Question {
  return async (ask) => {
    const path = `/v1/ipcache/explain/${namePath(key)}`;
    const past = await findDocument<ExplanationDocument>(ask, withQuery(path, { at }));
    if (past?.past === undefined) return notFoundAnswer(`${key} at ${at}`);
    const current = await findDocument<ExplanationDocument>(ask, path);
    const { prefix, claims, decidedBy } = past;
    const [first] = claims;
    const rows = claims.map((claim) => [
      `  ${claim.owner === undefined ? claim.source : `${claim.source} ${claim.owner}`}`,
      String(claim.identity),
      claim.hostIP ?? '-',
      podCell(claim),
      spanText(claim, claim === first ? past.past : undefined),
    ]);
    return {
      json: past,
      lines: [
        `${prefix} at ${localTimeText(past.past.at)}: identity ${identityCell(first?.identity ?? 0, first?.labels)}${decidedBy === undefined ? '' : `, by ${decidedBy}`}`,
        ...alignColumns(rows),
        ...uncertaintyLines(past.past),
        `  now: ${nowText(current)}`,
      ],
      succeeded: true,
    };
  };
}

/** Returns when a claim existed. `moment` is undefined if the claim was overruled at that moment. */
function spanText(
  { since, until }: { readonly since?: string | undefined; readonly until?: string | undefined },
  moment: PastDocument | undefined,
): string {
  const begun = since === undefined ? 'since before the retained changes' : `since ${localTimeText(since)}`;
  if (moment === undefined) return `${begun}, overruled`;
  const { effectiveUntil } = moment;
  if (effectiveUntil !== undefined) return `${begun}, effective until ${localTimeText(effectiveUntil)}`;
  if (moment.claimsComplete === false) return `${begun}, effective until that agent ended`;
  return until === undefined ? `${begun}, effective until now` : `${begun}, until ${localTimeText(until)}`;
}

function nowText(current: ExplanationDocument | undefined): string {
  const [first] = current?.claims ?? [];
  if (first === undefined) return 'no entry';
  const pod = podCell(first);
  return [`${first.prefix}:`, first.source, first.owner, first.identity, pod === '-' ? undefined : pod]
    .filter((part) => part !== undefined)
    .join(' ');
}

/** A range of the history, as parameters of the API. */
export interface HistoryQuery {
  readonly key?: string | undefined;
  readonly identity?: number | undefined;
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  readonly limit: number;
}

/** Yields the pages of a range, newest first. */
async function* historyPages(
  ask: Ask,
  { limit, ...range }: HistoryQuery,
): AsyncGenerator<HistoryDocument, void, void> {
  let after: number | undefined;
  let remaining = limit;
  while (remaining > 0) {
    const parameters = { ...range, after, limit: Math.min(remaining, MAX_PAGE_ITEMS) };
    const page = (await ask(withQuery('/v1/history', parameters))) as HistoryDocument;
    yield page;
    after = page.items.at(-1)?.sequence;
    if (!page.more || after === undefined) return;
    remaining -= page.items.length;
  }
}

/** Writes the records of a range as JSON lines, newest first, and returns their number. */
export async function exportHistory(
  ask: Ask,
  query: Omit<HistoryQuery, 'limit'>,
  write: (lines: string) => Promise<unknown>,
): Promise<number> {
  let count = 0;
  for await (const { items } of historyPages(ask, { ...query, limit: Number.POSITIVE_INFINITY })) {
    await write(items.map((item) => `${JSON.stringify(item)}\n`).join(''));
    count += items.length;
  }
  return count;
}

/** Returns the question for the changes of a prefix, or all changes, newest first. */
export function askHistory(query: HistoryQuery): Question {
  return async (ask): Promise<Answer> => {
    const items: HistoryRecordDocument[] = [];
    let retained: RetainedDocument | undefined;
    let changesInMemory = 0;
    let more = false;
    for await (const page of historyPages(ask, query)) {
      items.push(...page.items);
      ({ retained, changesInMemory, more } = page);
    }
    const rows = items.map((item) => recordCells(item, query.key));
    const retainedLine = retained === undefined ? '' : `history from ${localTimeText(retained.from)} to now`;
    return {
      json: { items, retained, changesInMemory, more },
      lines: [
        ...(rows.length === 0 ? ['No matching changes.'] : alignColumns(rows)),
        ...(more ? [`older changes follow: --limit ${2 * query.limit}`] : []),
        retainedLine,
      ],
      succeeded: items.length > 0,
    };
  };
}

/** Returns the cells of a record. The key is omitted if it equals the key of the query. */
function recordCells(record: HistoryRecordDocument, queriedKey: string | undefined): readonly string[] {
  const time = localTimeText(record.at);
  if (record.kind === 'mark')
    return [time, '*', record.mark ?? '', record.subject ?? '', record.detail ?? '', ''];
  const { key = '', source = '', owner, before, after, effective, cause } = record;
  const subject = key === queriedKey ? '' : key;
  return [
    time,
    `${changeSign(before, after)} ${owner === undefined ? source : `${source} ${owner}`}`,
    subject,
    valueText(record),
    effective === undefined || effective.before === effective.after
      ? ''
      : `effective ${effective.before ?? 'none'} → ${effective.after ?? 'none'}`,
    cause === undefined ? '' : originText(cause),
  ];
}

function originText({
  store,
  revision,
  kind,
  withdrawal,
}: NonNullable<HistoryRecordDocument['cause']>): string {
  if (withdrawal === true) return `${store} withdrawn`;
  if (kind !== undefined) return `${store} ${kind} ${revision}`;
  return revision === '' ? store : `${store} rev ${revision}`;
}

/** Returns how many backends a change removed and added: `-3 +2 backends`. A changed backend counts as both. */
function backendsChange(before: unknown, after: unknown): string {
  const countOf = (value: unknown): number =>
    (value as { readonly backends?: readonly unknown[] } | undefined)?.backends?.length ?? 0;
  const [removed, added] = [countOf(before), countOf(after)];
  const parts = [...(removed > 0 ? [`-${removed}`] : []), ...(added > 0 ? [`+${added}`] : [])];
  return parts.length === 0 ? 'fields' : `${parts.join(' ')} backends`;
}

/** The shown attributes of a claim. */
type ShownClaim = Partial<
  Pick<
    EntryDocument,
    'identity' | 'namespace' | 'podName' | 'serviceAccount' | 'namedPorts' | 'hostIP' | 'encryptKey'
  >
>;

/** Returns a claim in short, with its changed attributes: `55 → 66 batch/job-7, host 10.0.0.1 → 10.0.0.2`. */
function claimText(before: ShownClaim | undefined, after: ShownClaim | undefined): string {
  const now = after ?? before ?? {};
  const old = before ?? now;
  const podOf = ({ namespace, podName }: ShownClaim): string | undefined =>
    podName === undefined ? undefined : `${namespace}/${podName}`;
  const change = <T>(from: T, to: T): T | string =>
    from === to ? to : `${from ?? 'none'} → ${to ?? 'none'}`;
  const pod = change(podOf(old), podOf(now));
  const hostInShort = old.hostIP === now.hostIP ? now.hostIP : undefined;
  const inShort = [change(old.identity, now.identity), pod ?? hostInShort].filter(
    (part) => part !== undefined,
  );
  const others = [
    ...difference('host', old.hostIP, now.hostIP),
    ...difference('key', String(old.encryptKey ?? 0), String(now.encryptKey ?? 0)),
    ...difference('service account', old.serviceAccount, now.serviceAccount),
    ...(isDeepStrictEqual(old.namedPorts, now.namedPorts) ? [] : ['named ports']),
  ];
  return [inShort.join(' '), ...others].join(', ');
}

/** Returns a claim and its changed attributes, the removed and added backends, or a node and its changed fields. */
function valueText({ kind, before, after }: HistoryRecordDocument): string {
  if (kind === 'service') return backendsChange(before, after);
  if (kind === 'prefix') return claimText(before as ShownClaim | undefined, after as ShownClaim | undefined);
  const [old, now] = [before, after] as readonly (NodeDocument | undefined)[];
  if (old !== undefined && now !== undefined) return nodeDifference(old, now);
  return nodeText((now ?? old) as NodeDocument);
}

/** Returns the question for the changes around a moment, grouped by store and node, the largest group first. */
export function askAround(at: string, windowMs: number, limit: number): Question {
  return async (ask): Promise<Answer> => {
    const parameters = { at, window: windowMs / 1000, limit };
    const causes = (await ask(withQuery('/v1/history/around', parameters))) as CausesDocument;
    const { groups, retained } = causes;
    const rows = groups.map((group) => [localTimeText(group.at), causeText(group)]);
    return {
      json: causes,
      lines:
        groups.length > 0
          ? alignColumns(rows)
          : [
              `No changes within ${windowMs / 1000} s of ${localTimeText(causes.at)}; retained from ${localTimeText(retained.from)} on.`,
            ],
      succeeded: groups.length > 0,
    };
  };
}

const RECORD_NOUNS: Readonly<Record<string, string>> = {
  prefix: 'prefix change',
  service: 'service change',
  node: 'node change',
};

/** Returns a group of changes with a common cause in one line. */
function causeText(group: CauseDocument): string {
  const { revisions, host, node, mark, emptied, samples, withdrawal } = group;
  if (mark !== undefined)
    return [group.store, mark.subject, mark.detail].filter((part) => part !== '').join(' ');
  const store = withdrawal === true ? `${group.store} withdrawn` : group.store;
  const counts = (['deleted', 'changed', 'added'] as const).flatMap((what) =>
    group[what] === 0 ? [] : [`${group[what].toLocaleString('en')} ${what}`],
  );
  const kinds = Object.entries(group.kinds).map(([kind, count]) =>
    counted(count, RECORD_NOUNS[kind] ?? kind),
  );
  const onHost = host === undefined ? '' : `, all of host ${host}`;
  const where = node === undefined ? onHost : `, all of node ${node}`;
  const lost = emptied.length === 0 ? '' : `; without backends then: ${emptied.join(', ')}`;
  const total = group.added + group.changed + group.deleted;
  const shown = [...samples, ...(samples.length < total ? ['…'] : [])].join(', ');
  return `${store}${revisionsText(revisions)}: ${counts.join(', ')} (${kinds.join(', ')})${where}${lost}; ${shown}`;
}

function revisionsText(revisions: CauseDocument['revisions']): string {
  if (revisions === undefined) return '';
  const { first, last } = revisions;
  return first === last ? ` rev ${first}` : ` rev ${first} to ${last}`;
}
