import type { ComponentChildren, VNode } from 'preact';
import { useState } from 'preact/hooks';
import { addressOf } from '../address.ts';
import { useList } from '../agent/list.ts';
import { capitalized, counted, countText } from '../format.ts';
import { Empty, Pending, Problem, Title } from './panel.tsx';
import { type Column, Table } from './table.tsx';

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

/** Number of rows shown at first, and added by each click. */
const ROWS_PER_STEP = 100;

/** A table of many rows. It shows the first ones, and a button for more. */
export function LongTable<T>({
  rows,
  total = rows.length,
  ...table
}: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  /** Number of all rows, if the agent has too many to read all. */
  total?: number;
}): VNode {
  const [shown, setShown] = useState(ROWS_PER_STEP);
  return (
    <>
      <Table {...table} rows={rows} limit={shown} />
      {rows.length > shown && (
        <p class="empty">
          <button type="button" onClick={() => setShown(shown + ROWS_PER_STEP)}>
            Show more: {countText(shown)} of {countText(rows.length)}
          </button>
        </p>
      )}
      {total > rows.length && (
        <p class="empty">
          The first {countText(rows.length)} of {countText(total)} were read. Filter the list or search to
          find others.
        </p>
      )}
    </>
  );
}
