import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Timer } from '../../src/base/clock.ts';
import { WorkQueue } from '../../src/base/work-queue.ts';
import { growthPerItem } from './support/cpu-time.ts';
import { ManualClock } from './support/manual-clock.ts';

/** The queue as a list that is searched each time. */
class NaiveQueue {
  now = 0;
  due: string[] = [];
  delayed: { key: string; at: number; order: number }[] = [];
  working: { key: string; again: number | undefined }[] = [];
  #order = 0;

  add(key: string): void {
    const working = this.working.find((each) => each.key === key);
    if (working !== undefined) working.again = Number.NEGATIVE_INFINITY;
    else if (!this.due.includes(key)) {
      this.delayed = this.delayed.filter((each) => each.key !== key);
      this.due.push(key);
    }
  }

  addAfter(key: string, ms: number): void {
    const at = this.now + ms;
    const working = this.working.find((each) => each.key === key);
    if (working !== undefined) working.again = Math.min(working.again ?? at, at);
    else if (!this.due.includes(key) && !this.delayed.some((each) => each.key === key && each.at <= at)) {
      this.delayed = this.delayed.filter((each) => each.key !== key);
      this.delayed.push({ key, at, order: this.#order++ });
    }
  }

  get(): string | undefined {
    const key = this.due.shift();
    if (key !== undefined) this.working.push({ key, again: undefined });
    return key;
  }

  done(key: string): void {
    const working = this.working.find((each) => each.key === key);
    this.working = this.working.filter((each) => each !== working);
    if (working?.again === undefined) return;
    if (working.again > this.now) this.addAfter(key, working.again - this.now);
    else this.add(key);
  }

  delete(key: string): void {
    this.due = this.due.filter((each) => each !== key);
    this.delayed = this.delayed.filter((each) => each.key !== key);
    for (const working of this.working) if (working.key === key) working.again = undefined;
  }

  endDelays(): void {
    this.#endDelays(Number.POSITIVE_INFINITY);
  }

  clear(): void {
    this.due = [];
    this.delayed = [];
    for (const working of this.working) working.again = undefined;
  }

  advance(ms: number): void {
    this.now += ms;
    this.#endDelays(this.now);
  }

  #endDelays(until: number): void {
    const over = this.delayed.filter(({ at }) => at <= until);
    this.delayed = this.delayed.filter(({ at }) => at > until);
    for (const { key } of over.sort((a, b) => a.at - b.at || a.order - b.order)) this.due.push(key);
  }

  get nextAt(): number | undefined {
    return this.delayed.length === 0 ? undefined : Math.min(...this.delayed.map(({ at }) => at));
  }

  get keys(): string[] {
    return [...this.due, ...[...this.working, ...this.delayed].map(({ key }) => key)].sort();
  }
}

const key = fc.constantFrom('a', 'b', 'c', 'd');
const ms = fc.integer({ min: 1, max: 20 });
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constantFrom('add', 'addAfter', 'get', 'done'), key, ms }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('advance', 'delete'), key, ms }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('endDelays', 'clear'), key, ms }) },
);

