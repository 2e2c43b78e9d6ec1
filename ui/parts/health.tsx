import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { HealthProblem } from '../../src/api/problems.ts';
import { useAnswer } from '../agent/ask.ts';
import { isAgent, useFeed, useShared, useTick } from '../agent/live.ts';
import { problemsOf, type Readiness } from '../agent/problems.ts';
import { counted } from '../format.ts';
import { Mark, type Tone } from './marks.tsx';

/** The tone of each severity. */
export const TONES: Readonly<Record<HealthProblem['severity'], Tone>> = { error: 'bad', warning: 'warn' };

/** Maximum number of listed problems, until the user shows all. */
const MAX_LISTED = 12;

/** Returns the problems of the process and of the connection to it; undefined before the first status. */
export function useProblems(): {
  readonly problems?: readonly HealthProblem[];
  readonly isReady: boolean;
  /** False while the process does not answer. */
  readonly isCurrent: boolean;
} {
  const { status } = useShared();
  const feed = useFeed();
  const { document: readiness } = useAnswer<Readiness>('/readyz', useTick(2_000));
  const isCurrent = feed.connection === 'live';
  if (status.document === undefined && feed.connection !== 'disconnected')
    return { isReady: false, isCurrent };
  const problems = problemsOf(status, readiness, feed);
  return { problems, isReady: readiness?.ready === true, isCurrent };
}

/** Lists the problems, or states `No problems`. */
export function Health(): VNode {
  const [isLong, setLong] = useState(false);
  const { problems, isReady, isCurrent } = useProblems();
  const { document } = useShared().status;
  const rejected = document?.rejected?.total ?? 0;
  if (problems === undefined)
    return (
      <section class="health idle" aria-label="Health" aria-live="polite">
        <Mark tone="idle">Reading the status…</Mark>
      </section>
    );
  if (problems.length === 0) {
    const isGood = isReady && isCurrent;
    return (
      <section class="health" aria-label="Health" aria-live="polite">
        <Mark tone={isGood ? 'good' : 'idle'}>
          <strong>{isGood ? 'No problems' : 'Reading the status…'}</strong>
        </Mark>
        <span class="soft">
          {isGood &&
            (isAgent(document) ? 'All sources are connected and complete.' : 'The process is ready.')}
          {isGood && rejected > 0 && ` ${counted(rejected, 'item was', 'items were')} rejected: see below.`}
        </span>
      </section>
    );
  }
  const tone = TONES[problems[0]?.severity ?? 'warning']; // the worst is the first
  return (
    <section class={`health ${tone}`} aria-label="Health" aria-live="polite">
      <Mark tone={tone}>
        <strong>
          {isReady || !isCurrent ? '' : 'Not ready: '}
          {counted(problems.length, 'problem')}
        </strong>
      </Mark>
      <span />
      <ul>
        {problems
          .slice(0, isLong ? problems.length : MAX_LISTED)
          .map(({ severity, subject, text, remedy }) => (
            <li key={`${subject} ${text}`}>
              <Mark tone={TONES[severity]}>{subject}</Mark>
              <span>
                {text}
                {remedy !== undefined && <span class="soft"> {remedy}</span>}
              </span>
            </li>
          ))}
        {problems.length > MAX_LISTED && (
          <li>
            <button type="button" aria-expanded={isLong} onClick={() => setLong(!isLong)}>
              {isLong ? `Show the first ${MAX_LISTED}` : `Show ${problems.length - MAX_LISTED} more`}
            </button>
          </li>
        )}
      </ul>
    </section>
  );
}
