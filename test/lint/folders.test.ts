import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';

const REPO = new URL('../..', import.meta.url).pathname;
const MAX_FILES = 25;
const MAX_LINES = 60;

interface Folder {
  readonly path: string;
  readonly files: readonly string[];
}

/** Returns the folder `path` of the repository, and the folders below it. */
function foldersBelow(path: string): Folder[] {
  const entries = readdirSync(join(REPO, path), { withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => entry.name);
  const folders = entries.filter((entry) => entry.isDirectory());
  return [{ path, files }, ...folders.flatMap((entry) => foldersBelow(join(path, entry.name)))];
}

/** Returns the READMEs that may name the files of `folder`: its own, and those of the folders above it in `src`. */
function readmesOf(folder: string): string[] {
  if (folder === 'src') return [];
  const readme = join(folder, 'README.md');
  return [...(existsSync(join(REPO, readme)) ? [readme] : []), ...readmesOf(dirname(folder))];
}

/**
 * True if `readme` names `path` in a drawing or in backticks: the file, its name without `.ts`, a pattern such as
 * `parse-*`, or its folder.
 */
function names(readme: string, path: string): boolean {
  const code = readFileSync(join(REPO, readme), 'utf8').match(/```[\s\S]*?```|`[^`\n]+`/g) ?? [];
  const spans = code.flatMap((text) => text.match(/[\w./*-]+/g) ?? []);
  const below = relative(dirname(readme), path);
  return spans.some((span) => {
    if (span.endsWith('/')) return below.startsWith(span);
    const name = span.includes('/') ? below : basename(below);
    const pattern = span.replace(/\.ts$/, '').replaceAll('.', '\\.').replaceAll('*', '[^/]+');
    return new RegExp(`^${pattern}$`).test(name.replace(/\.ts$/, ''));
  });
}

const SOURCES = foldersBelow('src');

describe('the folders', () => {
  it('hold at most 25 files directly', () => {
    const large = [...SOURCES, ...foldersBelow('test')].filter(({ files }) => files.length > MAX_FILES);
    expect(large.map(({ path }) => path)).toEqual([]);
  });

  it('have a README of at most 60 lines', () => {
    const folders = SOURCES.filter(({ path }) => dirname(path) === 'src').map(({ path }) => path);
    expect(folders.filter((folder) => !existsSync(join(REPO, folder, 'README.md')))).toEqual([]);
    const readmes = SOURCES.filter(({ files }) => files.includes('README.md')).map(({ path }) => path);
    const lines = (path: string): number =>
      readFileSync(join(REPO, path, 'README.md'), 'utf8')
        .trimEnd()
        .split('\n').length;
    expect(readmes.filter((path) => lines(path) > MAX_LINES)).toEqual([]);
  });

  it('name each of their files in a README', () => {
    const unnamed = SOURCES.filter(({ path }) => path !== 'src').flatMap(({ path, files }) =>
      files
        .filter((file) => file.endsWith('.ts'))
        .map((file) => join(path, file))
        .filter((file) => !readmesOf(path).some((readme) => names(readme, file))),
    );
    expect(unnamed).toEqual([]);
  });
});
