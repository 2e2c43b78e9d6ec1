import { expect, it, onTestFinished } from 'vitest';
import { seededRandom } from '../../kvstore/chaos/support/seeded-random.ts';
import { ChangingFormats } from '../support/changing-formats.ts';

it.each(['nothing', 'kvstoremesh'] as const)(
  'a cluster on a real etcd behind %s that changes the formats of its services during faults loses and invents no backend',
  async (through) => {
    const world = await ChangingFormats.start(seededRandom(20_261_123), through);
    onTestFinished(() => world.close());
    for (let cycle = 1; cycle <= 6; cycle++) {
      const { what, problems } = await world.cycle();
      expect(problems, `cycle ${cycle}: ${what}`).toEqual([]);
    }
    expect(world.figures).toMatchObject({ lost: 0, phantom: 0 });
    expect(world.figures.flips).toBeGreaterThan(2);
    expect(world.figures.states).toBeGreaterThan(10);
  },
);
