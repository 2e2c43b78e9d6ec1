import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { forEachInSteps, OPEN_GATE, sortInSteps, TurnGate } from '../../src/base/turn-gate.ts';
import { ManualClock } from './support/manual-clock.ts';

/** A gate of small turns, and an event loop whose turns the test starts. */
class GateWorld {
  readonly clock = new ManualClock();
  readonly done: string[] = [];
  readonly #callbacks: (() => void)[] = [];
  readonly gate = new TurnGate({
    clock: this.clock,
    nextTurn: (callback) => this.#callbacks.push(callback),
    weightPerTurn: 10,
    msPerTurn: 5,
  });

  /** Number of requested turns. */
  get asked(): number {
    return this.#callbacks.length;
  }

  run(name: string, weight: number, signal?: AbortSignal): Promise<boolean> {
    return this.gate.run(weight, () => void this.done.push(name), signal);
  }

  /** Runs pieces of work, one after the other. */
  async runAll(name: string, pieces: number, weight: number): Promise<void> {
    for (let i = 0; i < pieces; i++) await this.run(name, weight);
  }

  /** Runs the next turn of the event loop. Returns the work done in it. */
  async turn(): Promise<readonly string[]> {
    const before = this.done.length;
    for (const callback of this.#callbacks.splice(0)) callback();
    for (let i = 0; i < 20; i++) await Promise.resolve();
    return this.done.slice(before);
  }
}

describe('a gate to the event loop', () => {
  it.each([
    { part: 'a step', steps: [1, 2, 'broken'], onEnd: () => {} },
    {
      part: 'the listener of the end',
      steps: [1],
      onEnd: () => {
        throw new Error('broken');
      },
    },
  ])('reports the error of $part of background work', async ({ steps, onEnd }) => {
    const faults: unknown[] = [];
    const { clock } = new GateWorld();
    const gate = new TurnGate({ clock, nextTurn: queueMicrotask, onFault: (error) => faults.push(error) });
    const ended = new Promise<void>((resolve) => {
      const work = function* (): Generator<undefined, void, void> {
        for (const step of steps) {
          if (step === 'broken') throw new Error(step);
          yield;
        }
      };
      gate.runInBackground(work(), {
        onEnd: () => {
          resolve();
          onEnd();
        },
      });
    });
    await ended;
    await Promise.resolve();
    expect([faults, gate.faults]).toEqual([[new Error('broken')], 1]);
  });

  it('ends background work, with the call of onEnd, when its signal fires', async () => {
    const world = new GateWorld();
    const ended = new AbortController();
    let isEnded = false;
    const onEnd = (): void => {
      isEnded = true;
    };
    world.gate.runInBackground([1, 2, 3].values(), { signal: ended.signal, onEnd });
    expect(isEnded).toBe(false);
    ended.abort();
    for (let i = 0; i < 20; i++) await Promise.resolve();
    expect([isEnded, world.gate.faults]).toEqual([true, 0]);
  });

  it('admits work immediately until the weight of a turn is used', async () => {
    const world = new GateWorld();
    for (const name of ['a', 'b', 'c', 'd']) void world.run(name, 5);
    expect(world.done).toEqual(['a', 'b']);
    expect(world.gate.waiting).toBe(2);
    expect(await world.turn()).toEqual(['c', 'd']);
  });

  it('admits no more work when the time of a turn is used', async () => {
    const world = new GateWorld();
    const slow = (): void => world.clock.advance(3);
    for (let i = 0; i < 3; i++) void world.gate.run(1, slow);
    expect(world.gate.waiting).toBe(1);
    await world.turn();
    expect(world.gate.waiting).toBe(0);
  });

  it('counts the time of a turn from its first piece (regression: a callback of the event loop took twice its time)', async () => {
    const world = new GateWorld();
    void world.run('first', 10);
    const slow = (): void => world.clock.advance(5);
    const waiting = world.gate.run(1, slow);
    void waiting.then(() => world.run('next', 1));
    expect(await world.turn()).toEqual([]);
    expect(await world.turn()).toEqual(['next']);
  });

  it('counts the time of all callbacks of a turn (regression: received messages and pieces added up)', async () => {
    const loop = new ManualClock();
    const callbacks: (() => void)[] = [];
    const gate = new TurnGate({
      clock: new ManualClock(),
      nextTurn: (callback) => callbacks.push(callback),
      msPerTurn: 5,
      activeMs: () => loop.now(),
    });
    const pieces: number[] = [];
    const all = Array.from({ length: 12 }, (_, i) =>
      gate.run(1, () => {
        pieces.push(i);
        loop.advance(1);
      }),
    );
    const inTurn = (receivedMs: number): number => {
      const before = pieces.length;
      loop.advance(receivedMs);
      for (const callback of callbacks.splice(0)) callback();
      return pieces.length - before;
    };
    expect(pieces).toHaveLength(5);
    expect([inTurn(0), inTurn(3), inTurn(20), inTurn(0)]).toEqual([1, 2, 1, 3]);
    await Promise.all(all);
  });

  it('admits one slice per turn, however heavy it is', async () => {
    const world = new GateWorld();
    for (const name of ['a', 'b']) void world.run(name, 1000);
    expect(world.done).toEqual(['a']);
    expect(await world.turn()).toEqual(['b']);
  });

  it('admits one slice of each worker before a second one of any', async () => {
    const world = new GateWorld();
    const all = [world.runAll('large', 6, 10), world.runAll('small', 2, 10), world.runAll('other', 2, 10)];
    while (world.gate.waiting > 0) await world.turn();
    await Promise.all(all);
    const expected = [
      'large',
      'small',
      'other',
      'large',
      'small',
      'other',
      'large',
      'large',
      'large',
      'large',
    ];
    expect(world.done).toEqual(expected);
  });

  it('does not run work that was aborted while it waited, and rejects immediately', async () => {
    const world = new GateWorld();
    const left = new AbortController();
    void world.run('a', 10);
    const b = world.run('b', 10, left.signal);
    const c = world.run('c', 10);
    left.abort();
    expect(await b).toBe(false);
    expect(await world.turn()).toEqual(['c']);
    expect(await c).toBe(true);
    expect(await world.run('d', 1, left.signal)).toBe(false);
    expect(world.done).toEqual(['a', 'c']);
  });

  it('notifies only the worker whose work failed', async () => {
    const world = new GateWorld();
    void world.run('a', 10);
    const failing = world.gate.run(1, () => {
      throw new Error('broken');
    });
    const after = world.run('b', 1);
    void world.turn();
    await expect(failing).rejects.toThrow('broken');
    expect(await after).toBe(true);
  });

  it('divides the steps of an iterator among turns, and starts none after its signal has fired', async () => {
    const world = new GateWorld();
    const left = new AbortController();
    const steps = (name: string): Generator<void> =>
      (function* () {
        for (let i = 1; i <= 12; i++) yield void world.done.push(`${name}${i}`);
      })();
    const a = world.gate.runSteps(steps('a'));
    const b = world.gate.runSteps(steps('b'), left.signal);
    expect(world.gate.slice).toBe(1); // an eighth of 10
    expect(await world.turn()).toHaveLength(10);
    left.abort();
    expect(await b).toBe(false);
    for (let i = 0; i < 3; i++) await world.turn();
    expect(await a).toBe(true);
    expect(world.done.filter((step) => step.startsWith('a'))).toHaveLength(12);
  });

  it('forEachInSteps visits every item in order and yields after each full step', () => {
    const visited: number[] = [];
    const atYield = [];
    for (const _ of forEachInSteps(new Set([1, 2, 3, 4, 5]), 2, (item) => visited.push(item)))
      atYield.push(visited.length);
    expect([visited, atYield]).toEqual([
      [1, 2, 3, 4, 5],
      [2, 4],
    ]);
  });

  it('sortInSteps returns what a stable sort returns, and compares few items in a step', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(20), { maxLength: 60 }),
        fc.integer({ min: 1, max: 8 }),
        (ranks, perStep) => {
          const items = ranks.map((rank, at) => ({ rank, at }));
          let [compared, most] = [0, 0];
          const steps = sortInSteps(items, perStep, (a, b) => {
            compared++;
            return a.rank - b.rank;
          });
          let step = steps.next();
          for (; step.done !== true; step = steps.next()) {
            most = Math.max(most, compared);
            compared = 0;
          }
          expect(step.value).toEqual(items.toSorted((a, b) => a.rank - b.rank));
          // A step may sort the last run and merge the first items.
          expect(Math.max(most, compared)).toBeLessThanOrEqual(perStep * (2 + Math.log2(perStep)) + perStep);
        },
      ),
    );
  });

  it('an open gate admits everything immediately, in one slice', async () => {
    const done: number[] = [];
    for (let i = 0; i < 100; i++) void OPEN_GATE.run(1000, () => void done.push(i));
    expect([done.length, OPEN_GATE.slice]).toEqual([100, Number.POSITIVE_INFINITY]);
    const three = [1, 2, 3].values();
    expect(await OPEN_GATE.runSteps(three)).toBe(true);
    expect(three.next().done).toBe(true);
  });

  it('requests no turn if nothing is pending', async () => {
    const world = new GateWorld();
    expect(world.asked).toBe(0);
    void world.run('a', 1);
    void world.run('b', 1);
    expect(world.asked).toBe(1);
    await world.turn();
    expect(world.asked).toBe(0);
  });

  it('loses nothing, keeps the order of each worker, and keeps every turn within its weight', async () => {
    const worker = fc.array(fc.integer({ min: 0, max: 15 }), { maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(fc.array(worker, { maxLength: 5 }), async (workers) => {
        const world = new GateWorld();
        const seen: (readonly [number, number, number])[] = [];
        const working = workers.map(async (pieces, who) => {
          for (const [i, weight] of pieces.entries()) {
            await world.gate.run(weight, () => void seen.push([who, i, weight]));
          }
        });
        let turns = 0;
        for (let told = 0; world.asked > 0; told = seen.length, turns++) {
          await world.turn();
          const weights = seen.slice(told).map(([, , weight]) => Math.max(1, weight));
          // The last piece may exceed the limit, because a turn ends with the piece that reaches it.
          const spent = weights.slice(0, -1).reduce((sum, weight) => sum + weight, 0);
          expect(spent).toBeLessThan(turns === 0 ? 40 : 10);
        }
        await Promise.all(working);
        for (const [who, pieces] of workers.entries()) {
          const own = seen.filter(([by]) => by === who);
          expect(own).toEqual(pieces.map((weight, i) => [who, i, weight]));
        }
      }),
    );
  });
});
