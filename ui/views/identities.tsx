import type { VNode } from 'preact';
import type { IdentityDocument } from '../../src/api/documents.ts';
import { addressOf } from '../address.ts';
import { useList } from '../agent/list.ts';
import { useTick } from '../agent/live.ts';
import { counted, countText } from '../format.ts';
import { TextFilter } from '../parts/filters.tsx';
import { ClusterLink, IdentityLink } from '../parts/links.tsx';
import { LongTable } from '../parts/long-table.tsx';
import { Chip, Restored } from '../parts/marks.tsx';
import { Empty, Pending, Title } from '../parts/panel.tsx';
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
  const filters = {
    cluster: parameters.get('cluster') ?? undefined,
    label: parameters.get('label') ?? undefined,
  };
  const { list, problem } = useList<IdentityDocument>('/v1/identities', filters, String(useTick(READ_MS)));
  const isFiltered = filters.cluster !== undefined || filters.label !== undefined;
  return (
    <>
      <Title side={<span class="soft">{list && counted(list.items.length, 'identity', 'identities')}</span>}>
        Identities
      </Title>
      <search class="filters" aria-label="Filters of the identities">
        <TextFilter name="label" label="label" value={filters.label ?? ''} example="app=checkout" />
        <TextFilter name="cluster" label="cluster" value={filters.cluster ?? ''} example="baltic" />
        {isFiltered && <a href={addressOf('identities')}>Clear filters</a>}
      </search>
      <div class="panel">
        {list === undefined ? (
          <Pending problem={problem} />
        ) : list.items.length === 0 ? (
          <Empty title={isFiltered ? 'No matching identities.' : 'No identities with known labels.'} />
        ) : (
          <LongTable
            label="Table of identities"
            columns={COLUMNS}
            rows={list.items}
            isCut={list.isCut}
            keyOf={({ identity, cluster = '' }) => `${cluster} ${identity}`}
          />
        )}
      </div>
    </>
  );
}
