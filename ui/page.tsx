import { render, type VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { addressOf, useAddress } from './address.ts';
import { Feed } from './feed.ts';
import { Live } from './live.tsx';
import { Nodes } from './nodes.tsx';
import { Overview } from './overview.tsx';
import { Prefixes } from './prefixes.tsx';
import { Services } from './services.tsx';
import { isTokenNeeded, onTokenNeeded, TokenForm } from './token.tsx';

const VIEWS = ['overview', 'prefixes', 'services', 'nodes', 'live'] as const;

const CONNECTIONS = {
  connecting: 'connecting',
  live: 'live',
  lost: 'not connected: the page may be stale',
};

/** Returns a number that increases with each change of the feed. */
function useFeed(feed: Feed): number {
  const [count, setCount] = useState(0);
  useEffect(() => feed.onChange(() => setCount((before) => before + 1)), [feed]);
  return count;
}

function View({ feed, count }: { feed: Feed; count: number }): VNode {
  const { view, parameters } = useAddress();
  const second = Math.floor(performance.now() / 1000);
  switch (view) {
    case 'prefixes':
      return (
        <Prefixes key={parameters.toString()} parameters={parameters} second={second} epoch={feed.epoch} />
      );
    case 'services':
      return (
        <Services
          parameters={parameters}
          version={`${feed.epoch}.${feed.versions.service}`}
          second={second}
        />
      );
    case 'nodes':
      return <Nodes parameters={parameters} version={`${feed.epoch}.${feed.versions.node}`} />;
    case 'live':
      return <Live feed={feed} parameters={parameters} />;
    default:
      return <Overview key={count < 0} feed={feed} second={second} />;
  }
}

function Page({ feed }: { feed: Feed }): VNode {
  const count = useFeed(feed);
  const [, setNeeded] = useState(isTokenNeeded());
  useEffect(() => onTokenNeeded(() => setNeeded(true)), []);
  const { view } = useAddress();
  return (
    <>
      <header>
        <h1>dpcache</h1>
        <nav aria-label="Views">
          {VIEWS.map((name) => (
            <a key={name} href={addressOf(name)} aria-current={view === name ? 'page' : undefined}>
              {name}
            </a>
          ))}
        </nav>
        <output class={feed.connection}>{CONNECTIONS[feed.connection]}</output>
      </header>
      <main>{isTokenNeeded() ? <TokenForm /> : <View feed={feed} count={count} />}</main>
    </>
  );
}

const root = document.getElementById('page');
if (root !== null) {
  root.replaceChildren();
  render(<Page feed={new Feed()} />, root);
}
