import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { UIFile } from '../api/routes/ui-routes.ts';
import { unreadable } from './input-error.ts';

const FILES = [
  ['index.html', 'text/html'],
  ['page.css', 'text/css'],
  ['page.js', 'text/javascript'],
] as const;

/**
 * Returns the folder of the built page: beside the built agent, or the last build if the agent runs from its sources.
 */
function pageFolder(): URL {
  const beside = new URL('../ui/', import.meta.url);
  return existsSync(new URL('page.js', beside)) ? beside : new URL('../../dist/ui/', import.meta.url);
}

/** Returns the files of the page. Throws `InputError` if it has not been built. */
export function readPageFiles(): Promise<readonly UIFile[]> {
  const from = pageFolder();
  return Promise.all(
    FILES.map(async ([name, type]) => {
      const path = new URL(name, from);
      const text = await readFile(path, 'utf8').catch((cause: unknown) => {
        throw unreadable('--ui: the page is not built: run npm run build:', path.pathname, cause);
      });
      return { name, type, text };
    }),
  );
}
