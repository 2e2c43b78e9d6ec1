import { type Command, Option } from 'commander';
import { assert } from '../base/assert.ts';
import { printable } from '../process/terminal.ts';
import { addQueryCommand, contradictions } from './configuration.ts';
import { type CommandIO, EXIT, type OutputFormat, type RunAction, writeAnswer } from './io.ts';
import type { MeshFlags } from './mesh-options.ts';
import { addHelp, outputOption, parsePath } from './option-table.ts';
import { askProcess, type ServeFlags, type SocketFlags, serveSource } from './serve-options.ts';
import { settingsOf } from './settings.ts';

/** The commands with their own `--config`. */
const CONFIGURABLE = ['agent', 'operator', 'kvstoremesh'] as const;

async function fileProblems(flags: Partial<MeshFlags> & ServeFlags): Promise<readonly string[]> {
  const { namedFileProblems } = await import('../process/named-files.ts');
  return namedFileProblems({ ...flags, serve: serveSource(flags) });
}

interface CheckFlags {
  readonly of: (typeof CONFIGURABLE)[number];
  readonly files: boolean;
  readonly output: OutputFormat;
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
        const target = program.commands.find((command) => command.name() === of);
        assert(target !== undefined, 'each configurable command exists');
        const { values, problems } = await readConfig('file', path, settingsOf(target.options));
        for (const [name, value] of Object.entries(values))
          target.setOptionValueWithSource(name, value, 'config');
        // A check runs only if the earlier ones have found nothing.
        let found = problems;
        if (found.length === 0) found = await contradictions(target);
        if (found.length === 0 && files) found = await fileProblems(target.opts());
        const isValid = found.length === 0;
        if (output === 'json') {
          const document = { file: path, valid: isValid, problems: found.map(printable) };
          io.stdout.write(`${JSON.stringify(document, null, 1)}\n`);
        } else if (isValid) io.stdout.write(`${path}: valid\n`);
        else for (const problem of found) io.stderr.write(`${path}: ${printable(problem)}\n`);
        return isValid ? EXIT.ok : EXIT.failed;
      }),
    );
}

interface ShowFlags extends SocketFlags {
  readonly output: OutputFormat;
}

function addShowCommand(config: Command, io: CommandIO, run: RunAction): void {
  const help =
    'Durations are in milliseconds (kvstore-lease-ttl: in seconds), sizes in bytes. To ask an operator or a ' +
    'kvstoremesh, set --socket to its socket.';
  const description = 'print the settings that a running process uses, and where each was set';
  addHelp(addQueryCommand(config, io, 'show', description), 'after', help).action((flags: ShowFlags) =>
    run(async () => {
      const { askSettings } = await import('../client/settings-answers.ts');
      const view = { wide: false, width: io.stdout.columns };
      const answer = await askProcess(flags, io, ({ ask }) => askSettings(ask, view));
      writeAnswer(io.stdout, flags.output, answer);
      return EXIT.ok;
    }),
  );
}
