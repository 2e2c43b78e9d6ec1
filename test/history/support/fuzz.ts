import { crc32 } from 'node:zlib';
import { NewerVersionError } from '../../../src/history/disk/frames.ts';
import { readSegment } from '../../../src/history/disk/segment-file.ts';
import { recordAt } from '../../../src/history/records.ts';
import { DamagedError } from '../../../src/net/byte-buffer.ts';

/** Returns numbers from 0 to below 1 that depend on the seed only. */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Returns a copy with some bytes changed, or its end cut off. */
export function mutated(bytes: Uint8Array, next: () => number): Uint8Array {
  const length = next() < 0.2 ? Math.floor(next() * bytes.length) : bytes.length;
  const copy = new Uint8Array(bytes.subarray(0, length));
  for (let i = Math.floor(next() * 4); i >= 0 && copy.length > 0; i--)
    copy[Math.floor(next() * copy.length)] = Math.floor(next() * 256);
  return copy;
}

/** The result of reading a file. */
export type FuzzOutcome = 'complete' | 'torn' | 'damaged' | 'newer';

/**
 * Reads a file and all its records, and overwrites its bytes. `checked` false: checksums always match, so that the
 * readers see the damaged bytes. Throws if an error is not one that the readers promise.
 */
export function readAll(bytes: Uint8Array, checked: boolean): FuzzOutcome {
  // Equal for all bytes: the stored checksum is replaced by the one of the reader.
  const checksum = checked ? crc32 : (): number => FIXED_SUM;
  try {
    const steps = readSegment(bytes, checksum);
    let step = steps.next();
    while (step.done !== true) step = steps.next();
    const { segment, facts } = step.value;
    for (const { position, sequence, kind } of segment.newestHeads())
      if (kind !== 4) recordAt(segment, position, sequence, 0);
    return facts.torn ? 'torn' : 'complete';
  } catch (error) {
    if (error instanceof NewerVersionError) return 'newer';
    if (error instanceof DamagedError) return 'damaged';
    throw error;
  }
}

/** The checksum of files that are read without a check. */
export const FIXED_SUM = 0x5eed;
