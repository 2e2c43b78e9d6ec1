import type { VNode } from 'preact';
import type { ClusterDocument } from '../../src/api/status-document.ts';
import { durationText } from '../../src/base/show-value.ts';
import { useShared, useStatus } from '../agent/live.ts';
import { counted, countText } from '../format.ts';
import { ClusterMark } from '../parts/cluster-parts.tsx';
import { ClusterLink } from '../parts/links.tsx';
import { Chip } from '../parts/marks.tsx';
import { Pending, Problem, Title } from '../parts/panel.tsx';
import { type Column, Table } from '../parts/table.tsx';

function keysColumn(name: string, resource: keyof ClusterDocument['keys']): Column<ClusterDocument> {
  return {
    name,
    number: true,
    by: ({ keys }) => keys[resource] ?? 0,
    cell: ({ keys }) => {
      const count = keys[resource];
      return count === undefined ? <span class="faint">–</span> : countText(count);
    },
  };
}

const COLUMNS: readonly Column<ClusterDocument>[] = [
  {
    name: 'cluster',
    by: ({ name }) => name,
    cell: ({ name, own }) => (
      <>
        <ClusterLink name={name} /> {own && <Chip tone="accent">own</Chip>}
      </>
    ),
  },
  { name: 'id', number: true, by: ({ id }) => id, cell: ({ id }) => id || <span class="faint">–</span> },
  {
    name: 'state',
    by: ({ ready, state }) => `${ready} ${state}`,
    cell: (cluster) => <ClusterMark cluster={cluster} />,
  },
  keysColumn('nodes', 'nodes'),
  keysColumn('services', 'services'),
  keysColumn('identities', 'identities'),
  keysColumn('IPs', 'ip'),
  {
    name: 'rejected',
    number: true,
    by: ({ rejected }) => rejected,
    cell: ({ rejected }) => countText(rejected),
  },
  {
    name: 'connected',
    by: ({ connectedSince }) => connectedSince,
    cell: ({ connected, connectedSince }) => (
      <span class="nowrap soft">
        {connected ? 'for' : 'not for'} {durationText(Date.now() - Date.parse(connectedSince))}
      </span>
    ),
  },
  {
    name: 'last failure',
    by: ({ failures }) => failures,
    cell: ({ failures, lastFailure }) =>
      failures === 0 ? (
        <span class="faint">–</span>
      ) : (
        <span>
          {counted(failures, 'failure')}: {lastFailure}
        </span>
      ),
  },
];

/** Shows all clusters of the mesh. */
export function Clusters(): VNode {
  const status = useStatus();
  const { problem } = useShared().status;
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
          <Table
            label="Table of clusters"
            columns={COLUMNS}
            rows={status.clusters}
            keyOf={({ name }) => name}
          />
        )}
      </div>
    </>
  );
}
