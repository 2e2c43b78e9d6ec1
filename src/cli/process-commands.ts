import type { Command } from 'commander';
import type { Question } from '../client/answer.ts';
import type { LogLevel } from '../process/log-options.ts';
import type { RunContext } from '../process/run-context.ts';
import type { RunOptions } from '../process/served-process.ts';
import { addConfiguration, logLevelReloads, settingsInUse } from './configuration.ts';
import { type CommandIO, EXIT, type OutputFormat, type RunAction, writeAnswer } from './io.ts';
import { addLogOptions, type LogFlags, openLog } from './mesh-options.ts';
import { outputOption } from './option-table.ts';
import {
  addListenOptions,
  addSocketOption,
  askProcess,
  type ServeFlags,
  type SocketFlags,
  serveOptions,
} from './serve-options.ts';
import { settingsOf } from './settings.ts';

/** A process other than the agent, with its own socket. */
export interface QueriedProcess {
  /** Name of its command: `kvstoremesh`. */
  readonly name: string;
  /** Default name of its socket: `kvstoremesh.sock`. */
  readonly socketName: string;
  /** Loads the question for the status of the process. */
  readonly loadStatusQuestion: () => Promise<Question>;
}

interface StatusFlags extends SocketFlags {
  readonly quiet?: true;
  readonly live?: true;
  readonly output: OutputFormat;
}

/** Returns the options and the context of the run of a process, for the flags of its command. */
export async function processRun(
  command: Command,
  flags: ServeFlags & LogFlags,
  { socketName }: QueriedProcess,
  io: CommandIO,
): Promise<readonly [RunOptions, RunContext]> {
  const serve = await serveOptions(flags, io.env, socketName);
  const settings = await settingsInUse(command, io.env);
  const reload = logLevelReloads(command, io);
  return [
    { serve, reload, settings },
    { log: await openLog(flags, io), signal: io.signal },
  ];
}

/** Adds the options of all processes, and the command `status`, to the command of a process. */
export function addProcessOptions(
  command: Command,
  process: QueriedProcess,
  io: CommandIO,
  run: RunAction,
  defaultLogLevel?: LogLevel,
): void {
  addListenOptions(command, process.socketName);
  addLogOptions(command, defaultLogLevel);
  addConfiguration(command, io, () => settingsOf(command.options));
  addProcessStatus(command, process, io, run);
}

function addProcessStatus(
  parent: Command,
  { name, socketName, loadStatusQuestion }: QueriedProcess,
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
        const ask = await loadStatusQuestion();
        const view = { wide: false, width: io.stdout.columns };
        // The parent has the same option, and commander assigns it to the parent at any position.
        const socketFlags = { ...flags, ...parent.opts<SocketFlags>() };
        const answer = await askProcess(socketFlags, io, (client) => ask(client.ask, view), name, socketName);
        if (flags.quiet !== true) writeAnswer(io.stdout, flags.output, answer);
        return answer.succeeded || flags.live === true ? EXIT.ok : EXIT.failed;
      }),
    );
  addSocketOption(command, name, socketName);
}
