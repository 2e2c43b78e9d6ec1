import { isDeepStrictEqual } from 'node:util';
import { Command, InvalidArgumentError, Option } from 'commander';
import { InputError } from '../agent/input-error.ts';
import { printable } from '../agent/terminal.ts';
import { showValue } from '../base/show-value.ts';
import type { ConfigFile } from './config-file.ts';
import { addDatapathOptions, type DatapathFlags, datapathContradiction } from './datapath-options.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import { addMeshOptions, contradiction, type MeshFlags, parsePath } from './mesh-options.ts';
import { type OperatorFlags, operatorContradiction } from './operator-options.ts';
import { addServeOptions, addStateOptions, type ServeFlags, serveProblems } from './serve-options.ts';
import { environmentValue, misspelt, type Setting, settingsOf } from './settings.ts';

/** Everything that a file and the environment can say: the options of `dpcache agent`, but for those of the moment. */
export function agentSettings(): readonly Setting[] {
  return settingsOf(agentCommand().options);
}

function agentCommand(): Command {
  return addMeshOptions(addDatapathOptions(addStateOptions(addServeOptions(new Command()))));
}

/** The file that is named, if one is. */
function configPath(command: Command, { DPCACHE_CONFIG: named }: CommandIO['env']): string | undefined {
  const { config }: { config?: string } = command.opts();
  return config ?? (named || undefined);
}

/** Sets what the environment says and no flag does. What is wrong with it ends the command. */
function applyEnvironment(command: Command, settings: readonly Setting[], env: CommandIO['env']): void {
  for (const setting of settings) {
    const { attribute, variable } = setting;
    if (command.getOptionValueSource(attribute) === 'cli') continue;
    try {
      const said = environmentValue(setting, env);
      if (said !== undefined) command.setOptionValueWithSource(attribute, said.value, 'env');
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error;
      command.error(`error: ${variable} ${showValue(env[variable])}: ${error.message}`);
    }
  }
}

/** Sets what the file says and neither a flag nor the environment does. */
async function applyFile(
  command: Command,
  own: readonly Setting[],
  path: string,
  known: readonly Setting[],
): Promise<void> {
  const { loadConfig } = await import('./config-file.ts');
  const said = await loadConfig(path, known);
  for (const { attribute } of own) {
    const source = command.getOptionValueSource(attribute);
    if (attribute in said && source !== 'cli' && source !== 'env')
      command.setOptionValueWithSource(attribute, said[attribute], 'config');
  }
}

/** {@link addConfiguration} for a command whose file says its own options, and no agent's. */
export function addOwnConfiguration(command: Command, io: CommandIO): Command {
  return addConfiguration(command, io, () => settingsOf(command.options));
}

/**
 * Adds `--config` to a command, with the options of an agent unless it says which: before it runs, what its flags do not say is taken from the
 * environment, then from the file. What the settings say together must make sense.
 */
export function addConfiguration(
  command: Command,
  io: CommandIO,
  settings: () => readonly Setting[] = agentSettings,
): Command {
  return command
    .option(
      '--config <file>',
      'YAML with a key for each option (log-level: debug); flags and DPCACHE_LOG_LEVEL come before it',
      parsePath,
    )
    .hook('preAction', async () => {
      const known = settings();
      const options = new Set(command.options.map((option) => option.attributeName()));
      const own = known.filter(({ attribute }) => options.has(attribute));
      for (const why of misspelt(io.env, known)) io.stderr.write(`dpcache: ${why}\n`);
      applyEnvironment(command, own, io.env);
      const path = configPath(command, io.env);
      if (path !== undefined) await applyFile(command, own, path, known);
      const why =
        (options.has('kvstore') ? contradiction(command.opts()) : undefined) ??
        (options.has('datapath') ? datapathContradiction(command.opts()) : undefined) ??
        (options.has('deleteAllEndpoints') ? await operatorContradiction(command.opts()) : undefined);
      if (why === undefined) return;
      if (own.some(({ attribute }) => command.getOptionValueSource(attribute) === 'config'))
        throw new InputError(`--config ${path}: ${why}`);
      command.error(`error: ${why}`);
    });
}

/** Settings of an agent's file that are taken over while it runs. */
const CHANGEABLE: ReadonlySet<string> = new Set(['log-level', 'manifests', 'kvstore-opt']);

/**
 * Reads the file of a command anew, and sets what can change while an agent runs; gives the keys of what has changed and
 * cannot. Flags and the environment stay as they are. Throws `InputError`, and has set nothing, when the file is not right.
 */
export async function reloadConfiguration(
  command: Command,
  env: CommandIO['env'],
): Promise<readonly string[]> {
  const path = configPath(command, env);
  if (path === undefined) return [];
  const settings = agentSettings();
  const { loadConfig } = await import('./config-file.ts');
  const said = { ...agentCommand().opts(), ...(await loadConfig(path, settings)) };
  const changed = settings.filter(({ attribute }) => {
    const source = command.getOptionValueSource(attribute);
    return (
      source !== 'cli' &&
      source !== 'env' &&
      !isDeepStrictEqual(said[attribute], command.getOptionValue(attribute))
    );
  });
  const changes = changed.filter(({ key }) => CHANGEABLE.has(key));
  const now = Object.fromEntries(changes.map(({ attribute }) => [attribute, said[attribute]]));
  const why = contradiction({ ...command.opts(), ...now });
  if (why !== undefined) throw new InputError(`--config ${path}: ${why}`);
  for (const { attribute } of changes) command.setOptionValueWithSource(attribute, said[attribute], 'config');
  return changed.map(({ key }) => key).filter((key) => !CHANGEABLE.has(key));
}

/** The commands that run with a `--config` of their own. */
const CONFIGURED = ['agent', 'operator', 'kvstoremesh'] as const;

/** What of an agent's file cannot be together: a sentence each. */
async function agentProblems(values: ConfigFile['values']): Promise<readonly string[]> {
  const flags: MeshFlags & ServeFlags & DatapathFlags = { ...agentCommand().opts(), ...values };
  return [contradiction(flags) ?? [], datapathContradiction(flags) ?? [], await serveProblems(flags)].flat();
}

/** What of an operator's file, or a kvstoremesh's, cannot be together. */
async function processProblems(process: Command, values: ConfigFile['values']): Promise<readonly string[]> {
  const flags: OperatorFlags = { ...process.opts(), ...values };
  const why = process.name() === 'operator' ? await operatorContradiction(flags) : undefined;
  return [why ?? [], await serveProblems(flags)].flat();
}

/** `dpcache config`. */
export function addConfigCommand(program: Command, io: CommandIO, run: RunAction): void {
  program
    .command('config')
    .description('files for --config')
    .command('check')
    .description(
      'everything that is wrong with a file for --config, each with key, value and what is allowed',
    )
    .argument('<file>', 'the file', parsePath)
    .addOption(new Option('--of <command>', 'whose file it is').choices(CONFIGURED).default('agent'))
    .action((path: string, { of }: { of: (typeof CONFIGURED)[number] }) =>
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
            : await (isAgent ? agentProblems(values) : processProblems(process, values));
        for (const problem of all) io.stderr.write(`${path}: ${printable(problem)}\n`);
        if (all.length > 0) return EXIT.failed;
        io.stdout.write(`${path}: nothing is wrong with it\n`);
        return EXIT.ok;
      }),
    );
}
