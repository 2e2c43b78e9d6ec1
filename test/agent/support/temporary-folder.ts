import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';
import { runFolder } from '../../base/support/run-folder.ts';

/** A folder with these files, removed when the test ends. Returns its path. */
export function temporaryFolder(files: Readonly<Record<string, string>>): string {
  const folder = runFolder('dpcache-');
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}
