import { expect, it } from 'vitest';
import { RetryQueue } from '../../src/clustermesh/retry-queue.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';

function waiting(): {
  clock: ManualClock;
  queue: RetryQueue;
  turns: string[];
  ask: (name: string) => AbortController;
} {
  const clock = new ManualClock();
  const queue = new RetryQueue(clock);
  const turns: string[] = [];
  const ask = (name: string): AbortController => {
    const ending = new AbortController();
    void queue.turn(ending.signal).then(() => turns.push(`${name} ${clock.now()}`));
    return ending;
  };
  return { clock, queue, turns, ask };
}

it('lets retries go one after the other, in order, two a second, and sets no timer when nobody waits', async () => {
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

it('lets more go when one has succeeded: an outage of all is over for all', async () => {
  const { queue, turns, ask } = waiting();
  for (let i = 0; i < 10; i++) ask(String(i));
  await settle();
  queue.succeeded();
  await settle();
  expect(turns).toEqual(['0 0', '1 0', '2 0', '3 0', '4 0']);
});

it('lets go at once, for nobody, who does not want to wait any longer', async () => {
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
