import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { type Rejection, rejection } from '../base/rejection.ts';
import { keyOfBytes, textOfBytes } from '../kvstore/bytes.ts';
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
const CONFIG_PREFIX = 'cilium/cluster-config/';

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

/** The keys of a line: one, or all those of an answer as `etcdctl get --prefix … -w json` prints it. */
function* parseLine(line: string, at: string, own: string): Generator<RecordedKey | Rejection, void, void> {
  const kvs = line.includes('"kvs"') ? etcdctlKeys(line) : undefined;
  if (kvs === undefined) return yield parseRecordedKey(line, at);
  const store = clusterOf(kvs) ?? own;
  for (const [index, kv] of kvs.entries()) yield etcdctlKey(kv, store, `${at} kvs[${index}]`);
}

function etcdctlKeys(line: string): readonly unknown[] | undefined {
  const decoded = decode(line);
  if (typeof decoded === 'string' || !isRecord(decoded.json)) return undefined;
  const { kvs } = decoded.json;
  return Array.isArray(kvs) ? kvs : undefined;
}

/** Key and value are base64; an empty value is left out. */
function etcdctlKey(kv: unknown, store: string, at: string): RecordedKey | Rejection {
  if (!isRecord(kv)) return rejection('malformed-line', 'kvs', kv, 'not an object', at);
  const { key, value = '' } = kv;
  if (typeof key !== 'string') return rejection('malformed-line', 'key', key, 'must be base64', at);
  if (typeof value !== 'string') return rejection('malformed-line', 'value', value, 'must be base64', at);
  const text = textOfBytes(Buffer.from(value, 'base64'));
  if (text === undefined) return rejection('malformed-line', 'value', value, 'must be UTF-8', at);
  return { store, key: keyOfBytes(Buffer.from(key, 'base64')), value: text, at };
}

function etcdctlName(kv: unknown): string {
  const { key }: Readonly<Record<string, unknown>> = isRecord(kv) ? kv : {};
  return typeof key === 'string' ? keyOfBytes(Buffer.from(key, 'base64')) : '';
}

/** The cluster that wrote its configuration there, if it is one. */
function clusterOf(kvs: readonly unknown[]): string | undefined {
  const clusters = kvs.map(etcdctlName).filter((name) => name.startsWith(CONFIG_PREFIX));
  return clusters.length === 1 ? clusters[0]?.slice(CONFIG_PREFIX.length) : undefined;
}

/**
 * Reads a recorded mesh, JSON lines of `{"store", "key", "value"}`, as a stream: a file may be larger than the
 * memory. A line may also be a whole answer of `etcdctl get --prefix cilium -w json`: its keys are of the cluster that
 * it has the one configuration of, else of `own`. Empty lines count for nothing. A line or key that is not right goes
 * to `onReject` with `file:line`, and the next one is read. Throws {@link InputError} when the file cannot be read.
 */
export async function* readRecordedKeys(
  path: string,
  onReject: (rejection: Rejection) => void,
  own: string,
): AsyncGenerator<RecordedKey, void, void> {
  const input = createReadStream(path, { encoding: 'utf8' });
  let number = 0;
  try {
    for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      number++;
      const text = number === 1 ? line.replace(/^\uFEFF/, '') : line;
      if (text.trim() === '') continue;
      for (const parsed of parseLine(text, `${path}:${number}`, own)) {
        if ('reason' in parsed) onReject(parsed);
        else yield parsed;
      }
    }
  } catch (cause) {
    throw unreadable('--load', path, cause);
  } finally {
    input.destroy();
  }
}
