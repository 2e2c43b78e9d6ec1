import { InvalidArgumentError, type Option } from 'commander';
import { distance, nearest } from '../base/show-value.ts';
import type { CommandIO } from './io.ts';
import { RepeatableOption } from './option-table.ts';

/** Type of a setting: true or false, one value, or several. */
export type SettingKind = 'switch' | 'value' | 'list';

/** An option that a file and the environment can also set. */
export interface Setting {
  /** Key in a file: the name of the option without dashes. */
  readonly key: string;
  /** Name of the environment variable, such as `DPCACHE_LOG_LEVEL` for `log-level`. */
  readonly variable: string;
  /** Name of the attribute in commander. */
  readonly attribute: string;
  readonly kind: SettingKind;
  /** True if the value may also be `false`, as with `--no-socket`. */
  readonly isNegatable: boolean;
  /** Returns the value of a text, or of all texts for a `list`. Throws commander's `InvalidArgumentError`. */
  readonly parse: (texts: readonly string[]) => unknown;
}

/**
 * Options for a single run. They are not settings, because in a file they would change the result of a command
 * unexpectedly.
 */
const NOT_SETTINGS: ReadonlySet<string> = new Set(['once', 'output', 'play', 'all', 'config', 'dryRun']);

/** Returns the settings among the options of a command, in their order. */
export function settingsOf(options: readonly Option[]): readonly Setting[] {
  const byAttribute = new Map<string, Option[]>();
  for (const option of options) {
    const attribute = option.attributeName();
    if (!NOT_SETTINGS.has(attribute))
      byAttribute.set(attribute, [...(byAttribute.get(attribute) ?? []), option]);
  }
  return [...byAttribute].map(([attribute, same]) => settingOf(attribute, same));
}

function settingOf(attribute: string, variants: readonly Option[]): Setting {
  const key = (variants[0]?.name() ?? '').replace(/^no-/, '');
  const valued = variants.find(({ required }) => required); // commander: the option requires a value
  const valueKind = valued instanceof RepeatableOption ? 'list' : 'value';
  return {
    key,
    attribute,
    variable: `DPCACHE_${key.toUpperCase().replaceAll('-', '_')}`,
    kind: valued === undefined ? 'switch' : valueKind,
    isNegatable: valued !== undefined && variants.some(({ negate }) => negate),
    parse: (texts) =>
      texts.reduce<unknown>((previous, text) => valued?.parseArg?.(text, previous) ?? text, undefined),
  };
}

/** The allowed values of a switch. */
export const SWITCH_VALUES = 'It must be true or false.';

/**
 * Returns the value of a setting in the environment; undefined if the variable is unset or empty. Throws
 * `InvalidArgumentError`.
 */
export function environmentValue(
  setting: Setting,
  env: CommandIO['env'],
): { readonly value: unknown } | undefined {
  const text = env[setting.variable];
  if (!text) return undefined;
  if (text === 'false' && (setting.isNegatable || setting.kind === 'switch')) return { value: false };
  if (setting.kind === 'switch') {
    if (text === 'true') return { value: true };
    throw new InvalidArgumentError(SWITCH_VALUES);
  }
  return { value: setting.parse(setting.kind === 'list' ? text.split(',') : [text]) };
}

/** Returns one sentence for each environment variable whose name is probably misspelt. It suggests the right name. */
export function misspellings(env: CommandIO['env'], settings: readonly Setting[]): readonly string[] {
  const known = ['DPCACHE_CONFIG', ...settings.map(({ variable }) => variable)];
  return Object.keys(env)
    .filter((name) => name.startsWith('DPCACHE_') && !known.includes(name))
    .flatMap((name) => {
      // Not every other variable with the prefix is misspelt: if a service is named dpcache, Kubernetes sets
      // DPCACHE_SERVICE_HOST.
      const meant = nearest(name, known);
      return meant === undefined || distance(name, meant) > 2
        ? []
        : [`unknown environment variable ${name}: did you mean ${meant}?`];
    });
}
