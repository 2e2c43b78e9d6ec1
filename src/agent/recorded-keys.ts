import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { type Rejection, rejection } from '../base/rejection.ts';
import { unreadable } from './input-error.ts';
import { isRecord } from './record.ts';

/** One key of a recorded mesh: what the kvstore of cluster `store` holds under `key`. */
export interface RecordedKey {
  readonly store: string;
  readonly key: string;
  readonly value: string;
  /** `file.jsonl:12`, where it was read. */
  readonly at: string;
}

const FIELDS = ['store', 'key', 'value'] as const;

/** The decoded line; text says why it cannot be decoded. */
function decode(line: string): { readonly json: unknown } | string {
  try {
    return { json: JSON.parse(line) };
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Reads one line; a rejection names the place and the field. */
export function parseRecordedKey(line: string, at: string): RecordedKey | Rejection {
  const decoded = decode(line);
  if (typeof decoded === 'string')
    return rejection('malformed-line', 'line', line, `not JSON: ${decoded}`, at);
  const { json } = decoded;
  if (!isRecord(json)) return rejection('malformed-line', 'line', json, 'not an object', at);
  for (const field of FIELDS) {
    const value = Object.hasOwn(json, field) ? json[field] : undefined;
    if (typeof value !== 'string') return rejection('malformed-line', field, value, 'must be text', at);
    if (value === '' && field !== 'value')
      return rejection('malformed-line', field, value, 'must not be empty', at);
  }
  const { store, key, value } = json as unknown as RecordedKey; // checked field by field above
  return { store, key, value, at };
}

/**
 * Reads a recorded mesh, JSON lines of `{"store", "key", "value"}`, as a stream: a file may be larger than the
 * memory. Empty lines are nothing. A line that is not right goes to `onReject` as `file:line`, and the next one
 * is read. Throws {@link InputError} when the file cannot be read.
 */
export async function* readRecordedKeys(
  path: string,
  onReject: (rejection: Rejection) => void,
): AsyncGenerator<RecordedKey, void, void> {
  const input = createReadStream(path, { encoding: 'utf8' });
  let number = 0;
  try {
    for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      number++;
      const text = number === 1 ? line.replace(/^\uFEFF/, '') : line;
      if (text.trim() === '') continue;
      const parsed = parseRecordedKey(text, `${path}:${number}`);
      if ('reason' in parsed) onReject(parsed);
      else yield parsed;
    }
  } catch (cause) {
    throw unreadable('--load', path, cause);
  } finally {
    input.destroy();
  }
}
