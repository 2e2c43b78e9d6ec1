import type { Command } from 'commander';
import { AgentError, isUnservedSocket } from '../api/api-client.ts';
import type { Answer, Question } from '../client/answer.ts';
import { InputError } from '../process/input-error.ts';
import { addQueryCommand } from './configuration.ts';
import { addPinOptions, type DatapathFlags, DEFAULT_PIN_FOLDER } from './datapath-options.ts';
import {
  type CommandIO,
  EXIT,
  type ExitStatus,
  type OutputFormat,
  type RunAction,
  writeAnswer,
} from './io.ts';
import { addHelp } from './option-table.ts';
import { askProcess, type SocketFlags, socketPath } from './serve-options.ts';

interface KernelFlags extends SocketFlags, Pick<DatapathFlags, 'datapathPins' | 'datapathCgroup'> {
  readonly output: OutputFormat;
}

const HELP =
  'status exits with 1 if a requested part does not run or reports a problem, or if a table is unread or degraded; ' +
  'diff, if there is a difference; ' +
  'clean, if an item could not be removed: stderr names it.';

/** Adds `dpcache datapath`. */
export function addDatapathCommands(program: Command, io: CommandIO, run: RunAction): void {
  const datapath = program
    .command('datapath')
    .description('compare the kernel of this machine with the caches');
  addHelp(datapath, 'after', HELP);
  const command = (name: string, description: string): Command =>
    addQueryCommand(datapath, io, name, description);
  const ask = (flags: KernelFlags, question: Question): Promise<Answer> =>
    askProcess(flags, io, (client) => question(client.ask, { wide: false, width: io.stdout.columns }));
  const show = (answer: Answer, { output }: KernelFlags): ExitStatus => {
    writeAnswer(io.stdout, output, answer);
    return answer.succeeded ? EXIT.ok : EXIT.failed;
  };
  const loadAnswers = () => import('../client/datapath-answers.ts');
  /** Throws `InputError` if a running agent uses the pins of a folder. */
  const checkUnused = async (flags: KernelFlags, pinFolder: string): Promise<void> => {
    const { askUsesPins } = await loadAnswers();
    const usage = await ask(flags, askUsesPins(pinFolder)).catch((error: unknown) => {
      if (isUnserved(error)) return undefined;
      throw error;
    });
    if (usage === undefined || !usage.succeeded) return;
    const { pid } = usage.json as { readonly pid: number };
    throw new InputError(
      `the agent with pid ${pid} uses this datapath and would write everything again: stop the agent first`,
    );
  };

  addPinOptions(
    command(
      'status',
      'print which parts run, what the others require, and how full the maps are; if no agent runs, print what could run',
    ),
  ).action((flags: KernelFlags) =>
    run(async () => {
      const { askDatapathStatus, hostAnswer } = await loadAnswers();
      try {
        return show(await ask(flags, askDatapathStatus), flags);
      } catch (error) {
        if (!isUnserved(error)) throw error;
        const { probeHost, readHost } = await import('../datapath/linux/probe.ts');
        const { datapathPins: pinFolder = DEFAULT_PIN_FOLDER, datapathCgroup: cgroup } = flags;
        const reason = `No agent is running at ${socketPath(flags, io.env)}`;
        return show(hostAnswer(probeHost(readHost(), { pinFolder, cgroup }), reason), flags);
      }
    }),
  );
  command('diff', 'list the differences between the kernel and the caches').action((flags: KernelFlags) =>
    run(async () => show(await ask(flags, (await loadAnswers()).askDatapathDiff), flags)),
  );
  command('repair', 'repair the differences: make the kernel equal to the caches').action(
    (flags: KernelFlags) =>
      run(async () => show(await ask(flags, (await loadAnswers()).askDatapathRepair), flags)),
  );
  addPinOptions(
    command(
      'clean',
      'remove all maps, programs, routes, rules and tunnels of dpcache from the kernel, if no agent uses them',
    ),
  ).action((flags: KernelFlags) =>
    run(async () => {
      const { datapathPins: pinFolder = DEFAULT_PIN_FOLDER } = flags;
      await checkUnused(flags, pinFolder);
      const { cleanHost } = await import('../datapath/linux/clean-host.ts');
      const outcome = cleanHost(pinFolder);
      for (const reason of outcome.remaining) io.stderr.write(`dpcache: not removed: ${reason}\n`);
      return show((await loadAnswers()).cleanAnswer(outcome), flags);
    }),
  );
}

/** Returns true if no process serves the socket, so no agent is running. Other errors do not prove this. */
function isUnserved(error: unknown): boolean {
  return (
    error instanceof InputError && error.cause instanceof AgentError && isUnservedSocket(error.cause.cause)
  );
}
