import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { pipeline, Readable } from 'node:stream';
import { constants, createGunzip } from 'node:zlib';
import { messageOf } from '../base/failure.ts';
import type { Rejection } from '../base/rejection.ts';
import { bytesOfText, keyOfBytes } from '../kvstore/codec/bytes.ts';
import { CLUSTER_CONFIG_PREFIX, COPIED_RESOURCES } from '../kvstore/codec/keys.ts';
import { type Decoded, decodeWith, Fields, isObject, rejectInput } from '../net/fields.ts';
import { unreadable } from '../process/input-error.ts';
import { parseIfJson } from './json-slices.ts';
import { TapedResources } from './taped-resources.ts';

/** A key of a recorded mesh, in the kvstore of cluster `store`. */
export interface RecordedKey {
  readonly store: string;
  readonly key: string;
  /** Undefined if the key was deleted before the end of the initial sync. Only tapes contain such keys. */
  readonly value?: Uint8Array | undefined;
  /** Position of the key in the file: `file.jsonl:12`. */
  readonly at: string;
}

/** Rejects a line. The reason is `malformed-line` for all fields. */
function reject(_reason: string, field: string, value: unknown, why: string): never {
  return rejectInput('malformed-line', field, value, why);
}

function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (error) {
    return reject('', 'line', line, `not JSON: ${messageOf(error)}`);
  }
}

function readKey(json: unknown, at: string): RecordedKey {
  const fields = Fields.of(json, reject, 'line');
  const [store, key] = [fields.text('store'), fields.text('key')];
  if (DELETES.has(fields.string('ev') ?? '')) return { store, key, at };
  const value64 = fields.string('value64');
  if (value64 !== undefined) return { store, key, value: bytesOfBase64(fields, 'value64', value64), at };
  const value = fields.string('value') ?? fields.reject('value', '', 'is missing');
  return { store, key, value: bytesOfText(value), at };
}

/** Returns the key of a line. A rejection contains the position and the field. */
export function parseRecordedKey(line: string, at: string): Decoded<RecordedKey> {
  return decodeWith(at, () => readKey(jsonOf(line), at));
}

/** Yields the keys of the `kvs` of a response of `etcdctl get --prefix … -w json`. */
function* parseResponse(
  kvs: readonly unknown[],
  at: string,
  local: string,
): Generator<Decoded<RecordedKey>, void, void> {
  const store = clusterOf(kvs) ?? local;
  for (const [index, kv] of kvs.entries()) {
    const place = `${at} kvs[${index}]`;
    yield decodeWith(place, () => readEtcdctlKey(kv, store, place));
  }
}

/** Returns the keys of a response of `etcdctl get -w json`; undefined if the line is none. */
async function etcdctlKeys(line: string): Promise<readonly unknown[] | undefined> {
  const json = await parseIfJson(line);
  const { kvs } = isObject(json) ? json : {};
  return Array.isArray(kvs) ? kvs : undefined;
}

function bytesOfBase64(fields: Fields<never>, name: string, text: string): Uint8Array {
  const bytes = Buffer.from(text, 'base64'); // ignores invalid characters
  return bytes.toString('base64') === text ? bytes : fields.reject(name, '', 'must be base64');
}

/** Reads an item of `kvs`. Key and value are base64; an empty value is omitted. */
function readEtcdctlKey(kv: unknown, store: string, at: string): RecordedKey {
  const fields = Fields.of(kv, reject, 'kvs');
  const key = keyOfBytes(bytesOfBase64(fields, 'key', fields.text('key')));
  return { store, key, value: bytesOfBase64(fields, 'value', fields.string('value') ?? ''), at };
}

/** Returns the key of an item of `kvs`; the empty text if the item is invalid. */
function etcdctlKey(kv: unknown): string {
  const { key } = isObject(kv) ? kv : {};
  return typeof key === 'string' ? keyOfBytes(Buffer.from(key, 'base64')) : '';
}

/** Returns the cluster whose configuration is among the keys; undefined if there is none or more than one. */
function clusterOf(kvs: readonly unknown[]): string | undefined {
  const clusters = kvs.map(etcdctlKey).filter((key) => key.startsWith(CLUSTER_CONFIG_PREFIX));
  return clusters.length === 1 ? clusters[0]?.slice(CLUSTER_CONFIG_PREFIX.length) : undefined;
}

