import { Command, type Option } from 'commander';
import type { ListFormat } from '../../client/list.ts';
import { addConfiguration } from '../configuration.ts';
import type { CommandIO } from '../io.ts';
import { addLogOptions, addMeshOptions, type MeshFlags, namesSource } from '../mesh-options.ts';
import { addHelp } from '../option-table.ts';
import { addSocketOption, type SocketFlags } from '../serve-options.ts';

/** Flags of a question to an agent. */
export interface QuestionFlags extends MeshFlags, SocketFlags {
  readonly output: ListFormat;
  readonly quiet?: true;
  /**
   * Set by {@link addAskOptions}: true if options that name a source could be added, so that an agent is run for the
   * answer. False if an option such as `--watch` requires a running agent.
   */
  readonly canRunAgent?: boolean;
  /** Set by {@link addAskOptions}: true if an option names a source, so that an agent is run for the answer. */
  readonly runsAgent?: boolean;
}

/** Options for running agents only. */
const NEEDS_RUNNING: ReadonlySet<string | undefined> = new Set(['--at', '--watch']);

const SOURCES_HELP =
  'The running agent answers. If an option names a source, such as --load, --kvstore etcd or --kubeconfig, the command reads that source itself, without an agent. The other options below Sources, Kubernetes and Network require one of these.';

/** Adds the options that select the agent: a running one, or one run with the given sources for the answer. */
export function addAskOptions(command: Command, io: CommandIO): Command {
  const ownOptionCount = command.options.length;
  addMeshOptions(command);
  addHelp(command, 'after', SOURCES_HELP);
  const logOptions = new Set(addLogOptions(new Command()).options.map((option) => option.attributeName()));
  /** The options that only an agent with sources uses. The log options have an effect on every command. */
  const meshOptions = command.options
    .slice(ownOptionCount)
    .filter((option) => !logOptions.has(option.attributeName()));
  addSocketOption(command).hook('preAction', () => {
    // Only flags select sources: the environment and the configuration file belong to the running agent.
    const runsAgent = namesSource(command.opts());
    command.setOptionValue('runsAgent', runsAgent);
    const isSet = (option: Option): boolean => command.getOptionValueSource(option.attributeName()) === 'cli';
    const needsRunning = command.options.find((option) => NEEDS_RUNNING.has(option.long) && isSet(option));
    if (runsAgent && needsRunning !== undefined)
      command.error(
        `dpcache: ${needsRunning.long} requires a running agent: remove the options that name a source`,
      );
    command.setOptionValue('canRunAgent', needsRunning === undefined);
    const ignored = meshOptions.find(isSet);
    if (!runsAgent && ignored !== undefined) refuseMeshOption(command, ignored);
  });
  return addConfiguration(command, io);
}

/** Adds the options that select a running agent. */
export function addRunningAgentOptions(command: Command, io: CommandIO): Command {
  return addConfiguration(addSocketOption(command), io);
}

/** Rejects an option that only an agent with sources uses, because the running agent would ignore it (I12). */
function refuseMeshOption(command: Command, { long }: Option): never {
  const hasFilter = command.options.some((option) => option.long === '--of-cluster');
  const remedy = long === '--cluster' && hasFilter ? '; --of-cluster selects one cluster' : '';
  command.error(
    `dpcache: ${long} has no effect, because a running agent is asked: remove it, or add a source such as --load${remedy}`,
  );
}
