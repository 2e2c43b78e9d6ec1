import { readFile } from 'node:fs/promises';
import { InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { InputError, unreadable } from '../agent/input-error.ts';
import { parseYaml } from '../agent/yaml-documents.ts';
import { showValue } from '../base/show-value.ts';
import { isObject } from '../net/fields.ts';
import { nearest, type Setting, SWITCH_VALUES } from './settings.ts';

/** What a file says: values by commander's name, and a sentence for each thing that is wrong with it. */
export interface ConfigFile {
  readonly values: Readonly<Record<string, unknown>>;
  readonly problems: readonly string[];
}

/** The value that `make` gives; what it says against it becomes a problem of the file. */
function checked(make: () => unknown, context: z.RefinementCtx): unknown {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    context.addIssue({ code: 'custom', message: error.message });
    return z.NEVER;
  }
}

const TEXT: z.ZodType<string | number> = z.union([z.string(), z.number()], {
  error: 'It must be a text or a number.',
});

function schemaOf({ kind, canBeOff, parse }: Setting): z.ZodType {
  if (kind === 'switch') return z.boolean({ error: SWITCH_VALUES });
  if (kind === 'list') {
    return z
      .preprocess((value) => (Array.isArray(value) ? value : [value]), z.array(TEXT))
      .transform((items, context) =>
        items.length === 0 ? undefined : checked(() => parse(items.map(String)), context),
      );
  }
  const one = canBeOff ? z.union([TEXT, z.literal(false)], { error: 'It must be a text, or false.' }) : TEXT;
  return one.transform((value, context) =>
    value === false ? false : checked(() => parse([String(value)]), context),
  );
}

/** What is wrong with a key, with its value and what is allowed. */
function sentences(issue: z.core.$ZodIssue, said: object, keys: readonly string[]): readonly string[] {
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => {
      const meant = nearest(key, keys);
      return `${key}: there is no such setting${meant === undefined ? '' : `; is ${meant} meant?`}`;
    });
  const [key = '', ...path] = issue.path.map(String);
  const value = path.reduce<unknown>((of, name) => Reflect.get(Object(of), name), Reflect.get(said, key));
  return [`${key}: ${showValue(value)}: ${issue.message}`];
}

/** Checks the text of a file: YAML, a map from settings' keys to their values. Empty it says nothing. */
export function parseConfig(text: string, settings: readonly Setting[]): ConfigFile {
  const parsed = parseYaml(text);
  if (typeof parsed === 'string') return { values: {}, problems: [parsed] };
  const said = parsed.value ?? {};
  if (!isObject(said)) return { values: {}, problems: [`${showValue(said)}: it must be a map of settings`] };
  const keys = settings.map(({ key }) => key);
  const shape = settings.map((setting) => [setting.key, schemaOf(setting).optional()] as const);
  const result = z.strictObject(Object.fromEntries(shape)).safeParse(said);
  if (!result.success) {
    const problems = result.error.issues.flatMap((issue) => sentences(issue, said, keys));
    return { values: {}, problems };
  }
  const values = settings.map(({ key, attribute }) => [attribute, result.data[key]] as const);
  return { values: Object.fromEntries(values.filter(([, value]) => value !== undefined)), problems: [] };
}

/** Reads a file. Throws `InputError` when it cannot be read. */
export async function readConfig(path: string, settings: readonly Setting[]): Promise<ConfigFile> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw unreadable('--config', path, cause);
  });
  return parseConfig(text, settings);
}

/** The values of a file that must be right. Throws `InputError` with all that is wrong with it. */
export async function loadConfig(path: string, settings: readonly Setting[]): Promise<ConfigFile['values']> {
  const { values, problems } = await readConfig(path, settings);
  if (problems.length > 0)
    throw new InputError(problems.map((why) => `--config ${path}: ${why}`).join('\ndpcache: '));
  return values;
}