/** Matches each line of a tape except a put. The group is the `ev` of the line (`src/tape/README.md`). */
const TAPE_EVENT = /^\{"seq":\d+,"ms":\d+,"ev":"([a-z]+)"/;

/** The `ev` of the lines of a tape that delete a key. */
const DELETES: ReadonlySet<string> = new Set(['delete', 'sweep']);

/** The `ev` of the lines of a tape that show which resources are complete. */
const LISTINGS: ReadonlySet<string> = new Set(['follow', 'listed']);

/** Adds a line of {@link LISTINGS} to the resources of its cluster. */
function readListing(json: unknown, resources: Map<string, TapedResources>): void {
  const fields = Fields.of(json, reject, 'line');
  const store = fields.text('store');
  const from = fields.word('from', COPIED_RESOURCES) ?? fields.reject('from', '', 'is missing');
  const ofStore = resources.get(store) ?? new TapedResources();
  if (fields.text('ev') === 'follow') ofStore.follow(from, store, fields.text('prefix'));
  else ofStore.complete(from);
  resources.set(store, ofStore);
}

/** Maximum length of a line: half of that of a string. A response of etcdctl is one line. */
const MAX_LINE_LENGTH = 1 << 28;

/** Yields the chunks of a text. Throws if a line is too long, because `readline` joins its chunks in an event. */
async function* withLimitedLines(chunks: AsyncIterable<string>): AsyncGenerator<string, void, void> {
  let length = 0;
  for await (const chunk of chunks) {
    const end = chunk.lastIndexOf('\n');
    length = end < 0 ? length + chunk.length : chunk.length - end - 1;
    if (length > MAX_LINE_LENGTH) throw new Error(`a line has more than ${MAX_LINE_LENGTH} characters`);
    yield chunk;
  }
}

/** Returns the text of a file, decompressed if its name ends in `.gz`. A compressed file may be cut off. */
function textOf(path: string): Readable {
  const file = createReadStream(path);
  if (!path.endsWith('.gz')) return file.setEncoding('utf8');
  const unpacked = createGunzip({ finishFlush: constants.Z_SYNC_FLUSH });
  return pipeline(file, unpacked, () => {}).setEncoding('utf8');
}

/**
 * Yields the keys of a recorded mesh, JSON lines of `{"store", "key", "value"}`, or with `value64` in base64 for bytes
 * that are not UTF-8. The file is streamed, because it may be larger than the memory. A line may also be a whole
 * response of `etcdctl get --prefix cilium -w json`. If it contains exactly one cluster configuration, its keys belong
 * to that cluster, else to `local`. From a file of a tape (`.gz`), only the keys at its beginning are read: those
 * before the end of the initial sync or of the snapshot, and then the canaries. Empty lines are ignored. An invalid
 * line or key is passed to `onReject` with `file:line`, and the next one is read. Throws {@link InputError} if the file
 * cannot be read.
 */
export async function* readRecordedKeys(
  path: string,
  onReject: (rejection: Rejection) => void,
  local: string,
): AsyncGenerator<RecordedKey, void, void> {
  const input = Readable.from(withLimitedLines(textOf(path)));
  const resources = new Map<string, TapedResources>();
  let number = 0;
  try {
    for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      number++;
      const text = number === 1 ? line.replace(/^\uFEFF/, '') : line;
      if (text.trim() === '') continue;
      const at = `${path}:${number}`;
      const event = TAPE_EVENT.exec(text)?.[1];
      if (event === 'complete' || event === 'whole') {
        for (const [store, ofStore] of resources)
          for (const key of ofStore.canaries(store)) yield { store, key, value: bytesOfText(''), at };
        break; // only changes follow
      }
      if (event !== undefined && LISTINGS.has(event)) {
        const read = decodeWith(at, () => readListing(jsonOf(text), resources));
        if (!read.ok) onReject(read.rejection);
        continue;
      }
      const isConfig = event === 'config' && text.includes('"value'); // without a value, there is no configuration
      const isKey = event === undefined || DELETES.has(event) || isConfig;
      if (!isKey) continue;
      const kvs = text.includes('"kvs"') ? await etcdctlKeys(text) : undefined;
      const keys = kvs === undefined ? [parseRecordedKey(text, at)] : parseResponse(kvs, at, local);
      for (const parsed of keys) {
        if (parsed.ok) yield parsed.value;
        else onReject(parsed.rejection);
      }
    }
  } catch (cause) {
    throw unreadable('--load', path, cause);
  } finally {
    input.destroy();
  }
}
