import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

function textOf(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** Headings of a document, without their marks. */
function headings(name: string): readonly string[] {
  return [...textOf(`docs/${name}.md`).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading);
}

/** `1 to 3, 5` as 1, 2, 3, 5. */
function rulesOf(list: string): readonly number[] {
  return list.split(/, | and /).flatMap((range) => {
    const [first = 0, last = first] = range.split(' to ').map(Number);
    return Array.from({ length: last - first + 1 }, (_, at) => first + at);
  });
}

interface TextFile {
  readonly path: string;
  readonly text: string;
}

function textFiles(folder: string): readonly TextFile[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts') || path.endsWith('.md'))
    .map((path) => ({ path: join(folder, path), text: textOf(join(folder, path)) }));
}

const SOURCES = textFiles('src');
const TESTS = textFiles('test');
const DOCUMENTS = [
  ...['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md'].map((path) => ({ path, text: textOf(path) })),
  ...readdirSync(join(ROOT, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => ({ path: `docs/${name}`, text: textOf(`docs/${name}`) })),
];

/** Joins lines: a comment may break a line within a citation. */
function onOneLine(text: string): string {
  return text.replaceAll(/\n\s*\*? ?/g, ' ');
}

/** Returns every cited path and its citing file. */
function cited(pattern: RegExp): readonly { readonly path: string; readonly what: string }[] {
  return SOURCES.flatMap(({ path, text }) =>
    [...onOneLine(text).matchAll(pattern)].map(([, what = '']) => ({ path, what })),
  );
}

/** The targets of links to a document: the headings as GitHub names them, and explicit anchors. */
function anchors(text: string): ReadonlySet<string> {
  const slugs = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
  return new Set([...slugs, ...Array.from(text.matchAll(/<a id="([^"]+)">/g), ([, id = '']) => id)]);
}

describe('a relative link', () => {
  it('names an existing file, and an anchor of it', () => {
    const dead = [...SOURCES.filter(({ path }) => path.endsWith('.md')), ...DOCUMENTS].flatMap((document) =>
      Array.from(document.text.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)]+))?\)/g)).flatMap(
        ([, file = '', anchor]) => {
          const path = file === '' ? document.path : join(document.path, '..', file);
          const isDead =
            !existsSync(join(ROOT, path)) || (anchor !== undefined && !anchors(textOf(path)).has(anchor));
          return isDead ? [`${document.path}: ${file}#${anchor ?? ''}`] : [];
        },
      ),
    );
    expect(dead).toEqual([]);
  });
});

describe('the glossary', () => {
  const glossary = textOf('docs/GLOSSARY.md');
  const texts = [...SOURCES, ...DOCUMENTS.filter(({ path }) => path !== 'docs/GLOSSARY.md')];

  it('contains each term once, and none that is not used', () => {
    const words = Array.from(glossary.matchAll(/^\| \*\*([^|]+)\*\* \|/gm), ([, word = '']) => word);
    expect(words.length).toBeGreaterThan(40);
    expect(words).toEqual([...new Set(words)]);
    const used = texts.map(({ text }) => onOneLine(text)).join(' ');
    expect(words.filter((word) => !used.toLowerCase().includes(word))).toEqual([]);
  });

  it('is followed: replaced terms are not used', () => {
    const replaced =
      /\b(in force|heed(ed|s)?|twins?|rivals?|uncover(s|ed)?|nobody|is told|are told|was told)\b/gi;
    const uses = texts.flatMap(({ path, text }) =>
      (text.match(replaced) ?? []).map((word) => `${path}: ${word}`),
    );
    expect(uses).toEqual([]);
  });
});

describe('the table of sizes', () => {
  it('has the figures of the bench of an agent', () => {
    const cells = (line: string): readonly string[] => line.split('|').map((cell) => cell.trim());
    const [, section = ''] = /^## agent\n([\s\S]*?)^## /m.exec(textOf('bench/RESULTS.md')) ?? [];
    const head = cells(/^\| prefixes, source .*$/m.exec(section)?.[0] ?? '');
    const columns = ['prefixes, source', 'peak memory', 'at rest', 'CPU at 1000 changes/s'];
    const measured = [...section.matchAll(/^\| [\d,]+ .*$/gm)].map(([line]) =>
      columns.map((name) => cells(line)[head.indexOf(name)]),
    );
    const [, sizing = ''] = /^## Sizing\n([\s\S]*?)^## /m.exec(textOf('docs/OPERATIONS.md')) ?? [];
    const shown = [...sizing.matchAll(/^\| [\d,]+ .*$/gm)].map(([line]) => cells(line).slice(1, 5));
    expect(measured.length).toBe(6);
    expect(shown).toEqual(measured);
  });
});

