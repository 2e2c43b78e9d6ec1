import { describe, expect, it } from 'vitest';
import { KvstoreError, type KvstoreErrorCode } from '../../src/kvstore/session/errors.ts';
import { KvstoreReach } from '../../src/operator/kvstore-reach.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';

class World {
  readonly clock = new ManualClock();
  readonly changes: (string | undefined)[] = [];
  /** The error of the next reads; undefined: they succeed. */
  fails: KvstoreErrorCode | undefined;
  /** Duration of a read. */
  takesMs = 0;
  readonly reach: KvstoreReach = new KvstoreReach({
    clock: this.clock,
    onChange: (problem) => this.changes.push(problem),
    key: 'cilium/cluster-config/a',
    backend: {
      get: () =>
        new Promise((resolve, reject) => {
          const fails = this.fails;
          const end = (): void =>
            fails === undefined ? resolve(undefined) : reject(new KvstoreError(fails, 'no way'));
          this.clock.after(this.takesMs, end);
        }),
    },
  });
  readonly #stop = new AbortController();
  readonly #running: Promise<void> = this.reach.run(this.#stop.signal);
  outage: boolean | undefined;

  awaitOutage(ms: number): void {
    void this.reach.outageOf(ms, this.#stop.signal).then((isOut) => {
      this.outage = isOut;
    });
  }

  async end(): Promise<void> {
    this.#stop.abort();
    await advance(this.clock, this.takesMs);
    await settle();
    await this.#running;
  }
}

describe('the reach of a kvstore', () => {
  it('is unknown before the first answer', async () => {
    const world = new World();
    expect([world.reach.isAnswering, world.reach.problem]).toEqual([false, undefined]);
    await advance(world.clock, 1);
    expect([world.reach.isAnswering, world.reach.problem]).toEqual([true, undefined]);
    await world.end();
  });

  it.each(['unavailable', 'deadline', 'no-leader'] as const)(
    'ends with "%s", and the reason is told until the next answer',
    async (code) => {
      const world = new World();
      await advance(world.clock, 1);
      world.fails = code;
      await advance(world.clock, 4_000);
      expect([world.reach.isAnswering, world.reach.problem]).toEqual([false, 'no way']);
      world.fails = undefined;
      await advance(world.clock, 4_000);
      expect([world.reach.isAnswering, world.reach.problem]).toEqual([true, undefined]);
      expect(world.changes).toEqual(['no way', undefined]); // once each
      await world.end();
    },
  );

  it('continues with an error that the server has sent', async () => {
    const world = new World();
    world.fails = 'forbidden';
    await advance(world.clock, 1);
    expect([world.reach.isAnswering, world.reach.problem]).toEqual([true, undefined]);
    await world.end();
  });

  it('counts as lost since the first of several consecutive reads without an answer', async () => {
    const world = new World();
    await advance(world.clock, 1);
    world.awaitOutage(60_000);
    [world.fails, world.takesMs] = ['deadline', 10_000];
    await advance(world.clock, 30_000);
    world.fails = undefined;
    await advance(world.clock, 25_000);
    expect([world.outage, world.reach.isAnswering]).toEqual([undefined, true]);
    world.fails = 'deadline';
    await advance(world.clock, 58_000);
    expect(world.outage).toBe(undefined);
    await advance(world.clock, 26_000);
    expect(world.outage).toBe(true);
    await world.end();
  });

  it('counts as lost since the first read without an answer was sent, not since it has failed', async () => {
    const world = new World();
    await advance(world.clock, 1);
    [world.fails, world.takesMs] = ['deadline', 10_000];
    world.awaitOutage(15_000);
    await advance(world.clock, 14_999);
    expect([world.outage, world.reach.isAnswering]).toEqual([undefined, false]);
    await advance(world.clock, 2_001); // the first read was sent after 2 s
    expect(world.outage).toBe(true);
    await world.end();
  });

  it('is over at its time, also between two reads', async () => {
    const world = new World();
    await advance(world.clock, 1);
    world.fails = 'deadline';
    world.awaitOutage(3_000);
    await advance(world.clock, 4_998); // the read after 2 s is the first that fails
    expect(world.outage).toBe(undefined);
    await advance(world.clock, 1);
    expect(world.outage).toBe(true);
    await world.end();
  });

  it('is awaited until the signal fires', async () => {
    const world = new World();
    world.awaitOutage(1_000);
    await world.end();
    expect(world.outage).toBe(false);
  });
});
