import { isDeepStrictEqual } from 'node:util';
import { Command, InvalidArgumentError } from 'commander';
import type { ReloadedAgentSettings } from '../agent/run-agent.ts';
import type { SettingDocument, SettingsDocument } from '../api/routes/settings-routes.ts';
import { showValue } from '../base/show-value.ts';
import { InputError } from '../process/input-error.ts';
import type { ReloadedSettings, ReloadSource } from '../process/reload.ts';
import { addDatapathOptions, datapathContradiction } from './datapath-options.ts';
import type { CommandIO } from './io.ts';
import {
  addFollowNothing,
  addMeshOptions,
  contradiction,
  type LogFlags,
  type MeshFlags,
} from './mesh-options.ts';
import { type OperatorFlags, operatorContradiction } from './operator-options.ts';
import { clusterIDContradiction, outputOption, parsePath } from './option-table.ts';
import {
  addListenOptions,
  addSocketOption,
  addStateOptions,
  type StateFlags,
  serveProblems,
  stateContradiction,
} from './serve-options.ts';
import { environmentValue, misspellings, type Setting, settingsOf } from './settings.ts';

/** Returns the settings that a file or the environment may contain: all options of an agent except those of one run. */
export function agentSettings(): readonly Setting[] {
  return settingsOf(addAgentOptions(new Command()).options);
}

/** Adds the options of an agent that are also settings of files and the environment. */
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

/**
 * Sets the options that the file contains and neither a flag nor the environment sets. `allowed`: the settings that the
 * file may contain.
 */
async function applyFile(
  command: Command,
  settings: readonly Setting[],
  path: string,
  allowed: readonly Setting[],
): Promise<void> {
  const { loadConfig } = await import('./config-file.ts');
  const values = await loadConfig(path, allowed);
  for (const { attribute } of settings) {
    const source = command.getOptionValueSource(attribute);
    if (attribute in values && source !== 'cli' && source !== 'env')
      command.setOptionValueWithSource(attribute, values[attribute], 'config');
  }
}

/** Returns one sentence for each contradiction between the options of a command. */
export async function contradictions(command: Command): Promise<readonly string[]> {
  const flags: object = command.opts();
  const names = new Set(command.options.map((option) => option.attributeName()));
  // A command that asks a running agent has no use for sources, which the environment may contain for the agent.
  const usesSources = command.getOptionValue('runsAgent') !== false;
  const isSet = (attribute: string): boolean => command.getOptionValueSource(attribute) !== 'default';
  // The casts are valid, because a command with one option of a group has the whole group.
  const found: (string | undefined)[] = [];
  if (names.has('maxConnectedClusters') && usesSources) found.push(clusterIDContradiction(flags));
  if (names.has('load') && usesSources) found.push(contradiction(flags as MeshFlags));
  if (names.has('datapath')) found.push(datapathContradiction(flags));
  if (names.has('stateDir')) found.push(stateContradiction(flags as StateFlags, isSet));
  if (names.has('deleteAllEndpoints')) found.push(await operatorContradiction(flags as OperatorFlags));
  if (names.has('listenToken')) found.push(...(await serveProblems(flags)));
  return found.filter((text) => text !== undefined);
}

/**
 * Adds `--config` to a command. Before the command runs, options without a flag are set from the environment, and
 * the remaining ones from the file. If the options then contradict each other, the command fails. `settings`: the
 * settings that the file may contain; default: those of an agent.
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
    .hook('preAction', async (_command, called) => {
      const allowed = settings();
      const options = new Set(command.options.map((option) => option.attributeName()));
      const ofCommand = allowed.filter(({ attribute }) => options.has(attribute));
      for (const warning of misspellings(io.env, allowed)) io.stderr.write(`dpcache: ${warning}\n`);
      applyEnvironment(command, ofCommand, io.env);
      const path = configPath(command, io.env);
      if (path !== undefined) await applyFile(command, ofCommand, path, allowed);
      // A subcommand, such as `operator status`, does not use the options of `command`, so they may be incomplete.
      if (called !== command) return;
      const problems = await contradictions(command);
      if (problems.length === 0) return;
      const reason = problems.join('; ');
      if (ofCommand.some(({ attribute }) => command.getOptionValueSource(attribute) === 'config'))
        throw new InputError(`--config ${path}: ${reason}`);
      command.error(`dpcache: ${reason}`);
    });
}

/** Adds a command that queries a running agent, and prints the answer as text or JSON. */
export function addQueryCommand(parent: Command, io: CommandIO, name: string, description: string): Command {
  const command = parent.command(name).description(description).addOption(outputOption());
  return addConfiguration(addSocketOption(command), io);
}

