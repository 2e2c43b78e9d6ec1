import { describe, expect, it } from 'vitest';
import {
  alignColumns,
  type ColourEnvironment,
  localTimeText,
  printable,
  Terminal,
  withLocalTimes,
} from '../../src/process/terminal.ts';

function painted(isTTY: boolean, environment: ColourEnvironment): string {
  const terminal = new Terminal({ isTTY, write: () => true }, environment);
  return terminal.paint('added', 'x');
}

describe('a terminal', () => {
  it('has colours if its output is a terminal and colours are enabled', () => {
    expect(painted(true, {})).toBe('\u001B[32mx\u001B[0m');
    expect(painted(true, { NO_COLOR: '' })).toBe('\u001B[32mx\u001B[0m');
    expect(painted(true, { NO_COLOR: '1' })).toBe('x');
    expect(painted(true, { TERM: 'dumb' })).toBe('x');
    expect(painted(false, {})).toBe('x');
  });

  it('is not controlled by names from outside', () => {
    expect(printable('a\u001B[31mb\r\n\u202Ec')).toBe('a\\u001b[31mb\\u000d\\u000a\\u202ec');
    expect(printable('größe-北')).toBe('größe-北');
    // Regression: names with a zero-width space or a tag looked like others, and a separator ended a line of the log.
    const invisible = 'a\u200Bb\uFEFF\u00AD\u2028\u2029\u{E0041}';
    expect(printable(invisible)).toBe('a\\u200bb\\ufeff\\u00ad\\u2028\\u2029\\udb40\\udc41');
    expect(JSON.parse(`"${printable(invisible)}"`)).toBe(invisible);
    // Regression: a filler, a variation selector, and a no-break space were printed, and removed at the end of a line.
    expect(printable('a \u3164\u115F\u034F\uFE0F\u2800')).toBe('a \\u3164\\u115f\\u034f\\ufe0f\\u2800');
    for (const blank of [...'\u00A0\u1680\u2000\u200A\u202F\u205F\u3000'])
      expect(printable(blank), `U+${blank.charCodeAt(0).toString(16)}`).toMatch(/^\\u\w{4}$/);
    expect(alignColumns([['a', 'b\u00A0']])).toEqual(['a  b\\u00a0']);
    expect(alignColumns([['a\u001B[31m', 'b\r']])).toEqual(['a\\u001b[31m  b\\u000d']);
  });

  it('shows the ISO 8601 times of agents in the local time zone, and no others', () => {
    const [from, to] = ['2026-01-02T03:04:05.678Z', '2026-01-03T00:00:00.000Z'];
    expect(withLocalTimes(`from ${from} to ${to}.`)).toBe(
      `from ${localTimeText(from)} to ${localTimeText(to)}.`,
    );
    const others = 'v2026-01-02T03:04:05.678Z 2026-01-02T03:04:05Z 2026-13-02T03:04:05.678Z';
    expect(withLocalTimes(others)).toBe(others);
  });

  it('aligns columns, without blanks at the ends of lines', () => {
    expect(
      alignColumns([
        ['a', 'bbb', 'c'],
        ['aaa', 'b', ''],
        ['a', 'b', 'ccc'],
      ]),
    ).toEqual(['a    bbb  c', 'aaa  b', 'a    b    ccc']);
    expect(alignColumns([])).toEqual([]);
  });

  it('does not align lines with a huge name (regression: each line of `node list` was as long as a name of 1.2 MB)', () => {
    const [long, short] = ['n'.repeat(1_200_000), 'n'.repeat(300)];
    const rows = [long, 'a', short].map((name) => [name, 'x']);
    expect(alignColumns(rows)).toEqual([`${long}  x`, `${'a'.padEnd(300)}  x`, `${short}  x`]);
  });
});
