import { expect, it } from 'vitest';
import { decodeMutatedSlices } from './support/mutated-slices.ts';

const MIB = 1024 * 1024;

it('2,000 mutated slices are decoded or rejected with a documented reason, within 64 MiB', async () => {
  const { outcomes, mostBytes } = await decodeMutatedSlices(2_000, 20_261_123);
  // Mutations reach the frame, the message and its fields.
  for (const outcome of ['accepted', 'invalid-zstd', 'invalid-protobuf', 'invalid-address', 'too-large'])
    expect(outcomes[outcome], outcome).toBeGreaterThan(5);
  expect(mostBytes).toBeLessThan(64 * MIB);
});
