import type { VNode } from 'preact';
import type { IdentityDocument } from '../../src/api/documents.ts';
import { addressOf } from '../address.ts';
import { useTick } from '../agent/live.ts';
import { countText } from '../format.ts';
import { TextFilter } from '../parts/filters.tsx';
import { ClusterLink, IdentityLink } from '../parts/links.tsx';
import { Listing } from '../parts/listing.tsx';
import { Chip, Restored } from '../parts/marks.tsx';
import type { Column } from '../parts/table.tsx';

/** Identities have no events of their own, so the list is read again at this interval. */
const READ_MS = 5_000;

const COLUMNS: readonly Column<IdentityDocument>[] = [
  {
    name: 'identity',
    by: ({ identity }) => identity,
    cell: ({ identity, labels, restored }) => (
      <>
        <IdentityLink identity={identity} labels={labels} /> <Restored restored={restored} />
      </>
    ),
  },
  {
    name: 'cluster',
    by: ({ cluster = '' }) => cluster,
    cell: ({ cluster }) =>
      cluster === undefined ? <span class="faint">reserved</span> : <ClusterLink name={cluster} />,
  },
  {
    name: 'prefixes',
    number: true,
    by: ({ prefixes }) => prefixes,
    cell: ({ identity, prefixes }) => (
      <a href={addressOf('prefixes', '', { identity: String(identity) })}>{countText(prefixes)}</a>
    ),
  },
  {
    name: 'labels',
    cell: ({ labels }) => (
      <span class="chips">
        {labels.slice(0, 6).map((label) => (
          <Chip key={label}>{label}</Chip>
        ))}
        {labels.length > 6 && <span class="faint">{labels.length - 6} more</span>}
      </span>
    ),
  },
];

/** Shows all identities with their labels. */
export function Identities({ parameters }: { parameters: URLSearchParams }): VNode {
  return (
    <Listing
      view="identities"
      one="identity"
      parameters={parameters}
      filters={['cluster', 'label']}
      version={String(useTick(READ_MS))}
      columns={COLUMNS}
      keyOf={({ identity, cluster = '' }) => `${cluster} ${identity}`}
      hint="Identities come from the kvstore of each cluster, or from Kubernetes."
    >
      <TextFilter name="label" label="label" example="app=checkout" />
      <TextFilter name="cluster" label="cluster" example="baltic" />
    </Listing>
  );
}
