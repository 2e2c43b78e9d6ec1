import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { ChangeDocument } from '../src/api/routes/monitor-stream.ts';
import { addressOf, addressOfPrefix, adjust } from './address.ts';
import type { Feed } from './feed.ts';
import { Empty, Section } from './parts.tsx';

const TYPES = ['ip', 'service', 'node'] as const;

function hrefOf({ type, key }: ChangeDocument): string {
  if (type === 'ip') return addressOfPrefix(key);
  if (type === 'service') return addressOf('services', { name: key });
  return addressOf('nodes', { cluster: key.split('/')[0] ?? '' });
}

function detailOf({ value }: ChangeDocument): string {
  if (value === undefined) return '';
  if ('prefix' in value)
    return `identity ${value.identity}${value.podName === undefined ? '' : `, pod ${value.namespace}/${value.podName}`}`;
  if ('backends' in value)
    return `${value.backends.length} ${value.backends.length === 1 ? 'backend' : 'backends'}`;
  return value.addresses.map(({ ip }) => ip).join(' ');
}

function Line({ change }: { change: ChangeDocument }): VNode {
  const { at, kind, type, key } = change;
  return (
    <li class={kind === 'delete' ? 'gone' : 'came'}>
      <time dateTime={at}>{new Date(at).toLocaleTimeString()}</time>
      <span title={kind === 'delete' ? 'deleted' : 'added or changed'}>{kind === 'delete' ? '−' : '+'}</span>
      <span class="faint">{type}</span>
      <a href={hrefOf(change)}>{key}</a>
      <span>{detailOf(change)}</span>
    </li>
  );
}

/** Shows all changes; can be paused and filtered. */
export function Live({ feed, parameters }: { feed: Feed; parameters: URLSearchParams }): VNode {
  const [held, setHeld] = useState<readonly ChangeDocument[]>();
  const type = parameters.get('type') ?? '';
  const contains = parameters.get('contains') ?? '';
  const changes = (held ?? feed.changes).filter(
    (change) => (type === '' || change.type === type) && change.key.includes(contains),
  );
  return (
    <Section title="Live">
      <div class="search">
        <button
          type="button"
          aria-pressed={held !== undefined}
          onClick={() => setHeld(held === undefined ? feed.changes : undefined)}
        >
          {held === undefined ? 'Pause' : 'Continue'}
        </button>
        <label for="type">type</label>
        <select
          id="type"
          value={type}
          onChange={({ currentTarget }) => adjust('live', { type: currentTarget.value, contains })}
        >
          <option value="">all</option>
          {TYPES.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <label for="contains">contains</label>
        <input
          id="contains"
          type="search"
          value={contains}
          onInput={({ currentTarget }) => adjust('live', { type, contains: currentTarget.value })}
        />
      </div>
      {feed.missedAt !== undefined && (
        <p class="faint">Changes were lost before {feed.missedAt.toLocaleTimeString()}.</p>
      )}
      {changes.length === 0 && (
        <Empty>
          {feed.changes.length === 0 ? 'No changes since the page was opened.' : 'No matching changes.'}
        </Empty>
      )}
      <ol class="feed" aria-live="off">
        {changes.slice(0, 200).map((change) => (
          <Line key={change.revision} change={change} />
        ))}
      </ol>
    </Section>
  );
}
