import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import { showValue } from '../base/show-value.ts';
import { InputError, unreadable } from './input-error.ts';
import { isRecord } from './record.ts';

/** One thing that a script does to the mesh. */
export type PlayAction =
  /** Writes a key. */
  | { readonly kind: 'put'; readonly store: string; readonly key: string; readonly value: string }
  | { readonly kind: 'delete'; readonly store: string; readonly key: string }
  /** Changes fields of a key's JSON value (RFC 7386: null removes a field). */
  | { readonly kind: 'patch'; readonly store: string; readonly key: string; readonly patch: unknown }
  /** Replaces a text in every value under a prefix. */
  | {
      readonly kind: 'replace';
      readonly store: string;
      readonly prefix: string;
      readonly text: string;
      readonly by: string;
    }
  /** A remote cluster's configuration is removed. */
  | { readonly kind: 'leave'; readonly cluster: string }
  /** It is added again. */
  | { readonly kind: 'join'; readonly cluster: string };

/** A moment of a script. */
export interface PlayStep {
  /** Seconds after the step before. */
  readonly after: number;
  /** What happens, for whoever watches. */
  readonly say: string;
  readonly actions: readonly PlayAction[];
}

/** A malformed script is the user's own mistake: it is an error as a whole, before anything is played. */
function fail(path: string, field: string, value: unknown, why: string): never {
  throw new InputError(`--play ${path}: ${field} ${showValue(value)}: ${why}`);
}

type Fields = Readonly<Record<string, unknown>>;

/** Reads the fields of one action; `where` is its place in the script, such as `[3].do[1]`. */
class ActionReader {
  readonly #path: string;
  readonly #where: string;
  readonly #fields: Fields;

  constructor(path: string, where: string, fields: Fields) {
    this.#path = path;
    this.#where = where;
    this.#fields = fields;
  }

  has(field: string): boolean {
    return Object.hasOwn(this.#fields, field);
  }

  any(field: string): unknown {
    return this.has(field) ? this.#fields[field] : this.fail(field, undefined, 'is missing');
  }

  text(field: string): string {
    const value = this.any(field);
    return typeof value === 'string' && value !== '' ? value : this.fail(field, value, 'must be text');
  }

  /** Text as it is, anything else as JSON. */
  content(field: string): string {
    const value = this.any(field);
    return typeof value === 'string' ? value : JSON.stringify(value);
  }

  fail(field: string, value: unknown, why: string): never {
    return fail(this.#path, `${this.#where}.${field}`, value, why);
  }

  read(): PlayAction {
    if (this.has('leave')) return { kind: 'leave', cluster: this.text('leave') };
    if (this.has('join')) return { kind: 'join', cluster: this.text('join') };
    const store = this.text('store');
    if (this.has('put')) return { kind: 'put', store, key: this.text('put'), value: this.content('value') };
    if (this.has('delete')) return { kind: 'delete', store, key: this.text('delete') };
    if (this.has('patch')) return { kind: 'patch', store, key: this.text('patch'), patch: this.any('with') };
    const [prefix, text, by] = [this.text('under'), this.text('replace'), this.text('with')];
    return { kind: 'replace', store, prefix, text, by };
  }
}

function readStep(path: string, step: unknown, index: number): PlayStep {
  if (!isRecord(step)) return fail(path, `[${index}]`, step, 'must have after, say and do');
  const { after = 0, say = '', do: actions = [], ...others } = step;
  for (const [field, value] of Object.entries(others))
    return fail(path, `[${index}].${field}`, value, 'is none of after, say and do');
  if (typeof after !== 'number' || !(after >= 0 && after <= 3600))
    return fail(path, `[${index}].after`, after, 'must be seconds, 0 to 3600');
  if (typeof say !== 'string') return fail(path, `[${index}].say`, say, 'must be text');
  if (!Array.isArray(actions)) return fail(path, `[${index}].do`, actions, 'must be a list');
  return { after, say, actions: actions.map((action, i) => readAction(path, `[${index}].do[${i}]`, action)) };
}

function readAction(path: string, where: string, action: unknown): PlayAction {
  return isRecord(action)
    ? new ActionReader(path, where, action).read()
    : fail(path, where, action, 'must be put, delete, patch, replace, leave or join');
}

/** The steps in the text of a script; throws {@link InputError} that names the file and the field. */
export function parsePlayScript(text: string, path: string): readonly PlayStep[] {
  let script: unknown;
  try {
    script = parse(text);
  } catch (cause) {
    throw new InputError(`--play ${path}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
  if (!Array.isArray(script)) return fail(path, 'script', script, 'must be a list of steps');
  return script.map((step, index) => readStep(path, step, index));
}

/** Reads a script of changes (YAML, see `examples/changes.yaml`). */
export async function readPlayScript(path: string): Promise<readonly PlayStep[]> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw unreadable('--play', path, cause);
  }
  return parsePlayScript(text, path);
}
