import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import type { BenchOptions } from './catalog.ts';

const SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM'];
const SCRIPT = fileURLToPath(new URL('./run-one.js', import.meta.url));
/**
 * Limit of the heap in MiB: most of the memory of the machine. The default of Node, 4 GiB, is too little for 10,000,000
 * entries.
 */
const HEAP_MIB: number = Math.floor((totalmem() / 2 ** 20) * 0.8);

/**
 * Runs one bench in a separate process, so that no bench is affected by the heap or compiled code of another one.
 * Returns its exit status and, if captured, its output.
 */
export function runBench(
  name: string,
  options: BenchOptions,
  stdout: 'inherit' | 'pipe',
): Promise<{ readonly status: number; readonly output: string }> {
  const flags = ['--expose-gc', `--max-old-space-size=${HEAP_MIB}`];
  return runNode([...flags, SCRIPT, name, JSON.stringify(options)], stdout);
}

/**
 * Runs Node with these words and a separate folder for temporary files. Removes the folder at the end, and after a
 * signal, which then ends this process.
 */
export async function runNode(
  words: readonly string[],
  stdout: 'inherit' | 'pipe',
): Promise<{ readonly status: number; readonly output: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'dpcache-bench-'));
  const child = spawn(process.execPath, words, {
    env: { ...process.env, TMPDIR: folder },
    stdio: ['ignore', stdout, 'inherit'],
  });
  let received: NodeJS.Signals | undefined;
  const stop = (signal: NodeJS.Signals): void => {
    received = signal;
    child.kill(signal);
  };
  for (const signal of SIGNALS) process.on(signal, stop);
  const exit = once(child, 'exit');
  const output = child.stdout === null ? '' : await text(child.stdout);
  const [code] = await exit;
  for (const signal of SIGNALS) process.off(signal, stop);
  remove(folder);
  if (received !== undefined) process.kill(process.pid, received);
  return { status: typeof code === 'number' ? code : 1, output };
}

/** Removes a folder, in which a killed bench may have left a mounted file system. */
function remove(folder: string): void {
  const mounts = existsSync('/proc/self/mounts') ? readFileSync('/proc/self/mounts', 'utf8') : '';
  for (const [, path = ''] of mounts.matchAll(/^\S+ (\S+) /gm))
    if (path.startsWith(`${folder}/`)) spawnSync('umount', ['-l', path]);
  rmSync(folder, { recursive: true, force: true });
}
