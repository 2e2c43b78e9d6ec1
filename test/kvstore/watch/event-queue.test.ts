import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import type { WatchEvent } from '../../../src/kvstore/session/backend.ts';
import { EventQueue, type QueueLimits } from '../../../src/kvstore/watch/event-queue.ts';
import { settle } from '../support/settle.ts';

/** A write (`value`), a delete (no value), or the end of the first list (no key). */
interface Item {
  readonly key?: string;
  readonly value?: string;
  readonly revision: number;
}

const created = (key: string, modRevision: number, value: Uint8Array = new Uint8Array(0)): WatchEvent => ({
  type: 'create',
  key,
  value,
  modRevision,
});

const LIMITS: QueueLimits = { batchEvents: 3, highWaterBytes: 400, lowWaterBytes: 200 };

/** The rules of the queue over a plain list. The reader knows the delivered events. */
class NaiveQueue {
  #items: readonly Item[] = [];
  #coalesceAbove = LIMITS.highWaterBytes;
  readonly #reader = new Set<string>();

  get bytes(): number {
    return this.#items.reduce((sum, { key = '', value = '' }) => sum + 80 + key.length + value.length, 0);
  }

  get isEmpty(): boolean {
    return this.#items.length === 0;
  }

  push(item: Item): void {
    this.#items = [...this.#items, item];
  }

  /**
   * Keeps the last write of each key on each side of the end of the list, except for keys created and deleted
   * in between.
   */
  shorten(): void {
    if (this.bytes <= this.#coalesceAbove) return;
    if (this.#items[0]?.revision === this.#items.at(-1)?.revision) return;
    const done = this.#items.findIndex(({ key }) => key === undefined);
    const sides = [this.#items.slice(0, done + 1), this.#items.slice(done + 1)];
    const known = new Set(this.#reader);
    this.#items = sides.flatMap((side) => {
      const last = side.filter(({ key }, i) => !side.slice(i + 1).some((later) => later.key === key));
      const told = last.filter(
        ({ key, value }) => key === undefined || value !== undefined || known.has(key),
      );
      for (const { key = '', value } of told) {
        if (value === undefined) known.delete(key);
        else known.add(key);
      }
      return told;
    });
    this.#coalesceAbove = Math.max(LIMITS.highWaterBytes, 1.5 * this.bytes);
  }

  clear(): void {
    this.#items = [];
  }

  take(): readonly string[] {
    const batch = this.#items.slice(0, this.#batchLength());
    this.#items = this.#items.slice(batch.length);
    if (this.isEmpty) this.#coalesceAbove = LIMITS.highWaterBytes;
    return batch.map((item) => this.#told(item));
  }

  #batchLength(): number {
    const { batchEvents } = LIMITS;
    const done = this.#items.findIndex(({ key }) => key === undefined);
    if (done >= 0 && done < batchEvents) return done + 1;
    if (this.#items.length <= batchEvents) return this.#items.length;
    const revisions = this.#items.map(({ revision }) => revision);
    const cuts = [3, 2, 1].filter((cut) => revisions[cut - 1] !== revisions[cut]);
    return cuts[0] ?? batchEvents;
  }

  #told({ key, value, revision }: Item): string {
    if (key === undefined) return 'list-done  = 0';
    const known = this.#reader.has(key);
    if (value === undefined) this.#reader.delete(key);
    else this.#reader.add(key);
    const type = value === undefined ? 'delete' : known ? 'modify' : 'create';
    return `${type} ${key} =${value ?? ''} ${revision}`;
  }
}

const told = (events: readonly WatchEvent[]): readonly string[] =>
  events.map(({ type, key, value, modRevision }) => `${type} ${key} =${textOfBytes(value)} ${modRevision}`);

const key = fc.constantFrom('a', 'b', 'c', 'dd');
const step = fc.oneof(
  { weight: 9, arbitrary: fc.record({ do: fc.constant('write' as const), key, isNew: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('delete' as const), key, isNew: fc.boolean() }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('shorten' as const) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('drain' as const) }) },
);

/** Applies the same to both, and compares results and remaining items. */
class Comparison {
  readonly #queue = new EventQueue(LIMITS);
  readonly #model = new NaiveQueue();
  readonly #exists = new Set<string>();
  /** The keys written at the latest revision, which contains each once. */
  readonly #written = new Set<string>();
  #revision = 1;

  push(of: string, value: string | undefined, isNew: boolean): void {
    const known = this.#exists.has(of);
    if (value === undefined && !known) return; // absent keys are not deleted
    if (isNew || this.#written.has(of)) {
      this.#revision++;
      this.#written.clear();
    }
    this.#written.add(of);
    const type = value === undefined ? 'delete' : known ? 'modify' : 'create';
    this.#queue.push({ type, key: of, value: bytesOfText(value ?? ''), modRevision: this.#revision });
    this.#model.push({ key: of, revision: this.#revision, ...(value === undefined ? {} : { value }) });
    if (value === undefined) this.#exists.delete(of);
    else this.#exists.add(of);
    this.compare();
  }

  pushListDone(): void {
    this.#queue.pushListDone();
    this.#model.push({ revision: 0 });
  }

  shorten(): void {
    this.#queue.shorten();
    this.#model.shorten();
    this.compare();
  }

