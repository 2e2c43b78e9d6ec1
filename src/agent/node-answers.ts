import type { NodeDocument } from '../api/documents.ts';
import type { ExplainedNodeDocument } from '../api/schemas.ts';
import {
  ageText,
  type Column,
  find,
  hinted,
  type ListFilters,
  listAll,
  listed,
  nothing,
  pathOf,
  type Question,
} from './answer.ts';
import { printable } from './terminal.ts';

const NO_NODE =
  'No node is known. What to follow is named with --load, --kvstore or --clustermesh-config; how far it is: dpcache status.';

function nodeName({ cluster, name }: NodeDocument): string {
  return `${cluster}/${name}`;
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
    cell: ({ ipv4AllocCIDR, ipv6AllocCIDR }) =>
      [ipv4AllocCIDR, ipv6AllocCIDR].filter(Boolean).join(' ') || '-',
  },
  { title: 'KEY', cell: ({ encryptionKey }) => String(encryptionKey) },
  {
    title: 'HEALTH',
    cell: ({ ipv4HealthIP, ipv6HealthIP }) => [ipv4HealthIP, ipv6HealthIP].filter(Boolean).join(' ') || '-',
    wide: true,
  },
  {
    title: 'LABELS',
    cell: ({ labels }) =>
      Object.entries(labels)
        .map(([key, value]) => `${key}=${value}`)
        .join(' ') || '-',
    wide: true,
  },
];

/** Nodes by cluster and name. */
export function listNodes(filters: ListFilters): Question {
  return async (ask, view) => {
    const nodes = await listAll<NodeDocument>(ask, '/v1/nodes', filters);
    const lines = hinted(listed(NODE_COLUMNS, nodes, view), NO_NODE);
    return { json: nodes, lines, found: true, names: nodes.map(nodeName) };
  };
}

/** A node, and what each source says of it. */
export function getNode(name: string): Question {
  return async (ask, view) => {
    const node = await find<ExplainedNodeDocument>(ask, `/v1/nodes/${pathOf(name)}`);
    if (node === undefined) return nothing(name);
    const { claims, heldBack, lostAddresses } = node.explain;
    const lost = lostAddresses.map(
      ({ ip, holder }) =>
        `${ip}: held by ${holder === undefined ? 'no writer: the IPCache has no room' : `${holder.source} ${holder.owner}`.trim()}`,
    );
    return {
      json: node,
      lines: [
        ...listed(NODE_COLUMNS, claims, view),
        ...(claims.length > 1 ? ['The first claim is effective; the others are overruled.'] : []),
        ...(heldBack ? ['Its last change is held back from handlers.'] : []),
        ...lost.map(printable),
      ],
      found: true,
      names: [name],
    };
  };
}
