import { skipString } from '../base/json-pieces.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { Fields, isObject } from '../net/fields.ts';

/** The output that a reader reads, and the receiver of its unreadable parts. */
export interface OutputContext {
  /** Names the output in rejections. */
  readonly at: string;
  readonly onReject: (rejection: Rejection) => void;
}

/** The result of {@link parseOutputJson}: a value, or the reason why there is none. */
export type OutputJson = { readonly value: unknown } | { readonly problem: string };

/**
 * Parses the JSON in the output of a command. Lines before it, such as warnings of the program, are skipped. Empty
 * output is null, because a command prints nothing for an empty list.
 */
export function parseOutputJson(text: string): OutputJson {
  const start = jsonStart(text);
  if (start < 0) return text.trim() === '' ? { value: null } : { problem: 'has no JSON' };
  try {
    const value: unknown = JSON.parse(start === 0 ? text : text.slice(start));
    return { value };
  } catch (error) {
    return { problem: error instanceof Error ? error.message : 'is not JSON' };
  }
}

/**
 * Returns the list in the output of a command, which may be in the field `inner` of an object. Otherwise rejects the
 * output and returns undefined.
 */
export function parseOutputList(
  text: string,
  command: string,
  { at, onReject }: OutputContext,
  inner?: string,
): readonly unknown[] | undefined {
  const json = parseOutputJson(text);
  const value = 'value' in json ? (json.value ?? []) : undefined;
  const list = isObject(value) && inner !== undefined ? value[inner] : value;
  if (Array.isArray(list)) return list;
  const why = 'problem' in json ? json.problem : 'must be a list';
  onReject(rejection('invalid-json', command, text.slice(0, 64), why, at));
  return undefined;
}

/** Returns the fields of an element of a list; undefined if it is not an object. Invalid fields are ignored. */
export function fieldsOf(item: unknown): Fields<undefined> | undefined {
  return Fields.of(item, () => undefined, '');
}

/** Returns the offset of the first line that begins like JSON, or -1. */
function jsonStart(text: string): number {
  const match = /^(?:[[{]|null\s*$)/m.exec(text);
  return match?.index ?? -1;
}

const QUOTE = 0x22;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/**
 * Yields the JSON objects of a text, which are in a list or follow each other, on one or several lines each. Text
 * between objects is skipped, and an incomplete last object is omitted.
 */
export function* objectsIn(text: string): Generator<string, void, void> {
  let depth = 0;
  let start = -1;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE && depth > 0) at = skipString(text, at) - 1;
    else if (code === OPEN_OBJECT) {
      if (depth === 0) start = at;
      depth++;
    } else if (code === CLOSE_OBJECT && depth > 0) {
      depth--;
      if (depth === 0) yield text.slice(start, at + 1);
    }
  }
}
