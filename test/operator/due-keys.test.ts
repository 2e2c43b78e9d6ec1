import { expect, it } from 'vitest';
import { OPEN_GATE } from '../../src/base/turn-gate.ts';
import { DueKeys } from '../../src/operator/due-keys.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';

it('a worker sleeps until a key is due, for 10 minutes at most, and works on a key again that was added meanwhile', async () => {
  const clock = new ManualClock();
  const keys = new DueKeys({ clock, random: () => 0 });
  const signal = new AbortController().signal;
  let wakes = 0;
  const sleep = async (): Promise<void> => {
    await keys.whenDue(signal);
    wakes++;
  };
  const first = sleep();
  await advance(clock, 599_999);
  expect(wakes).toBe(0);
  await advance(clock, 1);
  await first;
  const second = sleep();
  await settle();
  keys.add('a');
  await second;
  await sleep(); // a key is due
  expect([wakes, clock.pending]).toEqual([3, 0]);
  keys.add('b');
  const worked: string[] = [];
  const work = async (key: string): Promise<void> => {
    worked.push(key);
    if (worked.length === 1) keys.add(key);
  };
  await keys.processDue(OPEN_GATE, 1, work, signal);
  expect(worked).toEqual(['a', 'b', 'a']);
  const third = sleep();
  await settle();
  keys.addAfter('c', 1_000);
  await advance(clock, 1_000);
  await third;
  expect(wakes).toBe(4);
});

it('a worker stops before the next key if the signal fires', async () => {
  const keys = new DueKeys({ clock: new ManualClock(), random: () => 0 });
  const ended = new AbortController();
  for (const key of ['a', 'b']) keys.add(key);
  const worked: string[] = [];
  const work = async (key: string): Promise<void> => {
    worked.push(key);
    ended.abort();
  };
  await keys.processDue(OPEN_GATE, 1, work, ended.signal);
  expect([worked, keys.next]).toEqual([['a'], 'b']);
});

it('a key is due again one second after its last write, and clear forgets the writes', async () => {
  const clock = new ManualClock();
  const keys = new DueKeys({ clock, random: () => 0 });
  expect(keys.delayAfterWrite('a')).toBe(false);
  expect(keys.size).toBe(0);
  keys.recordWrite('a');
  await advance(clock, 400);
  expect(keys.delayAfterWrite('a')).toBe(true);
  await advance(clock, 599);
  expect(keys.next).toBeUndefined();
  await advance(clock, 1);
  expect(keys.next).toBe('a');
  expect(keys.delayAfterWrite('a')).toBe(false);
  keys.recordWrite('b');
  keys.clear();
  expect(keys.delayAfterWrite('b')).toBe(false);
});
