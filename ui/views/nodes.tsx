import type { VNode } from 'preact';
import type { NodeDocument } from '../../src/api/documents.ts';
import { addressOf } from '../address.ts';
import { useStatus, useVersion } from '../agent/live.ts';
import { Choice } from '../parts/filters.tsx';
import { ClusterLink, NodeLink, PrefixLink } from '../parts/links.tsx';
import { Listing } from '../parts/listing.tsx';
import { Restored } from '../parts/marks.tsx';
import { nodeIPs, podCIDRs } from '../parts/node-parts.tsx';
import { type Column, NONE } from '../parts/table.tsx';

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
        {nodeIPs(node).map(({ type, ip }) => (
          <span key={`${type} ${ip}`} class="nowrap">
            <PrefixLink prefix={ip} /> <span class="faint">{type}</span>
          </span>
        ))}
      </div>
    ),
  },
  {
    name: 'pod CIDRs',
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
    cell: ({ encryptionKey, wireguardPubKey }) => {
      if (wireguardPubKey !== undefined) return 'WireGuard';
      return encryptionKey === 0 ? NONE : `IPsec key ${encryptionKey}`;
    },
  },
  { name: 'source', by: ({ source }) => source, cell: ({ source }) => <span class="soft">{source}</span> },
];

/** Shows all nodes. */
export function Nodes({ parameters }: { parameters: URLSearchParams }): VNode {
  const clusters = useStatus()?.clusters.map(({ name }) => name) ?? [];
  return (
    <Listing
      view="nodes"
      one="node"
      parameters={parameters}
      filters={['cluster']}
      version={useVersion('node')}
      columns={COLUMNS}
      keyOf={(node) => `${node.cluster}/${node.name}`}
      hint="Nodes come from the kvstore of each cluster, or from Kubernetes."
    >
      <Choice name="cluster" label="cluster" options={clusters} />
    </Listing>
  );
}
