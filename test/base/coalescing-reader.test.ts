import { describe, expect, it } from 'vitest';
import { CoalescingReader } from '../../src/base/coalescing-reader.ts';

/** A reader of `key=value`, one key at a time. */
function words(signal?: AbortSignal): {
  reader: CoalescingReader<number, string>;
  put: (key: string, value: number) => void;
  ends: () => number;
} {
  let ends = 0;
  const reader: CoalescingReader<number, string> = new CoalescingReader({
    shift: () => {
      for (const [key, value] of reader.waiting) {
        reader.waiting.delete(key);
        return `${key}=${value}`;
      }
      return undefined;
    },
    onEnd: () => {
      ends++;
    },
    signal,
  });
  const put = (key: string, value: number): void => {
    reader.waiting.set(key, value);
    reader.wake();
  };
  return { reader, put, ends: () => ends };
}

const END = { done: true, value: undefined };

describe('a coalescing reader', () => {
  it('returns the latest value of each key, in the order in which the keys arrived', async () => {
    const { reader, put } = words();
    put('a', 1);
    put('b', 2);
    put('a', 3);
    expect((await reader.next()).value).toBe('a=3');
    put('a', 4);
    expect((await reader.next()).value).toBe('b=2');
    expect((await reader.next()).value).toBe('a=4');
    expect(reader.waiting.size).toBe(0);
  });

  it('makes its consumer wait, even if the value that woke it was replaced', async () => {
    const { reader, put } = words();
    const taken = reader.next();
    put('a', 1);
    put('a', 2);
    expect((await taken).value).toBe('a=2');
  });

  it('continues to wait after a spurious wake-up, and serves waiting consumers in order', async () => {
    const { reader, put } = words();
    const taken = [reader.next(), reader.next()];
    reader.wake();
    await Promise.resolve();
    put('a', 1);
    put('b', 2);
    expect((await Promise.all(taken)).map(({ value }) => value)).toEqual(['a=1', 'b=2']);
  });

  it.each([
    ['close', (reader: CoalescingReader<number, string>): unknown => reader.close()],
    ['return', (reader: CoalescingReader<number, string>): unknown => reader.return()],
  ])('ends with %s, once, drops pending values and wakes its consumer', async (_, end) => {
    const { reader, put, ends } = words();
    const taken = reader.next();
    await end(reader);
    await end(reader);
    expect(await taken).toEqual(END);
    put('a', 1);
    expect(await reader.next()).toEqual(END);
    expect([reader.closed, ends()]).toEqual([true, 1]);
  });

  it('ends with its signal, even if it has already fired', async () => {
    const abort = new AbortController();
    const { reader, ends } = words(abort.signal);
    const taken = reader.next();
    abort.abort();
    expect(await taken).toEqual(END);
    expect(ends()).toBe(1);
    const late = words(abort.signal);
    expect(await late.reader.next()).toEqual(END);
    expect([late.reader.closed, late.ends()]).toEqual([true, 0]);
  });
});
