import type { Command } from 'commander';
import type { AgentError, ApiOrigin, Ask } from '../../api/api-client.ts';
import { withLocalTimes } from '../../process/terminal.ts';
import type { ConnectionProblem } from '../../process/troubleshoot/connection-problem.ts';
import type { DiffReport, TableOperand } from '../../sysdump/compare-with-table.ts';
import { type CommandIO, EXIT, type OutputFormat, type RunAction, writeAnswer } from '../io.ts';
import { outputOption, parsePath } from '../option-table.ts';

interface DiffFlags {
  readonly output: OutputFormat;
  readonly tokenFile?: string;
  readonly caFile?: string;
}

/** The token that agents over TCP receive, and the CA that verifies them. */
type OriginCredentials = Pick<ApiOrigin, 'token' | 'ca'>;

/** Returns the socket of an operand `unix:PATH`; undefined for another operand. */
function socketOf(text: string): string | undefined {
  return text.startsWith('unix:') && text.length > 5 ? text.slice(5) : undefined;
}

function isOrigin(text: string): boolean {
  return /^https?:\/\/[^/@?#]+\/?$/.test(text) && URL.canParse(text);
}

const REMEDIES: Readonly<Partial<Record<ConnectionProblem, string>>> = {
  'unknown-ca': 'give the CA of the agent with --ca-file',
  expired: 'renew its certificate',
  'not-yet-valid': 'check the clocks of both machines',
  'other-name': 'use a host name of its certificate',
  'no-tls': 'use http:// if it serves no https',
  'unknown-host': 'check the host name',
  forbidden: 'run the command as the user of the agent',
};

/** Returns the remedy for a failed request; undefined if the message of the agent is sufficient. */
async function remedyOf(error: AgentError): Promise<string | undefined> {
  const { NoAnswerError } = await import('../../api/ask-in-time.ts');
  if (error instanceof NoAnswerError) return error.remedy;
  const { problem, cause } = error;
  if (problem !== undefined)
    return problem.status === 401 ? 'give the token of the agent with --token-file' : undefined;
  if (cause instanceof SyntaxError) return 'check the operand';
  const { connectionProblem } = await import('../../process/troubleshoot/connection-problem.ts');
  const failed =
    cause instanceof Error && 'code' in cause ? connectionProblem(String(cause.code)) : undefined;
  return (failed && REMEDIES[failed]) ?? 'check that this agent runs, and repeat the command';
}

/**
 * Returns the function that asks the agent of an operand; undefined if the operand is not an agent. The error of a
 * failed request names the operand and the remedy.
 */
async function askOf(
  text: string,
  credentials: OriginCredentials,
  signal: AbortSignal,
): Promise<Ask | undefined> {
  const { AgentError } = await import('../../api/api-client.ts');
  const { askInTime } = await import('../../api/ask-in-time.ts');
  const socket = socketOf(text);
  if (socket === undefined && !isOrigin(text)) return undefined;
  const ask = askInTime(socket ?? { origin: text, ...credentials }, signal);
  return async (path, body) => {
    try {
      return await ask(path, body);
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      const prefix = `${socket ?? text}: `;
      const reason = error.message.startsWith(prefix) ? error.message.slice(prefix.length) : error.message;
      const remedy = await remedyOf(error);
      const hint = remedy === undefined ? '' : `; ${remedy}`;
      throw new AgentError(`${text}: ${reason}${hint}`, error.problem, error.cause);
    }
  };
}

/** Returns the problem if the token would be sent in clear text to another machine. */
async function clearTextProblem(text: string, token: string | undefined): Promise<string | undefined> {
  if (token === undefined || !text.startsWith('http:')) return undefined;
  const { isLoopback } = await import('../../api/server/api-server.ts');
  if (isLoopback(new URL(text).hostname)) return undefined;
  return `dpcache: ${text}: the token would be sent in clear text: use https://, or run the command on that machine`;
}

/** Returns the text of the file of an option; undefined if the option is not set. */
async function fileText(option: string, file: string | undefined): Promise<string | undefined> {
  if (file === undefined) return undefined;
  const { readRegularFile } = await import('../../base/files/regular-file.ts');
  const { unreadable } = await import('../../process/input-error.ts');
  const text = await readRegularFile(file).catch((cause: unknown) => {
    throw unreadable(option, file, cause);
  });
  return text.toString('utf8');
}

/** Returns the table of an operand: `cilium:SOCKET`, `bpf:PATH`, or a file. */
function tableOf(text: string): TableOperand {
  for (const kind of ['cilium', 'bpf'] as const)
    if (text.startsWith(`${kind}:`)) return { kind, text, path: text.slice(kind.length + 1) };
  return { kind: 'file', text, path: text };
}

async function compareTable(ask: Ask, table: string, signal: AbortSignal): Promise<DiffReport> {
  const { compareWithTable } = await import('../../sysdump/compare-with-table.ts');
  return compareWithTable(ask, tableOf(table), { signal });
}

async function compareAgents(ask: Ask, askOther: Ask): Promise<DiffReport> {
  const { diffAgents } = await import('../../client/diff/agent-diff.ts');
  const { diffLines } = await import('../../client/diff/diff-lines.ts');
  const json = await diffAgents(ask, askOther);
  const { writers, notCompared, digestsOnly } = json;
  const differences = writers.length + notCompared + digestsOnly.length;
  return { json, lines: diffLines(json).map(withLocalTimes), differences };
}

/** Adds `dpcache diff`. */
export function addDiffCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('diff')
    .description(
      'compare the state of a running agent with that of another one, or with a table of Cilium; exit with status 1 if they differ',
    )
    .argument('<agent>', 'unix:SOCKET, https://HOST:PORT or http://HOST:PORT of a running agent')
    .argument(
      '<other>',
      'unix:SOCKET, https://HOST:PORT or http://HOST:PORT of another agent, cilium:SOCKET of a Cilium agent, bpf:PATH of a pinned ipcache, or a file with the output of cilium ip list -n -o json, bpf ipcache list, service list -o json or node list -o json',
    )
    .addOption(outputOption())
    .option('--token-file <file>', 'token for agents over TCP', parsePath)
    .option(
      '--ca-file <file>',
      'CA of the certificates of agents over https (PEM); default: the authorities of Node.js',
      parsePath,
    )
    .action((agent: string, other: string, { output, tokenFile, caFile }: DiffFlags) =>
      run(async () => {
        const { AgentError } = await import('../../api/api-client.ts');
        const { InputError } = await import('../../process/input-error.ts');
        const { tokenOf } = await import('../../process/serve-files.ts');
        const text = await fileText('--token-file', tokenFile);
        const token = text === undefined ? undefined : tokenOf(`--token-file ${tokenFile}`, text);
        const credentials = { token, ca: await fileText('--ca-file', caFile) };
        // The operand is not repeated in the message, because it may contain a password.
        if ([agent, other].some((text) => /^https?:/.test(text) && !isOrigin(text)))
          return command.error(
            'dpcache: invalid URL of an agent: it must be https://HOST:PORT or http://HOST:PORT without user, path or query',
          );
        for (const text of [agent, other]) {
          const problem = await clearTextProblem(text, token);
          if (problem !== undefined) return command.error(problem);
        }
        const ask = await askOf(agent, credentials, io.signal);
        if (ask === undefined)
          return command.error(
            `dpcache: invalid agent '${agent}': it must be unix:SOCKET, https://HOST:PORT or http://HOST:PORT`,
          );
        const askOther = await askOf(other, credentials, io.signal);
        const { asAnswerError } = await import('../../client/ask-agent.ts');
        const comparison =
          askOther === undefined ? compareTable(ask, other, io.signal) : compareAgents(ask, askOther);
        const report = await comparison.catch((cause: unknown) => {
          if (cause instanceof AgentError) throw new InputError(cause.message, { cause });
          throw asAnswerError(cause, `${agent}, ${other}`);
        });
        writeAnswer(io.stdout, output, report);
        return report.differences === 0 ? EXIT.ok : EXIT.failed;
      }),
    );
}
