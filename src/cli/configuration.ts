import { isDeepStrictEqual } from 'node:util';
import { Command, InvalidArgumentError, Option } from 'commander';
import type { AgentSettings } from '../agent/run-agent.ts';
import { showValue } from '../base/show-value.ts';
import { InputError } from '../process/input-error.ts';
import type { ReloadedSettings, ReloadSource } from '../process/reload.ts';
import { printable } from '../process/terminal.ts';
import type { ConfigFile } from './config-file.ts';
import { addDatapathOptions, type DatapathFlags, datapathContradiction } from './datapath-options.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import {
  addFollowNothing,
  addMeshOptions,
  contradiction,
  type LogFlags,
  type MeshFlags,
} from './mesh-options.ts';
import { type OperatorFlags, operatorContradiction } from './operator-options.ts';
import { outputOption, parsePath } from './option-table.ts';
import {
  addListenOptions,
  addStateOptions,
  type ServeFlags,
  serveProblems,
  serveSource,
} from './serve-options.ts';
import { environmentValue, misspelt, type Setting, settingsOf } from './settings.ts';

/** Returns the settings of a file and the environment: all options of `dpcache agent` except those for a single run. */
export function agentSettings(): readonly Setting[] {
  return settingsOf(agentCommand().options);
}

function agentCommand(): Command {
  return addAgentOptions(new Command());
}

/** Adds the options of an agent that a file and the environment can set. */
export function addAgentOptions(command: Command): Command {
  return addMeshOptions(addFollowNothing(addDatapathOptions(addStateOptions(addListenOptions(command)))));
}

/** Returns the path of the configuration file, from `--config` or the environment. */
function configPath(command: Command, { DPCACHE_CONFIG: named }: CommandIO['env']): string | undefined {
  const { config }: { config?: string } = command.opts();
  return config ?? (named || undefined);
}

/** Sets the options that the environment contains and no flag sets. An invalid value ends the command. */
function applyEnvironment(command: Command, settings: readonly Setting[], env: CommandIO['env']): void {
  for (const setting of settings) {
    const { attribute, variable } = setting;
    if (command.getOptionValueSource(attribute) === 'cli') continue;
    try {
      const value = environmentValue(setting, env);
      if (value !== undefined) command.setOptionValueWithSource(attribute, value.value, 'env');
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error;
      command.error(`dpcache: ${variable} ${showValue(env[variable])}: ${error.message}`);
    }
  }
}

/** Sets the options that the file contains and neither a flag nor the environment sets. */
async function applyFile(
  command: Command,
  settings: readonly Setting[],
  path: string,
  known: readonly Setting[],
): Promise<void> {
  const { loadConfig } = await import('./config-file.ts');
  const value = await loadConfig(path, known);
  for (const { attribute } of settings) {
    const source = command.getOptionValueSource(attribute);
    if (attribute in value && source !== 'cli' && source !== 'env')
      command.setOptionValueWithSource(attribute, value[attribute], 'config');
  }
}

/** Calls {@link addConfiguration} for the command of another process than the agent, whose file contains its own options. */
export function addProcessConfiguration(command: Command, io: CommandIO): Command {
  return addConfiguration(command, io, () => settingsOf(command.options));
}

/**
 * Adds `--config` to a command. Before the command runs, options without a flag are set from the environment, then from the file.
 * The result must not contain contradictions. `settings`: the settings that the file may contain; default: those of an agent.
 */
export function addConfiguration(
  command: Command,
  io: CommandIO,
  settings: () => readonly Setting[] = agentSettings,
): Command {
  return command
    .option(
      '--config <file>',
      'YAML file with settings, named like the options (log-level: debug); flags and environment variables (DPCACHE_LOG_LEVEL) override it',
      parsePath,
    )
    .hook('preAction', async () => {
      const known = settings();
      const options = new Set(command.options.map((option) => option.attributeName()));
      const ofCommand = known.filter(({ attribute }) => options.has(attribute));
      for (const warning of misspelt(io.env, known)) io.stderr.write(`dpcache: ${warning}\n`);
      applyEnvironment(command, ofCommand, io.env);
      const path = configPath(command, io.env);
      if (path !== undefined) await applyFile(command, ofCommand, path, known);
      const reason =
        (options.has('kvstore') ? contradiction(command.opts()) : undefined) ??
        (options.has('datapath') ? datapathContradiction(command.opts()) : undefined) ??
        (options.has('deleteAllEndpoints') ? await operatorContradiction(command.opts()) : undefined);
      if (reason === undefined) return;
      if (ofCommand.some(({ attribute }) => command.getOptionValueSource(attribute) === 'config'))
        throw new InputError(`--config ${path}: ${reason}`);
      command.error(`dpcache: ${reason}`);
    });
}

/** The result of reading the configuration file again. */
interface Reloaded<F> extends Pick<ReloadedSettings, 'fixed'> {
  /** All options of the command, with the new values of the reloadable ones. */
  readonly flags: F;
}

/**
 * Reads the configuration file of a running command again. Flags and the environment still override it. `reloadable`: keys that may
 * change; `check` returns the contradiction between options, if any. Throws `InputError` if the file is invalid.
 */
