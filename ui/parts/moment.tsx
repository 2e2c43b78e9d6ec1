import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { HistoryDocument } from '../../src/api/history-documents.ts';
import { type PastDocument, uncertaintyText } from '../../src/api/past-document.ts';
import { type Address, adjust, momentOf } from '../address.ts';
import { ask, withQuery } from '../agent/ask.ts';
import { agentNow } from '../agent/clock.ts';
import { clockText, timeText, zoneText } from '../format.ts';
import { Icon } from './icons.tsx';

/**
 * Views of single objects. The arrow keys step through the changes of the shown object; in other views, through all
 * changes.
 */
const OBJECT_VIEWS = ['ip', 'service', 'node'];

/** Views that can show the state of an earlier moment. */
const MOMENT_VIEWS = [...OBJECT_VIEWS, 'prefixes'];

/** Returns the key of the shown object in the history; undefined for all changes. */
function keyOf({ view, name }: Address): string | undefined {
  return OBJECT_VIEWS.includes(view) ? name : undefined;
}

/** Returns the time of a local date and time as RFC 3339; undefined if it is invalid. */
function instantOf(local: string): string | undefined {
  const time = new Date(local);
  return Number.isNaN(time.getTime()) ? undefined : time.toISOString();
}

/** Returns a time as the value of a field for local dates and times. */
function localOf(time: number): string {
  const offset = new Date(time).getTimezoneOffset() * 60_000;
  return new Date(time - offset).toISOString().slice(0, 19);
}

/** Opens the banner of the current second, where an earlier time can be selected. */
export function MomentButton(): VNode {
  return (
    <button
      type="button"
      class="plain icon"
      title="Show the state of an earlier time"
      aria-label="Show the state of an earlier time"
      onClick={() => adjust({ at: new Date(Math.floor(agentNow() / 1_000) * 1_000).toISOString() })}
    >
      <Icon name="clock" />
    </button>
  );
}

/** Length of the first time window searched for the next change. */
const FIRST_WINDOW_MS = 1_000;

/**
 * Returns the time of the first change after a moment; undefined if there is none. Searches one time window after the
 * other: a longer one after a window without a change, a shorter one if a window has more changes than an answer.
 */
async function nextChange(key: string | undefined, time: number): Promise<string | undefined> {
  const now = agentNow();
  let begin = time; // there is no change between `time` and `begin`
  for (let windowMs = FIRST_WINDOW_MS; begin < now; ) {
    const end = Math.min(begin + windowMs, now);
    const range = { from: new Date(begin + 1).toISOString(), to: new Date(end).toISOString() };
    const { items, more } = await ask<HistoryDocument>(
      withQuery('/v1/history', { key, ...range, limit: '1000' }),
    );
    if (more && end - begin > 1) windowMs = Math.ceil((end - begin) / 2);
    else if (items.length > 0) return items.at(-1)?.at;
    else {
      begin = end;
      windowMs *= 8;
    }
  }
  return undefined;
}

/** Opens the state at the change before or after a moment. If there is no later change, opens the current state. */
async function openChange(address: Address, at: string, isLater: boolean): Promise<void> {
  const time = Date.parse(at);
  const key = keyOf(address);
  if (isLater) {
    adjust({ at: (await nextChange(key, time)) ?? '' });
    return;
  }
  const to = new Date(time - 1).toISOString();
  const { items } = await ask<HistoryDocument>(withQuery('/v1/history', { key, to, limit: '1' }));
  const [before] = items;
  if (before === undefined) throw new Error('The history has no earlier change.');
  adjust({ at: before.at });
}

/**
 * The banner of an earlier moment, with a button to return to now. The arrow keys step through the
 * changes.
 */
export function MomentBar({ address }: { address: Address }): VNode | null {
  const at = momentOf(address);
  const [problem, setProblem] = useState('');
  const [isStepping, setStepping] = useState(false);
  const openNeighbor = (isLater: boolean): void => {
    if (isStepping) return;
    setStepping(true);
    openChange(address, at, isLater)
      .then(
        () => setProblem(''),
        (error: Error) => setProblem(error.message),
      )
      .finally(() => setStepping(false));
  };
  useEffect(() => {
    if (at === '') return;
    const pressed = (event: KeyboardEvent): void => {
      const isField = document.activeElement?.matches('input, select, textarea, .virtual, .scroll') === true;
      if (isField || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') openNeighbor(event.key === 'ArrowRight');
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  });
  if (at === '') return null;
  const time = Date.parse(at);
  return (
    <section class="as-of" aria-label="Earlier time">
      <span role="status">
        <strong>As of {Number.isNaN(time) ? at : `${timeText(time)} ${zoneText(time)}`}</strong>
        {MOMENT_VIEWS.includes(address.view)
          ? ''
          : ' · This view shows the current state. Prefixes and the cards of IPs, services and nodes show the state of this time.'}
      </span>
      <label>
        <span class="hidden">Time</span>
        <input
          type="datetime-local"
          step="1"
          value={Number.isNaN(time) ? '' : localOf(time)}
          onChange={({ currentTarget }) => {
            const next = instantOf(currentTarget.value);
            if (next !== undefined) adjust({ at: next });
          }}
        />
      </label>
      <button type="button" onClick={() => openNeighbor(false)} title="Previous change (←)">
        ← previous change
      </button>
      <button type="button" onClick={() => openNeighbor(true)} title="Next change (→)">
        next change →
      </button>
      {problem !== '' && <span role="alert">{problem}</span>}
      <span class="spacer" />
      <button type="button" class="primary" onClick={() => adjust({ at: '' })}>
        Back to now, {clockText(agentNow())}
      </button>
    </section>
  );
}

/** Shows why an answer about an earlier moment is not certain; nothing if it is certain. */
export function Certainty({ past }: { past: PastDocument | undefined }): VNode | null {
  if (past === undefined || past.certain) return null;
  return (
    <p class="health warn">
      <strong>Not certain</strong>
      <span>
        {past.reason === undefined
          ? 'The answer may be incomplete.'
          : `The answer may be wrong, because ${uncertaintyText(past.reason, past)}.`}
      </span>
    </p>
  );
}
