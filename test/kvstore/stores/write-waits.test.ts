import { describe, expect, it } from 'vitest';
import { WriteWaits } from '../../../src/kvstore/stores/write-waits.ts';

/** The queued names, and the callers that wait for them. */
class World {
  readonly unfinished = new Set<string>();
  readonly waits = new WriteWaits(() => this.unfinished.size);

  queue(...names: readonly string[]): this {
    for (const name of names) {
      if (!this.unfinished.has(name)) this.waits.recordQueued(name);
      this.unfinished.add(name);
    }
    return this;
  }

  touch(name: string): void {
    this.waits.forgetQueued(name);
    this.unfinished.add(name);
  }

  settle(...names: readonly string[]): void {
    for (const name of names) {
      this.unfinished.delete(name);
      this.waits.forgetQueued(name);
    }
  }

  wait(): { over: boolean } {
    const state = { over: false };
    void this.waits.add().then(() => {
      state.over = true;
    });
    return state;
  }

  async land(): Promise<boolean> {
    const has = this.waits.complete(this.waits.due());
    await Promise.resolve();
    return has;
  }
}

describe('a wait for a canary', () => {
  it('ends when all names that were unfinished at its start are written', async () => {
    const world = new World().queue('a');
    const one = world.wait();
    const two = world.queue('b').wait();
    expect(world.waits.due()).toHaveLength(0);
    world.settle('a');
    expect([await world.land(), two.over, one.over]).toEqual([true, false, true]);
    world.settle('b');
    expect([await world.land(), two.over, world.waits.due().length]).toEqual([true, true, 0]);
  });

  it('needs one more canary if a name is changed while one is written', async () => {
    const world = new World();
    const early = world.wait();
    const due = world.waits.due();
    world.touch('a');
    expect([world.waits.complete(due), world.waits.due().length]).toEqual([false, 0]);
    await Promise.resolve();
    expect(early.over).toBe(false);
    world.settle('a');
    expect([await world.land(), early.over]).toEqual([true, true]);
  });

  it('ends only with a canary that was written after its start', () => {
    const { waits } = new World();
    const due = waits.due();
    let over = false;
    void waits.add().then(() => {
      over = true;
    });
    expect([waits.complete(due), over, waits.due().length]).toEqual([false, false, 1]);
  });

  it('does not include a name that was queued later, unless that name is changed', async () => {
    const world = new World().queue('a');
    const one = world.wait();
    world.queue('later', 'touched');
    world.touch('touched');
    world.settle('a');
    expect(world.waits.due()).toHaveLength(0);
    world.settle('touched');
    expect([await world.land(), one.over]).toEqual([true, true]);
    const two = world.wait();
    expect([await world.land(), two.over]).toEqual([false, false]);
    world.settle('later');
    expect([await world.land(), two.over]).toEqual([true, true]);
  });

  it('costs the same for a million unfinished names (regression: a copy of them for each)', () => {
    const world = new World();
    for (let i = 0; i < 1_000_000; i++) world.unfinished.add(`${i}`);
    let reads = 0;
    const waits = new WriteWaits(() => {
      reads++;
      return world.unfinished.size;
    });
    for (let i = 0; i < 1000; i++) void waits.add();
    expect([waits.due().length, reads]).toEqual([0, 1]);
  });
});
