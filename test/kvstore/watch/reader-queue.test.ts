import { describe, expect, it } from 'vitest';
import { ReaderQueue } from '../../../src/kvstore/watch/reader-queue.ts';
import { settle } from '../support/settle.ts';

/** An event of a key of one character weighs 81 bytes without a value. */
const EVENT_BYTES = 81;
const LIMITS = { batchEvents: 1, highWaterBytes: 2 * EVENT_BYTES, lowWaterBytes: EVENT_BYTES };

function push(queue: ReaderQueue, ...keys: readonly string[]): void {
  for (const [i, key] of keys.entries()) queue.events.push(key, new Uint8Array(0), i + 1, false);
}

/** Whether a promise has been settled by now. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  void promise.then(() => {
    settled = true;
  });
  await settle();
  return settled;
}

describe('the queue between a watch and its reader', () => {
  it('makes the reader wait until something is flushed', async () => {
    const queue = new ReaderQueue(LIMITS);
    const batch = queue.next();
    queue.flush(); // nothing is there yet
    expect(await isSettled(batch)).toBe(false);
    push(queue, 'a');
    expect(await isSettled(batch)).toBe(false);
    queue.flush();
    expect((await batch).map(({ key }) => key)).toEqual(['a']);
    push(queue, 'b');
    expect((await queue.next()).map(({ key }) => key)).toEqual(['b']);
  });

  it('pauses the source above its high-water mark, until the reader is below the low one', async () => {
    const queue = new ReaderQueue(LIMITS);
    push(queue, 'a', 'b');
    expect([queue.isFull, await isSettled(queue.room())]).toEqual([false, true]);
    push(queue, 'c');
    const room = queue.room();
    expect([queue.isFull, await isSettled(room)]).toEqual([true, false]);
    await queue.next();
    expect([queue.isFull, await isSettled(room)]).toEqual([false, false]);
    await queue.next(); // one is left: exactly the low-water mark
    expect(await isSettled(room)).toBe(false);
    await queue.next();
    expect(await isSettled(room)).toBe(true);
    await queue.events.drain();
  });

  it('wakes both when it ends, and pauses neither afterwards', async () => {
    const queue = new ReaderQueue(LIMITS);
    const batch = queue.next();
    queue.end();
    expect(await batch).toEqual([]);
    expect(await queue.next()).toEqual([]);
    const full = new ReaderQueue(LIMITS);
    push(full, 'a', 'b', 'c');
    const room = full.room();
    full.end();
    expect([await isSettled(room), full.events.isEmpty]).toEqual([true, true]);
    push(full, 'a', 'b', 'c');
    expect(await isSettled(full.room())).toBe(true);
  });
});
