import type { VNode } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { HistoryDocument, HistoryRecordDocument } from '../../src/api/history-documents.ts';
import type { ChangeDocument } from '../../src/api/routes/monitor-stream.ts';
import { useAnswer } from '../agent/ask.ts';
import { isAgent, useFeed, useMoment, useShared, useVersion } from '../agent/live.ts';
import { countText, timeText } from '../format.ts';
import { Choice, TextFilter } from '../parts/filters.tsx';
import { Empty, Pending, Title } from '../parts/panel.tsx';
import { causeText, RecordLink, RecordText, SignMark, signOf } from '../parts/record.tsx';

const MAX_SHOWN = 100;

/** The kinds of records, as values of the filter. */
const TYPES = ['prefix', 'service', 'node', 'mark'] as const;

/** The records of the changes of the feed, so that a shown change is not rendered again. */
const RECORDS = new WeakMap<ChangeDocument, HistoryRecordDocument>();

/** Returns a change of the feed as a record. The feed has no old values, so each put is shown as `changed`. */
function recordOf(change: ChangeDocument): HistoryRecordDocument {
  const known = RECORDS.get(change);
  if (known !== undefined) return known;
  const { revision, at, type, kind, key, value } = change;
  const record: HistoryRecordDocument = {
    sequence: revision,
    at,
    kind: type === 'ip' ? 'prefix' : type,
    key,
    ...(kind === 'delete' ? { before: {} } : { before: {}, after: value }),
  };
  RECORDS.set(change, record);
  return record;
}

/** Returns the last changes, newest first: those of the history, or of the feed if the agent records none. */
function useRecords(): {
  readonly records?: readonly HistoryRecordDocument[];
  readonly problem?: string | undefined;
} {
  const { status } = useShared();
  const feed = useFeed();
  const version = useVersion('ip', 'service', 'node');
  const hasHistory = isAgent(status.document) && status.document.history !== undefined;
  const { document, problem } = useAnswer<HistoryDocument>(
    hasHistory ? '/v1/history?limit=250' : undefined,
    version,
  );
  if (status.document === undefined) return {};
  if (!hasHistory) return { records: feed.changes.map(recordOf) };
  return document === undefined ? { problem } : { records: document.items };
}

/** A change. It is rendered again only if the moment in its links or the text of its time have changed. */
function Line({
  record,
  time,
  moment,
}: {
  record: HistoryRecordDocument;
  time: string;
  moment: string | undefined;
}): VNode {
  return useMemo(
    () => (
      <li class="change">
        <time dateTime={record.at}>{time}</time>
        <SignMark sign={signOf(record)} />
        <span class="faint">{record.kind === 'mark' ? 'event' : record.kind}</span>
        <RecordLink record={record} />
        <RecordText record={record} />
        <span class="faint">{causeText(record)}</span>
      </li>
    ),
    [record, time, moment],
  );
}

/** Shows the last changes and then each new one, newest first. Can be paused and filtered. */
export function Live({ parameters }: { parameters: URLSearchParams }): VNode {
  const feed = useFeed();
  const moment = useMoment();
  const { records, problem } = useRecords();
  const [paused, setPaused] = useState<readonly HistoryRecordDocument[]>();
  const parameter = (name: string): string => parameters.get(name) ?? '';
  // The API names prefixes `ip`, and a URL of this page may contain this name.
  const kind = parameter('type') === 'ip' ? 'prefix' : parameter('type');
  const sign = parameter('change');
  const contains = parameter('contains');
  const all = paused ?? records ?? [];
  const changes = all.filter(
    (record) =>
      (kind === '' || record.kind === kind) &&
      (sign === '' || signOf(record) === sign) &&
      (record.key ?? record.subject ?? '').includes(contains),
  );
  return (
    <>
      <Title
        side={
          <>
            <span class="soft">{paused === undefined ? 'newest first' : 'paused'}</span>
            <span class="spacer" />
            <button
              type="button"
              aria-pressed={paused !== undefined}
              onClick={() => setPaused(paused === undefined ? records : undefined)}
            >
              {paused === undefined ? 'Pause' : 'Continue'}
            </button>
          </>
        }
      >
        Live
      </Title>
      <search class="filters" aria-label="Filters of the changes">
        <Choice
          name="type"
          label="type"
          options={TYPES}
          value={kind}
          text={(type) => (type === 'mark' ? 'event' : type)}
        />
        <Choice name="change" label="change" options={['added', 'changed', 'removed']} />
        <TextFilter name="contains" label="key contains" example="10.10." />
      </search>
      {feed.missedAt !== undefined && (
        <p class="health warn">
          <strong>Lost</strong>
          <span>Changes were lost before {timeText(feed.missedAt)}. All lists were read again.</span>
        </p>
      )}
      <div class="panel">
        {records === undefined ? (
          <Pending problem={problem} />
        ) : changes.length === 0 ? (
          <Empty title={all.length === 0 ? 'No changes yet.' : 'No matching changes.'}>
            {all.length === 0 ? 'Changes appear here as they happen.' : 'Remove a filter to see the others.'}
          </Empty>
        ) : (
          <ol class="changes feed" aria-live="off">
            {changes.slice(0, MAX_SHOWN).map((record) => (
              <Line key={record.sequence} record={record} time={timeText(record.at)} moment={moment} />
            ))}
          </ol>
        )}
      </div>
      {changes.length > MAX_SHOWN && (
        <p class="faint">
          The last {MAX_SHOWN} of {countText(changes.length)} changes are listed. Filter them to see others.
        </p>
      )}
    </>
  );
}
