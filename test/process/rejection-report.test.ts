import { describe, expect, it } from 'vitest';
import { rejection } from '../../src/base/rejection.ts';
import { createLog } from '../../src/process/log.ts';
import { RejectionReport } from '../../src/process/rejection-report.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

function reportInto(level: 'warn' | 'debug' = 'warn') {
  const lines: string[] = [];
  const clock = new ManualClock();
  const log = createLog(level, 'text', { write: (line) => lines.push(line.trimEnd()) });
  const report = new RejectionReport(log, clock);
  const reject = (reason: string, count = 1): void => {
    for (let i = 0; i < count; i++) report.add(rejection(reason, 'field', i, 'is wrong', 'key'));
  };
  return { lines, clock, report, reject };
}

describe('a rejection', () => {
  it('is logged at a limited rate, with a line for the number of suppressed ones of each reason', () => {
    const { lines, clock, report, reject } = reportInto();
    reject('wrong', 1_000_000);
    reject('other', 3);
    expect(lines).toHaveLength(20 + 3);
    expect(lines[0]).toBe('warn  rejected (wrong) key: field 0 is wrong');
    clock.advance(59_999);
    expect(lines).toHaveLength(23);
    clock.advance(1);
    expect(lines.slice(23)).toEqual(['warn  999980 more rejections of reason wrong']);
    expect(report.status()).toMatchObject({ total: 1_000_003 });
  });

  it('has the time of the last one in the status', () => {
    const { clock, report, reject } = reportInto();
    expect(report.status().lastAt).toBeUndefined();
    reject('wrong', 2);
    clock.advance(5_000);
    reject('other');
    expect(report.status().lastAt).toBe(new Date(clock.wallTime()).toISOString());
    clock.advance(5_000);
    expect(report.status().lastAt).toBe(new Date(clock.wallTime() - 5_000).toISOString());
  });

  it('is counted in the line of its period, even if that is over and its timer is late', () => {
    const clock = new ManualClock();
    const lines: string[] = [];
    const log = createLog('warn', 'text', { write: (line) => lines.push(line.trimEnd()) });
    const report = new RejectionReport(log, {
      now: () => clock.now(),
      wallTime: () => clock.wallTime(),
      after: () => ({ cancel: () => {} }), // the event loop is blocked
    });
    const reject = (count: number): void => {
      for (let i = 0; i < count; i++) report.add(rejection('wrong', 'field', i, 'is wrong', 'key'));
    };
    reject(22);
    clock.advance(60_000);
    reject(1);
    report.flush();
    expect(lines.slice(20)).toEqual(['warn  3 more rejections of reason wrong']);
  });

  it('is logged again in the next period', () => {
    const { lines, clock, reject } = reportInto();
    reject('wrong', 21);
    clock.advance(60_000);
    lines.length = 0;
    reject('wrong', 22);
    clock.advance(60_000);
    expect(lines).toHaveLength(21);
    expect(lines.at(-1)).toBe('warn  2 more rejections of reason wrong');
  });

  it('starts a new period a minute after the first one of its reason, and leaves no timer', () => {
    const { lines, clock, report, reject } = reportInto();
    reject('wrong', 20);
    clock.advance(60_000);
    reject('wrong', 20);
    report.flush();
    expect(lines).toHaveLength(40);
    expect(clock.pending).toBe(0);
  });

  it('is summed up when the report is flushed, once', () => {
    const { lines, clock, report, reject } = reportInto();
    reject('wrong', 25);
    report.flush();
    expect(lines.at(-1)).toBe('warn  5 more rejections of reason wrong');
    report.flush();
    clock.advance(60_000);
    expect(lines).toHaveLength(21);
  });

  it('is logged individually at level debug', () => {
    const { lines, reject } = reportInto('debug');
    reject('wrong', 30);
    expect(lines).toHaveLength(30);
    expect(lines[29]).toMatch(/^debug rejected \(wrong\) key: field 29/);
  });
});
