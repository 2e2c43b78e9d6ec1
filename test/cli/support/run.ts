import { fileURLToPath } from 'node:url';
import { runCommand } from '../../../src/cli/program.ts';

/** The result of a command. */
export interface CommandResult {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Returns the path of a file in `examples/`. */
export function example(name: string): string {
  return fileURLToPath(new URL(`../../../examples/${name}`, import.meta.url));
}

/**
 * Options for the recorded mesh in its cluster `atlantic`, which a busy machine may read for longer than the default
 * time.
 */
export const ATLANTIC: readonly string[] = [
  ...['--cluster', 'atlantic', '--load', example('mesh.jsonl'), '--timeout', '10m'],
];

/** Lines of the log about a slow start, which a busy machine causes. */
const SLOW_START = /^warn {2}.*: (?:no progress for 15 s(?:: .*)?|done after \d+ ms)\n/gm;

/** Standard input that has ended. */
export async function* nothing(): AsyncGenerator<string> {}

/** Runs a command in this process, like `main.ts` in a separate one. */
export function dpcache(...words: readonly string[]): Promise<CommandResult> {
  return runIn({}, nothing(), words);
}

/** Like {@link dpcache}, with standard input. */
export function dpcacheReading(
  stdin: AsyncIterable<string>,
  ...words: readonly string[]
): Promise<CommandResult> {
  return runIn({}, stdin, words);
}

/** Like {@link dpcache}, with an environment. */
export function dpcacheWith(
  env: Readonly<Record<string, string>>,
  ...words: readonly string[]
): Promise<CommandResult> {
  return runIn(env, nothing(), words);
}

async function runIn(
  env: Readonly<Record<string, string>>,
  stdin: AsyncIterable<string>,
  words: readonly string[],
): Promise<CommandResult> {
  const written = { stdout: '', stderr: '' };
  const output = (name: keyof typeof written): { write: (text: string) => void } => ({
    write: (text) => {
      written[name] += text;
    },
  });
  const status = await runCommand(words, {
    stdout: output('stdout'),
    stderr: output('stderr'),
    stdin,
    env,
    signal: new AbortController().signal,
  });
  return { status, ...written, stderr: written.stderr.replace(SLOW_START, '') };
}
