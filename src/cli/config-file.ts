import { InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { readFileHead } from '../base/files/regular-file.ts';
import { nearest, showValue } from '../base/show-value.ts';
import { isObject } from '../net/fields.ts';
import { InputError, unreadable } from '../process/input-error.ts';
import { parseYaml } from '../recording/yaml-documents.ts';
import { type Setting, SWITCH_VALUES } from './settings.ts';

/** The contents of a configuration file. */
export interface SettingsFile {
  /** By commander's attribute name. Empty if there is a problem. */
  readonly values: Readonly<Record<string, unknown>>;
  /** The problems of the file, one sentence each. */
  readonly problems: readonly string[];
}

/** Returns the result of `parse`. If it throws an `InvalidArgumentError`, adds an issue to `context`. */
function parsedOrIssue(parse: () => unknown, context: z.RefinementCtx): unknown {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    context.addIssue({ code: 'custom', message: error.message });
    return z.NEVER;
  }
}

const TEXT: z.ZodType<string | number> = z.union([z.string(), z.number()], {
  error: 'It must be a string or a number.',
});

function schemaOf({ kind, isNegatable, parse }: Setting): z.ZodType {
  if (kind === 'switch') return z.boolean({ error: SWITCH_VALUES });
  if (kind === 'list') {
    return z
      .preprocess((value) => (Array.isArray(value) ? value : [value]), z.array(TEXT))
      .transform((items, context) =>
        items.length === 0 ? undefined : parsedOrIssue(() => parse(items.map(String)), context),
      );
  }
  const one = isNegatable
    ? z.union([TEXT, z.literal(false)], { error: 'It must be a string or false.' })
    : TEXT;
  return one.transform((value, context) =>
    value === false ? false : parsedOrIssue(() => parse([String(value)]), context),
  );
}

/**
 * Returns the problems of an issue of zod: one for each unknown key, otherwise one with the key, its value and the
 * allowed values.
 */
function problemsOf(issue: z.core.$ZodIssue, settings: object, keys: readonly string[]): readonly string[] {
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => {
      const meant = nearest(key, keys);
      return `${key}: unknown setting${meant === undefined ? '' : `; did you mean ${meant}?`}`;
    });
  const [key = '', ...path] = issue.path.map(String);
  const value = path.reduce<unknown>((of, name) => Reflect.get(Object(of), name), Reflect.get(settings, key));
  return [`${key}: ${showValue(value)}: ${issue.message}`];
}

/** Parses the text of a file: a YAML map from the keys of settings to their values. An empty text is valid. */
export function parseConfig(text: string, settings: readonly Setting[]): SettingsFile {
  const parsed = parseYaml(text);
  if (typeof parsed === 'string') return { values: {}, problems: [parsed] };
  const settingValues = parsed.value ?? {};
  if (!isObject(settingValues))
    return { values: {}, problems: [`${showValue(settingValues)}: must be a map of settings`] };
  const keys = settings.map(({ key }) => key);
  const shape = settings.map((setting) => [setting.key, schemaOf(setting).optional()] as const);
  const result = z.strictObject(Object.fromEntries(shape)).safeParse(settingValues);
  if (!result.success) {
    const problems = result.error.issues.flatMap((issue) => problemsOf(issue, settingValues, keys));
    return { values: {}, problems };
  }
  const values = settings.map(({ key, attribute }) => [attribute, result.data[key]] as const);
  return { values: Object.fromEntries(values.filter(([, value]) => value !== undefined)), problems: [] };
}

/** Maximum size of a configuration file. */
const MAX_FILE_BYTES = 1024 * 1024;

/**
 * Returns the contents of a file. Throws `InputError` if it cannot be read, is too large, or is not a regular file,
 * because opening a FIFO would block. Invalid contents are returned as problems. `argument` names the path in errors.
 */
export async function readConfig(
  argument: '--config' | 'file',
  path: string,
  settings: readonly Setting[],
): Promise<SettingsFile> {
  const { bytes, isWhole } = await readFileHead(path, MAX_FILE_BYTES).catch((cause: unknown) => {
    throw unreadable(argument, path, cause);
  });
  if (!isWhole) throw new InputError(`${argument} ${path}: the file is larger than ${MAX_FILE_BYTES} bytes`);
  return parseConfig(bytes.toString('utf8'), settings);
}

/** Returns the values of a file. Throws `InputError` with all problems if it is invalid. */
export async function loadConfig(
  path: string,
  settings: readonly Setting[],
): Promise<SettingsFile['values']> {
  const { values, problems } = await readConfig('--config', path, settings);
  if (problems.length > 0)
    throw new InputError(problems.map((reason) => `--config ${path}: ${reason}`).join('\ndpcache: '));
  return values;
}
