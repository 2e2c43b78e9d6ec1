import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { base64OfBytes, textOfBytes } from '../kvstore/codec/bytes.ts';
import {
  CLUSTER_CONFIG_PREFIX,
  clusterConfigKey,
  HEARTBEAT_KEY,
  IDENTITY_LOCKS_PREFIX,
  syncedPrefix,
} from '../kvstore/codec/keys.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import { asKvstoreError } from '../kvstore/session/errors.ts';
import type { KeyValue } from '../kvstore/session/transport.ts';

const STATE_PREFIX = 'cilium/state/';
const CACHE_PREFIX = 'cilium/cache/';
const SYNCED_PREFIX = 'cilium/synced/';

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
 * base64. Locks are omitted. Returns the number of keys. Rejects with a `KvstoreError` if the kvstore does not answer,
 * or if the user may read neither `cilium/state/` nor `cilium/cache/`; only complete lines have been written then.
 *
 * Of each prefix, only the keys that the user may read are written. Cilium's users for remote clusters may read neither
 * `cilium/cache/` nor the configurations of other clusters. Those for local agents may not read `cilium/state/`.
 */
export async function recordKeys(backend: KvstoreBackend, options: RecordOptions): Promise<number> {
  const { signal, store } = options;
  const get = async (key: string): Promise<readonly KeyValue[]> => {
    const kv = await backend.get(key, { signal });
    return kv === undefined ? [] : [kv];
  };
  const list = (prefix: string): Promise<readonly KeyValue[]> => backend.listPrefix(prefix, { signal });
  let written = await writeKeys(await get(HEARTBEAT_KEY), options);
  const configs = await allowed(list(CLUSTER_CONFIG_PREFIX));
  written += await writeKeys(configs ?? (await get(clusterConfigKey(store))), options);
  const state = await allowed(list(STATE_PREFIX));
  if (state !== undefined) written += await writeKeys(state, options);
  // Rejects if the user may read neither the state nor the copies.
  const copies = state === undefined ? await list(CACHE_PREFIX) : await allowed(list(CACHE_PREFIX));
  if (copies !== undefined) written += await writeKeys(copies, options);
  const canaries = await allowed(list(SYNCED_PREFIX));
  return written + (await writeKeys(canaries ?? (await list(syncedPrefix(store))), options));
}

/** Returns the keys; undefined if the user may not read them. */
async function allowed(reading: Promise<readonly KeyValue[]>): Promise<readonly KeyValue[] | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (asKvstoreError(error).code === 'forbidden') return undefined;
    throw error;
  }
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