describe('a citation in the sources', () => {
  it('names a section of the rules', () => {
    const sections = new Set(
      headings('SEMANTICS').map((heading) => heading.split(' ')[0]?.replace(/\.$/, '')),
    );
    const citations = cited(/SEMANTICS (\d+(?:\.\d+)?)/g);
    expect(citations.length).toBeGreaterThan(40);
    expect(citations.filter(({ what }) => !sections.has(what))).toEqual([]);
  });

  it('names a rule of the operator', () => {
    const rules = new Set(
      [...textOf('docs/OPERATOR.md').matchAll(/^(\d+)\. /gm)].map(([, rule = '']) => rule),
    );
    const citations = cited(/OPERATOR (\d+)/g);
    expect(citations.length).toBeGreaterThan(10);
    expect(citations.filter(({ what }) => !rules.has(what))).toEqual([]);
  });

  it.each<[string, RegExp]>([
    ['KUBERNETES', /\b(?:KUBERNETES|K) (\d+(?:(?:, | to | and )\d+\b(?! [a-z]))*)/g],
    ['AGENT', /\b(?:AGENT|A) (\d+(?:(?:, | to | and )\d+\b(?! [a-z]))*)/g],
  ])('names a rule of %s, and each rule is cited in the sources or the tests', (name, pattern) => {
    const numbers = Array.from(textOf(`docs/${name}.md`).matchAll(/^(\d+)\. /gm), ([, rule]) => Number(rule));
    const named = [...SOURCES, ...TESTS].flatMap(({ text }) =>
      [...onOneLine(text).matchAll(pattern)].flatMap(([, list = '']) => rulesOf(list)),
    );
    expect(numbers.length).toBeGreaterThan(20);
    expect(numbers.filter((number) => !named.includes(number))).toEqual([]);
    expect(named.filter((number) => !numbers.includes(number))).toEqual([]);
  });

  it('names a document of which the numbers are checked', () => {
    const documents = readdirSync(join(ROOT, 'docs')).map((name) => name.replace(/\.md$/, ''));
    const numbered = new Set(['SEMANTICS', 'OPERATOR', 'KUBERNETES', 'AGENT']);
    const citations = cited(/\b([A-Z]{3,})(?:\.md)? \d/g).filter(({ what }) => documents.includes(what));
    expect(citations.length).toBeGreaterThan(100);
    expect(citations.filter(({ what }) => !numbered.has(what))).toEqual([]);
  });

  it('has a rule for each number of a list or a range', () => {
    const documents = new Map<string, ReadonlySet<string | undefined>>();
    for (const name of ['OPERATOR', 'KUBERNETES', 'AGENT'])
      documents.set(
        name,
        new Set(Array.from(textOf(`docs/${name}.md`).matchAll(/^(\d+)\. /gm), ([, rule]) => rule)),
      );
    const citations = cited(/\b((?:OPERATOR|KUBERNETES|AGENT) \d+(?:(?:, | to | and )\d+\b(?! [a-z]))+)/g);
    expect(citations.length).toBeGreaterThan(5);
    const missing = citations.flatMap(({ path, what }) => {
      const [name = '', ...numbers] = what.split(/, | to | and | /);
      return numbers
        .filter((number) => documents.get(name)?.has(number) !== true)
        .map(() => `${path}: ${what}`);
    });
    expect(missing).toEqual([]);
  });

  it.each(['WIRE', 'ETCD'])('is a heading of %s', (name) => {
    const known = new Set(headings(name));
    const citations = cited(new RegExp(`${name}(?:\\.md)?, "([^"]+)"`, 'g'));
    expect(citations.length).toBeGreaterThan(0);
    expect(citations.filter(({ what }) => !known.has(what))).toEqual([]);
  });
});
