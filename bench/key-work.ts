import { delayCells } from './loop-delay.ts';
import type { OwnWork } from './own-work.ts';
import { textTable } from './text-table.ts';

/** The cost of one kind of work on many keys of a kvstore. */
export interface KeyWork extends OwnWork {
  readonly what: string;
  readonly keysPerSecond: number;
}

/** Returns a table with one row for each piece of work. */
export function keyWorkTable(rows: readonly KeyWork[]): string {
  const head = ['', 'time', 'loop p50', 'p99', 'max', 'budget'];
  const ownHead = ['own work p99', 'max', 'CPU', 'peak memory', 'keys/s'];
  const cells = rows.map((row) => [
    row.what,
    ...delayCells(row),
    `${row.ownP99.toFixed(0)} ms`,
    `${row.ownMax.toFixed(0)} ms`,
    `${(row.cpuMs / 1000).toFixed(1)} s`,
    `${(row.peakBytes / 2 ** 20).toFixed(0)} MiB`,
    row.keysPerSecond.toFixed(0),
  ]);
  return textTable([...head, ...ownHead], cells);
}
