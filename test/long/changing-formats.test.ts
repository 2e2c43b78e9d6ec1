import { expect, it } from 'vitest';
import { ChangingFormats } from '../clustermesh/support/changing-formats.ts';
import { seededRandom } from '../kvstore/chaos/support/seeded-random.ts';

/** `FORMATS_SEED` repeats the faults and changes of another run, but not the timing of a real etcd. */
const { FORMATS_SEED = Math.floor(Math.random() * 2 ** 31), FORMATS_CYCLES = 100 } = process.env;
const SEED = Number(FORMATS_SEED);
const CYCLES = Number(FORMATS_CYCLES);

it.each(['nothing', 'kvstoremesh'] as const)(
  `${CYCLES} faults while a cluster behind %s changes the formats of its services: no backend is lost or invented`,
  async (through) => {
    const say = (line: string): void => void process.stdout.write(`${line}\n`);
    say(`seed ${SEED}`);
    const world = await ChangingFormats.start(seededRandom(SEED), through);
    try {
      for (let cycle = 1; cycle <= CYCLES; cycle++) {
        const begun = Date.now();
        const { what, problems } = await world.cycle();
        say(`${cycle}/${CYCLES} ${what}: ${Date.now() - begun} ms`);
        expect(problems, `cycle ${cycle}, seed ${SEED}: ${what}`).toEqual([]);
      }
    } finally {
      await world.close();
    }
    const { writes, flips, states, lost, phantom } = world.figures;
    say(
      `${CYCLES} cycles: ${writes} writes, ${flips} flips, ${states} states, ${lost} lost, ${phantom} phantom`,
    );
    expect({ lost, phantom }).toEqual({ lost: 0, phantom: 0 });
  },
);
