import { render, type VNode } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { StatusDocument } from '../src/api/status-document.ts';
import { type Address, addressOf, useAddress } from './address.ts';
import { useAnswer } from './agent/ask.ts';
import { Feed } from './agent/feed.ts';
import { isAgent, type ProcessStatus, SharedContext, useFeed, useShared, useTick } from './agent/live.ts';
import { isTokenNeeded, onTokenNeeded, TokenForm } from './agent/token.tsx';
import { Header } from './parts/header.tsx';
import { Guard, Problem, Title } from './parts/panel.tsx';
import { applyPreferences } from './preferences.ts';
import { escapeTexts } from './safe-text.ts';
import { Cluster } from './views/cluster.tsx';
import { Clusters } from './views/clusters.tsx';
import { Datapath } from './views/datapath.tsx';
import { Identities } from './views/identities.tsx';
import { Identity } from './views/identity.tsx';
import { IP } from './views/ip.tsx';
import { Kubernetes } from './views/kubernetes.tsx';
import { Live } from './views/live.tsx';
import { Node } from './views/node.tsx';
import { Nodes } from './views/nodes.tsx';
import { Overview } from './views/overview.tsx';
import { Prefixes } from './views/prefixes.tsx';
import { Service } from './views/service.tsx';
import { Services } from './views/services.tsx';
import { showWholeTexts } from './whole-text.ts';

/** Time between two reads of the status. */
const STATUS_MS = 2_000;

/** The views of one object. */
const CARDS: ReadonlyMap<string, (props: { name: string }) => VNode> = new Map([
  ['ip', IP],
  ['service', Service],
  ['node', Node],
  ['identity', Identity],
  ['cluster', Cluster],
]);

/** The other views. */
const VIEWS: ReadonlyMap<string, (props: { parameters: URLSearchParams }) => VNode> = new Map([
  ['overview', Overview],
  ['prefixes', Prefixes],
  ['services', Services],
  ['nodes', Nodes],
  ['identities', Identities],
  ['clusters', Clusters],
  ['live', Live],
  ['kubernetes', Kubernetes],
  ['datapath', Datapath],
]);

function View({ address: { view, name, parameters } }: { address: Address }): VNode {
  const { document } = useShared().status;
  if (document !== undefined && !isAgent(document)) return <Overview />;
  const CardOf = CARDS.get(view);
  if (CardOf !== undefined && name !== '') return <CardOf key={name} name={name} />;
  const ViewOf = VIEWS.get(view);
  if (ViewOf !== undefined) return <ViewOf parameters={parameters} />;
  return (
    <>
      <Title>{view}</Title>
      <Problem>
        {CardOf === undefined ? `No view ${view}.` : `The address names no object after #/${view}/.`}
      </Problem>
      <p class="soft">
        Select a view above, or <a href={addressOf('overview')}>open the overview</a>.
      </p>
    </>
  );
}

/** The current view. It is marked as old while the process or its status does not answer. */
function Main({ address }: { address: Address }): VNode {
  const { connection } = useFeed();
  const { problem } = useShared().status;
  const content = useMemo(
    () => (
      <Guard key={`${address.view}/${address.name}`}>
        <View address={address} />
      </Guard>
    ),
    [address],
  );
  return (
    <main tabIndex={-1} class={connection === 'live' && problem === undefined ? undefined : 'old'}>
      {isTokenNeeded() ? <TokenForm /> : content}
    </main>
  );
}

function Page(): VNode {
  const feed = useMemo(() => new Feed(), []);
  // Renders the page again when a token is needed.
  const [, setTokenNeeded] = useState(isTokenNeeded());
  useEffect(() => onTokenNeeded(() => setTokenNeeded(true)), []);
  const status = useAnswer<StatusDocument | ProcessStatus>('/v1/status', useTick(STATUS_MS));
  useEffect(() => {
    const { document, problem } = status;
    if (isAgent(document)) feed.follow();
    else if (document !== undefined || problem !== undefined) feed.noteAnswer(problem === undefined);
  }, [status]);
  const address = useAddress();
  const isFirst = useRef(true);
  useEffect(() => {
    scrollTo(0, 0);
    // The link that led here had the focus and is gone. Without this, a screen reader would not notice the new view.
    if (!isFirst.current && document.activeElement === document.body)
      document.querySelector('main')?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [address.view, address.name]);
  const shared = useMemo(() => ({ feed, status }), [feed, status]);
  return (
    <SharedContext.Provider value={shared}>
      <Guard>
        <Header address={address} />
      </Guard>
      <Main address={address} />
    </SharedContext.Provider>
  );
}

applyPreferences();
const root = document.getElementById('page');
if (root !== null) {
  root.replaceChildren();
  escapeTexts();
  showWholeTexts();
  render(<Page />, root);
}
