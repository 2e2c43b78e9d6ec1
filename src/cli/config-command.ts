import { type Command, Option } from 'commander';
import { printable, writeLines } from '../process/terminal.ts';
import type { SettingsFile } from './config-file.ts';
import { addConfiguration, agentCommand, agentSettings } from './configuration.ts';
import { type DatapathFlags, datapathContradiction } from './datapath-options.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import { contradiction, type MeshFlags } from './mesh-options.ts';
import { type OperatorFlags, operatorContradiction } from './operator-options.ts';
import { addHelp, outputOption, parsePath } from './option-table.ts';
import {
  addSocketOption,
  type ServeFlags,
  type SocketFlags,
  serveProblems,
  serveSource,
  socketAdvice,
  socketPath,
} from './serve-options.ts';
import { settingsOf } from './settings.ts';

/** The commands with their own `--config`. */
const CONFIGURABLE = ['agent', 'operator', 'kvstoremesh'] as const;

/**
 * Returns one sentence for each contradiction in the file of an agent. If there are none, returns one for each problem
 * of the files that the file names.
 */
async function agentProblems(
  values: SettingsFile['values'],
  readsFiles: boolean,
): Promise<readonly string[]> {
  const flags: MeshFlags & ServeFlags & DatapathFlags = { ...agentCommand().opts(), ...values };
  const contradictions = [
    contradiction(flags) ?? [],
    datapathContradiction(flags) ?? [],
    await serveProblems(flags),
  ].flat();
  return contradictions.length > 0 || !readsFiles ? contradictions : fileProblems(flags);
}

/** Like {@link agentProblems}, for the file of an operator or a kvstoremesh. */
async function processProblems(
  process: Command,
  values: SettingsFile['values'],
  readsFiles: boolean,
): Promise<readonly string[]> {
  const flags: OperatorFlags & Partial<MeshFlags> = { ...process.opts(), ...values };
  const contradicts = process.name() === 'operator' ? await operatorContradiction(flags) : undefined;
  const contradictions = [contradicts ?? [], await serveProblems(flags)].flat();
  return contradictions.length > 0 || !readsFiles ? contradictions : fileProblems(flags);
}

async function fileProblems(flags: Partial<MeshFlags> & ServeFlags): Promise<readonly string[]> {
  const { namedFileProblems } = await import('../process/named-files.ts');
  return namedFileProblems({ ...flags, serve: serveSource(flags) });
}

interface CheckFlags {
  readonly of: (typeof CONFIGURABLE)[number];
  readonly files: boolean;
  readonly output: 'text' | 'json';
}

/** Adds `dpcache config`. */
export function addConfigCommand(program: Command, io: CommandIO, run: RunAction): void {
  const config = program
    .command('config')
    .description('check configuration files, and print the settings of a running process');
  addShowCommand(config, io, run);
  config
    .command('check')
    .description('list all errors of a configuration file, and of the files that it names')
    .argument('<file>', 'the configuration file', parsePath)
    .addOption(
      new Option('--of <command>', 'command that reads the file').choices(CONFIGURABLE).default('agent'),
    )
    .option('--no-files', 'do not check the files that it names, for example if they are on another machine')
    .addOption(outputOption())
    .action((path: string, { of, files, output }: CheckFlags) =>
      run(async () => {
        const { readConfig } = await import('./config-file.ts');
        const process = program.commands.find((command) => command.name() === of);
        const isAgent = of === 'agent' || process === undefined;
        const { values, problems } = await readConfig(
          path,
          isAgent ? agentSettings() : settingsOf(process.options),
        );
        const all =
          problems.length > 0
            ? problems
            : await (isAgent ? agentProblems(values, files) : processProblems(process, values, files));
        if (output === 'json') {
          const document = { file: path, valid: all.length === 0, problems: all.map(printable) };
          io.stdout.write(`${JSON.stringify(document, null, 1)}\n`);
        } else if (all.length === 0) io.stdout.write(`${path}: valid\n`);
        else for (const problem of all) io.stderr.write(`${path}: ${printable(problem)}\n`);
        return all.length > 0 ? EXIT.failed : EXIT.ok;
      }),
    );
}

interface ShowFlags extends SocketFlags {
  readonly output: 'text' | 'json';
}

function addShowCommand(config: Command, io: CommandIO, run: RunAction): void {
  const command = config
    .command('show')
    .description('print the settings that a running process uses, and where each was set')
    .addOption(outputOption())
    .action((flags: ShowFlags) =>
      run(async () => {
        const { askAgent } = await import('../client/ask-agent.ts');
        const { askSettings } = await import('../client/settings-answers.ts');
        const view = { wide: false, width: io.stdout.columns };
        const path = socketPath(flags, io.env);
        const { json, lines } = await askAgent(
          path,
          ({ ask }) => askSettings(ask, view),
          io.signal,
          socketAdvice(),
        );
        const text = flags.output === 'json' ? [JSON.stringify(json, null, 1)] : lines;
        writeLines(io.stdout, text.map((line) => `${line}\n`).join(''));
        return EXIT.ok;
      }),
    );
  const help =
    'Durations are in milliseconds, that of kvstore-lease-ttl in seconds; sizes are in bytes. --socket names an ' +
    'operator or a kvstoremesh.';
  addConfiguration(addSocketOption(addHelp(command, 'after', help)), io);
}
