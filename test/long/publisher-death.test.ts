import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { until } from '../base/support/until.ts';
import { type Known, mixed, PublishedMesh } from '../clustermesh/support/published-mesh.ts';
import { seededRandom } from '../kvstore/chaos/support/seeded-random.ts';

/** `PUBLISHER_SEED` repeats the delays of another run. A cycle takes about 6 s on a quiet machine. */
const { PUBLISHER_SEED = Math.floor(Math.random() * 2 ** 31), PUBLISHER_CYCLES = 40 } = process.env;
const SEED = Number(PUBLISHER_SEED);
const CYCLES = Number(PUBLISHER_CYCLES);
/** Longer than the lease of a dead publisher lives. */
const AWAY_MS = 4_500;
/** Longer than a publisher needs to start and to publish everything. */
const PUBLISH_MS = 2_000;

it(`${CYCLES} times publishers are killed and return with other content: the state is the old or the new one`, async () => {
  const random = seededRandom(SEED);
  const say = (line: string): void => void process.stdout.write(`${line}\n`);
  say(`seed ${SEED}`);
  const mesh = await PublishedMesh.start(0);
  let states = 0;
  try {
    let before = mesh.known;
    for (let version = 1; version <= CYCLES; version++) {
      await mesh.kill();
      await sleep(random() * AWAY_MS);
      // Sometimes one more life that ends too soon.
      if (random() < 0.4) {
        const publishing = mesh.publish(version).catch(() => {});
        await sleep(random() * PUBLISH_MS);
        await mesh.kill();
        await publishing;
        await sleep(random() * AWAY_MS);
      }
      const after = await comeBack(mesh, version);
      const seen = mesh.takeSeen();
      for (const held of seen)
        expect(mixed(held, before, after), `cycle ${version}, seed ${SEED}`).toEqual([]);
      states += seen.length;
      say(`${version}/${CYCLES}: ${seen.length} states, ${after.size} held`);
      before = after;
    }
  } finally {
    await mesh.close();
  }
  say(`${CYCLES} cycles, ${states} states, none of them mixed`);
});

/**
 * Waits until everything is published and followed. Returns the content of a new agent, which the other one
 * must reach, too.
 */
async function comeBack(mesh: PublishedMesh, version: number): Promise<Known> {
  await mesh.publish(version);
  let fresh: Known = new Map();
  await until('it holds what a fresh agent does', async () => {
    await mesh.untilAll('connected, complete');
    fresh = await mesh.coldStart();
    return mixed(mesh.known, fresh, fresh).length === 0;
  });
  return fresh;
}
