import { fileURLToPath } from 'node:url';
import { runCommand } from '../../../src/cli/program.ts';

/** What a command has left behind. */
export interface CommandResult {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The path of a file that ships in `examples/`. */
export function example(name: string): string {
  return fileURLToPath(new URL(`../../../examples/${name}`, import.meta.url));
}

/** The recorded mesh as its cluster `atlantic` sees it. */
export const ATLANTIC: readonly string[] = ['--cluster', 'atlantic', '--load', example('mesh.jsonl')];

/** Runs a command in this process, as `main.ts` would in its own. */
export async function dpcache(...words: readonly string[]): Promise<CommandResult> {
  const written = { stdout: '', stderr: '' };
  const output = (name: keyof typeof written): { write: (text: string) => void } => ({
    write: (text) => {
      written[name] += text;
    },
  });
  const status = await runCommand(words, {
    stdout: output('stdout'),
    stderr: output('stderr'),
    env: {},
    signal: new AbortController().signal,
  });
  return { status, ...written };
}
