import { readRegularFile } from '../base/files/regular-file.ts';
import { decodeWith, Fields, isObject, rejectInput } from '../net/fields.ts';
import { InputError, unreadable } from '../process/input-error.ts';
import { parseYaml } from './yaml-documents.ts';

export type PlayAction =
  /** Writes a key. */
  | { readonly kind: 'put'; readonly store: string; readonly key: string; readonly value: string }
  | { readonly kind: 'delete'; readonly store: string; readonly key: string }
  /** Changes fields of a key's JSON value (RFC 7386: null removes a field). */
  | { readonly kind: 'patch'; readonly store: string; readonly key: string; readonly patch: unknown }
  /** Replaces `text` by `replacement` in all values under a prefix. */
  | {
      readonly kind: 'replace';
      readonly store: string;
      readonly prefix: string;
      readonly text: string;
      readonly replacement: string;
    }
  /** Creates or replaces an object of the recorded Kubernetes. */
  | { readonly kind: 'apply'; readonly object: Readonly<Record<string, unknown>> }
  /** Deletes an object. Its apiVersion, kind and name are sufficient. */
  | { readonly kind: 'remove'; readonly object: Readonly<Record<string, unknown>> }
  /** Removes the configuration of a remote cluster. */
  | { readonly kind: 'leave'; readonly cluster: string }
  /** Adds the configuration of a remote cluster again. */
  | { readonly kind: 'join'; readonly cluster: string };

/** A step of a script: a pause, a headline and actions. */
export interface PlayStep {
  /** Seconds after the previous step. */
  readonly after: number;
  /** Headline of the step, which is logged. */
  readonly text: string;
  readonly actions: readonly PlayAction[];
}

const STEP_FIELDS: readonly string[] = ['after', 'say', 'do'];
const MAX_WAIT_SECONDS = 3600;

function readStep(step: Fields<never>): PlayStep {
  for (const name of step.names) {
    if (!STEP_FIELDS.includes(name)) step.reject(name, 'unknown-field', 'must be after, say or do');
  }
  return {
    after: step.number('after', 0, MAX_WAIT_SECONDS) ?? 0,
    text: step.string('say') ?? '',
    actions: step.list('do').items((list, index) => readAction(list.item(index))),
  };
}

/** Returns a required field. It may have any value except null. */
function required(fields: Fields<never>, name: string): unknown {
  return fields.value(name) ?? fields.reject(name, 'missing-field', 'is missing');
}

function objectOf(action: Fields<never>, name: string): Readonly<Record<string, unknown>> {
  const value = action.value(name);
  return isObject(value) ? value : action.reject(name, 'wrong-type', 'must be a Kubernetes object');
}

function readAction(action: Fields<never>): PlayAction {
  const isSet = (name: string): boolean => action.value(name) !== undefined;
  if (isSet('leave')) return { kind: 'leave', cluster: action.text('leave') };
  if (isSet('join')) return { kind: 'join', cluster: action.text('join') };
  if (isSet('apply')) return { kind: 'apply', object: objectOf(action, 'apply') };
  if (isSet('remove')) return { kind: 'remove', object: objectOf(action, 'remove') };
  const store = action.text('store');
  if (isSet('put')) {
    const value = required(action, 'value');
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return { kind: 'put', store, key: action.text('put'), value: text };
  }
  if (isSet('delete')) return { kind: 'delete', store, key: action.text('delete') };
  if (isSet('patch'))
    return { kind: 'patch', store, key: action.text('patch'), patch: required(action, 'with') };
  const [prefix, text, replacement] = [action.text('under'), action.text('replace'), action.text('with')];
  return { kind: 'replace', store, prefix, text, replacement };
}

/**
 * Returns the steps of a script. Throws {@link InputError} with the file and the field if any part is invalid, before
 * any step is played.
 */
export function parsePlayScript(text: string, path: string): readonly PlayStep[] {
  const script = parseYaml(text);
  if (typeof script === 'string') throw new InputError(`--play ${path}: ${script}`);
  const steps = decodeWith(path, () =>
    Fields.ofList(script.value, rejectInput, 'script').items((list, index) => readStep(list.item(index))),
  );
  if (!steps.ok) throw new InputError(`--play ${steps.rejection.message}`);
  return steps.value;
}

/** Reads a script of changes (YAML, see `examples/changes.yaml`). Throws {@link InputError}. */
export async function readPlayScript(path: string): Promise<readonly PlayStep[]> {
  let text: string;
  try {
    text = (await readRegularFile(path)).toString('utf8');
  } catch (cause) {
    throw unreadable('--play', path, cause);
  }
  return parsePlayScript(text, path);
}
