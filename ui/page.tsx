import { render, type VNode } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { StatusDocument } from '../src/api/status-document.ts';
import { type Address, useAddress } from './address.ts';
import { useAnswer } from './agent/ask.ts';
import { Feed } from './agent/feed.ts';
import { isAgent, type ProcessStatus, SharedContext, useFeed, useShared, useTick } from './agent/live.ts';
import { isTokenNeeded, onTokenNeeded, TokenForm } from './agent/token.tsx';
import { Header } from './parts/header.tsx';
import { Problem, Title } from './parts/panel.tsx';
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

/** Time between two reads of the status. */
const STATUS_MS = 2_000;

function View({ address: { view, name, parameters } }: { address: Address }): VNode {
  const { document } = useShared().status;
  if (document !== undefined && !isAgent(document)) return <Overview />;
  switch (view) {
    case 'prefixes':
      return <Prefixes parameters={parameters} />;
    case 'ip':
      return <IP key={name} name={name} />;
    case 'services':
      return <Services parameters={parameters} />;
    case 'service':
      return <Service key={name} name={name} />;
    case 'nodes':
      return <Nodes parameters={parameters} />;
    case 'node':
      return <Node key={name} name={name} />;
    case 'identities':
      return <Identities parameters={parameters} />;
    case 'identity':
      return <Identity key={name} name={name} />;
    case 'clusters':
      return <Clusters />;
    case 'cluster':
      return <Cluster key={name} name={name} />;
    case 'live':
      return <Live parameters={parameters} />;
    case 'kubernetes':
      return <Kubernetes />;
    case 'datapath':
      return <Datapath />;
    case 'overview':
      return <Overview />;
    default:
      return (
        <>
          <Title>{view}</Title>
          <Problem>No view {view}.</Problem>
        </>
      );
  }
}

/** The current view. It is marked as old while the process does not answer. */
function Main({ address }: { address: Address }): VNode {
  const { connection } = useFeed();
  const content = useMemo(() => <View address={address} />, [address]);
  return (
    <main class={connection === 'live' ? undefined : 'old'}>{isTokenNeeded() ? <TokenForm /> : content}</main>
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
  useEffect(() => scrollTo(0, 0), [address.view, address.name]);
  return (
    <SharedContext.Provider value={{ feed, status }}>
      <Header address={address} />
      <Main address={address} />
    </SharedContext.Provider>
  );
}

applyPreferences();
const root = document.getElementById('page');
if (root !== null) {
  root.replaceChildren();
  escapeTexts();
  render(<Page />, root);
}
