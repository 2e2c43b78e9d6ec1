import { equalBytes } from '../bytes.ts';
import { KvstoreError } from '../errors.ts';
import { keyRange, prefixRange } from '../key-range.ts';
import type { CallOptions, ResponseHeader, Transport } from '../transport.ts';
import type { KnownKeys } from './known-keys.ts';
import { listPages } from './paged-list.ts';

/** How far a watch has come, and what it knows. */
export interface Cursor {
  readonly prefix: string;
  /** Everything before this revision is in `known`. */
  readonly next: number;
  readonly known: KnownKeys;
  /** The latest answer of the store that was followed. */
  readonly header: ResponseHeader | undefined;
}

/**
 * Whether a server still has the history that a watch has followed. `diverged`: it is another cluster, or was
 * restored to an earlier state and may have grown again since: nothing known can be relied on. `compacted`:
 * it cannot be told any more.
 */
export interface FenceResult {
  readonly outcome: 'same' | 'diverged' | 'compacted';
  /** The store's revision when it answered. */
  readonly revision: number;
}

/** Up to here comparing every revision costs one small page, and proves what a spot check only makes likely. */
export const COMPARE_ALL_KEYS = 1000;

const DIVERGED: FenceResult = { outcome: 'diverged', revision: 0 };
const COMPACTED: FenceResult = { outcome: 'compacted', revision: 0 };

/** Whether the header of a quorum read is of the cluster that the cursor has followed, at no earlier a point. */
export function sameHistory(header: ResponseHeader, { next, header: followed }: Cursor): boolean {
  if (header.revision < next - 1) return false;
  if (followed === undefined) return true;
  return header.clusterID === followed.clusterID && header.raftTerm >= followed.raftTerm;
}

/** Whether the server, asked as of the cursor, has the same keys at the same revisions. */
async function compareAll(
  transport: Transport,
  cursor: Cursor,
  call: CallOptions,
): Promise<FenceResult['outcome']> {
  const request = { prefix: cursor.prefix, revision: cursor.next - 1, keysOnly: true };
  let seen = 0;
  for await (const { kvs } of listPages(transport, request, (read) => read(), call)) {
    if (kvs.some(({ key, modRevision }) => cursor.known.revisionOf(key) !== modRevision)) return 'diverged';
    seen += kvs.length;
  }
  return seen === cursor.known.size ? 'same' : 'diverged';
}

/** Whether the server's history has the last write that was seen, in the very words. */
async function checkLastPut(transport: Transport, cursor: Cursor, call: CallOptions): Promise<FenceResult> {
  const { lastPut } = cursor.known;
  // Before anything was written only the revisions can tell; asking for no key at all gives the header.
  const request =
    lastPut === undefined
      ? { ...prefixRange(cursor.prefix), limit: 1, keysOnly: true, revision: cursor.next - 1 }
      : { ...keyRange(lastPut.key), revision: lastPut.modRevision };
  const { header, kvs } = await transport.range(request, call);
  if (!sameHistory(header, cursor)) return DIVERGED;
  const found = kvs[0];
  const same =
    lastPut === undefined ||
    (found?.modRevision === lastPut.modRevision && equalBytes(found.value, lastPut.value));
  return same ? { outcome: 'same', revision: header.revision } : DIVERGED;
}

/** Whether the key that was deleted last is as deleted, or as back, as it was seen to be. */
async function checkLastDelete(
  transport: Transport,
  cursor: Cursor,
  call: CallOptions,
): Promise<FenceResult['outcome']> {
  const { lastDelete } = cursor.known;
  if (lastDelete === undefined) return 'same';
  const request = { ...keyRange(lastDelete.key), revision: cursor.next - 1 };
  const { kvs } = await transport.range(request, call);
  return kvs[0]?.modRevision === cursor.known.revisionOf(lastDelete.key) ? 'same' : 'diverged';
}

async function check(
  transport: Transport,
  cursor: Cursor,
  call: CallOptions,
  all: boolean,
): Promise<FenceResult> {
  const result = await checkLastPut(transport, cursor, call);
  if (result.outcome !== 'same') return result;
  const rest = all
    ? await compareAll(transport, cursor, call)
    : await checkLastDelete(transport, cursor, call);
  return rest === 'same' ? result : DIVERGED;
}

async function told(checked: Promise<FenceResult>): Promise<FenceResult> {
  try {
    return await checked;
  } catch (error) {
    if (error instanceof KvstoreError && error.code === 'future-revision') return DIVERGED;
    if (error instanceof KvstoreError && error.code === 'compacted') return COMPACTED;
    throw error;
  }
}

/**
 * Asks a server, by quorum reads **as of revisions that were followed**, whether it has the history that the
 * cursor stands for. To be done before a watch is resumed: after a restore from a backup nothing but its
 * revisions tells the store from the one before, and once it has grown past the cursor not even they do.
 *
 * The last write must be there word for word. Up to 1000 keys every mod revision is compared; beyond, the last
 * delete that was seen.
 */
export function fence(transport: Transport, cursor: Cursor, call: CallOptions): Promise<FenceResult> {
  return told(check(transport, cursor, call, cursor.known.size <= COMPARE_ALL_KEYS));
}

/** {@link fence}, comparing every mod revision however many there are: the periodic reconciliation. */
export function reconcile(transport: Transport, cursor: Cursor, call: CallOptions): Promise<FenceResult> {
  return told(check(transport, cursor, call, true));
}
