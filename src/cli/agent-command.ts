import { type Command, Option } from 'commander';
import type { ReloadedSettings } from '../agent/reload.ts';
import { addConfiguration, reloadConfiguration } from './configuration.ts';
import { addDatapathOptions, type DatapathFlags, datapathOptions } from './datapath-options.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import { addMeshOptions, agentOptions, type MeshFlags } from './mesh-options.ts';
import {
  addServeOptions,
  addStateOptions,
  type ServeFlags,
  type StateFlags,
  serveOptions,
} from './serve-options.ts';

interface AgentFlags extends MeshFlags, ServeFlags, StateFlags, DatapathFlags {
  readonly once?: true;
  readonly output: 'text' | 'json';
  readonly play?: string;
  readonly all?: true;
}

/** `dpcache agent`. */
export function addAgentCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('agent')
    .description('follow a mesh and show what is where, and every change of it, until it is interrupted')
    .option('--once', 'print what is known once everything is synced, and end')
    .addOption(
      new Option('-o, --output <format>', 'with --once: a view for people, or JSON')
        .choices(['text', 'json'])
        .default('text'),
    )
    .addOption(new Option('--play <file>', 'play a script of changes (YAML)').conflicts('once'))
    .addOption(new Option('--all', 'show every change of a burst, not only the first ones').conflicts('once'))
    .action((flags: AgentFlags) =>
      run(async () => {
        if (flags.output === 'json' && flags.once !== true) command.error('error: -o json needs --once');
        if (flags.importCiliumState !== undefined && flags.stateDir === undefined)
          command.error('error: --import-cilium-state needs --state-dir, which keeps what was taken');
        const { createLog } = await import('../agent/log.ts');
        const { followMesh, printState } = await import('../agent/run-agent.ts');
        const log = createLog(flags.logLevel, flags.logFormat, io.stderr);
        const context = { log, output: io.stdout, env: io.env, signal: io.signal };
        if (flags.once === true) {
          const outcome = await printState(agentOptions(flags), flags.output, context);
          return outcome === 'complete' ? EXIT.ok : EXIT.failed;
        }
        const { play: script, all = false, stateDir, importCiliumState } = flags;
        const serve = await serveOptions(flags, io.env);
        const reload = io.onHangup && {
          subscribe: io.onHangup,
          read: async (): Promise<ReloadedSettings> => {
            const fixed = await reloadConfiguration(command, io.env);
            const { logLevel, manifests = [], kvstoreOpt: rateLimit }: AgentFlags = command.opts();
            return { logLevel, manifests, rateLimit, fixed };
          },
        };
        const datapath = datapathOptions(flags);
        const options = { ...agentOptions(flags), stateDir, importCiliumState, datapath };
        await followMesh(options, { script, all, serve, reload }, context);
        return EXIT.ok;
      }),
    );
  addServeOptions(command);
  addStateOptions(command);
  addDatapathOptions(command);
  addMeshOptions(command);
  addConfiguration(command, io);
}
