import { expect, it } from 'vitest';
import { decodeMutatedSlices } from '../kvstore/codec/support/mutated-slices.ts';

/** `SLICES_SEED` repeats the mutations of another run. */
const { SLICES_SEED = Math.floor(Math.random() * 2 ** 31) } = process.env;
const MIB = 1024 * 1024;

it('a million mutated slices are decoded or rejected with a documented reason, within 64 MiB', async () => {
  const { outcomes, mostBytes, keptBytes } = await decodeMutatedSlices(1_000_000, Number(SLICES_SEED));
  const [most, kept] = [mostBytes, keptBytes].map((bytes) => (bytes / MIB).toFixed(1));
  process.stdout.write(
    `seed ${SLICES_SEED}: ${JSON.stringify(outcomes)}; ${most} MiB at most, ${kept} MiB kept\n`,
  );
  expect(mostBytes).toBeLessThan(64 * MIB);
  expect(keptBytes).toBeLessThan(8 * MIB);
});
