import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { abortedError, KvstoreError, type KvstoreErrorCode } from '../../../src/kvstore/session/errors.ts';
import { RetryQueue } from '../../../src/kvstore/stores/retry-queue.ts';
import { growthPerItem } from '../../base/support/cpu-time.ts';
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
  /** Every attempt so far, whose result the test sets. */
  let attempts: Attempt[];
  let done: string[];
  let reported: string[];
  let queue: RetryQueue<string>;

  function start(random: number, tellsWhenDone = true): void {
    queue = new RetryQueue<string>({
      clock,
      random: () => random,
      concurrency: 3,
      attempt: ([job]) =>
        new Promise((resolve, reject) => {
          attempts.push({ job, succeed: resolve, fail: reject });
        }),
      ...(tellsWhenDone && {
        onDone: (jobs: readonly string[]) => void done.push(...jobs),
        onFailure: ({ message }: KvstoreError) => {
          reported.push(message);
          throw new Error('the report failed');
        },
      }),
    });
  }

  beforeEach(() => {
    clock = new ManualClock();
    ended = new AbortController();
    attempts = [];
    done = [];
    reported = [];
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

  it('counts failures of concurrent attempts as one: the delay doubles with each retry, not with each job', async () => {
    start(1);
    for (const job of ['a', 'b', 'c']) queue.add(job);
    void queue.run(ended.signal);
    await settle();
    const down = new KvstoreError('unavailable', 'no server answers');
    for (const { fail } of attempts) fail(down);
    /** Returns the time until the next attempt. */
    const delay = async (): Promise<number> => {
      const { length } = attempts;
      const begun = clock.now();
      while (attempts.length === length && clock.now() < begun + 10_000) await advance(clock, 10);
      return clock.now() - begun;
    };
    const first = await delay();
    last().fail(down);
    await settle();
    expect([first, await delay()]).toEqual([100, 200]);
  });

  it.each(['too-large', 'unavailable'] as const)(
    'is failing from the failure %s of a job until that job succeeds',
    async (code) => {
      void queue.run(ended.signal);
      queue.add('a');
      await settle();
      expect(queue.status().isFailing).toBe(false);
      last().fail(new KvstoreError(code, code));
      await settle();
      expect(queue.status().isFailing).toBe(true);
      await advance(clock, 30_000);
      expect([attempts.length, queue.status().isFailing]).toEqual([2, true]);
      last().succeed();
      await settle();
      expect(queue.status()).toMatchObject({ pending: 0, failures: 1, isFailing: false });
    },
  );

  it('reports each code once until nothing fails, also if the report throws', async () => {
    void queue.run(ended.signal);
    const fail = async (code: KvstoreErrorCode, message: string): Promise<void> => {
      last().fail(new KvstoreError(code, message));
      await settle();
      await advance(clock, 60_000);
    };
    queue.add('a');
    await settle();
    await fail('unavailable', 'refused');
    await fail('unavailable', 'reset');
    await fail('too-large', 'a is too large');
    last().succeed();
    await settle();
    queue.add('b');
    await settle();
    await fail('unavailable', 'down again');
    expect(reported).toEqual(['refused', 'a is too large', 'down again']);
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

  it('does not count an attempt that the end of its run aborts as a failure (regression: the status was failing, and the next run tried one job at a time)', async () => {
    const run = queue.run(ended.signal);
    queue.add('a');
    queue.add('b');
    await settle();
    ended.abort();
    for (const attempt of attempts) attempt.fail(abortedError());
    await run;
    expect(queue.status()).toMatchObject({ pending: 2, failures: 0, isFailing: false });
    ended = new AbortController();
    void queue.run(ended.signal);
    await settle();
    expect(attempts.map(({ job }) => job)).toEqual(['a', 'b', 'a', 'b']);
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

  it('processes 160,000 jobs at a constant cost for each (regression: a new iterator of a Set for each)', async () => {
    const growth = await growthPerItem(10_000, async (count) => {
      let left = count;
      const done = new AbortController();
      const many = new RetryQueue<number>({
        clock,
        random: () => 0,
        attempt: () => Promise.resolve(),
        onDone: (jobs) => {
          left -= jobs.length;
          if (left === 0) done.abort();
        },
      });
      for (let i = 0; i < count; i++) many.add(i);
      await many.run(done.signal);
      expect([left, many.status().pending]).toEqual([0, 0]);
    });
    expect(growth).toBeLessThan(6);
  });

  describe('that are combined', () => {
    interface Batch {
      readonly jobs: readonly string[];
      succeed(): void;
      fail(error: Error): void;
    }
    let batches: Batch[];
    beforeEach(() => {
      batches = [];
      queue = new RetryQueue<string>({
        clock,
        random: () => 0,
        concurrency: 2,
        attempt: (jobs) =>
          new Promise((resolve, reject) => {
            const [job, ...others] = jobs;
            if (others.length === 0) attempts.push({ job, succeed: resolve, fail: reject });
            else batches.push({ jobs, succeed: resolve, fail: reject });
          }),
        batches: {
          maxJobs: 4,
          maxWeight: 10,
          weightOf: (job) => (job === 'alone' ? Number.POSITIVE_INFINITY : job.length),
        },
        onDone: (jobs) => void done.push(...jobs),
      });
    });
    const run = async (...jobs: readonly string[]): Promise<void> => {
      for (const job of jobs) queue.add(job);
      void queue.run(ended.signal);
      await settle();
    };
    const tried = (): readonly (readonly string[])[] => batches.map(({ jobs }) => jobs);

    it('form batches in order, up to the number and the weight of a batch', async () => {
      await run('a', 'b', 'c', 'd', 'e', '123456789', 'f');
      expect(tried()).toEqual([
        ['a', 'b', 'c', 'd'],
        ['e', '123456789'],
      ]);
      batches[0]?.succeed();
      await settle();
      expect([done, attempts.map(({ job }) => job)]).toEqual([['a', 'b', 'c', 'd'], ['f']]);
    });

    it('do not include a job that must have its own attempt, or one that is too heavy', async () => {
      await run('a', 'b', 'alone', '12345678901', 'c', 'd');
      attempts[0]?.succeed();
      await settle();
      expect([tried(), attempts.map(({ job }) => job)]).toEqual([[['a', 'b']], ['alone', '12345678901']]);
      attempts[1]?.succeed();
      await settle();
      expect(tried()).toEqual([
        ['a', 'b'],
        ['c', 'd'],
      ]);
    });

    it.each(['invalid-request', 'too-large', 'forbidden', 'lease-not-found'] as const)(
      'are tried separately if the kvstore rejects their batch (%s): none fails because of another',
      async (code) => {
        await run('a', 'b', 'c');
        batches[0]?.fail(new KvstoreError(code, 'one of them'));
        await settle();
        expect(attempts.map(({ job }) => job)).toEqual(['a', 'b', 'c']);
        attempts[1]?.fail(new KvstoreError('invalid-request', 'this one'));
        for (const i of [0, 2]) attempts[i]?.succeed();
        await settle();
        expect([done, queue.status()]).toMatchObject([['a', 'c'], { pending: 1, failures: 1 }]);
      },
    );

    it('are tried one at a time while the kvstore fails, and together after the first success', async () => {
      await run('a', 'b', 'c', 'd');
      queue.add('b');
      batches[0]?.fail(new KvstoreError('unavailable', 'down'));
      await advance(clock, 5000);
      expect([attempts.map(({ job }) => job), queue.size]).toEqual([['a'], 4]);
      attempts[0]?.fail(new KvstoreError('unavailable', 'down'));
      await advance(clock, 5000);
      expect([attempts.map(({ job }) => job), queue.status().failures]).toEqual([['a', 'b'], 2]);
      attempts[1]?.succeed();
      await settle();
      expect([done, tried()]).toEqual([
        ['b'],
        [
          ['a', 'b', 'c', 'd'],
          ['c', 'd', 'a'],
        ],
      ]);
      batches[1]?.succeed();
      await settle();
      expect([done, queue.size]).toEqual([['b', 'c', 'd', 'a'], 0]);
    });

    it('are tried once more if they were added again during the attempt of their batch', async () => {
      await run('a', 'b', 'c');
      queue.add('b');
      batches[0]?.succeed();
      await settle();
      expect([done, attempts.map(({ job }) => job)]).toEqual([['a', 'c'], ['b']]);
    });
  });
});
