import { agentNow } from './agent/clock.ts';

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
});
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const ZONE = new Intl.DateTimeFormat('en', { timeZoneName: 'short' });
const NAMES = new Intl.Collator('en', { numeric: true });
const COUNT = new Intl.NumberFormat('en');

/** Returns a number with separators of thousands. */
export function countText(count: number): string {
  return COUNT.format(count);
}

/** Returns a number and its noun: `1 prefix`, `2 prefixes`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${countText(count)} ${count === 1 ? one : many}`;
}

/**
 * Returns the note below a list of prefixes that does not show all of them; undefined if it does. `count`: the number
 * of its rows. `isTruncated`: its order has a lower limit than `maxRows`. `all`: the number of prefixes, if known.
 */
export function omittedRowsText(
  { count, isTruncated }: { readonly count: number; readonly isTruncated: boolean },
  maxRows: number,
  all = 0,
): string | undefined {
  const total = Math.max(count, all);
  if (!isTruncated && total <= maxRows) return undefined;
  const shown = isTruncated ? count : maxRows;
  const ofTotal = total > shown ? ` of ${countText(total)}` : '';
  const otherOrder = isTruncated ? `, or sort it by prefix, which shows up to ${countText(maxRows)}` : '';
  return `The first ${countText(shown)} in this order${ofTotal}. Filter the list to see the others${otherOrder}.`;
}

/** Returns the time of day as `14:03:05`. */
export function clockText(time: string | number | Date): string {
  return CLOCK.format(new Date(time));
}

/** Returns the time of day, with the date if it is not today. */
export function timeText(time: string | number | Date): string {
  const date = new Date(time);
  return date.toDateString() === new Date(agentNow()).toDateString()
    ? clockText(date)
    : `${DAY.format(date)}, ${clockText(date)}`;
}

/** Returns the time zone of the browser at a time: `UTC`, `GMT+2`. */
export function zoneText(time: number): string {
  return ZONE.formatToParts(time).find(({ type }) => type === 'timeZoneName')?.value ?? '';
}

/** Returns a name with a capital first letter. */
export function capitalized(name: string): string {
  return name.slice(0, 1).toUpperCase() + name.slice(1);
}

/** Compares names in natural order: `node-2` before `node-10`. */
export function compareNames(a: string, b: string): number {
  return NAMES.compare(a, b);
}
