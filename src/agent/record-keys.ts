import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { type Rejection, rejection } from '../base/rejection.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { textOfBytes } from '../kvstore/bytes.ts';
import { HEARTBEAT_KEY, IDENTITY_LOCKS_PREFIX } from '../kvstore/codec/keys.ts';
import type { KeyValue } from '../kvstore/transport.ts';

/** The prefixes of a cluster's kvstore that a user of the mesh may read (WIRE, "Keys"). */
const PREFIXES = ['cilium/cluster-config/', 'cilium/state/', 'cilium/cache/', 'cilium/synced/'];

/** Lines that are written at a time: about 100 kB. */
const LINES = 256;

/** Options of {@link recordKeys}. */
export interface RecordOptions {
  /** The cluster whose kvstore it is. */
  readonly store: string;
  /** Receives the lines, several in one text, each with its line feed. The next text waits for the promise. */
  readonly write: (lines: string) => Promise<void>;
  /** Receives each key whose value is not text. */
  readonly onReject: (rejection: Rejection) => void;
  readonly signal: AbortSignal;
}

/**
 * Writes what a kvstore holds of a mesh as `--load` reads it: JSON lines of `{"store", "key", "value"}`, each prefix at
 * one revision and in order of key. Locks are left out. Gives the number of keys. Rejects with a `KvstoreError` when
 * the kvstore does not answer; what has been written by then is complete lines.
 */
export async function recordKeys(backend: KvstoreBackend, options: RecordOptions): Promise<number> {
  const { signal } = options;
  const heartbeat = await backend.get(HEARTBEAT_KEY, { signal });
  let written = heartbeat === undefined ? 0 : await writeKeys([heartbeat], options);
  for (const prefix of PREFIXES) {
    written += await writeKeys(await backend.listPrefix(prefix, { signal }), options);
  }
  return written;
}

async function writeKeys(
  kvs: readonly KeyValue[],
  { store, write, onReject, signal }: RecordOptions,
): Promise<number> {
  let written = 0;
  for (let from = 0; from < kvs.length; from += LINES) {
    signal.throwIfAborted();
    const lines: string[] = [];
    for (const { key, value } of kvs.slice(from, from + LINES)) {
      if (key.startsWith(IDENTITY_LOCKS_PREFIX)) continue;
      const text = textOfBytes(value);
      if (text === undefined)
        onReject(rejection('invalid-utf8', 'value', [...value.subarray(0, 32)], 'not UTF-8: left out', key));
      else lines.push(`${JSON.stringify({ store, key, value: text })}\n`);
    }
    await write(lines.join(''));
    written += lines.length;
    await eventLoopTurn();
  }
  return written;
}
