import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import type { TestProject } from 'vitest/node';
import { PROGRAM } from './program.ts';

const MAIN = fileURLToPath(new URL('../../../src/cli/main.ts', import.meta.url));

/** Packages that read other files of their folder, or whose modules import each other in a circle. */
const EXTERNAL = ['koffi', 'etcd3', '@grpc/grpc-js', 'yaml'];

/** Packages in the CommonJS format call `require` for modules of Node. */
const REQUIRE =
  "import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);";

/**
 * Before the tests: bundles `src` into {@link PROGRAM}, which takes half a second. A process that compiles `src` at its
 * start uses twice as much processor time, each time. If the program is unchanged, nothing is written. Vitest calls
 * this for each project that inherits the option, and once for the configuration itself.
 */
export async function setup(project: TestProject): Promise<void> {
  if (!project.isRootProject()) return;
  const folder = dirname(PROGRAM);
  const { outputFiles } = await build({
    entryPoints: [MAIN],
    outdir: folder,
    write: false,
    // In chunks, because a command loads only some of them. With its packages, because each start would read hundreds
    // of their files.
    ...{ bundle: true, splitting: true, external: EXTERNAL },
    platform: 'node',
    format: 'esm',
    target: 'node20',
    banner: { js: REQUIRE },
  });
  const isThere = ({ path, contents }: { readonly path: string; readonly contents: Uint8Array }): boolean =>
    existsSync(path) && readFileSync(path).equals(contents);
  if (outputFiles.every(isThere)) return;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const { path, contents } of outputFiles) writeFileSync(path, contents);
}
