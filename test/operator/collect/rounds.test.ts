import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sleep } from '../../../src/base/sleep.ts';
import { ApiError } from '../../../src/k8s/rest/api-error.ts';
import type { ObjectWrite, WriteOutcome } from '../../../src/k8s/rest/object-writer.ts';
import { DutyError, performWrite } from '../../../src/operator/collect/perform-write.ts';
import {
  type Collector,
  type RoundReport,
  RoundsDuty,
  type RoundsOptions,
} from '../../../src/operator/collect/rounds.ts';
import type { Action, DutyStatus } from '../../../src/operator/duty.ts';
import { NotReadyError } from '../../../src/operator/duty-report.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const INTERVAL = 60_000;

describe('a duty that works in rounds', () => {
  let clock: ManualClock;
  let ended: AbortController;
  let running: Promise<void>;
  /** Start times of its rounds. */
  let begun: number[];
  let round: (report: RoundReport, signal: AbortSignal) => Promise<void>;
  let lacks: string | undefined;
  let used: AbortSignal[];
  let failed: string[];
  let actions: Action[];
  let duty: RoundsDuty;
  beforeEach(() => {
    clock = new ManualClock();
    clock.advance(3_600_000);
    ended = new AbortController();
    [begun, used, failed, actions] = [[], [], [], []];
    round = async () => {};
    lacks = undefined;
  });
  afterEach(async () => {
    ended.abort();
    await running;
    expect(clock.pending).toBe(0);
  });

  function run(more: Partial<RoundsOptions> = {}): void {
    const kind = { follow: (signal: AbortSignal): void => void used.push(signal) };
    const collector: Collector = {
      name: 'gc',
      needs: [
        { ...kind, notReadyReason: () => undefined },
        { ...kind, notReadyReason: () => lacks },
      ],
      round: (report, signal) => {
        begun.push(clock.now() - 3_600_000);
        return round(report, signal);
      },
    };
    duty = new RoundsDuty(collector, {
      clock,
      intervalMs: INTERVAL,
      onFailure: (error, name) =>
        void failed.push(`${name}: ${error instanceof Error ? error.message : error}`),
      onAction: (action) => void actions.push(action),
      ...more,
    });
    expect([duty.name, duty.status().state, duty.status().rounds?.lastRoundAt]).toEqual([
      'gc',
      'waiting',
      undefined,
    ]);
    running = duty.run(ended.signal);
  }
  const status = (): DutyStatus => duty.status();

  it('starts a round each interval after the start of the last one, however long that took', async () => {
    let takes = 0;
    round = (_report, signal) => sleep(clock, takes, signal);
    run();
    await settle();
    takes = 20_000;
    await advance(clock, INTERVAL + takes);
    expect(status().rounds).toEqual({
      rounds: 2,
      marked: 0,
      deleted: 0,
      conflicts: 0,
      lastRoundAt: WALL_TIME_AT_0 + 3_600_000 + INTERVAL,
      nextRoundAt: WALL_TIME_AT_0 + 3_600_000 + 2 * INTERVAL,
    });
    takes = 90_000; // longer than an interval: the next round begins immediately
    await advance(clock, 40_000 + takes - 1);
    takes = 0;
    await advance(clock, 1 + INTERVAL);
    expect(begun).toEqual([0, 1, 2, 3.5, 4.5].map((intervals) => intervals * INTERVAL));
    expect(status()).toMatchObject({ state: 'running', failures: 0, lastFailure: undefined });
  });

  it('waits for its inputs, checks them every few seconds, and reports it once', async () => {
    lacks = 'the list of pods/v1 is not complete';
    run();
    await advance(clock, 20_000);
    expect(used).toEqual([ended.signal, ended.signal]);
    expect(begun).toEqual([]);
    expect(status()).toMatchObject({
      state: 'waiting',
      failures: 0,
      rounds: { rounds: 0, nextRoundAt: WALL_TIME_AT_0 + 3_625_000 },
      lastFailure: { code: 'not-ready', message: 'the list of pods/v1 is not complete' },
    });
    lacks = 'pods/v1 is not watched';
    await advance(clock, 10_000);
    expect(failed).toEqual(['gc: the list of pods/v1 is not complete', 'gc: pods/v1 is not watched']);
    lacks = undefined;
    await advance(clock, 5000);
    expect([begun, status().state, status().lastFailure]).toEqual([[35_000], 'running', undefined]);
    lacks = 'pods/v1 is not watched';
    await advance(clock, INTERVAL);
    expect(status().state).toBe('waiting');
    expect(failed).toHaveLength(3);
  });

  it('checks its inputs at its interval if that is shorter', async () => {
    lacks = 'it';
    run({ intervalMs: 100 });
    await advance(clock, 1000);
    lacks = undefined;
    await advance(clock, 100);
    expect(begun).toEqual([1100]);
  });

  it('counts a failed round, and continues with the next, even if a listener throws', async () => {
    const raise = (): never => {
      throw new Error('a fault of the listener');
    };
    round = async (report) => {
      report.addAction({ action: 'delete x', reason: 'it is gone', outcome: 'done' });
      throw new DutyError('refused', `no right in round ${report.round}`);
    };
    run({ onFailure: raise, onAction: raise });
    await advance(clock, INTERVAL);
    expect(status()).toMatchObject({
      state: 'running',
      failures: 2,
      rounds: { rounds: 0 },
      lastFailure: {
        code: 'refused',
        message: 'no right in round 1',
        at: WALL_TIME_AT_0 + 3_600_000 + INTERVAL,
      },
    });
    round = () => Promise.reject(new NotReadyError('the kvstore is empty'));
    await advance(clock, INTERVAL);
    expect(status()).toMatchObject({ failures: 2, lastFailure: { code: 'not-ready' } });
    round = async () => {};
    await advance(clock, INTERVAL);
    expect(status()).toMatchObject({ failures: 2, lastFailure: undefined, rounds: { rounds: 1 } });
  });

  it('keeps the failure of a round until the next failure, and reports its actions', async () => {
    const rounds: number[] = [];
    round = async (report) => {
      rounds.push(report.round);
      report.setMarked(7 - report.round);
      for (let i = 0; i < 3; i++) report.countDelete();
      report.countConflict();
      report.addAction({ action: 'delete x', reason: 'it is gone', outcome: 'done' });
      if (rounds.length === 2) throw new Error('once');
    };
    run();
    await advance(clock, 2 * INTERVAL);
    expect(rounds).toEqual([1, 2, 2]);
    expect(status()).toMatchObject({
      failures: 1,
      lastFailure: { message: 'once' },
      rounds: { rounds: 2, marked: 5, deleted: 9, conflicts: 3 },
    });
    expect(failed).toEqual(['gc: once']);
    expect(actions[0]).toEqual({ duty: 'gc', action: 'delete x', reason: 'it is gone', outcome: 'done' });
  });

  it('ends within a round, which is not a failure, and reports that no round follows', async () => {
    round = (_report, signal) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('ended'))));
    run();
    await settle();
    ended.abort();
    await running;
    expect(status()).toMatchObject({
      state: 'ended',
      failures: 0,
      rounds: { rounds: 0, nextRoundAt: undefined },
    });
    expect([failed, begun]).toEqual([[], [0]]);
  });
});

