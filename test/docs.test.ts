import { readdirSync, readFileSync } from 'node:fs';
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

const SOURCES = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.ts') || path.endsWith('.md'))
  .map((path) => ({ path, text: textOf(join('src', path)) }));

/** Every place that a pattern names, with who names it; a comment may break a line in between. */
function cited(pattern: RegExp): readonly { readonly path: string; readonly what: string }[] {
  return SOURCES.flatMap(({ path, text }) =>
    [...text.replaceAll(/\n\s*\*? ?/g, ' ').matchAll(pattern)].map(([, what = '']) => ({ path, what })),
  );
}

describe('what the sources cite', () => {
  it('is a section of the rules', () => {
    const sections = new Set(
      headings('SEMANTICS').map((heading) => heading.split(' ')[0]?.replace(/\.$/, '')),
    );
    const citations = cited(/SEMANTICS (\d+(?:\.\d+)?)/g);
    expect(citations.length).toBeGreaterThan(40);
    expect(citations.filter(({ what }) => !sections.has(what))).toEqual([]);
  });

  it.each(['WIRE', 'ETCD'])('is a heading of %s', (name) => {
    const known = new Set(headings(name));
    const citations = cited(new RegExp(`${name}(?:\\.md)?, "([^"]+)"`, 'g'));
    expect(citations.length).toBeGreaterThan(0);
    expect(citations.filter(({ what }) => !known.has(what))).toEqual([]);
  });
});