async function readAgain<F extends object>(
  command: Command,
  env: CommandIO['env'],
  reloadable: readonly string[],
  check: (flags: F) => string | undefined,
): Promise<Reloaded<F>> {
  const path = configPath(command, env);
  if (path === undefined) return { flags: command.opts<F>(), fixed: [] };
  const settings = settingsOf(command.options);
  const { loadConfig } = await import('./config-file.ts');
  const values = { ...defaultsOf(command), ...(await loadConfig(path, settings)) };
  const changed = settings.filter(({ attribute }) => {
    const source = command.getOptionValueSource(attribute);
    const isOverridden = source === 'cli' || source === 'env';
    return !isOverridden && !isDeepStrictEqual(values[attribute], command.getOptionValue(attribute));
  });
  const changes = changed.filter(({ key }) => reloadable.includes(key));
  const now = Object.fromEntries(changes.map(({ attribute }) => [attribute, values[attribute]]));
  const flags = { ...command.opts<F>(), ...now };
  const reason = check(flags);
  if (reason !== undefined) throw new InputError(`--config ${path}: ${reason}`);
  return { flags, fixed: changed.map(({ key }) => key).filter((key) => !reloadable.includes(key)) };
}

function defaultsOf({ options }: Command): Readonly<Record<string, unknown>> {
  const fresh = new Command();
  for (const option of options) fresh.addOption(option);
  return fresh.opts();
}

/** Returns the reloads of an agent on SIGHUP: its log level, manifests and rates. Returns undefined if `io` has no `onHangup`. */
export function agentReloads(
  command: Command,
  { onHangup, env }: CommandIO,
): ReloadSource<AgentSettings> | undefined {
  return (
    onHangup && {
      subscribe: onHangup,
      read: async () => {
        const keys = ['log-level', 'manifests', 'kvstore-opt'];
        const { flags, ...reloaded } = await readAgain<MeshFlags>(command, env, keys, contradiction);
        const { logLevel, manifests = [], kvstoreOpt: rateLimit } = flags;
        return { logLevel, manifests, rateLimit, ...reloaded };
      },
    }
  );
}

/** Returns the reloads of an operator or a kvstoremesh on SIGHUP: its log level. */
export function processReloads(
  command: Command,
  { onHangup, env }: CommandIO,
): ReloadSource<ReloadedSettings> | undefined {
  return (
    onHangup && {
      subscribe: onHangup,
      read: async () => {
        const none = (): undefined => undefined;
        const { flags, ...reloaded } = await readAgain<LogFlags>(command, env, ['log-level'], none);
        return { logLevel: flags.logLevel, ...reloaded };
      },
    }
  );
}

/** The commands with their own `--config`. */
const CONFIGURED = ['agent', 'operator', 'kvstoremesh'] as const;

/**
 * Returns one sentence for each contradiction in the file of an agent. If there are none, returns one for each problem of the
 * files that the file names.
 */
async function agentProblems(values: ConfigFile['values'], readsFiles: boolean): Promise<readonly string[]> {
  const flags: MeshFlags & ServeFlags & DatapathFlags = { ...agentCommand().opts(), ...values };
  const reason = [
    contradiction(flags) ?? [],
    datapathContradiction(flags) ?? [],
    await serveProblems(flags),
  ].flat();
  return reason.length > 0 || !readsFiles ? reason : fileProblems(flags);
}

/** Like {@link agentProblems}, for the file of an operator or a kvstoremesh. */
async function processProblems(
  process: Command,
  values: ConfigFile['values'],
  readsFiles: boolean,
): Promise<readonly string[]> {
  const flags: OperatorFlags & Partial<MeshFlags> = { ...process.opts(), ...values };
  const contradicts = process.name() === 'operator' ? await operatorContradiction(flags) : undefined;
  const reason = [contradicts ?? [], await serveProblems(flags)].flat();
  return reason.length > 0 || !readsFiles ? reason : fileProblems(flags);
}

async function fileProblems(flags: Partial<MeshFlags> & ServeFlags): Promise<readonly string[]> {
  const { namedFileProblems } = await import('../process/named-files.ts');
  return namedFileProblems({ ...flags, serve: serveSource(flags) });
}

interface CheckFlags {
  readonly of: (typeof CONFIGURED)[number];
  readonly files: boolean;
  readonly output: 'text' | 'json';
}

/** Adds `dpcache config`. */
export function addConfigCommand(program: Command, io: CommandIO, run: RunAction): void {
  program
    .command('config')
    .description('check configuration files')
    .command('check')
    .description('list all errors of a configuration file, and of the files that it names')
    .argument('<file>', 'the configuration file', parsePath)
    .addOption(
      new Option('--of <command>', 'command that reads the file').choices(CONFIGURED).default('agent'),
    )
    .option('--no-files', 'do not check the files that it names, for example if they are on another machine')
    .addOption(outputOption())
    .action((path: string, { of, files, output }: CheckFlags) =>
      run(async () => {
        const { readConfig } = await import('./config-file.ts');
        const process = program.commands.find((command) => command.name() === of);
        const isAgent = of === 'agent' || process === undefined;
        const { values, problems } = await readConfig(
          path,
          isAgent ? agentSettings() : settingsOf(process.options),
        );
        const all =
          problems.length > 0
            ? problems
            : await (isAgent ? agentProblems(values, files) : processProblems(process, values, files));
        if (output === 'json') {
          const document = { file: path, valid: all.length === 0, problems: all.map(printable) };
          io.stdout.write(`${JSON.stringify(document, null, 1)}\n`);
        } else if (all.length === 0) io.stdout.write(`${path}: valid\n`);
        else for (const problem of all) io.stderr.write(`${path}: ${printable(problem)}\n`);
        return all.length > 0 ? EXIT.failed : EXIT.ok;
      }),
    );
}
