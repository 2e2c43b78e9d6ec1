import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { RetryQueue } from '../../../src/kvstore/stores/retry-queue.ts';
import { cpuTimeInTurns } from '../../base/support/cpu-time.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';

interface Attempt {
  readonly job: string;
  succeed(): void;
  fail(error: Error): void;
}

describe('a queue of jobs that are retried until they succeed', () => {
  let clock: ManualClock;
  let ended: AbortController;
  /** Every attempt so far; the test says what comes of it. */
  let attempts: Attempt[];
  let done: string[];
  let queue: RetryQueue<string>;

  function start(random: number, tellsWhenDone = true): void {
    queue = new RetryQueue<string>({
      ...{ clock, random: () => random, concurrency: 3 },
      attempt: (job) =>
        new Promise((resolve, reject) => {
          attempts.push({ job, succeed: resolve, fail: reject });
        }),
      ...(tellsWhenDone ? { onDone: (job: string) => void done.push(job) } : {}),
    });
  }

  beforeEach(() => {
    clock = new ManualClock();
    ended = new AbortController();
    attempts = [];
    done = [];
    start(0);
  });
  afterEach(() => ended.abort());

  const last = (): Attempt => attempts.at(-1) ?? expect.fail('nothing was tried');

  it('contains a job from its addition until it is done, also during an attempt or a delay', async () => {
    expect(queue.has('a')).toBe(false);
    queue.add('a');
    expect(queue.has('a')).toBe(true);
    void queue.run(ended.signal);
    await settle();
    expect([queue.has('a'), queue.size]).toEqual([true, 1]);
    last().fail(new KvstoreError('too-large', 'too large'));
    await settle();
    expect([queue.has('a'), queue.status()]).toMatchObject([true, { pending: 1, failures: 1 }]);
    await advance(clock, 29_999);
    expect(attempts).toHaveLength(1);
    await advance(clock, 1);
    last().succeed();
    await settle();
    expect([attempts.length, queue.has('a'), done]).toEqual([2, false, ['a']]);
  });

  it('runs one attempt of a job at a time, and another if it was added again during the attempt', async () => {
    void queue.run(ended.signal);
    queue.add('a');
    await settle();
    queue.add('a');
    await settle();
    expect(attempts).toHaveLength(1);
    last().succeed();
    await settle();
    expect([attempts.length, done]).toEqual([2, []]);
    last().succeed();
    await settle();
    expect([attempts.length, done]).toEqual([2, ['a']]);
  });

  it('retries immediately in its next run the jobs that were refused in the last one', async () => {
    const running = queue.run(ended.signal);
    queue.add('a');
    await settle();
    last().fail(new KvstoreError('invalid-request', 'refused'));
    await settle();
    ended.abort();
    await running;
    ended = new AbortController();
    void queue.run(ended.signal);
    await settle();
    expect([attempts.length, clock.pending]).toEqual([2, 0]);
  });

  it('requires no callback', async () => {
    start(0.5, false);
    void queue.run(ended.signal);
    queue.add('a');
    await settle();
    last().succeed();
    await settle();
    queue.add('b');
    await settle();
    expect(attempts.map(({ job }) => job)).toEqual(['a', 'b']);
  });

  it('processes 150,000 jobs at a constant cost for each', async () => {
    let left = 150_000;
    const many = new RetryQueue<number>({
      ...{ clock, random: () => 0 },
      attempt: () => Promise.resolve(),
      onDone: () => void (--left === 0 && ended.abort()),
    });
    for (let i = 0; i < 150_000; i++) many.add(i);
    const cost = await cpuTimeInTurns(() => many.run(ended.signal));
    expect([left, many.status().pending]).toEqual([0, 0]);
    expect(cost).toBeLessThan(1500); // about 150 ms; when the cost grew with the queue, 2.8 s
  });
});
