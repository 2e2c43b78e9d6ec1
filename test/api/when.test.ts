import { expect, it } from 'vitest';
import { parseWhen } from '../../src/api/when.ts';
import { localTimeText } from '../../src/process/terminal.ts';

const NOW = new Date(2026, 10, 23, 14, 30).getTime();

it('takes a local time of another day, as the command line prints it', () => {
  for (const at of [new Date(2026, 10, 22, 14, 3, 5, 123), new Date(2026, 10, 23, 9, 0, 0, 7)]) {
    const printed = localTimeText(at.toISOString(), new Date(NOW));
    expect(parseWhen(printed, NOW)).toBe(at.getTime());
  }
  expect(parseWhen('2026-11-22T14:03', NOW)).toBe(new Date(2026, 10, 22, 14, 3).getTime());
});

it.each([
  ['14:03:05', 0],
  ['14:03:05.5', 500],
  ['14:03:05.05', 50],
  ['14:03:05.123', 123],
])('takes %s with %i ms: the digits after the point are a fraction', (text, ms) => {
  expect(parseWhen(text, NOW)).toBe(new Date(2026, 10, 23, 14, 3, 5, ms).getTime());
});

const [SECOND, MINUTE, HOUR, DAY] = [1_000, 60_000, 3_600_000, 86_400_000] as const;

it.each([
  ['-0s', 0],
  ['-7s', 7 * SECOND],
  ['-7m', 7 * MINUTE],
  ['-7h', 7 * HOUR],
  ['-7d', 7 * DAY],
  ['-1d2h3m4s', DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND],
  ['-1d4s', DAY + 4 * SECOND],
  ['-90m', 90 * MINUTE],
])('takes %s as %i ms before now: a missing unit is 0', (text, ms) => {
  expect(parseWhen(text, NOW)).toBe(NOW - ms);
});

it.each([
  '2026-11-22',
  '2026-11-22 14',
  '2026-13-22 14:03',
  // Regression: the 2nd of March.
  '2026-02-30 14:03',
  '2026-02-30T14:03:05Z',
  '14:60',
  '24:00',
  '-10',
  '10m',
  '#',
  'yesterday',
  '',
])('refuses %j', (text) => {
  expect(parseWhen(text, NOW)).toBeUndefined();
});
