import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { MOST_ITEMS } from '../agent/list.ts';
import { countText } from '../format.ts';
import { type Column, Table } from './table.tsx';

/** Rows that are shown at once. */
const SHOWN = 250;

/** A table of many rows. It shows the first ones, and a button for more. */
export function LongTable<T>({
  rows,
  isCut,
  ...table
}: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  isCut: boolean;
}): VNode {
  const [shown, setShown] = useState(SHOWN);
  return (
    <>
      <Table {...table} rows={rows.slice(0, shown)} />
      {rows.length > shown && (
        <p class="empty">
          <button type="button" onClick={() => setShown(shown + SHOWN)}>
            Show more: {countText(shown)} of {countText(rows.length)}
          </button>
        </p>
      )}
      {isCut && (
        <p class="empty">The first {countText(MOST_ITEMS)} are listed. Filter or search for others.</p>
      )}
    </>
  );
}
