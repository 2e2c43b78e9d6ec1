import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { PROGRAM } from './program.ts';

const MAIN = fileURLToPath(new URL('../../../src/cli/main.ts', import.meta.url));

/**
 * Before the tests: bundles `src` into {@link PROGRAM}, which takes a fifth of a second. A process that compiles `src` at its
 * start uses twice as much processor time, each time. If the program is unchanged, nothing is written.
 */
export async function setup(): Promise<void> {
  const folder = dirname(PROGRAM);
  const { outputFiles } = await build({
    ...{ entryPoints: [MAIN], outdir: folder, write: false },
    // In chunks, because a command loads only some of them; packages are not bundled.
    ...{ bundle: true, splitting: true, packages: 'external' },
    ...{ platform: 'node', format: 'esm', target: 'node20' },
  });
  const isThere = ({ path, contents }: { readonly path: string; readonly contents: Uint8Array }): boolean =>
    existsSync(path) && readFileSync(path).equals(contents);
  if (outputFiles.every(isThere)) return;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const { path, contents } of outputFiles) writeFileSync(path, contents);
}
