import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Address, addressOf } from '../address.ts';
import { isAgent, processName, useFeed, useShared, useTick } from '../agent/live.ts';
import { useIsOutdated } from '../agent/page-version.ts';
import { capitalized, timeText } from '../format.ts';
import {
  PREFERENCES,
  type Preference,
  type PreferenceValue,
  preference,
  setPreference,
} from '../preferences.ts';
import { Find } from './find.tsx';
import { TONES, useProblems } from './health.tsx';
import { Icon } from './icons.tsx';
import { Mark } from './marks.tsx';
import { MomentBar, MomentButton } from './moment.tsx';
import { ReloadButton } from './panel.tsx';

/** The views of the navigation, each with the view of single objects that belongs to it. */
const TABS: readonly (readonly [view: string, card?: string])[] = [
  ['overview'],
  ['prefixes', 'ip'],
  ['services', 'service'],
  ['nodes', 'node'],
  ['identities', 'identity'],
  ['clusters', 'cluster'],
  ['live'],
];

/** The state of the connection to the process. */
function ConnectionMark(): VNode {
  const feed = useFeed();
  useTick(1_000);
  const since = feed.lastDataAt === 0 ? '' : ` since ${timeText(feed.lastDataAt)}`;
  const texts = {
    connecting: 'connecting',
    live: 'live',
    stale: `stale${since}`,
    disconnected: `disconnected${since}`,
  };
  return <output class={`connection ${feed.connection}`}>{texts[feed.connection]}</output>;
}

/** The number of problems, which the overview names; nothing if there are none. */
function Problems(): VNode | null {
  const { problems = [] } = useProblems();
  const [worst] = problems;
  if (worst === undefined) return null;
  return (
    <>
      {' '}
      <Mark tone={TONES[worst.severity]} title={`${worst.subject}: ${worst.text}`}>
        {problems.length}
        <span class="hidden"> {problems.length === 1 ? 'problem' : 'problems'}</span>
      </Mark>
    </>
  );
}

function Tabs({ view }: { view: string }): VNode {
  const { document } = useShared().status;
  const more = isAgent(document)
    ? [
        ...(document.kubernetes === undefined ? [] : ['kubernetes']),
        ...(document.datapath === undefined ? [] : ['datapath']),
      ]
    : [];
  const bar = useRef<HTMLElement>(null);
  // On a phone, the current tab may be outside of the screen.
  useEffect(() => {
    const tab = bar.current?.querySelector<HTMLElement>('[aria-current]');
    // Not by `scrollIntoView`, because the next Tab key would then begin behind this tab.
    if (bar.current && tab)
      bar.current.scrollLeft = tab.offsetLeft - (bar.current.clientWidth - tab.offsetWidth) / 2;
  }, [view, more.length]);
  const tabs = document !== undefined && !isAgent(document) ? TABS.slice(0, 1) : TABS;
  return (
    <nav class="tabs" aria-label="Views" ref={bar}>
      {[...tabs, ...more.map((name) => [name] as const)].map(([name, card]) => (
        <a
          key={name}
          href={addressOf(name)}
          aria-current={name === view || card === view ? 'page' : undefined}
        >
          {capitalized(name)}
          {name === 'overview' && view !== 'overview' && <Problems />}
        </a>
      ))}
    </nav>
  );
}

/** The button of a preference. A click chooses its next value. */
function PreferenceButton({ name, title }: { name: Preference; title: string }): VNode {
  const values: readonly PreferenceValue[] = PREFERENCES[name];
  const [value, setValue] = useState(preference(name));
  const next = values[(values.indexOf(value) + 1) % values.length] ?? value;
  return (
    <button
      type="button"
      class="plain icon"
      title={`${title}: ${value}`}
      aria-label={`${title}: ${value}. Change to ${next}`}
      onClick={() => {
        setPreference(name, next);
        setValue(next);
      }}
    >
      <Icon name={value} />
    </button>
  );
}

/** The header of all views: navigation, search, time, and the state of the connection. */
export function Header({ address }: { address: Address }): VNode {
  const { document } = useShared().status;
  const hasCaches = document === undefined || isAgent(document);
  const hasHistory = isAgent(document) && document.history !== undefined;
  const isOutdated = useIsOutdated();
  return (
    <header class="top">
      <div class="bar">
        <a class="brand" href={addressOf('overview')}>
          <Icon name="brand" />
          dpcache
          {document !== undefined && (
            <span class="faint">
              {document.cluster}
              {!hasCaches && ` ${processName(document)}`}
            </span>
          )}
        </a>
        {hasCaches ? <Find /> : <span class="find" />}
        <div class="tools">
          <ConnectionMark />
          {hasHistory && <MomentButton />}
          <PreferenceButton name="density" title="Rows" />
          <PreferenceButton name="theme" title="Colours" />
        </div>
      </div>
      <Tabs view={address.view} />
      {hasHistory && <MomentBar address={address} />}
      {isOutdated && (
        <p class="as-of" role="status">
          The {processName(document)} was replaced by another version, and this page is of the earlier one.{' '}
          <ReloadButton />
        </p>
      )}
    </header>
  );
}
