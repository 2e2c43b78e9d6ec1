import { describe, expect, it } from 'vitest';
import { parseCommandLine } from './command-line.ts';
import type { Equivalent } from './equivalents.ts';
import { describeMutant, type Mutant } from './mutant.ts';
import { scoreOf } from './score.ts';

const survivor: Mutant = {
  status: 'Survived',
  file: 'src/net/port.ts',
  lineNumber: 3,
  line: 'if (a < b) return;',
  original: 'a < b',
  replacement: 'a <= b',
};
const listed: Equivalent = {
  file: survivor.file,
  line: survivor.line,
  original: survivor.original,
  replacements: [survivor.replacement],
  reason: 'a is never b',
};

describe('the score of a mutation run', () => {
  it('is what was detected of all that is not equivalent', () => {
    const killed: Mutant = { ...survivor, replacement: 'true', status: 'Killed' };
    const unseen: Mutant = { ...survivor, replacement: 'false', status: 'NoCoverage' };
    const score = scoreOf([survivor, killed, { ...killed, status: 'Ignored' }, unseen], [listed]);
    expect(score).toMatchObject({ mutants: 3, killed: 1, equivalent: 1, survivors: [unseen], percent: 50 });
    expect(score.stale).toEqual([]);
  });

  it('counts time-outs, and files that could not be loaded, as detected', () => {
    const results = [
      { ...survivor, status: 'Timeout' as const },
      { ...survivor, status: 'RuntimeError' as const },
    ];
    expect(scoreOf(results, [])).toMatchObject({ killed: 1, timeout: 1, percent: 100 });
  });

  it('names each equivalent that is detected, or not there any more', () => {
    const [stale] = scoreOf([{ ...survivor, status: 'Killed' }], [listed]).stale;
    expect(stale).toBe('src/net/port.ts: if (a < b) return;: a < b → a <= b');
    expect(scoreOf([], [listed]).stale).toHaveLength(1);
  });
});

describe('a mutant', () => {
  it('is shown with what it replaces, on one line', () => {
    const location = { start: { line: 2, column: 12 }, end: { line: 4, column: 2 } };
    const result = { id: '1', mutatorName: 'BlockStatement', status: 'Survived' as const, replacement: '{}' };
    const source = 'first\n  if (one) {\n    two();\n}\nlast';
    expect(describeMutant({ ...result, fileName: '/a.ts', location }, 'a.ts', source)).toEqual({
      status: 'Survived',
      file: 'a.ts',
      lineNumber: 2,
      line: 'if (one) {',
      original: '{ two(); }',
      replacement: '{}',
    });
  });
});

describe('the command line of mutate', () => {
  it.each([
    [[], "unknown room ''"],
    [['cli'], "unknown room 'cli'"],
    [['net', 'src/identity/labels.ts'], 'src/identity/labels.ts: not in src/net/'],
    [['net', '--runs', '0'], '--concurrency and --runs take a number above 0'],
  ])('%j is refused', (words, reason) => {
    expect(() => parseCommandLine(words)).toThrow(reason);
  });
});
