import type { VNode } from 'preact';
import type { HistoryDocument, HistoryRecordDocument } from '../../src/api/history-documents.ts';
import { adjust } from '../address.ts';
import { useAnswer, withQuery } from '../agent/ask.ts';
import type { ChangeType } from '../agent/feed.ts';
import { isAgent, useMoment, useShared, useTick } from '../agent/live.ts';
import { timeText } from '../format.ts';
import { Empty, Panel, Pending } from './panel.tsx';
import { causeText, NamedIdentity, RecordText, SignMark, signOf } from './record.tsx';
import { Timeline } from './timeline.tsx';

/** Time between two reads of the changes of an object. */
const READ_MS = 3_000;

/** The effective identity before and after a change of a claim, if it differs from the claimed identity. */
function Effective({ record }: { record: HistoryRecordDocument }): VNode | null {
  const { effective } = record;
  if (effective === undefined || effective.before === effective.after) return null;
  const [from, to] = [effective.before, effective.after].map((identity) =>
    identity === null ? <span class="faint">none</span> : <NamedIdentity identity={identity} />,
  );
  return (
    <span>
      <span class="faint">effective </span>
      {from}
      <span class="arrow">→</span>
      {to}
    </span>
  );
}

/** The last changes of one object, with a timeline. A click on a time shows the page as of that time. */
export function Changes({ of, type }: { of: string; type: ChangeType }): VNode | null {
  const { feed, status } = useShared();
  const at = useMoment();
  const tick = useTick(READ_MS);
  const hasHistory = isAgent(status.document) && status.document.history !== undefined;
  const { document, problem } = useAnswer<HistoryDocument>(
    hasHistory ? withQuery('/v1/history', { key: of, limit: '50' }) : undefined,
    `${feed.epoch} ${tick}`,
  );
  if (!hasHistory || (document === undefined && problem !== undefined)) return null;
  if (document === undefined)
    return (
      <Panel title="Last changes">
        <Pending problem={undefined} />
      </Panel>
    );
  const { items, retained, more } = document;
  return (
    <Panel
      title="Last changes"
      flush
      side={
        <span class="soft">
          history from {timeText(retained.from)}
          {more && `, the last ${items.length} are listed`}
        </span>
      }
    >
      {items.length === 0 ? (
        <Empty title="No changes.">The history contains no change of this object.</Empty>
      ) : (
        <>
          <Timeline items={items} retained={retained} at={at} isPrefix={type === 'ip'} />
          <ol class="changes of-one">
            {items.map((record) => (
              <li class={record.at === at ? 'change chosen' : 'change'} key={record.sequence}>
                <button
                  type="button"
                  class="link"
                  title="Show the state of this time"
                  onClick={() => adjust({ at: record.at })}
                >
                  <time dateTime={record.at}>{timeText(record.at)}</time>
                </button>
                <SignMark sign={signOf(record)} />
                <span class="soft">
                  {record.source} {record.owner}
                </span>
                <RecordText record={record} />
                <Effective record={record} />
                <span class="faint">{causeText(record)}</span>
              </li>
            ))}
          </ol>
        </>
      )}
    </Panel>
  );
}