describe('a write of a collector', () => {
  const kind = { group: '', version: 'v1', plural: 'pods' };
  const place = { kind, namespace: 'shop', name: 'a' };
  const remove: ObjectWrite = { verb: 'delete', place, uid: 'u' };

  async function outcomeOf(
    answer: WriteOutcome,
    write: ObjectWrite = remove,
    signal: AbortSignal = new AbortController().signal,
  ): Promise<unknown> {
    const told: unknown[] = [];
    const report: RoundReport = {
      round: 2,
      setMarked: () => told.push('marked'),
      countDelete: () => told.push('deleted'),
      countConflict: () => told.push('conflict'),
      addAction: (action) => told.push(action),
      addError: (error) => told.push(error.message),
    };
    const writer = { write: async () => answer };
    const outcome = await performWrite(writer, write, 'it is gone', report, signal).catch(
      (error: DutyError) => {
        expect(error).toBeInstanceOf(DutyError);
        return `${error.code}: ${error.message}`;
      },
    );
    return [outcome, ...told];
  }
  const deed = (outcome: string, action = 'delete pods/v1 shop/a'): object => ({
    action,
    reason: 'it is gone',
    outcome,
  });

  it('is reported with its outcome, and counted if it has deleted an object', async () => {
    expect(await outcomeOf({ outcome: 'done', object: undefined })).toEqual([
      'done',
      deed('done'),
      'deleted',
    ]);
    const update: ObjectWrite = { verb: 'patch', place, operations: [] };
    expect(await outcomeOf({ outcome: 'done', object: undefined }, update)).toEqual([
      ...['done', deed('done', 'patch pods/v1 shop/a')],
    ]);
    expect(await outcomeOf({ outcome: 'conflict', message: 'm' })).toEqual([
      'conflict',
      deed('conflict'),
      'conflict',
    ]);
    expect(await outcomeOf({ outcome: 'not-found', message: 'm' })).toEqual(['not-found', deed('not-found')]);
    expect(await outcomeOf({ outcome: 'dry-run' })).toEqual(['dry-run', deed('dry-run')]);
  });

  it('of a rejected object is an error, after which the round continues (regression: others were never reached)', async () => {
    const answer = { outcome: 'invalid', message: 'no such' } as const;
    expect(await outcomeOf(answer)).toEqual([
      ...['invalid', deed('invalid'), 'cannot delete pods/v1 shop/a: no such'],
    ]);
  });

  it('ends the round if it was refused, has failed, or is not allowed', async () => {
    const what = 'cannot delete pods/v1 shop/a';
    expect(await outcomeOf({ outcome: 'refused', message: 'no right' })).toEqual([
      ...[`refused: ${what}: no right`, deed('refused')],
    ]);
    expect(await outcomeOf({ outcome: 'not-leader' })).toEqual([
      ...[`not-leader: ${what}: this operator is not the leader`, deed('not-leader')],
    ]);
    const error = new ApiError('unavailable', 'connection refused');
    expect(await outcomeOf({ outcome: 'failed', error })).toEqual([
      ...[`unavailable: ${what}: connection refused`, deed('failed')],
    ]);
    expect(await outcomeOf({ outcome: 'failed', error }, remove, AbortSignal.abort())).toHaveLength(1);
  });
});
