import { afterEach, describe, expect, it, vi } from 'vitest';

type Laws = typeof import('./support/lives.ts') &
  typeof import('./support/laws.ts') &
  typeof import('./support/visible-claims.ts');
type Codec = typeof import('../../src/history/claim-codec.ts');
type Lengths = typeof import('../../src/history/prefix-lengths.ts');
type Segments = typeof import('../../src/history/segment.ts');
type Logs = typeof import('../../src/history/change-log.ts');
type Gathered = typeof import('../../src/history/gathered-changes.ts');
type Clocks = typeof import('../../src/history/life-clock.ts');
type Lives = typeof import('../../src/history/lives.ts');
type Filters = typeof import('../../src/history/key-filter.ts');
type Writers = typeof import('../../src/history/disk/segment-file.ts');

const LIVES = '../../src/history/lives.ts';
const FILTER = '../../src/history/key-filter.ts';
const FILE = '../../src/history/disk/segment-file.ts';
const CODEC = '../../src/history/claim-codec.ts';
const LENGTHS = '../../src/history/prefix-lengths.ts';
const SEGMENT = '../../src/history/segment.ts';
const LOG = '../../src/history/change-log.ts';
const GATHERED = '../../src/history/gathered-changes.ts';
const CLOCK = '../../src/history/life-clock.ts';

afterEach(() => {
  for (const path of [LIVES, FILTER, FILE, CODEC, LENGTHS, SEGMENT, LOG, GATHERED, CLOCK]) vi.doUnmock(path);
  vi.resetModules();
});

/** Replaces exports of a module and returns the laws on top of it. */
async function lawsWith<T extends object>(path: string, mutant: (original: T) => Partial<T>): Promise<Laws> {
  vi.resetModules();
  vi.doMock(path, async (load) => {
    const original = (await load()) as T;
    return { ...original, ...mutant(original) };
  });
  return {
    ...(await import('./support/lives.ts')),
    ...(await import('./support/laws.ts')),
    ...(await import('./support/visible-claims.ts')),
  };
}

/** Enough for the mutant. */
const RUNS = 200;

describe('H2 detects a history that', () => {
  it('believes a change although later ones may be lost', async () => {
    const laws = await lawsWith<Lives>(LIVES, () => ({ isLostBetween: () => false }));
    await expect(laws.H2_aLossIsNotCertain()).rejects.toThrow();
  });

  it('lists visible claims although later changes may be missing', async () => {
    const laws = await lawsWith<Lives>(LIVES, () => ({ isUndoUncertain: () => false }));
    // With this seed, the eighth run fails. With the default one, the 86th fails, and each run makes 100,000 changes.
    await expect(laws.H2_visibleClaimsAreRight(RUNS, 15)).rejects.toThrow();
  });

  it('stores a time after the one up to which its changes are complete', async () => {
    const laws = await lawsWith<Writers>(FILE, ({ recordsFrame }) => ({
      recordsFrame: (endMs, ...rest) => recordsFrame(endMs + 700, ...rest),
    }));
    await expect(laws.H2_aCertainAnswerIsRight(RUNS)).rejects.toThrow();
  });

  it('believes the time between two comparisons of a clock that was set', async () => {
    const laws = await lawsWith<Clocks>(CLOCK, ({ LifeClock }) => {
      vi.spyOn(LifeClock.prototype, 'isUnclear').mockReturnValue(false);
      return {};
    });
    await expect(laws.H2_aCertainAnswerIsRight(RUNS)).rejects.toThrow();
  });
});

it('H1 detects changes that are not encoded before a question', async () => {
  const laws = await lawsWith<Gathered>(GATHERED, ({ GatheredChanges }) => {
    vi.spyOn(GatheredChanges.prototype, 'isEmpty', 'get').mockReturnValue(true);
    return {};
  });
  await expect(laws.H2_aCertainAnswerIsRight(RUNS)).rejects.toThrow();
});

it('H1 detects a filter that does not contain a key', async () => {
  const laws = await lawsWith<Filters>(FILTER, () => ({ mayContain: () => false }));
  await expect(laws.H1_theDiskHasWhatTheMemoryHasNot()).rejects.toThrow();
});

it('H1 detects a segment whose index was not written', async () => {
  const laws = await lawsWith<Writers>(FILE, ({ endFrame }) => ({
    endFrame: (segment, rest, checksum) =>
      endFrame(
        { index: () => ({ ...segment.index(), buckets: new Int32Array(64).fill(-1) }) } as never,
        rest,
        checksum,
      ),
  }));
  await expect(laws.H1_theDiskHasWhatTheMemoryHasNot()).rejects.toThrow();
});

it('H3 detects a record without one attribute of a claim', async () => {
  const laws = await lawsWith<Codec>(CODEC, ({ readClaim }) => ({
    readClaim: (...claim) => ({ ...readClaim(...claim), encryptKey: 0 }),
  }));
  await expect(laws.H3_undoingEndsAtTheStart(RUNS)).rejects.toThrow();
});

it('H4 detects a look-up that tries the longest prefix only', async () => {
  const laws = await lawsWith<Lengths>(LENGTHS, ({ covering }) => ({
    covering: (address, lengths) => covering(address, lengths.slice(0, 1)),
  }));
  expect(() => laws.H4_findsTheLongestPrefix(true, { numRuns: 60 })).toThrow();
});

it('H5 detects segments whose memory is not counted', async () => {
  const laws = await lawsWith<Segments>(SEGMENT, ({ Segment }) => {
    vi.spyOn(Segment.prototype, 'memory', 'get').mockReturnValue(0);
    return {};
  });
  expect(() => laws.H5_staysBelowItsMaximum()).toThrow();
});

it('H6 detects a history that fails a write', async () => {
  const laws = await lawsWith<Logs>(LOG, ({ ChangeLog }) => {
    vi.spyOn(ChangeLog.prototype, 'addClaim').mockImplementation(() => {
      throw new Error('no record');
    });
    return {};
  });
  expect(() => laws.H6_changesNoOutcome(RUNS)).toThrow();
});
