import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseCommandLine } from './command-line.ts';
import { EQUIVALENTS, type Equivalent } from './equivalents.ts';
import { FOLDERS, testsOf } from './folders.ts';
import { describeMutant, type Mutant } from './mutant.ts';
import { scoreOf } from './score.ts';
import { operatorsOf, symbolAt } from './source-place.ts';

const survivor: Mutant = {
  status: 'Survived',
  file: 'src/net/port.ts',
  lineNumber: 3,
  symbol: 'Port.before',
  change: '_ < _ → _ <= _',
  original: 'a < b',
  replacement: 'a <= b',
};
const listed: Equivalent = {
  file: survivor.file,
  symbol: survivor.symbol,
  changes: [survivor.change],
  reason: 'a is never b',
};

describe('the score of a mutation run', () => {
  it('is the share of detected mutants among those that are not equivalent', () => {
    const killed: Mutant = { ...survivor, change: '_ < _ → true', status: 'Killed' };
    const unseen: Mutant = { ...survivor, change: '_ < _ → false', status: 'NoCoverage' };
    const score = scoreOf([survivor, killed, { ...killed, status: 'Ignored' }, unseen], [listed]);
    expect(score).toMatchObject({ mutants: 3, killed: 1, equivalent: 1, survivors: [unseen], percent: 50 });
    expect(score.stale).toEqual([]);
  });

  it('counts timeouts, and files that could not be loaded, as detected', () => {
    const results = [
      { ...survivor, status: 'Timeout' as const },
      { ...survivor, status: 'RuntimeError' as const },
    ];
    expect(scoreOf(results, [])).toMatchObject({ killed: 1, timeout: 1, percent: 100 });
  });

  it('names each equivalent that is detected, or that does not exist any more', () => {
    const [stale] = scoreOf([{ ...survivor, status: 'Killed' }], [listed]).stale;
    expect(stale).toBe('src/net/port.ts: Port.before: _ < _ → _ <= _');
    expect(scoreOf([], [listed]).stale).toHaveLength(1);
  });
});

const REPO = join(import.meta.dirname, '../..');

function symbolsOf(file: string): ReadonlySet<string> {
  const path = join(REPO, file);
  const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n') : [];
  return new Set(lines.map((_, index) => symbolAt(lines, index + 1)));
}

describe('the list of equivalent mutants', () => {
  it('names symbols that exist (regression: some had other names, so that their mutants counted as not detected)', () => {
    const files = new Map(EQUIVALENTS.map(({ file }) => [file, symbolsOf(file)]));
    const unknown = EQUIVALENTS.filter(({ file, symbol }) => files.get(file)?.has(symbol) !== true);
    expect(unknown.map(({ file, symbol }) => `${file}: ${symbol}`)).toEqual([]);
  });
});

describe('a mutant', () => {
  it('is printed with its replacement, on one line', () => {
    const location = { start: { line: 2, column: 12 }, end: { line: 4, column: 2 } };
    const result = { id: '1', mutatorName: 'BlockStatement', status: 'Survived' as const, replacement: '{}' };
    const source = 'function check(): void {\n  if (one) {\n    two();\n}\n}';
    expect(describeMutant({ ...result, fileName: '/a.ts', location }, 'a.ts', source)).toEqual({
      status: 'Survived',
      file: 'a.ts',
      lineNumber: 2,
      symbol: 'check',
      change: '{_();} → {}',
      original: '{ two(); }',
      replacement: '{}',
    });
  });
});

const SOURCE = `
export class Queue {
  readonly #ready: string[] = [];

  override async add(
    item: string,
  ): Promise<void> {
    const wait = () => {
      if (this.#isFull(item)) return;
    };
  }
}

const limitOf = (item: string): number => {
  return item.length;
};
`.split('\n');

describe('the place of a mutant', () => {
  it.each([
    [3, 'Queue.#ready'],
    [9, 'Queue.add'],
    [15, 'limitOf'],
    [1, ''],
  ])('in line %i is %s', (line, symbol) => {
    expect(symbolAt(SOURCE, line)).toBe(symbol);
  });

  it('is found again by its operators if anything is renamed', () => {
    expect(operatorsOf('left.size <= this.#bound // a\n && !gone?.(key)')).toBe('_ <= _ && !_?.(_)');
    expect(operatorsOf('other.size <= #most &&\n !lost?.(ended)')).toBe('_ <= _ && !_?.(_)');
    expect(operatorsOf("typeof ip === 'string' ? [a, 0x80] : undefined")).toBe(
      "typeof _ === 'string'? [_, 0x80]: undefined",
    );
  });
});

describe('the tests of a mutated folder', () => {
  it.each(Object.keys(FOLDERS))('in %s exist', (folder) => {
    expect(testsOf(folder)).not.toEqual([]);
  });

  it('include those in deeper folders, without tests of mutants or with a real etcd (regression: the first run failed)', () => {
    const tests = testsOf('kvstore');
    expect(tests).toContain('test/kvstore/watch/watch-laws.test.ts');
    expect(tests).toContain('test/kvstore/etcd/messages.test.ts');
    expect(tests.filter((file) => /watch-mutants|etcd-tls|chaos/.test(file))).toEqual([]);
  });
});

describe('the command line of mutate', () => {
  it.each([
    [[], "unknown folder ''"],
    [['cli'], "unknown folder 'cli'"],
    [['net', 'src/model/labels.ts'], 'src/model/labels.ts: not in src/net/'],
    [['net', '--runs', '0'], '--concurrency and --runs take a number above 0'],
  ])('%j is rejected', (words, reason) => {
    expect(() => parseCommandLine(words)).toThrow(reason);
  });
});
