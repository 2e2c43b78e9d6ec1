import { afterEach, describe, expect, it, vi } from 'vitest';

type Laws = typeof import('./support/lives.ts');
type Lives = typeof import('../../src/history/lives.ts');
type Filters = typeof import('../../src/history/key-filter.ts');
type Writers = typeof import('../../src/history/disk/segment-file.ts');

const LIVES = '../../src/history/lives.ts';
const FILTER = '../../src/history/key-filter.ts';
const FILE = '../../src/history/disk/segment-file.ts';

afterEach(() => {
  for (const path of [LIVES, FILTER, FILE]) vi.doUnmock(path);
  vi.resetModules();
});

/** Replaces exports of a module and returns the laws on top of it. */
async function lawsWith<T extends object>(path: string, mutant: (original: T) => Partial<T>): Promise<Laws> {
  vi.resetModules();
  vi.doMock(path, async (load) => {
    const original = (await load()) as T;
    return { ...original, ...mutant(original) };
  });
  return import('./support/lives.ts');
}

/** Enough for the mutant. */
const RUNS = 200;

describe('H2 detects a history that', () => {
  it('believes a change although later ones may be lost', async () => {
    const laws = await lawsWith<Lives>(LIVES, () => ({ isLostBetween: () => false }));
    await expect(laws.H2_aLossIsNotCertain()).rejects.toThrow();
  });

  it('stores a time after the one up to which its changes are complete', async () => {
    const laws = await lawsWith<Writers>(FILE, ({ recordsFrame }) => ({
      recordsFrame: (endMs, ...rest) => recordsFrame(endMs + 700, ...rest),
    }));
    await expect(laws.H2_aCertainAnswerIsRight(RUNS)).rejects.toThrow();
  });
});

it('H1 detects a filter that does not contain a key', async () => {
  const laws = await lawsWith<Filters>(FILTER, () => ({ mayContain: () => false }));
  await expect(laws.H1_theDiskHasWhatTheMemoryHasNot()).rejects.toThrow();
});

it('H1 detects a segment whose index was not written', async () => {
  const laws = await lawsWith<Writers>(FILE, ({ endFrame }) => ({
    endFrame: (segment, rest, checksum) =>
      endFrame(
        { index: () => ({ ...segment.index(), heads: new Int32Array(64).fill(-1) }) } as never,
        rest,
        checksum,
      ),
  }));
  await expect(laws.H1_theDiskHasWhatTheMemoryHasNot()).rejects.toThrow();
});
