import { type Command, InvalidArgumentError } from 'commander';
import { CHANGE_TYPES } from '../api/change-types.ts';
import { addConfiguration } from './configuration.ts';
import { type CommandIO, EXIT, type OutputFormat, type RunAction } from './io.ts';
import { outputOption } from './option-table.ts';
import { addSocketOption, askProcess, type SocketFlags } from './serve-options.ts';

interface MonitorFlags extends SocketFlags {
  readonly type?: string;
  readonly from?: string;
  readonly output: OutputFormat;
}

function parseTypes(text: string): string {
  const isType = (word: string): boolean => CHANGE_TYPES.some((type) => type === word);
  if (text.split(',').every(isType)) return text;
  throw new InvalidArgumentError(
    `It must be one or more of ${CHANGE_TYPES.join(', ')}, separated by commas.`,
  );
}

function parseRevision(text: string): string {
  if (/^([0-9a-f-]{1,40}\.)?\d{1,15}$/.test(text)) return text;
  throw new InvalidArgumentError('It must be a revision or the id of an event.');
}

/** Adds `dpcache monitor`. */
export function addMonitorCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('monitor')
    .description('print every change of a running agent until interrupted')
    .option(
      '--type <types>',
      'only changes of these types: ip, service, node; separated by commas',
      parseTypes,
    )
    .option(
      '--from <revision>',
      'start after this revision of the agent (default: the current revision)',
      parseRevision,
    )
    .addOption(outputOption())
    .action(({ type, from, output, ...flags }: MonitorFlags) =>
      run(async () => {
        const { monitor } = await import('../client/monitor.ts');
        const context = { output: io.stdout, env: io.env, signal: io.signal };
        const options = { types: type, from, format: output };
        await askProcess(flags, io, (client) => monitor(client, options, context));
        if (io.signal.aborted) return EXIT.ok;
        io.stderr.write('dpcache: the agent has stopped\n');
        return EXIT.failed;
      }),
    );
  addConfiguration(addSocketOption(command), io);
}
