import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import type {
  KeyValue,
  RangeRequest,
  RangeResponse,
  TransportEvent,
} from '../../../src/kvstore/session/transport.ts';

/**
 * A store's history: the write of each revision from 1 on, as `key=value` or `-key`; `''` for writes outside
 * of the prefix.
 */
export type History = readonly string[];

export const P = 'p/';

export function eventAt(write: string, revision: number): TransportEvent {
  const [key = '', value = ''] = write.split('=');
  return write.startsWith('-')
    ? { key: `${P}${write.slice(1)}`, value: undefined, modRevision: revision }
    : { key: `${P}${key}`, value: bytesOfText(value), modRevision: revision };
}

/** Returns the keys at a revision, sorted. */
export function keysAt(history: History, revision: number = history.length): readonly KeyValue[] {
  const keys = new Map<string, KeyValue>();
  for (const [i, write] of history.slice(0, revision).entries()) {
    if (write === '') continue;
    const { key, value, modRevision } = eventAt(write, i + 1);
    if (value === undefined) keys.delete(key);
    else
      keys.set(key, {
        key,
        value,
        modRevision,
        createRevision: keys.get(key)?.createRevision ?? modRevision,
      });
  }
  return [...keys.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

/** Returns the answer of a server with this history. */
export function answer(history: History, request: RangeRequest): RangeResponse {
  const { start, end, revision = 0, limit = 0, minModRevision = 0, keysOnly = false } = request;
  const all = keysAt(history, revision || history.length).filter(({ key }) => key >= start && key < end);
  const wanted = all.filter(({ modRevision }) => modRevision >= minModRevision);
  const kvs = wanted
    .slice(0, limit || wanted.length)
    .map((kv) => (keysOnly ? { ...kv, value: new Uint8Array(0) } : kv));
  const header = { clusterID: 'one', revision: history.length, raftTerm: 1 };
  return { header, kvs, count: all.length, more: wanted.length > kvs.length };
}
