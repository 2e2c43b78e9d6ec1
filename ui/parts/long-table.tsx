import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { countText } from '../format.ts';
import { type Column, Table } from './table.tsx';

/** Number of rows shown at first, and added by each click. */
const ROWS_PER_STEP = 250;

/** A table of many rows. It shows the first ones, and a button for more. */
export function LongTable<T>({
  rows,
  total,
  ...table
}: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  /** Number of all rows; larger than the length of `rows` if the agent has too many to read all. */
  total: number;
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
