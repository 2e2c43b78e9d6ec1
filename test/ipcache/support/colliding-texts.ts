import { mix } from '../../../src/columns/mix.ts';

/** Returns two numbers below 2^16 after which the upper halves of the hash are equal. */
function nearCollision(hash: number): readonly [number, number] {
  const known = new Map<number, number>();
  for (let word = 0x61; ; word++) {
    const other = known.get(mix(hash, word) >>> 16);
    if (other !== undefined) return [other, word];
    known.set(mix(hash, word) >>> 16, word);
  }
}

/** Returns 2^`pairs` texts of one length that have the same `hashText` with this seed. */
export function collidingTexts(seed: number, pairs: number): readonly string[] {
  let hash = seed;
  let texts = [''];
  for (let i = 0; i < pairs; i++) {
    const [first, second] = nearCollision(hash);
    const difference = mix(hash, first) ^ mix(hash, second);
    const ends = [String.fromCharCode(first, 0x61), String.fromCharCode(second, 0x61 ^ difference)];
    hash = mix(mix(hash, first), 0x61);
    texts = texts.flatMap((text) => ends.map((end) => text + end));
  }
  return texts;
}
