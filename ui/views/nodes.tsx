import type { VNode } from 'preact';
import type { NodeDocument } from '../../src/api/documents.ts';
import { addressOf } from '../address.ts';
import { useList } from '../agent/list.ts';
import { useStatus, useVersion } from '../agent/live.ts';
import { counted } from '../format.ts';
import { Choice } from '../parts/filters.tsx';
import { ClusterLink, NodeLink, PrefixLink } from '../parts/links.tsx';
import { LongTable } from '../parts/long-table.tsx';
import { Restored } from '../parts/marks.tsx';
import { addressesOf, podCIDRs } from '../parts/node-parts.tsx';
import { Empty, Pending, Title } from '../parts/panel.tsx';
import type { Column } from '../parts/table.tsx';

const COLUMNS: readonly Column<NodeDocument>[] = [
  {
    name: 'node',
    by: ({ cluster, name }) => `${cluster}/${name}`,
    cell: ({ cluster, name, restored }) => (
      <>
        <NodeLink name={`${cluster}/${name}`} /> <Restored restored={restored} />
      </>
    ),
  },
  { name: 'cluster', by: ({ cluster }) => cluster, cell: ({ cluster }) => <ClusterLink name={cluster} /> },
  {
    name: 'addresses',
    cell: (node) => (
      <div class="flow">
        {addressesOf(node).map(({ type, ip }) => (
          <span key={`${type} ${ip}`} class="nowrap">
            <PrefixLink prefix={ip} /> <span class="faint">{type}</span>
          </span>
        ))}
      </div>
    ),
  },
  {
    name: 'pods',
    cell: (node) =>
      podCIDRs(node).map((cidr) => (
        <div key={cidr} class="nowrap">
          <a class="mono" href={addressOf('prefixes', '', { within: cidr })}>
            {cidr}
          </a>
        </div>
      )),
  },
  {
    name: 'encryption',
    by: ({ encryptionKey }) => encryptionKey,
    cell: ({ encryptionKey, wireguardPubKey }) =>
      wireguardPubKey === undefined ? (
        encryptionKey === 0 ? (
          <span class="faint">–</span>
        ) : (
          `IPsec key ${encryptionKey}`
        )
      ) : (
        'WireGuard'
      ),
  },
  { name: 'source', by: ({ source }) => source, cell: ({ source }) => <span class="soft">{source}</span> },
];

/** Shows all nodes. */
export function Nodes({ parameters }: { parameters: URLSearchParams }): VNode {
  const cluster = parameters.get('cluster') ?? '';
  const clusters = useStatus()?.clusters.map(({ name }) => name) ?? [];
  const filters = { cluster: cluster || undefined };
  const { list, problem } = useList<NodeDocument>('/v1/nodes', filters, useVersion('node'));
  return (
    <>
      <Title side={<span class="soft">{list && counted(list.items.length, 'node')}</span>}>
        {cluster === '' ? 'Nodes' : `Nodes of ${cluster}`}
      </Title>
      <search class="filters" aria-label="Filters of the nodes">
        <Choice name="cluster" label="cluster" value={cluster} options={clusters} />
      </search>
      <div class="panel">
        {list === undefined ? (
          <Pending problem={problem} />
        ) : list.items.length === 0 ? (
          <Empty title={cluster === '' ? 'No nodes.' : `No nodes of ${cluster}.`}>
            Nodes come from the kvstore of each cluster, or from Kubernetes.
          </Empty>
        ) : (
          <LongTable
            label="Table of nodes"
            columns={COLUMNS}
            rows={list.items}
            isCut={list.isCut}
            keyOf={(node) => `${node.cluster}/${node.name}`}
          />
        )}
      </div>
    </>
  );
}
