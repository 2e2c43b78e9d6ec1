import { monitorEventLoopDelay } from 'node:perf_hooks';
import { expect, it } from 'vitest';
import { ChaosWorld } from '../kvstore/chaos/support/chaos-world.ts';
import { FAULTS } from '../kvstore/chaos/support/faults.ts';
import { pick, seededRandom } from '../kvstore/chaos/support/seeded-random.ts';

/** `CHAOS_SEED` repeats the faults of another run, but not the timing of a real etcd. */
const { CHAOS_SEED = Math.floor(Math.random() * 2 ** 31), CHAOS_CYCLES = 100 } = process.env;
const SEED = Number(CHAOS_SEED);
const CYCLES = Number(CHAOS_CYCLES);

const milliseconds = (nanoseconds: number): string => (nanoseconds / 1e6).toFixed(1);
const say = (line: string): void => void process.stdout.write(`${line}\n`);

it(`${CYCLES} cycles of faults on a real etcd of three members: nothing is lost or invented`, async () => {
  say(`seed ${SEED}`);
  const random = seededRandom(SEED);
  // A new leader renews every lease for its whole term, so a busy machine alone must not cause elections.
  const flags = ['--heartbeat-interval', '100', '--election-timeout', '2000'];
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const world = await ChaosWorld.start({ random, members: 3, tokenSeconds: 300, flags });
  delay.enable();
  try {
    for (let cycle = 1; cycle <= CYCLES; cycle++) {
      const [name, { strike }] = pick(Object.entries(FAULTS), random);
      const begun = Date.now();
      const wrong = await world.cycle(strike);
      const { keys, events } = world.figures;
      say(`${cycle}/${CYCLES} ${name}: ${Date.now() - begun} ms, ${keys} keys, ${events} events so far`);
      expect(wrong, `cycle ${cycle}, ${name}, seed ${SEED}`).toEqual([]);
    }
  } finally {
    const left = await world.close();
    expect.soft(left, `left behind, seed ${SEED}`).toEqual([]);
  }
  const { keys, events, lost, phantom } = world.figures;
  say(`${CYCLES} cycles: ${keys} keys written, ${events} events seen, ${lost} lost, ${phantom} phantom`);
  // The cluster, its load and the checks run on the same machine, so this is only printed.
  say(
    `event loop: ${milliseconds(delay.percentile(50))} ms in the middle, p99 ${milliseconds(delay.percentile(99))} ms`,
  );
  expect({ lost, phantom }).toEqual({ lost: 0, phantom: 0 });
});
