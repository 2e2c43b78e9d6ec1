import { beforeEach, describe, expect, it } from 'vitest';
import type { RateLimit } from '../../../src/base/rate-limit.ts';
import { CallLimits } from '../../../src/kvstore/session/call-limits.ts';
import { abortedError, KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type { CallOptions } from '../../../src/kvstore/session/transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../support/settle.ts';

describe('the limits of calls', () => {
  let clock: ManualClock;
  let closed: AbortController;
  let limits: CallLimits;

  beforeEach(() => {
    clock = new ManualClock();
    clock.advance(50);
    closed = new AbortController();
    limits = new CallLimits(clock, undefined, closed.signal);
  });

  /** Rejects like a call that was aborted. */
  const untilFired = (signal: AbortSignal | undefined): Promise<never> =>
    new Promise((_, reject) => {
      if (signal?.aborted === true) reject(abortedError());
      signal?.addEventListener('abort', () => reject(abortedError()));
    });
  const codeOf = (failing: Promise<unknown>): Promise<unknown> =>
    failing.then(
      () => 'no failure',
      (error: unknown) => (error instanceof KvstoreError ? error.code : error),
    );
  /** Queues each call until its signal fires. */
  const fullLimit = { run: (_: unknown, signal?: AbortSignal) => untilFired(signal) } as unknown as RateLimit;

  it('count the deadline of an operation from its beginning, for each of its calls', async () => {
    const { signal } = new AbortController();
    const operation = limits.timed({ deadlineMs: 1000, signal });
    expect(limits.timed(operation)).toEqual(operation);
    const received = (): Promise<CallOptions> =>
      limits.call((options) => Promise.resolve(options), operation);
    expect(await received()).toEqual({ signal, deadlineMs: 1000 });
    clock.advance(300);
    expect(await received()).toEqual({ signal, deadlineMs: 700 });
    expect(await limits.call((options) => Promise.resolve(options))).toEqual({});
  });

  it('end a wait at the deadline of its operation', async () => {
    const code = codeOf(limits.wait({ endsAt: clock.now() + 100 }, untilFired));
    clock.advance(99);
    expect(await Promise.race([code, settle()])).toBeUndefined();
    clock.advance(1);
    expect([await code, clock.pending]).toEqual(['deadline', 0]);
  });

  it('end a wait when the signal of its caller fires, with or without a deadline', async () => {
    for (const endsAt of [undefined, clock.now() + 100]) {
      const caller = new AbortController();
      const code = codeOf(limits.wait({ signal: caller.signal, endsAt }, untilFired));
      caller.abort();
      expect([await code, clock.pending]).toEqual(['aborted', 0]);
    }
  });

  it('pass on results, and failures for other reasons than the deadline', async () => {
    const endsAt = clock.now() + 100;
    expect(await limits.wait({ endsAt }, () => Promise.resolve(7))).toBe(7);
    const fault = new KvstoreError('unavailable', 'no connection');
    const failing = limits.wait({ endsAt }, (signal) =>
      untilFired(signal).catch(() => {
        throw fault;
      }),
    );
    const failed = expect(failing).rejects.toBe(fault);
    clock.advance(100);
    await failed;
    expect(clock.pending).toBe(0);
  });

  it('pass no signal to a wait without one and without a deadline', async () => {
    expect(await limits.wait({}, (signal) => Promise.resolve(signal))).toBeUndefined();
  });

  it.each([undefined, fullLimit])(
    'report a client that was closed during a call without a signal',
    async (limit) => {
      limits = new CallLimits(clock, limit, closed.signal);
      const caller = new AbortController();
      const codes = [
        codeOf(limits.call(() => untilFired(closed.signal))),
        codeOf(limits.call(() => untilFired(caller.signal), { signal: caller.signal })),
      ];
      caller.abort();
      expect(await codes[1]).toBe('aborted');
      closed.abort();
      expect(await codes[0]).toBe('closed');
    },
  );

  it('return each failure as an error of the kvstore', async () => {
    const failing = limits.call(() => Promise.reject(new TypeError('a fault')));
    await expect(failing).rejects.toBeInstanceOf(KvstoreError);
  });

  it('end the wait for the rate limit at the deadline', async () => {
    limits = new CallLimits(clock, fullLimit, closed.signal);
    const code = codeOf(limits.call(() => expect.fail(), { deadlineMs: 100 }));
    clock.advance(100);
    expect(await code).toBe('deadline');
  });
});
