import { InvalidArgumentError, Option } from 'commander';
import type { CommandIO } from './io.ts';

/** An option of which each use adds to what was said before. */
export class RepeatableOption extends Option {}

/** How a setting is said: yes or no, one value, or several. */
export type SettingKind = 'switch' | 'value' | 'list';

/** An option of an agent that a file and the environment can say, too. */
export interface Setting {
  /** Its key in a file: the option without its dashes. */
  readonly key: string;
  /** Its variable, such as `DPCACHE_LOG_LEVEL` for `log-level`. */
  readonly variable: string;
  /** What commander calls it. */
  readonly attribute: string;
  readonly kind: SettingKind;
  /** Of a value: whether `false` is one, as `--no-socket` says it. */
  readonly canBeOff: boolean;
  /** The value that texts stand for, of a `list` all of them. Throws commander's `InvalidArgumentError`. */
  readonly parse: (texts: readonly string[]) => unknown;
}

/** Options of the moment: a file that said them would answer a question that was not asked. */
const NOT_SETTINGS: ReadonlySet<string> = new Set(['once', 'output', 'play', 'all', 'config', 'dryRun']);

/** The settings among the options of a command, in their order. */
export function settingsOf(options: readonly Option[]): readonly Setting[] {
  const byAttribute = new Map<string, Option[]>();
  for (const option of options) {
    const attribute = option.attributeName();
    if (!NOT_SETTINGS.has(attribute))
      byAttribute.set(attribute, [...(byAttribute.get(attribute) ?? []), option]);
  }
  return [...byAttribute].map(([attribute, same]) => settingOf(attribute, same));
}

function settingOf(attribute: string, same: readonly Option[]): Setting {
  const key = (same[0]?.name() ?? '').replace(/^no-/, '');
  const valued = same.find(({ required }) => required);
  const several = valued instanceof RepeatableOption ? 'list' : 'value';
  return {
    ...{ key, attribute },
    variable: `DPCACHE_${key.toUpperCase().replaceAll('-', '_')}`,
    kind: valued === undefined ? 'switch' : several,
    canBeOff: valued !== undefined && same.some(({ negate }) => negate),
    parse: (texts) =>
      texts.reduce<unknown>((before, text) => valued?.parseArg?.(text, before) ?? text, undefined),
  };
}

/** What of a switch is allowed. */
export const SWITCH_VALUES = 'It must be true or false.';

/** What the environment says of a setting, if it does; an empty variable says nothing. Throws `InvalidArgumentError`. */
export function environmentValue(
  setting: Setting,
  env: CommandIO['env'],
): { readonly value: unknown } | undefined {
  const text = env[setting.variable];
  if (!text) return undefined;
  if (text === 'false' && (setting.canBeOff || setting.kind === 'switch')) return { value: false };
  if (setting.kind === 'switch') {
    if (text === 'true') return { value: true };
    throw new InvalidArgumentError(SWITCH_VALUES);
  }
  return { value: setting.parse(setting.kind === 'list' ? text.split(',') : [text]) };
}

/** How many characters must be inserted, deleted or replaced to make one word of the other (Levenshtein). */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (const [i, letter] of [...from].entries()) {
    const next = [i + 1];
    for (const [j, other] of [...to].entries()) {
      const replaced = (row[j] ?? 0) + Number(letter !== other);
      next.push(Math.min(replaced, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}

/** A word that is so much longer than any that is known is not compared: it is none of them. */
const MAX_WORD = 64;

/** The known word that is most like one that is not known, if at most a third of it differs. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  if (word.length > MAX_WORD) return undefined;
  const lower = word.toLowerCase();
  const ranked = known.map((name) => ({ name, far: distance(lower, name.toLowerCase()) }));
  const [best] = ranked.sort((a, b) => a.far - b.far);
  return best !== undefined && best.far <= Math.max(2, word.length / 3) ? best.name : undefined;
}

/** Variables that look like a setting and are none, with the one that may be meant. */
export function misspelt(env: CommandIO['env'], settings: readonly Setting[]): readonly string[] {
  const known = ['DPCACHE_CONFIG', ...settings.map(({ variable }) => variable)];
  return Object.keys(env)
    .filter((name) => name.startsWith('DPCACHE_') && !known.includes(name))
    .flatMap((name) => {
      // Others may begin so: Kubernetes sets DPCACHE_SERVICE_HOST beside a service of that name.
      const meant = nearest(name, known);
      return meant === undefined || distance(name, meant) > 2 ? [] : [`${name} is not known: ${meant} is`];
    });
}
