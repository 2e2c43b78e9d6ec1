import { describe, expect, it } from 'vitest';
import { FaultReport } from '../../src/process/fault-report.ts';
import { createLog } from '../../src/process/log.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

function reportInto(level: 'error' | 'debug' = 'error') {
  const lines: string[] = [];
  const clock = new ManualClock();
  const log = createLog(level, 'text', { write: (line) => lines.push(line.trimEnd()) });
  return { lines, clock, report: new FaultReport(log, clock) };
}

const REMEDY = 'remove the cause, or report a defect if there is none on this machine';

describe('failures of a callback', () => {
  it('are logged twice a minute, the second time with their number and the last of them', () => {
    const { lines, clock, report } = reportInto();
    for (let n = 0; n < 100_000; n++)
      report.add('node handler paths', { err: new Error(`no route ${n}`), node: `own/n${n}` });
    expect(lines).toEqual(['error node handler paths failed for own/n0: no route 0']);
    clock.advance(59_999);
    expect(lines).toHaveLength(1);
    clock.advance(1);
    expect(lines.slice(1)).toEqual([
      `error node handler paths failed 99999 more times, last for own/n99999; ${REMEDY}: no route 99999`,
    ]);
    expect(clock.pending).toBe(0);
  });

  it('are logged again after the period, and other callbacks in it', () => {
    const { lines, clock, report } = reportInto();
    const err = new Error('broken');
    report.add('a listener', { err });
    report.add('node handler tunnels', { err, node: 'own/n' });
    clock.advance(60_000);
    report.add('a listener', { err });
    expect(lines).toEqual([
      'error a listener failed: broken',
      'error node handler tunnels failed for own/n: broken',
      'error a listener failed: broken',
    ]);
  });

  it('are summed up when the report is flushed, once, and leave no timer', () => {
    const { lines, clock, report } = reportInto();
    for (const message of ['first', 'second']) report.add('a listener', { err: new Error(message) });
    report.flush();
    report.flush();
    expect(lines.slice(1)).toEqual([`error a listener failed 1 more time; ${REMEDY}: second`]);
    expect(clock.pending).toBe(0);
  });

  it('are logged individually at level debug', () => {
    const { lines, report } = reportInto('debug');
    for (const message of ['first', 'second']) report.add('a listener', { err: new Error(message) });
    expect(lines).toEqual(['error a listener failed: first', 'debug a listener failed: second']);
  });
});
