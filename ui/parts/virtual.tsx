import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { countText } from '../format.ts';
import { nextOrder, sortOf } from './table.tsx';

/** Height of a row in pixels. A browser shows elements of at most 33,554,432 pixels, which is a million rows. */
const ROW_HEIGHT = 32;

/** Maximum number of rows of a list. */
export const MAX_ROWS = 1_000_000;

/** Number of rows rendered above and below the visible ones. */
const ROWS_BEYOND = 12;

/** A column of a {@link VirtualTable}. */
export interface VirtualColumn {
  readonly name: string;
  /** A track of a CSS grid, such as `2fr`. */
  readonly width: string;
}

/** Options of a {@link VirtualTable}. */
export interface VirtualTableOptions {
  readonly label: string;
  readonly columns: readonly VirtualColumn[];
  /** Width below which the table scrolls, such as `52rem`. */
  readonly minWidth: string;
  /** Number of loaded rows. */
  readonly count: number;
  /** Returns the cells of a row; undefined while it is loaded. */
  readonly row: (index: number) => readonly VNode[] | undefined;
  /** The sorted column, from 1; negative for descending, 0 for the order of the agent. */
  readonly order: number;
  /** Undefined if the table cannot be sorted. */
  readonly onOrder: ((order: number) => void) | undefined;
  /** Called with the range of rendered rows after each scroll. */
  readonly onShow: (first: number, end: number) => void;
}

/** Maximum number of printed rows, which fill some 30 pages. */
const MAX_PRINTED = 1_000;

/** A table of any length. Only visible rows are in the page. All rows have the same height. */
export function VirtualTable(options: VirtualTableOptions): VNode {
  const { label, columns, minWidth, count, row, order, onOrder, onShow } = options;
  const box = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [height, setHeight] = useState(480);
  const [isPrinting, setPrinting] = useState(false);
  const begin = isPrinting ? 0 : Math.min(first, count);
  const end = Math.min(
    count,
    isPrinting ? MAX_PRINTED : first + Math.ceil(height / ROW_HEIGHT) + 2 * ROWS_BEYOND,
  );
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const print = ({ type }: Event): void => setPrinting(type === 'beforeprint');
    for (const type of ['beforeprint', 'afterprint']) addEventListener(type, print);
    return () => {
      for (const type of ['beforeprint', 'afterprint']) removeEventListener(type, print);
    };
  }, []);
  useEffect(() => onShow(begin, end), [begin, end, count, onShow]);
  useEffect(() => box.current?.scrollTo(0, 0), [order]);
  const scrolled = (): void =>
    setFirst(Math.max(0, Math.floor((box.current?.scrollTop ?? 0) / ROW_HEIGHT) - ROWS_BEYOND));
  const rows: VNode[] = [];
  for (let index = begin; index < end; index++) {
    const cells = row(index);
    rows.push(
      <div class="row" role="row" key={index} aria-rowindex={index + 2}>
        {(cells ?? columns.map(() => <span key="wait">…</span>)).map((cell, at) => (
          <div role="cell" key={columns[at]?.name}>
            {cell}
          </div>
        ))}
      </div>,
    );
  }
  const style = {
    '--columns': columns.map(({ width }) => width).join(' '),
    '--least': minWidth,
    '--height': `${(count + 1) * ROW_HEIGHT}px`,
    '--shift': `${first * ROW_HEIGHT}px`,
  };
  return (
    <section class="virtual" ref={box} onScroll={scrolled} tabIndex={0} aria-label={label} style={style}>
      <div class="inner" role="table" aria-label={label} aria-rowcount={count + 1}>
        <div class="head" role="rowgroup">
          <div class="row" role="row" aria-rowindex={1}>
            {columns.map(({ name }, at) => (
              <div role="columnheader" key={name} aria-sort={sortOf(order, at + 1)}>
                {onOrder === undefined ? (
                  name
                ) : (
                  <button type="button" onClick={() => onOrder(nextOrder(order, at + 1))}>
                    {name}
                  </button>
                )}
              </div>
            ))}
          </div>
        </div>
        <div class="rows" role="rowgroup">
          {rows}
        </div>
      </div>
      {count > MAX_PRINTED && (
        <p class="on-paper why">
          The first {countText(MAX_PRINTED)} of {countText(count)} rows.
        </p>
      )}
    </section>
  );
}
