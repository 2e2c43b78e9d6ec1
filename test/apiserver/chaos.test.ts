import { expect, it } from 'vitest';
import { pick, seededRandom } from '../kvstore/chaos/support/seeded-random.ts';
import { ApiChaos } from './support/api-chaos.ts';
import { API_FAULTS } from './support/api-faults.ts';

/** `CHAOS_SEED` runs the faults of another run again; the timing of a real server is its own. */
const { CHAOS_SEED = Math.floor(Math.random() * 2 ** 31), CHAOS_CYCLES = 6 } = process.env;
const SEED = Number(CHAOS_SEED);
const CYCLES = Number(CHAOS_CYCLES);
const CYCLE_MS = 300_000;

const say = (line: string): void => void process.stdout.write(`${line}\n`);

it(
  `${CYCLES} cycles of faults on a real kube-apiserver: nothing lost, nothing invented`,
  async () => {
    say(`seed ${SEED}`);
    const random = seededRandom(SEED);
    const chaos = await ApiChaos.start(random);
    try {
      for (let cycle = 1; cycle <= CYCLES; cycle++) {
        const [name, strike] = pick(Object.entries(API_FAULTS), random);
        const begun = Date.now();
        const wrong = await chaos.cycle(strike);
        const { writes, events, lists } = chaos.figures;
        say(
          `${cycle}/${CYCLES} ${name}: ${Date.now() - begun} ms; ${writes} writes, ${events} events, ${lists} lists`,
        );
        expect(wrong, `cycle ${cycle}, ${name}, seed ${SEED}`).toEqual([]);
      }
    } finally {
      await chaos.close();
    }
    const { writes, events, lists, watches, lost, phantom } = chaos.figures;
    say(
      `${CYCLES} cycles: ${writes} writes, ${events} events, ${lists} lists, ${watches} watches, ${lost} lost, ${phantom} phantom`,
    );
    expect({ lost, phantom }).toEqual({ lost: 0, phantom: 0 });
  },
  CYCLES * CYCLE_MS,
);
