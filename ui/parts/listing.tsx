import type { ComponentChildren, VNode } from 'preact';
import { addressOf } from '../address.ts';
import { useList } from '../agent/list.ts';
import { capitalized, counted } from '../format.ts';
import { LongTable } from './long-table.tsx';
import { Empty, Pending, Problem, Title } from './panel.tsx';
import type { Column } from './table.tsx';

/** A view with all objects of a kind: the title with their number, the filters, and a table. */
export function Listing<T>({
  view,
  one,
  parameters,
  filters: names,
  version,
  columns,
  keyOf,
  hint,
  children,
}: {
  /** The name of the view in addresses and in the API, in plural. */
  view: string;
  /** The name of one object, in singular. */
  one: string;
  parameters: URLSearchParams;
  /** Names of the parameters for filters of the API. */
  filters: readonly string[];
  /** The list is read again if this changes. */
  version: string;
  columns: readonly Column<T>[];
  keyOf: (row: T) => string;
  /** Text for an empty list: the sources of the objects. */
  hint: string;
  /** The fields of the filters. */
  children: ComponentChildren;
}): VNode {
  const filters = Object.fromEntries(names.map((name) => [name, parameters.get(name) ?? undefined]));
  const { document: list, problem } = useList<T>(`/v1/${view}`, filters, version);
  const isFiltered = Object.values(filters).some(Boolean);
  return (
    <>
      <Title
        side={
          <>
            <span class="soft">{list && counted(list.total, one, view)}</span>
            {isFiltered && <a href={addressOf(view)}>Clear filters</a>}
          </>
        }
      >
        {capitalized(view)}
      </Title>
      <search class="filters" aria-label={`Filters of the ${view}`}>
        {children}
      </search>
      {problem !== undefined && list !== undefined && <Problem>{problem}</Problem>}
      <div class="panel">
        {list === undefined ? (
          <Pending problem={problem} />
        ) : list.items.length === 0 ? (
          <Empty title={isFiltered ? `No matching ${view}.` : `No ${view}.`}>{hint}</Empty>
        ) : (
          <LongTable
            label={`Table of ${view}`}
            columns={columns}
            rows={list.items}
            total={list.total}
            keyOf={keyOf}
          />
        )}
      </div>
    </>
  );
}
