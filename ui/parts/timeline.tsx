import type { VNode } from 'preact';
import type { HistoryRecordDocument } from '../../src/api/history-documents.ts';
import type { RetainedDocument } from '../../src/api/past-document.ts';
import { adjust } from '../address.ts';
import { agentNow } from '../agent/clock.ts';
import { clockText } from '../format.ts';

const HOUR_MS = 3_600_000;

/** Minimum length of the shown time, unless the history is shorter. */
const MIN_SHOWN_MS = 60_000;

/** Size of the strip in its own units. */
const WIDTH = 1_000;
const HEIGHT = 44;

/** A time with one effective identity; null: none. */
interface Span {
  readonly from: number;
  readonly to: number;
  readonly value: number | null;
}

/**
 * Returns the spans of equal effective identities, newest first. There is no span for a time with an unknown identity.
 */
function spansOf(items: readonly HistoryRecordDocument[], from: number, to: number): readonly Span[] {
  const spans: Span[] = [];
  let end = to;
  for (const { at, effective } of items) {
    if (effective !== undefined && effective.before === effective.after) continue;
    const start = Math.max(from, Date.parse(at));
    if (effective !== undefined) spans.push({ from: start, to: end, value: effective.after });
    end = start;
    if (start <= from) return spans;
  }
  const first = items.at(-1)?.effective;
  if (first !== undefined) spans.push({ from, to: end, value: first.before });
  return spans;
}

/**
 * A strip of at most the last hour: a bar for each effective identity, a tick for each change. A click shows the page
 * as of that time.
 */
export function Timeline({
  items,
  retained,
  at,
  isPrefix,
}: {
  items: readonly HistoryRecordDocument[];
  retained: RetainedDocument;
  at: string | undefined;
  isPrefix: boolean;
}): VNode {
  const to = Math.max(Date.parse(retained.to), agentNow());
  const oldest = Date.parse(items.at(-1)?.at ?? retained.to);
  const from = Math.max(
    to - HOUR_MS,
    Date.parse(retained.from),
    Math.min(oldest - (to - oldest) / 8, to - MIN_SHOWN_MS),
  );
  const x = (time: number): number => ((time - from) / (to - from)) * WIDTH;
  const spans = isPrefix ? spansOf(items, from, to) : [];
  const values = [...new Set(spans.map(({ value }) => value))];
  const ticks = items.map((item) => Date.parse(item.at)).filter((time) => time >= from);
  const clicked = (event: MouseEvent): void => {
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    const time = from + ((event.clientX - left) / width) * (to - from);
    adjust({ at: new Date(Math.round(time)).toISOString() });
  };
  const moment = at === undefined ? Number.NaN : Date.parse(at);
  return (
    <div class="strip">
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the times of the list below do the same with the keyboard */}
      <svg
        class="timeline"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${ticks.length} changes between ${clockText(from)} and ${clockText(to)}`}
        onClick={clicked}
      >
        <rect class="none" x="0" y="14" width={WIDTH} height="16" />
        {spans.map(({ from: begin, to: end, value }) =>
          value === null ? null : (
            <rect
              key={begin}
              class={values.indexOf(value) % 2 === 1 ? 'odd' : undefined}
              x={x(begin)}
              y="14"
              width={Math.max(1, x(end) - x(begin))}
              height="16"
            >
              <title>
                identity {value}, {clockText(begin)} to {clockText(end)}
              </title>
            </rect>
          ),
        )}
        {ticks.map((time, place) => (
          <line
            key={`${time} ${items[place]?.sequence}`}
            x1={x(time)}
            x2={x(time)}
            y1="6"
            y2="38"
            vector-effect="non-scaling-stroke"
          />
        ))}
        {!Number.isNaN(moment) && moment >= from && (
          <line
            class="at"
            x1={x(moment)}
            x2={x(moment)}
            y1="0"
            y2={HEIGHT}
            vector-effect="non-scaling-stroke"
          />
        )}
      </svg>
      <div class="axis">
        <span>{clockText(from)}</span>
        <span>{clockText((from + to) / 2)}</span>
        <span>now</span>
      </div>
    </div>
  );
}
