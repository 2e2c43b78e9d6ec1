import type { Command } from 'commander';
import { type CommandIO, EXIT, type OutputFormat, type RunAction, writeAnswer } from './io.ts';
import { outputOption, parsePath } from './option-table.ts';

/** Adds `dpcache restore`. */
export function addRestoreCommand(program: Command, io: CommandIO, run: RunAction): void {
  program
    .command('restore')
    .description('read the state directory of a Cilium agent')
    .command('inspect')
    .description(
      'print the endpoints (headers of 1.5 to 1.8, JSON of 1.17), nodes, local identities and used addresses in the state directory of a Cilium agent',
    )
    .argument('<folder>', 'state directory, such as /var/run/cilium/state, or its parent folder', parsePath)
    .addOption(outputOption())
    .action((folder: string, { output }: { readonly output: OutputFormat }) =>
      run(async () => {
        const { printable } = await import('../process/terminal.ts');
        const { readCiliumState, ciliumStateDocument, ciliumStateLines } = await import(
          '../agent/cilium-state.ts'
        );
        const state = ciliumStateDocument(await readCiliumState(folder));
        writeAnswer(io.stdout, output, { json: state, lines: ciliumStateLines(state) });
        for (const { file, message } of state.problems)
          io.stderr.write(`${printable(`${file}: ${message}`)}\n`);
        return EXIT.ok;
      }),
    );
}
