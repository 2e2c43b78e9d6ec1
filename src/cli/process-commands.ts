import type { Command } from 'commander';
import type { Question } from '../client/answer.ts';
import { writeLines } from '../process/terminal.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import { outputOption } from './option-table.ts';
import { addSocketOption, type SocketFlags, socketAdvice, socketPath } from './serve-options.ts';

/** A process other than the agent, with its own socket. */
export interface AskedProcess {
  /** Name of its command: `kvstoremesh`. */
  readonly name: string;
  readonly socket: string;
  readonly question: () => Promise<Question>;
}

interface StatusFlags extends SocketFlags {
  readonly quiet?: true;
  readonly live?: true;
  readonly output: 'text' | 'json';
}

/** Adds `status` to the command of a process. */
export function addProcessStatus(
  parent: Command,
  { name, socket, question }: AskedProcess,
  io: CommandIO,
  run: RunAction,
): void {
  const command = parent
    .command('status')
    .description(`print the status of the running ${name}`)
    .addOption(outputOption())
    .option('-q, --quiet', 'print nothing; exit with status 0 if it is ready')
    .option('--live', 'exit with status 0 if it answers, even if it is not ready (for liveness probes)')
    .action((flags: StatusFlags) =>
      run(async () => {
        const { askAgent } = await import('../client/ask-agent.ts');
        const ask = await question();
        const view = { wide: false, width: io.stdout.columns };
        // The parent has the same option, and commander assigns it to the parent at any position.
        const path = socketPath({ ...flags, ...parent.opts<SocketFlags>() }, io.env, socket);
        const answer = await askAgent(path, (client) => ask(client.ask, view), io.signal, socketAdvice(name));
        const { json, lines, succeeded: isReady } = answer;
        const text = flags.output === 'json' ? [JSON.stringify(json, null, 1)] : lines;
        if (flags.quiet !== true) writeLines(io.stdout, text.map((line) => `${line}\n`).join(''));
        return isReady || flags.live === true ? EXIT.ok : EXIT.failed;
      }),
    );
  addSocketOption(command, name, socket);
}