describe('a work queue', () => {
  let clock: ManualClock;
  let due: number;
  let queue: WorkQueue<string>;

  beforeEach(() => {
    clock = new ManualClock();
    due = 0;
    queue = new WorkQueue({ clock, random: () => 1, onDue: () => due++ });
  });

  it('behaves like a list that is searched each time', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const time = new ManualClock();
        const tested = new WorkQueue<string>({ clock: time, random: Math.random });
        const model = new NaiveQueue();
        for (const { do: act, key: at, ms: delay } of steps) {
          if (act === 'add') for (const each of [tested, model]) each.add(at);
          else if (act === 'addAfter') for (const each of [tested, model]) each.addAfter(at, delay);
          else if (act === 'get') expect(tested.get()).toBe(model.get());
          else if (act === 'done') for (const each of [tested, model]) each.done(at);
          else if (act === 'delete') for (const each of [tested, model]) each.delete(at);
          else if (act === 'endDelays') for (const each of [tested, model]) each.endDelays();
          else if (act === 'clear') for (const each of [tested, model]) each.clear();
          else for (const each of [time, model]) each.advance(delay);
          expect([...tested.keys()].sort()).toEqual(model.keys);
          expect([tested.size, tested.working]).toEqual([model.keys.length, model.working.length]);
          expect(tested.has(at)).toBe(model.keys.includes(at));
          expect(time.nextAt).toBe(model.nextAt);
          expect(time.pending).toBe(model.delayed.length > 0 ? 1 : 0);
        }
      }),
      { numRuns: Number(process.env['PROPERTY_RUNS'] ?? 100) },
    );
  });

  it('delays a key longer after each failure, up to a limit, until it is forgotten', () => {
    const delays: number[] = [];
    for (let i = 0; i < 12; i++) {
      delays.push(queue.retry('a'));
      clock.advance(60_000);
      expect(queue.get()).toBe('a');
      queue.done('a');
    }
    expect(delays.slice(0, 3)).toEqual([100, 200, 400]);
    expect([delays.at(-1), due, queue.failures('a'), queue.failures('b')]).toEqual([60_000, 12, 12, 0]);
    queue.forget('a');
    expect([queue.retry('a'), queue.failures('a')]).toEqual([100, 1]);
  });

  it('reports a key only when its delay ends', () => {
    queue.add('a');
    queue.addAfter('b', 10);
    expect(due).toBe(0);
    clock.advance(10);
    expect([due, queue.get(), queue.get(), queue.get()]).toEqual([1, 'a', 'b', undefined]);
  });

  it('makes keys due once for each millisecond, also if the timer fires a fraction early', () => {
    let now = 0.25;
    let fire = (): void => {};
    const after = (_delayMs: number, callback: () => void): Timer => {
      fire = callback;
      return { cancel: () => {} };
    };
    const due: (string | undefined)[] = [];
    const early = new WorkQueue<string>({
      clock: { now: () => now, after },
      random: Math.random,
      onDue: () => due.push(early.get(), early.get(), early.get()),
    });
    early.addAfter('a', 10.5);
    early.addAfter('b', 10.25);
    early.addAfter('c', 10.875);
    now = 10.875;
    fire();
    expect(due).toEqual(['a', 'b', undefined]);
  });

  it('makes at most 256 of 500,000 keys due in a turn (regression: all whose delays end at a time)', () => {
    let most = 0;
    const taken: number[] = [];
    const delayed = new WorkQueue<number>({
      clock,
      random: Math.random,
      onDue: () => {
        const before = taken.length;
        for (let key = delayed.get(); key !== undefined; key = delayed.get()) {
          delayed.done(key);
          taken.push(key);
        }
        most = Math.max(most, taken.length - before);
      },
    });
    for (let key = 0; key < 500_000; key++) delayed.addAfter(key, 10);
    clock.advance(10);
    expect(taken.length).toBe(256);
    clock.advance(2000);
    expect([most, taken.length, delayed.size, clock.pending]).toEqual([256, 500_000, 0, 0]);
    expect(taken.every((key, at) => key === at)).toBe(true);
  });

  it('delays, deletes and advances each of 160,000 keys at a constant cost (regression: a timer for each)', async () => {
    const growth = await growthPerItem(10_000, (count) => {
      const time = new ManualClock();
      const tested = new WorkQueue<number>({ clock: time, random: Math.random });
      for (let key = 0; key < count; key++) tested.addAfter(key, 30_000 - (key % 30_000));
      for (let key = 0; key < count; key += 2) tested.delete(key);
      for (let key = 1; key < count; key += 2) tested.addAfter(key, 1 + ((key * 7919) % 20_000));
      expect([tested.size, time.pending]).toEqual([count / 2, 1]);
      time.advance(30_000);
      for (let key = tested.get(); key !== undefined; key = tested.get()) tested.done(key);
      expect(tested.size).toBe(0);
    });
    expect(growth).toBeLessThan(6);
  });

  it('processes each of 160,000 keys at a constant cost (regression: a new iterator of a Set for each)', async () => {
    const growth = await growthPerItem(10_000, (count) => {
      for (let i = 0; i < count; i++) queue.add(`${i}`);
      for (let key = queue.get(); key !== undefined; key = queue.get()) queue.done(key);
    });
    expect(queue.size).toBe(0);
    expect(growth).toBeLessThan(6);
  });
});
