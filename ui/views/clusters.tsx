import type { VNode } from 'preact';
import { useMemo } from 'preact/hooks';
import type { ClusterDocument } from '../../src/api/status-document.ts';
import { useShared, useStatus } from '../agent/live.ts';
import { compareNames, counted } from '../format.ts';
import { ClusterMark, clusterTone, Lag, p99Column, Since, WORST_FIRST } from '../parts/cluster-parts.tsx';
import { ClusterLink } from '../parts/links.tsx';
import { LongTable } from '../parts/listing.tsx';
import { Chip } from '../parts/marks.tsx';
import { Pending, Problem, Title } from '../parts/panel.tsx';
import { type Column, NONE, numberColumn } from '../parts/table.tsx';

const COLUMNS: readonly Column<ClusterDocument>[] = [
  {
    name: 'cluster',
    className: 'nowrap',
    by: ({ name }) => name,
    cell: ({ name, local }) => (
      <>
        <ClusterLink name={name} /> {local && <Chip tone="accent">local</Chip>}
      </>
    ),
  },
  {
    name: 'state',
    by: ({ ready, state }) => `${ready} ${state}`,
    cell: (cluster) => <ClusterMark cluster={cluster} isShort />,
  },
  { name: 'id', number: true, by: ({ id }) => id, cell: ({ id }) => id || NONE },
  numberColumn('nodes', ({ keys }) => keys.nodes),
  numberColumn('services', ({ keys }) => keys.services),
  numberColumn('identities', ({ keys }) => keys.identities),
  numberColumn('IPs', ({ keys }) => keys.ip),
  numberColumn('rejected', ({ rejected }) => rejected),
  numberColumn('revision', ({ revision }) => revision),
  { name: 'lag', className: 'nowrap', cell: (cluster) => <Lag cluster={cluster} /> },
  p99Column(),
  {
    name: 'kvstore',
    by: ({ connectionChangedAt }) => connectionChangedAt,
    cell: ({ connected, connectionChangedAt }) => (
      <span class="nowrap soft">
        {connected ? 'connected' : 'not connected'} for <Since time={connectionChangedAt} />
      </span>
    ),
  },
  {
    name: 'last failure',
    by: ({ failures }) => failures,
    cell: ({ failures, lastFailure }) =>
      lastFailure === undefined ? (
        NONE
      ) : (
        <div class="long">
          {failures > 0 && `${counted(failures, 'failure')}: `}
          {lastFailure}
        </div>
      ),
  },
];

/** Returns the clusters in the order of the list: the local one, those with problems, the others. */
function inOrder(clusters: readonly ClusterDocument[]): readonly ClusterDocument[] {
  const rank = (cluster: ClusterDocument): number =>
    cluster.local ? -1 : WORST_FIRST.indexOf(clusterTone(cluster));
  return [...clusters].sort((a, b) => rank(a) - rank(b) || compareNames(a.name, b.name));
}

/** Shows all clusters of the mesh. */
export function Clusters(): VNode {
  const status = useStatus();
  const { problem } = useShared().status;
  const rows = useMemo(() => inOrder(status?.clusters ?? []), [status?.clusters]);
  return (
    <>
      <Title side={<span class="soft">{status && counted(status.clusters.length, 'cluster')}</span>}>
        Clusters
      </Title>
      {status?.configProblems.map((text) => (
        <Problem key={text}>{text}</Problem>
      ))}
      <div class="panel">
        {status === undefined ? (
          <Pending problem={problem} />
        ) : (
          <LongTable label="Table of clusters" columns={COLUMNS} rows={rows} keyOf={({ name }) => name} />
        )}
      </div>
    </>
  );
}
