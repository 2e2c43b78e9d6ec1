import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const REPO = fileURLToPath(new URL('../../', import.meta.url));
const ROOTS = ['src', 'test', 'bench', 'scripts', 'ui', 'examples'];
const MAX_COLUMNS = 120;

/** A line that is a comment, or ends with one. In scripts of the shell, `#` begins a comment. */
const COMMENT = /^\s*(\/\/|\/?\*|#)|[^\s:] \/\/ /;

it('no comment is wider than 120 columns', () => {
  const wide = ROOTS.flatMap((root) =>
    readdirSync(`${REPO}${root}`, { recursive: true, encoding: 'utf8' })
      .filter((path) => /\.(ts|tsx|mjs|c|h|go|sh)$/.test(path) && !path.includes('node_modules'))
      .flatMap((path) =>
        readFileSync(`${REPO}${root}/${path}`, 'utf8')
          .split('\n')
          .flatMap((line, i) =>
            line.length > MAX_COLUMNS && COMMENT.test(line) ? [`${root}/${path}:${i + 1}`] : [],
          ),
      ),
  );
  expect(wide).toEqual([]);
});
