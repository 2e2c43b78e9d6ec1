import type { ComponentChildren, VNode } from 'preact';
import type { EntryDocument } from '../../src/api/documents.ts';
import { addressOf } from '../address.ts';
import { useAnswer, withQuery } from '../agent/ask.ts';
import { useVersion } from '../agent/live.ts';
import { countText } from '../format.ts';
import { IdentityLink, PodLink, PrefixLink } from './links.tsx';
import { SourceText } from './marks.tsx';
import { Empty, Panel, Pending } from './panel.tsx';
import { type Column, NONE, Table } from './table.tsx';

/** Maximum number of listed prefixes. */
const MAX_LISTED = 200;

/** The columns. If the list has the filter of a column, all rows have the same value and the column is omitted. */
const COLUMNS: readonly (Column<EntryDocument> & { readonly filter?: string })[] = [
  { name: 'prefix', by: ({ prefix }) => prefix, cell: ({ prefix }) => <PrefixLink prefix={prefix} /> },
  {
    name: 'pod',
    by: ({ podName = '' }) => podName,
    cell: ({ namespace = '', podName }) =>
      podName === undefined ? NONE : <PodLink name={`${namespace}/${podName}`} />,
  },
  {
    name: 'identity',
    filter: 'identity',
    by: ({ identity }) => identity,
    cell: ({ identity, labels }) => <IdentityLink identity={identity} labels={labels} />,
  },
  {
    name: 'host',
    filter: 'node',
    by: ({ hostIP = '' }) => hostIP,
    cell: ({ hostIP }) => (hostIP === undefined ? NONE : <PrefixLink prefix={hostIP} />),
  },
  {
    name: 'source',
    by: ({ source, owner = '' }) => `${source} ${owner}`,
    cell: ({ source, owner }) => <SourceText source={source} owner={owner} />,
  },
];

/** The first prefixes of an identity or a node, at a moment or now, with a link to the list of all. */
export function PrefixPanel({
  title,
  filter,
  value,
  at,
  className,
  side = 'Open as a list',
  empty,
}: {
  title: string;
  filter: 'identity' | 'node';
  value: string;
  /** The moment; undefined: the present. */
  at?: string | undefined;
  className?: string;
  /** The text of the link. */
  side?: ComponentChildren;
  empty: string;
}): VNode {
  const filters = { [filter]: value };
  const { document, problem } = useAnswer<{ items: readonly EntryDocument[]; continue?: string }>(
    withQuery('/v1/ipcache', {
      ...filters,
      at,
      // The prefixes of a moment have no order. An identity may have too many to sort them after each change.
      sort: filter === 'node' && at === undefined ? 'prefix' : undefined,
      limit: String(MAX_LISTED),
    }),
    useVersion('ip'),
  );
  return (
    <Panel
      title={title}
      className={className}
      flush
      side={
        <a href={addressOf('prefixes', '', filters)}>
          {side}
          {document?.continue !== undefined && `, the first ${countText(MAX_LISTED)} are listed`}
        </a>
      }
    >
      {document === undefined ? (
        <Pending problem={problem} />
      ) : document.items.length === 0 ? (
        <Empty title={empty} />
      ) : (
        <Table
          label={`Table: ${title}`}
          columns={COLUMNS.filter((column) => column.filter !== filter)}
          rows={document.items}
          keyOf={({ prefix }) => prefix}
        />
      )}
    </Panel>
  );
}
