import { beforeEach, describe, expect, it } from 'vitest';
import { DelayedDeletes } from '../../../src/kvstore/stores/delayed-deletes.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

const DELAY_MS = 30_000;

describe('a delayed delete', () => {
  let clock: ManualClock;
  let told: string[];
  let deletes: DelayedDeletes<number>;

  function withDelay(delayMs: number): DelayedDeletes<number> {
    const inner = {
      onUpdate: (name: string, value: number) => void told.push(`${name}=${value}`),
      onDelete: (name: string) => void told.push(`-${name}`),
      batch: (apply: () => void) => {
        told.push('(');
        apply();
        told.push(')');
      },
    };
    return new DelayedDeletes(inner, clock, delayMs);
  }

  beforeEach(() => {
    clock = new ManualClock();
    told = [];
    deletes = withDelay(DELAY_MS);
  });

  it('is passed on after the delay, once', () => {
    deletes.onDelete('a');
    clock.advance(DELAY_MS - 1);
    expect([told, deletes.size]).toEqual([[], 1]);
    clock.advance(1);
    expect([told, deletes.size, clock.pending]).toEqual([['-a'], 0, 0]);
  });

  it('is dropped if the key returns', () => {
    deletes.onDelete('a');
    deletes.onUpdate('a', 1);
    expect([told, deletes.size, clock.pending]).toEqual([['a=1'], 0, 0]);
  });

  it('starts its delay again with the next delete', () => {
    deletes.onDelete('a');
    clock.advance(20_000);
    deletes.onDelete('a');
    clock.advance(20_000);
    expect([told, clock.pending]).toEqual([[], 1]);
    clock.advance(10_000);
    expect(told).toEqual(['-a']);
  });

  it('is passed on with all others by a flush, in batches of a slice (regression: in one turn)', () => {
    for (const name of ['a', 'b', 'c']) deletes.onDelete(name);
    const flush = deletes.flush(2);
    expect([flush.next().done, told]).toEqual([false, ['(', '-a', '-b', ')']]);
    for (const _step of flush);
    expect([told.slice(4), deletes.size, clock.pending]).toEqual([['(', '-c', ')'], 0, 0]);
  });

  it('is passed on once if its delay ends during a flush (regression: twice, also if the key had returned)', () => {
    for (const name of ['a', 'b', 'c', 'd']) deletes.onDelete(name);
    const flush = deletes.flush(1);
    flush.next();
    deletes.onUpdate('b', 1);
    flush.next();
    clock.advance(DELAY_MS);
    for (const _step of flush);
    expect([told, deletes.size]).toEqual([['(', '-a', ')', 'b=1', '(', '-c', ')', '-d'], 0]);
  });

  it('is kept during a pause, and waits the whole delay afterwards', () => {
    deletes.onDelete('a');
    clock.advance(20_000);
    deletes.pause();
    clock.advance(DELAY_MS);
    expect([told, deletes.size, clock.pending]).toEqual([[], 1, 0]);
    deletes.resume();
    clock.advance(DELAY_MS - 1);
    expect(told).toEqual([]);
    clock.advance(1);
    expect(told).toEqual(['-a']);
  });

  it('is not delayed by another resume', () => {
    deletes.onDelete('a');
    clock.advance(20_000);
    deletes.resume();
    clock.advance(10_000);
    expect([told, clock.pending]).toEqual([['-a'], 0]);
  });

  it('is passed on immediately without a delay', () => {
    deletes = withDelay(0);
    deletes.onDelete('a');
    expect([told, deletes.size, clock.pending]).toEqual([['-a'], 0, 0]);
  });

  it('is passed on with other changes as one batch', () => {
    withDelay(0).batch(() => told.push('inside'));
    expect(told).toEqual(['(', 'inside', ')']);
  });
});
