import fc from 'fast-check';
import { expect, it } from 'vitest';
import { EtcdMeshWorld } from '../clustermesh/support/etcd-world.ts';
import { type Happening, happenings } from '../clustermesh/support/mesh-laws.ts';
import { seededRandom } from '../kvstore/chaos/support/seeded-random.ts';

/**
 * `MESH_SEED` repeats the scripts of another run, but not the timing of real etcds. `MESH_CYCLES`: number of
 * scripts, which take about a second each on a quiet machine, and longer if an etcd was long unreachable.
 */
const { MESH_SEED = Math.floor(Math.random() * 2 ** 31), MESH_CYCLES = 240 } = process.env;
const SEED = Number(MESH_SEED);
const CYCLES = Number(MESH_CYCLES);

const say = (line: string): void => void process.stdout.write(`${line}\n`);

function told(script: readonly Happening[]): string {
  const faults = script.flatMap((what) =>
    what.do === 'write' || what.do === 'pass' ? [] : [`${what.do} ${what.cluster}`],
  );
  return faults.join(', ') || 'writes only';
}

it(`${CYCLES} scripts of faults, edits and writes over real etcds: the mesh equals a cold start (I9, I10)`, async () => {
  say(`seed ${SEED}`);
  const scripts = fc.sample(happenings, { seed: SEED, numRuns: CYCLES });
  const world = await EtcdMeshWorld.start(seededRandom(SEED));
  try {
    for (const [i, script] of scripts.entries()) {
      await world.play(script);
      const { held, fresh } = await world.judge();
      say(`${i + 1}/${CYCLES} ${world.figures.healedMs.at(-1)} ms after ${told(script)}`);
      expect(held, `script ${i + 1}, seed ${SEED}: ${JSON.stringify(script)}`).toEqual(fresh);
    }
  } finally {
    await world.close();
  }
  const { writes, faults, edits, compared, checks, healedMs } = world.figures;
  const sorted = [...healedMs].sort((a, b) => a - b);
  const times = `${sorted[sorted.length >> 1]} ms to agree in the middle, ${sorted.at(-1)} ms at most`;
  say(
    `${CYCLES} scripts: ${faults} faults, ${edits} edits, ${writes} writes; ${times}; up to ${compared} held; ${checks} looks at clusters that had lost everything, none of them mixed`,
  );
});
