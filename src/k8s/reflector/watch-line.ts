import { Buffer } from 'node:buffer';
import { isObject } from '../../net/fields.ts';
import type { KubernetesObject, ObjectScanner } from '../resource.ts';
import { ApiError, errorOfStatus } from '../rest/api-error.ts';
import { isKubernetesObject } from './known-objects.ts';

/** The content of a line of a watch or streaming list. */
export type WatchLine =
  | { readonly type: 'put' | 'delete'; readonly object: KubernetesObject }
  /** `isListed` is true for the bookmark after the last object of a streaming list. */
  | { readonly type: 'bookmark'; readonly version: string; readonly isListed: boolean }
  /** An object without a name, a bookmark without a version, or an unknown type. Other lines are not affected. */
  | { readonly type: 'invalid' };

/** The fields read by {@link readWatchLine}, in addition to those that identify the object. */
export const LINE_FIELDS: readonly string[] = [
  ...['type', 'code', 'message', 'details'],
  ...['object.code', 'object.message', 'object.details', 'object.metadata.annotations'],
];

const INVALID: WatchLine = { type: 'invalid' };

const TYPES: ReadonlyMap<unknown, 'put' | 'delete'> = new Map([
  ['ADDED', 'put'],
  ['MODIFIED', 'put'],
  ['DELETED', 'delete'],
]);

/** The first bytes of a line with a change, by its type, in the form in which API servers send it. */
const LINE_STARTS = [...TYPES.keys()].map((type) => ({
  type,
  bytes: Buffer.from(`{"type":"${type}","object":`, 'latin1'),
}));

const CLOSE_OBJECT = 0x7d;

/** Returns a decoded line whose object the scanner reads, or undefined if the general decoder must read the line. */
export function scanWatchLine(line: Buffer, objects: ObjectScanner): object | undefined {
  for (const { type, bytes } of LINE_STARTS) {
    if (!startsWith(line, bytes)) continue;
    const object = objects.scan(line, bytes.length);
    const { end } = objects;
    const isWhole = object !== undefined && end === line.length - 1 && line[end] === CLOSE_OBJECT;
    return isWhole ? { type, object } : undefined;
  }
  return undefined;
}

function startsWith(line: Buffer, start: Buffer): boolean {
  const { length } = start;
  if (line.length < length) return false;
  // A loop, because a native comparison costs more for few bytes.
  for (let i = 0; i < length; i++) if (line[i] !== start[i]) return false;
  return true;
}

function readBookmark(object: unknown): WatchLine {
  const metadata = isObject(object) ? object['metadata'] : undefined;
  const version = isObject(metadata) ? metadata['resourceVersion'] : undefined;
  // A watch from version 0 repeats all objects, but omits the deletes of objects that are gone.
  if (typeof version !== 'string' || version === '' || version === '0') return INVALID;
  const annotations = isObject(metadata) ? metadata['annotations'] : undefined;
  const isListed = isObject(annotations) && annotations['k8s.io/initial-events-end'] === 'true';
  return { type: 'bookmark', version, isListed };
}

function notAnEvent(): ApiError {
  return new ApiError('garbled', 'a watch line is not an event');
}

/**
 * Returns a decoded line. Throws an ApiError for an `ERROR` event, and for a Status object in place of an event, which
 * a starting server sends. `secret` is the credential of the request.
 */
export function readWatchLine(line: unknown, secret?: string): WatchLine {
  if (!isObject(line)) throw notAnEvent();
  const { type, object } = line;
  if (type === 'ERROR') throw errorOfStatus(object, 500, 0, secret);
  const isStatus = line['code'] !== undefined || line['message'] !== undefined;
  if (type === undefined) throw isStatus ? errorOfStatus(line, 500, 0, secret) : notAnEvent();
  if (type === 'BOOKMARK') return readBookmark(object);
  const change = TYPES.get(type);
  return change === undefined || !isKubernetesObject(object) ? INVALID : { type: change, object };
}
