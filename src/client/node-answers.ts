import type { ExplainedNodeDocument, NodeDocument } from '../api/documents.ts';
import { namePath } from '../api/name-path.ts';
import { printable } from '../process/terminal.ts';
import { type Answer, ageText, type Column, namedAnswer, objectLines, type Question } from './answer.ts';
import { pastLines } from './history-answers.ts';
import { type ListFilters, type PrintedList, printedList, withQuery } from './list.ts';

const NO_NODE =
  'No nodes. Sources are set with --load, --kvstore or --clustermesh-config; dpcache status prints their progress.';

function nodeName({ cluster, name }: NodeDocument): string {
  return `${cluster}/${name}`;
}

function texts(...values: readonly (string | undefined)[]): string {
  return values.filter(Boolean).join(' ') || '-';
}

const NODE_COLUMNS: readonly Column<NodeDocument>[] = [
  { title: 'NODE', cell: nodeName },
  {
    title: 'SOURCE',
    cell: ({ source, restored }) => [source, ageText(restored)].filter(Boolean).join(', '),
  },
  {
    title: 'ADDRESSES',
    cell: ({ addresses }) => addresses.map(({ type, ip }) => `${type}=${ip}`).join(' ') || '-',
  },
  {
    title: 'PODS',
    cell: ({ ipv4AllocCIDR, ipv4SecondaryAllocCIDRs = [], ipv6AllocCIDR, ipv6SecondaryAllocCIDRs = [] }) =>
      texts(ipv4AllocCIDR, ...ipv4SecondaryAllocCIDRs, ipv6AllocCIDR, ...ipv6SecondaryAllocCIDRs),
  },
  { title: 'KEY', cell: ({ encryptionKey }) => String(encryptionKey) },
  {
    title: 'HEALTH',
    cell: ({ ipv4HealthIP, ipv6HealthIP }) => texts(ipv4HealthIP, ipv6HealthIP),
    wide: true,
  },
  {
    title: 'INGRESS',
    cell: ({ ipv4IngressIP, ipv6IngressIP }) => texts(ipv4IngressIP, ipv6IngressIP),
    wide: true,
  },
  { title: 'WIREGUARD KEY', cell: ({ wireguardPubKey }) => texts(wireguardPubKey), wide: true },
  { title: 'BOOT ID', cell: ({ bootID }) => texts(bootID), wide: true },
  {
    title: 'LABELS',
    cell: ({ labels }) =>
      Object.entries(labels)
        .map(([key, value]) => `${key}=${value}`)
        .join(' ') || '-',
    wide: true,
  },
];

/** Returns the listing of nodes, by cluster and name. */
export function listNodes(filters: ListFilters): PrintedList {
  return printedList<NodeDocument>({
    path: '/v1/nodes',
    filters,
    columns: NODE_COLUMNS,
    nameOf: nodeName,
    hint: NO_NODE,
  });
}

/** Returns the question for one node and the claims of all sources on it. */
export function getNode(name: string, at?: string): Question {
  const path = withQuery(`/v1/nodes/${namePath(name)}`, { at });
  return (ask, view) => {
    const show = (node: ExplainedNodeDocument): Answer => {
      const { claims, heldBack, lostAddresses } = node.explain;
      const lost = lostAddresses.map(({ ip, holder }) => {
        if (holder === undefined) return `${ip}: not claimed, because the IPCache is full`;
        return `${ip}: claimed by ${holder.source} ${holder.owner}`.trim();
      });
      return {
        json: node,
        lines: [
          ...objectLines(NODE_COLUMNS, claims, view),
          ...(claims.length > 1 ? ['The first claim is effective; the others are overruled.'] : []),
          ...(heldBack ? ['Handlers still have an earlier version of this node.'] : []),
          ...lost.map(printable),
          ...pastLines(node.past),
        ],
        succeeded: true,
        names: [name],
      };
    };
    return namedAnswer(ask, { path, name, at }, show, (node, cluster) => cluster.name === node.cluster);
  };
}