  take(): void {
    expect(told(this.#queue.take())).toEqual(this.#model.take());
    this.compare();
  }

  compare(): void {
    expect([this.#queue.isEmpty, this.#queue.bytes]).toEqual([this.#model.isEmpty, this.#model.bytes]);
  }

  drain(): void {
    while (!this.#model.isEmpty) this.take();
    this.take();
  }
}

describe('the queue between a watch and its reader', () => {
  it('returns the same as a plain list: batches of whole revisions, the last of several writes, correct types', () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 40, size: 'max' }),
        fc.nat(40),
        fc.infiniteStream(fc.nat(60)),
        (steps, doneAt, lengths) => {
          const both = new Comparison();
          for (const [i, happens] of steps.entries()) {
            if (i === doneAt) both.pushListDone();
            if (happens.do === 'write') {
              both.push(happens.key, 'x'.repeat(lengths.next().value), happens.isNew);
            } else if (happens.do === 'delete') both.push(happens.key, undefined, happens.isNew);
            else both[happens.do]();
          }
          both.take();
        },
      ),
    );
  });

  it('splits the writes of one revision only if they exceed a batch', () => {
    const queue = new EventQueue(LIMITS);
    for (let i = 0; i < 7; i++) queue.push(created(`k${i}`, i < 2 ? 1 : 2, new Uint8Array(1)));
    const sizes = Array.from({ length: 4 }, () => queue.take().length);
    expect(sizes).toEqual([2, 3, 2, 0]);
  });

  it('compares no keys of one revision, because each is there once (regression: 40 ms in one turn for ten deleted prefixes)', () => {
    const queue = new EventQueue(LIMITS);
    let reads = 0;
    for (let i = 0; i < 1000; i++)
      queue.push({
        type: 'delete',
        modRevision: 7,
        value: new Uint8Array(0),
        get key() {
          reads++;
          return `k${i}`;
        },
      });
    const before = reads;
    queue.shorten();
    expect(queue.isFull).toBe(true);
    expect(reads).toBe(before);
  });

  it('coalesces 150,000 listed keys (regression: passed all of them as arguments of one call, and threw)', () => {
    const queue = new EventQueue(LIMITS);
    for (let i = 0; i < 150_000; i++) queue.push(created(`k${i}`, i + 1));
    queue.pushListDone();
    queue.shorten();
    expect(told(queue.take())).toEqual(['create k0 = 1', 'create k1 = 2', 'create k2 = 3']);
  });

  it('keeps nothing after its end', () => {
    const queue = new EventQueue(LIMITS);
    for (let i = 0; i < 7; i++) queue.push(created(`k${i}`, i, new Uint8Array(9)));
    queue.take();
    queue.end();
    expect([queue.isEmpty, queue.bytes, queue.take()]).toEqual([true, 0, []]);
  });
});

/** An event of a key of one character weighs 81 bytes without a value. */
const EVENT_BYTES = 81;
const ONE_BY_ONE = { batchEvents: 1, highWaterBytes: 2 * EVENT_BYTES, lowWaterBytes: EVENT_BYTES };

function push(queue: EventQueue, ...keys: readonly string[]): void {
  for (const [i, key] of keys.entries()) queue.push(created(key, i + 1));
}

/** Returns true if a promise has been settled by now. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  void promise.then(() => {
    settled = true;
  });
  await settle();
  return settled;
}

describe('the two sides of the queue', () => {
  it('makes the reader wait until something is flushed', async () => {
    const queue = new EventQueue(ONE_BY_ONE);
    const batch = queue.next();
    queue.flush(); // nothing exists yet
    expect(await isSettled(batch)).toBe(false);
    push(queue, 'a');
    expect(await isSettled(batch)).toBe(false);
    queue.flush();
    expect((await batch).map(({ key }) => key)).toEqual(['a']);
    push(queue, 'b');
    expect((await queue.next()).map(({ key }) => key)).toEqual(['b']);
  });

  it('pauses the source above its high-water mark, until the reader is below the low one', async () => {
    const queue = new EventQueue(ONE_BY_ONE);
    push(queue, 'a', 'b');
    expect([queue.isFull, await isSettled(queue.whenNotFull())]).toEqual([false, true]);
    push(queue, 'c');
    const room = queue.whenNotFull();
    expect([queue.isFull, await isSettled(room)]).toEqual([true, false]);
    await queue.next();
    expect([queue.isFull, await isSettled(room)]).toEqual([false, false]);
    await queue.next(); // one item remains: exactly the low-water mark
    expect(await isSettled(room)).toBe(false);
    await queue.next();
    expect(await isSettled(room)).toBe(true);
  });

  it('wakes both when it ends, and pauses neither afterwards', async () => {
    const queue = new EventQueue(ONE_BY_ONE);
    const batch = queue.next();
    queue.end();
    expect(await batch).toEqual([]);
    expect(await queue.next()).toEqual([]);
    const full = new EventQueue(ONE_BY_ONE);
    push(full, 'a', 'b', 'c');
    const room = full.whenNotFull();
    full.end();
    expect([await isSettled(room), full.isEmpty]).toEqual([true, true]);
    push(full, 'a', 'b', 'c');
    expect(await isSettled(full.whenNotFull())).toBe(true);
  });
});
