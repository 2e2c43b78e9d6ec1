import type { Command } from 'commander';
import type { TableOperand } from '../../sysdump/compare-with-agent.ts';
import { type CommandIO, EXIT, type RunAction } from '../io.ts';
import { outputOption } from '../option-table.ts';

interface DiffFlags {
  readonly output: 'text' | 'json';
}

/** Returns the socket of an operand `unix:PATH`. */
function socketOf(text: string): string | undefined {
  return text.startsWith('unix:') && text.length > 5 ? text.slice(5) : undefined;
}

/** Returns the table of an operand: `cilium:SOCKET`, `bpf:PATH`, or a file. */
function tableOf(text: string): TableOperand {
  for (const kind of ['cilium', 'bpf'] as const)
    if (text.startsWith(`${kind}:`)) return { kind, text, path: text.slice(kind.length + 1) };
  return { kind: 'file', text, path: text };
}

/** Adds `dpcache diff`. */
export function addDiffCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('diff')
    .description(
      'compare the state of a running agent with a table of Cilium; exit with status 1 if they differ',
    )
    .argument('<agent>', 'unix:SOCKET of a running agent')
    .argument(
      '<table>',
      'cilium:SOCKET of a Cilium agent, bpf:PATH of a pinned ipcache, or a file with the output of ip list -n -o json, bpf ipcache list, service list -o json or node list -o json',
    )
    .addOption(outputOption())
    .action((agent: string, table: string, { output }: DiffFlags) =>
      run(async () => {
        const socket = socketOf(agent) ?? '';
        if (socket === '') command.error(`dpcache: invalid agent '${agent}': it must be unix:SOCKET`);
        if (socketOf(table) !== undefined || /^https?:/.test(table))
          command.error(`dpcache: invalid table '${table}': it must be cilium:SOCKET, bpf:PATH or a file`);
        const { ApiClient, ApiError } = await import('../../api/api-client.ts');
        const { compareWithTable } = await import('../../sysdump/compare-with-agent.ts');
        const { InputError } = await import('../../process/input-error.ts');
        const { writeLines } = await import('../../process/terminal.ts');
        const { ask } = new ApiClient(socket, io.signal);
        const report = await compareWithTable(ask, tableOf(table), { signal: io.signal }).catch(
          (cause: unknown) => {
            throw cause instanceof ApiError ? new InputError(cause.message, { cause }) : cause;
          },
        );
        const lines = output === 'json' ? [JSON.stringify(report.json, null, 1)] : report.lines;
        writeLines(io.stdout, `${lines.join('\n')}\n`);
        return report.differences === 0 ? EXIT.ok : EXIT.failed;
      }),
    );
}
