import { describe, expect, it } from 'vitest';
import { CoalescingQueue } from '../../src/base/coalescing-queue.ts';

describe('a coalescing queue', () => {
  it('gives the latest value of each key, in the order in which the keys came', async () => {
    const queue = new CoalescingQueue<number>();
    queue.push('a', 1);
    queue.push('b', 2);
    queue.push('a', 3);
    expect([...queue.waiting()]).toEqual([
      ['a', 3],
      ['b', 2],
    ]);
    expect(await queue.take()).toEqual({ key: 'a', value: 3 });
    queue.push('a', 4);
    expect(await queue.take()).toEqual({ key: 'b', value: 2 });
    expect(await queue.take()).toEqual({ key: 'a', value: 4 });
    expect(queue.size).toBe(0);
  });

  it('lets its consumer wait, also where the value that woke it was replaced meanwhile', async () => {
    const queue = new CoalescingQueue<number>();
    const taken = queue.take();
    queue.push('a', 1);
    queue.push('a', 2);
    expect(await taken).toEqual({ key: 'a', value: 2 });
  });

  it('lets its consumer go when it is closed, and drops what waits', async () => {
    const queue = new CoalescingQueue<number>();
    const taken = queue.take();
    queue.close();
    expect(await taken).toBeUndefined();
    queue.push('a', 1);
    expect([queue.size, queue.closed]).toEqual([0, true]);
    expect(await queue.take()).toBeUndefined();
  });

  it('has one consumer', async () => {
    const queue = new CoalescingQueue<number>();
    const first = queue.take();
    await expect(queue.take()).rejects.toThrow('one consumer');
    queue.close();
    await first;
  });
});
