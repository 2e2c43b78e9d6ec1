import type { Command } from 'commander';
import type { Ask } from '../../api/api-client.ts';
import type { DiffReport, TableOperand } from '../../sysdump/compare-with-agent.ts';
import { type CommandIO, EXIT, type RunAction } from '../io.ts';
import { outputOption, parsePath } from '../option-table.ts';

interface DiffFlags {
  readonly output: 'text' | 'json';
  readonly tokenFile?: string;
}

/** Returns the socket of an operand `unix:PATH`. */
function socketOf(text: string): string | undefined {
  return text.startsWith('unix:') && text.length > 5 ? text.slice(5) : undefined;
}

function isOrigin(text: string): boolean {
  return /^https?:\/\/[^/@?#]+\/?$/.test(text) && URL.canParse(text);
}

/** Returns requests to the agent of an operand; undefined if it is not an agent. */
async function askOf(text: string, token: string | undefined, signal: AbortSignal): Promise<Ask | undefined> {
  const { ApiClient, askOrigin } = await import('../../api/api-client.ts');
  const socket = socketOf(text);
  if (socket !== undefined) return new ApiClient(socket, signal).ask;
  if (!isOrigin(text)) return undefined;
  return askOrigin(text, token, signal);
}

async function tokenOf(file: string): Promise<string> {
  const { readRegularFile } = await import('../../base/regular-file.ts');
  const { unreadable } = await import('../../process/input-error.ts');
  const text = await readRegularFile(file).catch((cause: unknown) => {
    throw unreadable('--token-file', file, cause);
  });
  return text.toString('utf8').trim();
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
      'compare the state of a running agent with that of another one, or with a table of Cilium; exit with status 1 if they differ',
    )
    .argument('<agent>', 'unix:SOCKET or https://HOST:PORT of a running agent')
    .argument(
      '<other>',
      'unix:SOCKET or https://HOST:PORT of another agent, cilium:SOCKET of a Cilium agent, bpf:PATH of a pinned ipcache, or a file with the output of ip list -n -o json, bpf ipcache list, service list -o json or node list -o json',
    )
    .addOption(outputOption())
    .option('--token-file <file>', 'token for agents over TCP', parsePath)
    .action((agent: string, other: string, { output, tokenFile }: DiffFlags) =>
      run(async () => {
        const { ApiError } = await import('../../api/api-client.ts');
        const { InputError } = await import('../../process/input-error.ts');
        const { writeLines } = await import('../../process/terminal.ts');
        const token = tokenFile === undefined ? undefined : await tokenOf(tokenFile);
        // Such a text is not repeated, because it may have a password.
        if ([agent, other].some((text) => /^https?:/.test(text) && !isOrigin(text)))
          return command.error(
            'dpcache: invalid URL of an agent: it must be https://HOST:PORT without user, path or query',
          );
        const ask = await askOf(agent, token, io.signal);
        if (ask === undefined)
          return command.error(
            `dpcache: invalid agent '${agent}': it must be unix:SOCKET or https://HOST:PORT`,
          );
        const askOther = await askOf(other, token, io.signal);
        const compare = async (): Promise<DiffReport> => {
          if (askOther === undefined) {
            const { compareWithTable } = await import('../../sysdump/compare-with-agent.ts');
            return compareWithTable(ask, tableOf(other), { signal: io.signal });
          }
          const { diffAgents, diffLines } = await import('../../client/agent-diff.ts');
          const json = await diffAgents(ask, askOther);
          return { json, lines: diffLines(json), differences: json.writers.length + json.notCompared };
        };
        const report = await compare().catch((cause: unknown) => {
          throw cause instanceof ApiError ? new InputError(cause.message, { cause }) : cause;
        });
        const lines = output === 'json' ? [JSON.stringify(report.json, null, 1)] : report.lines;
        writeLines(io.stdout, `${lines.join('\n')}\n`);
        return report.differences === 0 ? EXIT.ok : EXIT.failed;
      }),
    );
}
