import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { totalmem } from 'node:os';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import type { BenchOptions } from './catalog.ts';

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
export async function runBench(
  name: string,
  options: BenchOptions,
  stdout: 'inherit' | 'pipe',
): Promise<{ readonly status: number; readonly output: string }> {
  const flags = ['--expose-gc', `--max-old-space-size=${HEAP_MIB}`];
  const child = spawn(process.execPath, [...flags, SCRIPT, name, JSON.stringify(options)], {
    stdio: ['ignore', stdout, 'inherit'],
  });
  const exit = once(child, 'exit');
  const output = child.stdout === null ? '' : await text(child.stdout);
  const [code] = await exit;
  return { status: typeof code === 'number' ? code : 1, output };
}
