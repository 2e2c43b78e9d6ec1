import { expect, it, vi } from 'vitest';
import { RetryPacer } from '../../src/clustermesh/retry-pacer.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';

const LONG_AGO = -1_000_000;

function waiting(): {
  clock: ManualClock;
  pacer: RetryPacer;
  turns: string[];
  ask: (name: string, downSince?: number) => AbortController;
} {
  const clock = new ManualClock();
  const pacer = new RetryPacer(clock);
  const turns: string[] = [];
  const ask = (name: string, downSince = LONG_AGO): AbortController => {
    const ending = new AbortController();
    void pacer.turn(downSince, ending.signal).then(() => turns.push(`${name} ${clock.now()}`));
    return ending;
  };
  return { clock, pacer, turns, ask };
}

it('releases old outages one after the other, two per second, and sets no timer if no caller waits', async () => {
  const { clock, turns, ask } = waiting();
  for (const name of ['a', 'b', 'c']) ask(name);
  await settle();
  expect(turns).toEqual(['a 0']);
  await advance(clock, 5000);
  expect(turns).toEqual(['a 0', 'b 500', 'c 1000']);
  expect(clock.pending).toBe(0);
  ask('d');
  ask('e');
  await advance(clock, 499);
  expect(turns.slice(3)).toEqual(['d 5000']);
  await advance(clock, 1);
  expect(turns.slice(3)).toEqual(['d 5000', 'e 5500']);
});

it('releases a recent outage at once, however many old ones wait (regression: a turn each 500 ms for all)', async () => {
  const { clock, turns, ask } = waiting();
  for (let i = 0; i < 249; i++) ask(`old ${i}`);
  await settle();
  ask('new', clock.now());
  await settle();
  expect(turns).toEqual(['old 0 0', 'new 0']);
});

it('alternates between the most recent outage and the first waiting one, ten recent ones per second', async () => {
  const { clock, turns, ask } = waiting();
  ask('old');
  await settle();
  for (let i = 0; i < 6; i++) ask(`r${i}`, i);
  await advance(clock, 300);
  expect(turns.slice(1)).toEqual(['r0 0', 'r1 100', 'r5 200', 'r2 300']);
});

it('treats an outage of more than a minute as old, even if it became so while waiting', async () => {
  const { clock, turns, ask } = waiting();
  ask('old');
  for (let i = 0; i < 3; i++) ask(`r${i}`, -59_950);
  await advance(clock, 1000);
  expect(turns).toEqual(['old 0', 'r0 0', 'r1 500', 'r2 1000']);
});

it('releases more after a successful retry, because one network fault affects many clusters', async () => {
  const { pacer, turns, ask } = waiting();
  for (let i = 0; i < 10; i++) ask(String(i));
  await settle();
  pacer.succeeded();
  await settle();
  expect(turns).toEqual(['0 0', '1 0', '2 0', '3 0', '4 0']);
});

it('resolves when the signal fires, without using a turn', async () => {
  const { clock, turns, ask } = waiting();
  ask('a');
  const b = ask('b');
  ask('c');
  b.abort();
  await settle();
  expect(turns).toEqual(['a 0', 'b 0']);
  await advance(clock, 500);
  expect(turns).toEqual(['a 0', 'b 0', 'c 500']);
  ask('d').abort();
  await settle();
  expect(turns.at(-1)).toBe('d 500');
});

it('leaves no listener on the signal of a caller that had its turn', async () => {
  const pacer = new RetryPacer(new ManualClock());
  const { signal } = new AbortController();
  const left = vi.spyOn(signal, 'removeEventListener');
  await pacer.turn(LONG_AGO, signal);
  expect(left).toHaveBeenCalledOnce();
});
