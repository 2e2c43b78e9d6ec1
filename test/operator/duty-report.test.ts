import { describe, expect, it } from 'vitest';
import type { Action } from '../../src/operator/duty.ts';
import { DutyReport } from '../../src/operator/duty-report.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';

describe('the report of a duty', () => {
  it('looks for a missing input twice a second, and reports its reason after the quiet time, once', async () => {
    const clock = new ManualClock();
    const failed: string[] = [];
    const onFailure = (error: unknown, duty: string): void => void failed.push(`${duty}: ${error}`);
    const report = new DutyReport('gc', { clock, onFailure });
    let reason: string | undefined = 'no list';
    let looks = 0;
    let isReady = false;
    const blocked = (): string | undefined => {
      looks++;
      return reason;
    };
    const signal = new AbortController().signal;
    const waiting = report.whenReady(blocked, 1_000, signal).then(() => {
      isReady = true;
    });
    await advance(clock, 999);
    expect([failed, looks, report.status().lastFailure]).toEqual([[], 2, undefined]);
    await advance(clock, 3_001);
    expect([failed, looks]).toEqual([['gc: NotReadyError: no list'], 9]);
    expect(report.status()).toMatchObject({ failures: 0, lastFailure: { code: 'not-ready' } });
    reason = undefined;
    await advance(clock, 500);
    await waiting;
    expect([isReady, report.status().lastFailure, clock.pending]).toEqual([true, undefined, 0]);
  });

  it('reports at most 10 errors of one code a minute, and counts all (regression: without a right, 20 log lines a second)', () => {
    const clock = new ManualClock();
    const failed: unknown[] = [];
    const report = new DutyReport('slices', { clock, onFailure: (error) => void failed.push(error) });
    const refused = (slice: number): Error => Object.assign(new Error(`slice ${slice}`), { code: 'refused' });
    for (let slice = 0; slice < 1200; slice++) {
      report.addError(refused(slice));
      clock.advance(50);
    }
    expect([failed.length, report.status().failures]).toEqual([10, 1200]);
    expect(report.status().lastFailure?.message).toBe('slice 1199');
    report.addError(new Error('timeout'));
    report.addError(refused(1200));
    expect(failed.slice(10).map(String)).toEqual(['Error: timeout', 'Error: slice 1200']);
  });

  it('reports alternating missing inputs at a limited rate (regression: two log lines a second)', () => {
    const clock = new ManualClock();
    const failed: unknown[] = [];
    const report = new DutyReport('gc', { clock, onFailure: (error) => void failed.push(error) });
    for (let look = 0; look < 100; look++) {
      report.addNotReady(look % 2 === 0 ? 'no list' : 'no watch');
      clock.advance(500);
    }
    expect(failed.length).toBe(10);
  });

  it('stops to wait if the signal fires', async () => {
    const clock = new ManualClock();
    const report = new DutyReport('gc', { clock });
    const ended = new AbortController();
    const waiting = report.whenReady(() => 'no list', 1_000, ended.signal);
    await settle();
    ended.abort();
    await waiting;
    expect(clock.pending).toBe(0);
  });

  it('keeps a failure when its inputs are ready, and passes writes on', () => {
    const clock = new ManualClock();
    clock.advance(7);
    const actions: Action[] = [];
    const report = new DutyReport('gc', { clock, onAction: (action) => void actions.push(action) });
    report.addError(new Error('refused'));
    report.clearNotReady();
    expect(report.status()).toMatchObject({
      failures: 1,
      lastFailure: { message: 'refused', at: WALL_TIME_AT_0 + 7 },
    });
    report.addAction({ action: 'delete x', reason: 'it is gone', outcome: 'done' });
    expect(actions).toEqual([{ duty: 'gc', action: 'delete x', reason: 'it is gone', outcome: 'done' }]);
  });
});
