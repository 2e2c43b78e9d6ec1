import { Command, CommanderError } from 'commander';
import { errorCode, messageOf } from '../base/failure.ts';
import { isoTime } from '../base/system-clock.ts';
import { InputError } from '../process/input-error.ts';
import { printableLines, withLocalTimes } from '../process/terminal.ts';
import { version } from '../process/version.ts';
import { addAgentCommand } from './agent-command.ts';
import { addCompletionCommand } from './completion-command.ts';
import { addConfigCommand } from './config-command.ts';
import { addDatapathCommands } from './datapath-command.ts';
import { addBundleCommand } from './diagnose/bundle-command.ts';
import { addDiffCommand } from './diagnose/diff-command.ts';
import { addSysdumpCommand } from './diagnose/sysdump-command.ts';
import { addTapeCommands } from './diagnose/tape-command.ts';
import { addWhatIfCommands } from './diagnose/whatif-command.ts';
import { type CommandIO, EXIT, type ExitStatus, type RunAction } from './io.ts';
import { addKvstoreMeshCommand } from './kvstoremesh-command.ts';
import type { LogFlags } from './mesh-options.ts';
import { addMonitorCommand } from './monitor-command.ts';
import { addOperatorCommand } from './operator-command.ts';
import { addHelp } from './option-table.ts';
import { addQuestionCommands } from './questions/question-commands.ts';
import { addRecordCommand } from './record-command.ts';
import { addRestoreCommand } from './restore-command.ts';

const EXIT_STATUSES =
  'Exit status: 0 if the command succeeds (rejected items are reported on stderr); 1 if an input cannot be read, a ' +
  'cluster is incomplete, the requested object does not exist, or a comparison or check found a difference or an ' +
  'error; 2 if the command line or the environment is invalid; 3 if the change of whatif would lose a prefix, a ' +
  'service, or the last backend of a service.';

/**
 * Adds the required options to the usage. Shows only one line of usage after an error, so that the error stays visible.
 */
function addUsage(command: Command, parents: string): void {
  const name = `${parents}${command.name()}`;
  const required = command.options.filter(({ mandatory }) => mandatory).map(({ flags }) => `${flags} `);
  command.usage(`${required.join('')}${command.usage()}`);
  command.showHelpAfterError(`Usage: ${name} ${command.usage()}\nTry '${name} --help'.`);
  for (const child of command.commands) addUsage(child, `${name} `);
}

function createProgram(io: CommandIO, run: RunAction): Command {
  const program = new Command('dpcache')
    .description('cache the IPs, services and nodes of a cluster mesh, and query them')
    .version(version(), '-V, --version')
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      outputError: (text, write) => write(text.replace(/^error: /, 'dpcache: ')),
    });
  addHelp(program, 'afterAll', EXIT_STATUSES);
  addAgentCommand(program, io, run);
  addQuestionCommands(program, io, run);
  addMonitorCommand(program, io, run);
  addWhatIfCommands(program, io, run);
  addBundleCommand(program, io, run);
  addDatapathCommands(program, io, run);
  addOperatorCommand(program, io, run);
  addKvstoreMeshCommand(program, io, run);
  addRecordCommand(program, io, run);
  addTapeCommands(program, io, run);
  addRestoreCommand(program, io, run);
  addDiffCommand(program, io, run);
  addSysdumpCommand(program, io, run);
  addConfigCommand(program, io, run);
  addCompletionCommand(program, io, run);
  addUsage(program, '');
  return program;
}

/** Returns the message of a failure that is not a bug; undefined for a bug. */
function failureText(error: unknown): string | undefined {
  // Loading a command opens all its modules at the same time.
  if (errorCode(error) === 'EMFILE')
    return `${messageOf(error)}: raise the limit of open files (ulimit -n) to 1024`;
  return error instanceof InputError ? error.message : undefined;
}

/**
 * Runs the command with the arguments `words` (without the name of the program) and resolves to its exit status. Errors
 * are written to stderr. Rejects only because of a bug.
 */
export async function runCommand(words: readonly string[], io: CommandIO): Promise<ExitStatus> {
  let status: ExitStatus = EXIT.ok;
  let command: Command | undefined;
  const program = createProgram(io, async (action) => {
    status = await action();
  });
  program.hook('preAction', (_program, called) => {
    command = called;
  });
  try {
    await program.parseAsync(words, { from: 'user' });
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    const message = failureText(error);
    if (message === undefined) throw error;
    // A log collector cannot parse a line of text. The logger is not loaded, because this opens files.
    if (command?.opts<Partial<LogFlags>>().logFormat === 'json')
      io.stderr.write(`${JSON.stringify({ level: 'error', time: isoTime(Date.now()), msg: message })}\n`);
    // Escaped, because the message may quote files and servers.
    else io.stderr.write(`dpcache: ${printableLines(withLocalTimes(message))}\n`);
    return EXIT.failed;
  }
  return status;
}
