/**
 * A table in Markdown with aligned columns: the first one left, the others right. It is readable in a terminal, too.
 */
export function textTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const width = (column: number): number =>
    Math.max(...[head, ...rows].map((row) => (row[column] ?? '').length));
  const widths = head.map((_, column) => width(column));
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join(' | ')} |\n`;
  const rule = widths.map((size, i) => (i === 0 ? '-'.repeat(size) : `${'-'.repeat(size - 1)}:`));
  return line(head) + line(rule) + rows.map(line).join('');
}

/** A number with few digits: 12345, 123, 12.3, 1.23, 0.12. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return '–';
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
}
