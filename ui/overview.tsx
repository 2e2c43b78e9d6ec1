import type { VNode } from 'preact';
import type { DatapathDocument, DatapathTableDocument } from '../src/api/datapath-document.ts';
import type { ClusterDocument, StatusDocument } from '../src/api/status-document.ts';
import { addressOf } from './address.ts';
import { useAnswer } from './ask.ts';
import type { Feed } from './feed.ts';
import { Empty, Mark, Section, Sparkline, Table } from './parts.tsx';

function standing({ state, ready, connected, knownAt }: ClusterDocument): string {
  if (ready) return 'connected, complete';
  if (knownAt !== undefined)
    return `unreachable, serving the state of ${new Date(knownAt).toLocaleTimeString()}`;
  return connected ? state : 'not connected';
}

function ClusterRow({ cluster }: { cluster: ClusterDocument }): VNode {
  const { name, own, id, keys, rejected, ready, failures, lastFailure } = cluster;
  return (
    <tr>
      <th scope="row">
        <a href={addressOf('nodes', { cluster: name })}>{name}</a> {own && <span class="faint">own</span>}
      </th>
      <td>{id}</td>
      <td>
        <Mark good={ready}>{standing(cluster)}</Mark>
      </td>
      <td class="number">{keys.nodes ?? '–'}</td>
      <td class="number">{keys.services ?? '–'}</td>
      <td class="number">{keys.identities ?? '–'}</td>
      <td class="number">{keys.ip ?? '–'}</td>
      <td class="number">{rejected}</td>
      <td title={lastFailure ?? ''}>{failures === 0 ? '–' : `${failures}: ${lastFailure ?? ''}`}</td>
    </tr>
  );
}

function TableRow({ table }: { table: DatapathTableDocument }): VNode {
  const { name, state, actual, desired, capacity, pending, held, noRoom, failing, failures, repairs } = table;
  return (
    <tr>
      <th scope="row">{name}</th>
      <td title={failures.map(({ key, reason }) => `${key}: ${reason}`).join('\n')}>
        <Mark good={state === 'kept' || state === 'holding'}>{state}</Mark>
      </td>
      <td class="number">{actual.toLocaleString()}</td>
      <td class="number">{desired.toLocaleString()}</td>
      <td class="number">{capacity?.toLocaleString() ?? '–'}</td>
      <td class="number">{pending}</td>
      <td class="number">{held}</td>
      <td class="number">{noRoom}</td>
      <td class="number">{failing}</td>
      <td class="number">{repairs}</td>
    </tr>
  );
}

/** Shows the state of the kernel tables of the agent's machine. */
function Datapath({ datapath }: { datapath: DatapathDocument }): VNode {
  const { kernel, pinFolder, dryRun, parts, tables, waitsFor, failures } = datapath;
  const isHeld = tables.some(({ held }) => held > 0);
  return (
    <Section title="Datapath">
      <p class="faint">
        Linux {kernel}, pins in {pinFolder}
        {dryRun && ', dry run, nothing is written'}
      </p>
      <ul class="plain">
        {parts.map(({ name, state, missing }) => (
          <li key={name}>
            {name} <Mark good={state !== 'unavailable' && missing.length === 0}>{state}</Mark>{' '}
            {missing.join('; ')}
          </li>
        ))}
      </ul>
      <Table
        label="Table of the kernel"
        head={[
          'table',
          'state',
          'items',
          'wanted',
          'capacity',
          'pending',
          'held',
          'no room',
          'failing',
          'repaired',
        ]}
      >
        {tables.map((table) => (
          <TableRow key={table.name} table={table} />
        ))}
      </Table>
      {[...failures, ...(isHeld ? waitsFor : [])].map((text) => (
        <p key={text} class="problem">
          {text}
        </p>
      ))}
    </Section>
  );
}

/** Shows clusters, counts and rates. */
export function Overview({ feed, second }: { feed: Feed; second: number }): VNode {
  const { document: status, problem } = useAnswer<StatusDocument>('/v1/status', Math.floor(second / 2));
  if (status === undefined) return <Empty problem={problem} />;
  const counts: readonly (readonly [string, number, string])[] = [
    ['prefixes', status.ipcache.prefixes, 'prefixes'],
    ['nodes', status.nodes.nodes, 'nodes'],
    ['services', status.services.announced, 'services'],
    ['backends', status.services.backends, 'services'],
    ['rejected', status.rejected.total, 'overview'],
  ];
  return (
    <>
      <Section title="State">
        <ul class="counts">
          {counts.map(([name, count, view]) => (
            <li key={name}>
              <a href={addressOf(view)}>
                <strong>{count.toLocaleString()}</strong> {name}
              </a>
            </li>
          ))}
        </ul>
        <div class="sparks">
          <Sparkline label="prefixes" values={feed.rates.ip} />
          <Sparkline label="services" values={feed.rates.service} />
          <Sparkline label="nodes" values={feed.rates.node} />
        </div>
      </Section>
      <Section title="Clusters">
        <Table
          label="Table of clusters"
          head={['cluster', 'id', 'state', 'nodes', 'services', 'identities', 'IPs', 'rejected', 'failures']}
        >
          {status.clusters.map((cluster) => (
            <ClusterRow key={cluster.name} cluster={cluster} />
          ))}
        </Table>
        {status.configProblems.map((text) => (
          <p key={text} class="problem">
            {text}
          </p>
        ))}
      </Section>
      {status.datapath !== undefined && <Datapath datapath={status.datapath} />}
      {status.rejected.total > 0 && (
        <Section title="Last rejected items">
          <ul class="plain">
            {status.rejected.recent.map((text, at) => (
              <li key={`${at}${text}`}>{text}</li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}
