import { type Command, Option } from 'commander';
import type { AgentOptions } from '../agent/options.ts';
import { addAgentOptions, addConfiguration, agentReloads, settingsInUse } from './configuration.ts';
import { type DatapathFlags, datapathOptions } from './datapath-options.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import {
  agentOptions,
  type FollowNothingFlags,
  type MeshFlags,
  openLog,
  sourceProblem,
} from './mesh-options.ts';
import { outputOption } from './option-table.ts';
import { type ServeFlags, type StateFlags, serveOptions } from './serve-options.ts';

interface AgentFlags extends MeshFlags, FollowNothingFlags, ServeFlags, StateFlags, DatapathFlags {
  readonly once?: true;
  readonly output: 'text' | 'json';
  readonly play?: string;
  readonly all?: true;
}

/** Adds `dpcache agent`. */
export function addAgentCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('agent')
    .description('follow a cluster mesh, and print its state and every change until interrupted')
    .option('--once', 'print the state after the initial sync, and exit')
    .addOption(outputOption('output format of --once'))
    .addOption(new Option('--play <file>', 'apply a script of changes (YAML)').conflicts('once'))
    .addOption(
      new Option('--all', 'print every change of a burst, not only the first ones').conflicts('once'),
    )
    .action((flags: AgentFlags) =>
      run(async () => {
        if (flags.output === 'json' && flags.once !== true) command.error('dpcache: -o json requires --once');
        const { isInCluster } = await import('../k8s/rest/in-cluster.ts');
        const reason = sourceProblem(flags, isInCluster({ env: io.env }));
        if (reason !== undefined) command.error(`dpcache: ${reason}`);
        if (flags.datapath !== undefined) {
          const { readHost } = await import('../datapath/linux/probe.ts');
          const { libraryProblem } = readHost();
          if (libraryProblem !== undefined) command.error(`dpcache: --datapath linux: ${libraryProblem}`);
        }
        const { followMesh, printState } = await import('../agent/run-agent.ts');
        const log = await openLog(flags, io);
        const context = { log, output: io.stdout, env: io.env, signal: io.signal };
        if (flags.once === true) {
          const complete = await printState(agentOptions(flags), flags.output, context);
          return complete ? EXIT.ok : EXIT.failed;
        }
        const { play: script, all = false } = flags;
        const quiet = flags.logFormat === 'json';
        const serve = await serveOptions(flags, io.env);
        const reload = agentReloads(command, io);
        const settings = await settingsInUse(command, io.env);
        const runOptions = { script, all, quiet, serve, reload, settings };
        await followMesh(longRunningOptions(flags), runOptions, context);
        return EXIT.ok;
      }),
    );
  addConfiguration(addAgentOptions(command), io);
}

/** Returns the options of an agent without `--once`, with its files and datapath. */
function longRunningOptions(flags: AgentFlags): AgentOptions {
  const { stateDir, importCiliumState, historyMemory, historyDisk, tape: path, tapeSize: maxBytes } = flags;
  const tape = path === undefined ? undefined : { path, maxBytes };
  const datapath = datapathOptions(flags);
  const files = { stateDir, importCiliumState, historyMemory, historyDisk, tape };
  return { ...agentOptions(flags), ...files, datapath };
}
