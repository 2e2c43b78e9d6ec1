import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Watch, WatchEvent } from '../../../src/kvstore/session/backend.ts';
import { ChaosWorld, type WorldOptions } from './support/chaos-world.ts';
import { FAULTS, type Fault } from './support/faults.ts';
import { seededRandom } from './support/seeded-random.ts';

/** Options of the world for faults that need a special one. */
const WORLDS: readonly (readonly [string, Fault['needs'], Omit<WorldOptions, 'random'>])[] = [
  ['one member', undefined, {}],
  ['one member with users', 'users', { tokenSeconds: 300 }],
  ['three members', 'three members', { members: 3 }],
];

describe.each(WORLDS)(
  'a real etcd of %s in chaos: nothing lost, nothing invented',
  (_name, needs, options) => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const faults = Object.entries(FAULTS).filter(([, fault]) => fault.needs === needs);
    let world: ChaosWorld;

    beforeAll(async () => {
      world = await ChaosWorld.start({ ...options, random: seededRandom(seed) });
    });

    afterAll(() => world.close());

    it.each(faults)('%s', async (_fault, { strike }) => {
      const { events } = world.figures;
      expect(await world.cycle(strike), `seed ${seed}`).toEqual([]);
      expect(world.figures).toMatchObject({ lost: 0, phantom: 0 });
      expect(world.figures.events - events).toBeGreaterThan(200);
    });

    it('leaves no handle and no stream', async () => {
      expect(await world.close()).toEqual([]);
    });
  },
);

type Change = (batch: readonly WatchEvent[]) => readonly WatchEvent[];

/** Returns a watch with wrong events. */
function tampered(watch: Watch, change: Change): Watch {
  return {
    status: () => watch.status(),
    async *[Symbol.asyncIterator]() {
      for await (const batch of watch) yield change(batch);
    },
  };
}

// A contribution of the first round is written once.
const dropsOne: Change = (batch) =>
  batch.filter(({ type, key }) => !(type === 'create' && key === 'chaos/shared/b-0'));

/** Repeats the previous event after the first modification. */
function repeatsOne(): Change {
  const first = new Map<string, WatchEvent>();
  let done = false;
  return (batch) =>
    batch.flatMap((event) => {
      const old = first.get(event.key);
      if (old === undefined) first.set(event.key, event);
      if (done || old === undefined || event.type !== 'modify') return [event];
      done = true;
      return [event, { ...old, type: 'modify' }];
    });
}

describe('the test of the test', () => {
  it('repeats a failed call of etcdctl (regression: its failure counted as a write that had not landed)', async () => {
    const world = await ChaosWorld.start({ random: seededRandom(1) });
    const { cluster } = world;
    const content = cluster.content.bind(cluster);
    cluster.content = () => {
      cluster.content = content;
      return Promise.reject(new Error('etcdctl: context deadline exceeded'));
    };
    await world.landed();
    await world.close();
  });

  it.each([
    ['drops one event', dropsOne, 'watch a has lost chaos/shared/b-0'],
    ['repeats an old event', repeatsOne(), 'nothing that could be told now'],
  ])('detects a watch that %s', async (_what, change, finding) => {
    const world = await ChaosWorld.start({
      random: seededRandom(1),
      tamper: (watch) => tampered(watch, change),
    });
    const wrong = await world.cycle(async () => {});
    await world.close();
    expect(wrong).toHaveLength(1);
    expect(wrong[0]).toContain(finding);
  });
});