/** The result of reading the configuration file again. */
interface Reloaded<F> extends Pick<ReloadedSettings, 'needRestart' | 'onApplied'> {
  /** All options of the command, with the new values of the reloadable ones. */
  readonly flags: F;
}

/**
 * Reads the configuration file of a running command again. Flags and the environment still override it. `reloadable`:
 * keys that may change; `check` returns the contradiction between options, if any. Throws `InputError` if the file is
 * invalid.
 */
async function reloadFlags<F extends object>(
  command: Command,
  env: CommandIO['env'],
  reloadable: readonly string[],
  check: (flags: F) => string | undefined,
): Promise<Reloaded<F>> {
  const path = configPath(command, env);
  if (path === undefined) return { flags: command.opts<F>(), needRestart: [] };
  const settings = settingsOf(command.options);
  const { loadConfig } = await import('./config-file.ts');
  const inFile = await loadConfig(path, settings);
  const values = { ...defaultsOf(command), ...inFile };
  const ofFile = settings.filter(({ attribute }) => {
    const source = command.getOptionValueSource(attribute);
    return source !== 'cli' && source !== 'env';
  });
  const reloaded = ofFile.filter(({ key }) => reloadable.includes(key));
  const needRestart = ofFile.filter(
    ({ key, attribute }) =>
      !reloadable.includes(key) && !isDeepStrictEqual(values[attribute], command.getOptionValue(attribute)),
  );
  const reloadedValues = Object.fromEntries(reloaded.map(({ attribute }) => [attribute, values[attribute]]));
  const flags = { ...command.opts<F>(), ...reloadedValues };
  const reason = check(flags);
  if (reason !== undefined) throw new InputError(`--config ${path}: ${reason}`);
  const onApplied = (): void => {
    for (const { attribute } of reloaded) {
      const source = attribute in inFile ? 'config' : 'default';
      command.setOptionValueWithSource(attribute, values[attribute], source);
    }
  };
  return { flags, needRestart: needRestart.map(({ key }) => key), onApplied };
}

/** Returns the default values of all options of a command. */
function defaultsOf({ options }: Command): Readonly<Record<string, unknown>> {
  const fresh = new Command();
  for (const option of options) fresh.addOption(option);
  return fresh.opts();
}

/** The origin of a setting by commander's name of its source. */
const ORIGINS: Readonly<Record<string, SettingDocument['from']>> = {
  cli: 'flag',
  env: 'environment',
  config: 'file',
};

/**
 * Returns a function that returns the settings of a running command, as they are after the last reload. It removes
 * secrets from the values, such as the password of a URL.
 */
export async function settingsInUse(
  command: Command,
  env: CommandIO['env'],
): Promise<() => SettingsDocument> {
  const { cleanField } = await import('../process/without-secrets.ts');
  const settings = settingsOf(command.options);
  return () => {
    const document: SettingsDocument = {
      file: configPath(command, env),
      settings: Object.fromEntries(
        settings.map(({ key, attribute, kind }) => {
          const unset = kind === 'switch' ? false : null;
          const from = ORIGINS[command.getOptionValueSource(attribute) ?? ''] ?? 'default';
          return [key, { value: command.getOptionValue(attribute) ?? unset, from }];
        }),
      ),
    };
    return JSON.parse(JSON.stringify(document, cleanField));
  };
}

/**
 * Returns the reloads of an agent on SIGHUP: its log level, manifests and rates. Returns undefined if `io` has no
 * `onHangup`.
 */
export function agentReloads(
  command: Command,
  { onHangup, env }: CommandIO,
): ReloadSource<ReloadedAgentSettings> | undefined {
  return (
    onHangup && {
      subscribe: onHangup,
      read: async () => {
        const keys = ['log-level', 'manifests', 'kvstore-opt'];
        const { flags, ...reloaded } = await reloadFlags<MeshFlags>(command, env, keys, contradiction);
        const { logLevel, manifests = [], kvstoreOpt: rateLimit } = flags;
        return { logLevel, manifests, rateLimit, ...reloaded };
      },
    }
  );
}

/** Returns the reloads of an operator or a kvstoremesh on SIGHUP: its log level. */
export function logLevelReloads(
  command: Command,
  { onHangup, env }: CommandIO,
): ReloadSource<ReloadedSettings> | undefined {
  return (
    onHangup && {
      subscribe: onHangup,
      read: async () => {
        const none = (): undefined => undefined;
        const { flags, ...reloaded } = await reloadFlags<LogFlags>(command, env, ['log-level'], none);
        return { logLevel: flags.logLevel, ...reloaded };
      },
    }
  );
}
