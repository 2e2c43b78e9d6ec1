import { describe, expect, test } from 'vitest';
import { CallbackGuard } from '../../src/base/guard.ts';

/** Runs pending promise reactions, those of thenables included. */
async function settle(): Promise<void> {
  for (let i = 0; i < 5; i++) await Promise.resolve();
}

describe('a guard', () => {
  test('passes arguments on and reports that the call returned', () => {
    const guard = new CallbackGuard();
    const calls: unknown[] = [];
    expect(guard.call((a: number, b: string) => calls.push(a, b), 1, 'two')).toBe(true);
    expect(calls).toEqual([1, 'two']);
    expect(guard.faults).toBe(0);
  });

  test('treats a missing callback as one that does nothing', () => {
    const guard = new CallbackGuard();
    expect(guard.call<[number]>(undefined, 1)).toBe(true);
    expect(guard.faults).toBe(0);
  });

  test('counts and reports exceptions of a callback', () => {
    const reported: unknown[] = [];
    const guard = new CallbackGuard((error) => reported.push(error));
    const error = new Error('broken');
    const callback = (): void => {
      throw error;
    };
    expect(guard.call(callback)).toBe(false);
    expect(reported).toEqual([error]);
    expect(guard.faults).toBe(1);
  });

  test('treats the rejection of a returned promise as a fault, not as an unhandled rejection', async () => {
    const reported: unknown[] = [];
    const guard = new CallbackGuard((error) => reported.push(error));
    const error = new Error('later');
    const callback = async (): Promise<void> => {
      await Promise.resolve();
      throw error;
    };
    expect(guard.call(callback)).toBe(true);
    expect(guard.faults).toBe(0);
    await settle();
    expect(reported).toEqual([error]);
    expect(guard.faults).toBe(1);
  });

  test('does not count a fulfilled promise', async () => {
    const guard = new CallbackGuard();
    guard.call(() => Promise.resolve(1));
    await settle();
    expect(guard.faults).toBe(0);
  });

  test('survives a thenable that throws', async () => {
    const guard = new CallbackGuard();
    const hostile = Object.defineProperty({}, 'then', {
      get() {
        throw new Error('hostile');
      },
    });
    expect(guard.call(() => hostile)).toBe(false);
    await settle();
    expect(guard.faults).toBe(1);
  });

  test('counts and survives a report that throws or rejects', async () => {
    const throwing = new CallbackGuard(() => {
      throw new Error('the logger is broken');
    });
    throwing.report(new Error('fault'));
    expect(throwing.faults).toBe(2);
    const rejecting = new CallbackGuard(async () => {
      await Promise.resolve();
      throw new Error('the logger is broken');
    });
    rejecting.report(new Error('fault'));
    await settle();
    expect(rejecting.faults).toBe(2);
  });
});
