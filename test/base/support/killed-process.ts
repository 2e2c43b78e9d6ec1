import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { expect, onTestFinished } from 'vitest';

const CACHE = fileURLToPath(new URL('../../../node_modules/.cache', import.meta.url));

/**
 * Returns the path of a TypeScript program as one file, because it is started often. The file is in this package, so
 * that it finds its packages, and is removed after the test.
 */
export async function bundledScript(source: string): Promise<string> {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, `${basename(source, '.ts')}-`));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'script.mjs');
  const entryPoints = [source];
  await build({ entryPoints, outfile, bundle: true, platform: 'node', format: 'esm', logLevel: 'error' });
  return outfile;
}

/**
 * Runs a script and kills it `afterMs` after it has printed this number of lines. Returns its complete lines.
 */
export async function linesUntilKilled(
  script: string,
  words: readonly (string | number)[],
  { lines, afterMs }: { readonly lines: number; readonly afterMs: number },
): Promise<readonly string[]> {
  const child = spawn(process.execPath, [script, ...words.map(String)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let printed = '';
  child.stdout.on('data', (chunk: Buffer) => {
    printed += chunk.toString();
  });
  const exit = once(child, 'close');
  let hasEnded = false;
  void exit.then(() => {
    hasEnded = true;
  });
  while (!hasEnded && printed.split('\n').length <= lines)
    await Promise.race([once(child.stdout, 'data'), exit]);
  await new Promise((resolve) => setTimeout(resolve, afterMs));
  child.kill('SIGKILL');
  const [, signal] = await exit;
  expect(signal).toBe('SIGKILL');
  return printed.split('\n').slice(0, -1);
}
