import { expect, it } from 'vitest';
import { Reconnects } from '../../../src/kvstore/watch/reconnects.ts';
import { settle } from '../support/settle.ts';

/** Watches `a`, `b` and `c` that have lost their server. */
function outage(): {
  reconnects: Reconnects;
  tried: string[];
  fail: (name: string, failures?: number) => void;
  leave: (name: string) => void;
} {
  const reconnects = new Reconnects();
  const tried: string[] = [];
  const watches = new Map(['a', 'b', 'c'].map((name) => [name, new AbortController()] as const));
  const of = (name: string): AbortController => watches.get(name) ?? expect.fail(name);
  const fail = (name: string, failures = 1): void => {
    const { signal } = of(name);
    void reconnects
      .wait(of(name), { failures, since: 0 }, signal)
      .then(() => !signal.aborted && tried.push(name));
  };
  const leave = (name: string): void => {
    of(name).abort();
    reconnects.leave(of(name));
  };
  return { reconnects, tried, fail, leave };
}

it('one watch retries while the others wait, and all continue when it has reached the server', async () => {
  const { reconnects, tried, fail } = outage();
  for (const name of ['a', 'b', 'c', 'a', 'a']) {
    fail(name);
    await settle();
  }
  expect(tried).toEqual(['a', 'a', 'a']);
  reconnects.wakeAll();
  await settle();
  expect(tried.slice(3)).toEqual(['b', 'c']);
  fail('c');
  fail('b');
  await settle();
  expect(tried.slice(5)).toEqual(['c']);
});

it('another one retries in its place when it ends, and one that ends waits for nothing', async () => {
  const { reconnects, tried, fail, leave } = outage();
  for (const name of ['a', 'b', 'c']) fail(name);
  leave('b');
  leave('a');
  await settle();
  expect(tried).toEqual(['c']);
  leave('c');
  fail('c'); // the machine was suspended
  reconnects.wakeAll();
  fail('b');
  await settle();
  expect(tried).toEqual(['c']);
});

it('the wait of a watch that ends is over, so that its loop ends', async () => {
  const reconnects = new Reconnects();
  const { signal } = new AbortController();
  const [first, second] = [{}, {}];
  let isOver = false;
  void reconnects.wait(first, { failures: 1, since: 0 }, signal);
  void reconnects.wait(second, { failures: 1, since: 0 }, signal).then(() => {
    isOver = true;
  });
  await settle();
  expect(isOver).toBe(false);
  reconnects.leave(second);
  await settle();
  expect(isOver).toBe(true);
});

it('after three failures it waits for its turn among other clients, and reports its success', async () => {
  const { reconnects, tried, fail } = outage();
  const asked: (() => void)[] = [];
  let succeeded = 0;
  reconnects.turns = {
    turn: () => new Promise<void>((resolve) => asked.push(resolve)),
    succeeded: () => succeeded++,
  };
  for (const failures of [1, 2, 3, 4]) {
    fail('a', failures);
    await settle();
  }
  expect([tried.length, asked.length]).toEqual([3, 1]);
  asked[0]?.();
  await settle();
  expect(tried).toHaveLength(4);
  reconnects.wakeAll();
  reconnects.wakeAll();
  expect(succeeded).toBe(1);
});
