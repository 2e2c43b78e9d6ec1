import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { base64OfBytes, textOfBytes } from '../kvstore/codec/bytes.ts';
import { HEARTBEAT_KEY, IDENTITY_LOCKS_PREFIX } from '../kvstore/codec/keys.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import type { KeyValue } from '../kvstore/session/transport.ts';

/** The prefixes that a user of the mesh may read (WIRE, "Keys"). */
const PREFIXES = ['cilium/cluster-config/', 'cilium/state/', 'cilium/cache/', 'cilium/synced/'];

/** Maximum number of lines, one for each key, in one write: about 100 kB. */
const MAX_LINES = 256;

/** Options of {@link recordKeys}. */
export interface RecordOptions {
  /** Name of the cluster that owns the kvstore. */
  readonly store: string;
  /** Receives one or more lines, each with its line feed. The next call waits for the promise. */
  readonly write: (lines: string) => Promise<void>;
  readonly signal: AbortSignal;
}

/**
 * Writes the keys of a kvstore in the format of `--load`: JSON lines of `{"store", "key", "value"}`. The heartbeat is
 * first; each prefix follows at one revision, sorted by key. A value that is not UTF-8 is written as `value64`, in
 * base64. Locks are omitted. Returns the number of keys. Rejects with a `KvstoreError` if the kvstore does not answer;
 * only complete lines have been written then.
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

async function writeKeys(kvs: readonly KeyValue[], { store, write, signal }: RecordOptions): Promise<number> {
  let written = 0;
  for (let from = 0; from < kvs.length; from += MAX_LINES) {
    signal.throwIfAborted();
    const lines: string[] = [];
    for (const { key, value } of kvs.slice(from, from + MAX_LINES)) {
      if (key.startsWith(IDENTITY_LOCKS_PREFIX)) continue;
      const text = textOfBytes(value);
      const recorded = text === undefined ? { value64: base64OfBytes(value) } : { value: text };
      lines.push(`${JSON.stringify({ store, key, ...recorded })}\n`);
    }
    await write(lines.join(''));
    written += lines.length;
    await eventLoopTurn();
  }
  return written;
}
