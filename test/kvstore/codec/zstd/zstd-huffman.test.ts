import { describe, expect, it } from 'vitest';
import { decompressZstd } from '../../../../src/kvstore/codec/zstd/zstd.ts';
import { readZstdFrame } from '../../../../src/kvstore/codec/zstd/zstd-frame.ts';
import { hasEndlessWeights } from '../../../../src/kvstore/codec/zstd/zstd-huffman.ts';
import { decodeWith } from '../../../../src/net/fields.ts';
import { seededRandom } from '../../chaos/support/seeded-random.ts';
import { zstdProgram } from '../support/slice-proto.ts';

/** A mutated slice on which fzstd 0.1.1 never ended. The zstd program rejects it, too: "Data corruption detected". */
const FOUND = `28b52ffd0468ad04005249211af0db01c330a81136977b87e5bb82c183e7ad3a3542872d2d280495e269a080bcbc1474d161b3e2655f
efe7a08d8e8a3d6eb8c22b8a3e29da92b4ad299a12e457b46ff74d1375fb7e938b27b9fb2baacfdb39cab625ff486f53db8a82d6cef8b280fc2af2fd
241abbff422cfabcdf9fbb3fc2e9a21947dae3cb44d3b2e73b2cc02191810e0400600005dd557225555f285035e9ed97`;

/** Returns a compressed block whose weights have the FSE table with these numbers, as [value, bits]. */
function block(
  format: number,
  accuracy: number,
  numbers: readonly (readonly [number, number])[],
): Uint8Array {
  const header = format < 2 ? 3 : format + 2;
  const bytes = new Uint8Array(header + 64);
  bytes[0] = 2 | (format << 2);
  bytes[header] = 40;
  bytes[header + 1] = accuracy - 5;
  let at = (header + 1) * 8 + 4;
  for (const [value, bits] of numbers)
    for (let i = 0; i < bits; i++, at++)
      bytes[at >> 3] = (bytes[at >> 3] ?? 0) | (((value >> i) & 1) << (at & 7));
  return bytes;
}

describe('a block whose Huffman weights have no end', () => {
  it('hung the decoder: a frame that a million mutations found', () => {
    const frame = Buffer.from(FOUND.replaceAll('\n', ''), 'hex');
    // Not decompressed first: without the check this would hang.
    const structure = decodeWith('k', () => readZstdFrame(frame));
    expect(structure).toMatchObject({ ok: false, rejection: { reason: 'invalid-zstd' } });
    expect(structure.ok || structure.rejection.message).toContain('invalid Huffman table');
  });

  it.each([0, 1, 2, 3])(
    'is found in literals of format %i, also after weights of probability 0',
    (format) => {
      for (const accuracy of [5, 6]) {
        const whole = [(1 << (accuracy + 1)) - 1, accuracy + 1] as const;
        const none = [1, accuracy] as const;
        expect(hasEndlessWeights(block(format, accuracy, [whole]))).toBe(true);
        expect(hasEndlessWeights(block(format, accuracy, [none, [0, 2], whole]))).toBe(true);
        expect(hasEndlessWeights(block(format, accuracy, [none, [3, 2], [3, 2], [1, 2], whole]))).toBe(true);
        // The table of repeats is longer than its size.
        expect(hasEndlessWeights(block(format, accuracy, [none, ...Array(200).fill([3, 2])]))).toBe(true);
        // A weight with almost the whole probability takes bits.
        expect(hasEndlessWeights(block(format, accuracy, [[(1 << (accuracy + 1)) - 2, accuracy + 1]]))).toBe(
          false,
        );
        expect(hasEndlessWeights(block(format, accuracy, [none, [0, 2], [2, accuracy]]))).toBe(false);
      }
    },
  );

  it('is none that the zstd program writes', () => {
    const random = seededRandom(1);
    for (let i = 0; i < 16; i++) {
      const letters = 2 + Math.floor(random() * 60);
      const content = Buffer.from(
        Array.from({ length: 200 + i * 60 }, () => 32 + Math.floor(random() * random() * letters)),
      );
      const steps = decompressZstd(zstdProgram([i % 2 === 0 ? '-1' : '-19'], content), undefined, null);
      let step = steps.next();
      while (!step.done) step = steps.next();
      expect(content.equals(step.value)).toBe(true);
    }
  });
});
