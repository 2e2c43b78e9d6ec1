import type { ComponentChildren, VNode } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { useMoment } from '../agent/live.ts';
import { compareNames, countText } from '../format.ts';

/** A column of a {@link Table}. */
export interface Column<T> {
  readonly name: string;
  /**
   * Returns the content of a cell. It is called again only for another row object, so a text that depends on the time
   * must be a component.
   */
  readonly cell: (row: T) => ComponentChildren;
  /** Value to sort by. If undefined, the column cannot be sorted. */
  readonly by?: (row: T) => string | number;
  /** True for figures, which are aligned at the right. */
  readonly number?: boolean;
  readonly className?: string;
}

/** The cell of a missing value. */
export const NONE: VNode = <span class="faint">–</span>;

/** Returns a column of numbers. A missing number is shown as `–` and sorted before 0. */
export function numberColumn<T>(
  name: string,
  of: (row: T) => number | undefined,
  text: (value: number) => string = countText,
): Column<T> {
  return {
    name,
    number: true,
    by: (row) => of(row) ?? -1,
    cell: (row) => {
      const value = of(row);
      return value === undefined ? NONE : text(value);
    },
  };
}

/** Compares numbers by value, and names in natural order. */
function compare(a: string | number, b: string | number): number {
  return typeof a === 'number' && typeof b === 'number' ? a - b : compareNames(String(a), String(b));
}

/** The order of a table: the number of a column, negative for descending; 0 for the order of `rows`. */
type Order = number;

/** A sortable table. On a narrow screen it scrolls, and the page does not. The first column is the name of the row. */
export function Table<T>({
  label,
  columns,
  rows,
  keyOf,
  limit = rows.length,
  className = '',
}: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  /** Maximum number of rows to show: the first ones of the chosen order. */
  limit?: number;
  className?: string;
}): VNode {
  const [order, setOrder] = useState<Order>(0);
  const moment = useMoment();
  const by = columns[Math.abs(order) - 1]?.by;
  const sorted = useMemo(() => sortedRows(rows, by, Math.sign(order)), [rows, by, order]);
  return (
    <section class={`scroll ${className}`} tabIndex={0} aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column, at) => (
              <Head key={column.name} column={column} place={at + 1} order={order} onOrder={setOrder} />
            ))}
          </tr>
        </thead>
        <tbody>
          {sorted.slice(0, limit).map((row) => (
            <TableRow key={keyOf(row)} row={row} columns={columns} moment={moment} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Returns the rows by the values of a column, each computed once. `sign`: -1 for descending. */
function sortedRows<T>(rows: readonly T[], by: Column<T>['by'], sign: number): readonly T[] {
  if (by === undefined) return rows;
  return rows
    .map((row) => ({ row, value: by(row) }))
    .sort((a, b) => sign * compare(a.value, b.value))
    .map(({ row }) => row);
}

/** A row of a table. It is rendered again only if its object, the columns, or the moment in its links have changed. */
function TableRow<T>({
  row,
  columns,
  moment,
}: {
  row: T;
  columns: readonly Column<T>[];
  moment: string | undefined;
}): VNode {
  return useMemo(
    () => (
      <tr>
        {columns.map(({ name, cell, number, className: of }, at) => {
          const classes = [number === true && 'number', of].filter(Boolean).join(' ') || undefined;
          return at === 0 ? (
            <th key={name} scope="row" class={classes}>
              {cell(row)}
            </th>
          ) : (
            <td key={name} class={classes}>
              {cell(row)}
            </td>
          );
        })}
      </tr>
    ),
    [row, columns, moment],
  );
}

/** Returns the next order after a click on the column at a place: ascending, descending, then unsorted. */
export function nextOrder(order: Order, place: number): Order {
  if (order === place) return -place;
  return order === -place ? 0 : place;
}

/** Returns the value of `aria-sort` of the column at a place. */
export function sortOf(order: Order, place: number): 'ascending' | 'descending' | undefined {
  if (order === place) return 'ascending';
  return order === -place ? 'descending' : undefined;
}

function Head<T>({
  column,
  place,
  order,
  onOrder,
}: {
  column: Column<T>;
  place: number;
  order: Order;
  onOrder: (order: Order) => void;
}): VNode {
  const { name, number, by } = column;
  return (
    <th scope="col" class={number === true ? 'number' : undefined} aria-sort={sortOf(order, place)}>
      {by === undefined ? (
        name
      ) : (
        <button type="button" onClick={() => onOrder(nextOrder(order, place))}>
          {name}
        </button>
      )}
    </th>
  );
}
