import { KvstoreError } from '../errors.ts';
import { keyRange } from '../key-range.ts';
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

// Up to here comparing every revision costs one small page, and proves what a spot check only makes likely.
const COMPARE_ALL_KEYS = 1000;

const DIVERGED: FenceResult = { outcome: 'diverged', revision: 0 };
const COMPACTED: FenceResult = { outcome: 'compacted', revision: 0 };

/** Whether the header of a quorum read is of the cluster that the cursor has followed, at no earlier a point. */
export function sameHistory(header: ResponseHeader, { next, header: followed }: Cursor): boolean {
  if (header.revision < next - 1) return false;
  if (followed === undefined) return true;
  return header.clusterID === followed.clusterID && header.raftTerm >= followed.raftTerm;
}

async function compareAll(transport: Transport, cursor: Cursor, call: CallOptions): Promise<FenceResult> {
  const request = { prefix: cursor.prefix, revision: cursor.next - 1, keysOnly: true };
  let seen = 0;
  let revision = 0;
  for await (const { header, kvs } of listPages(transport, request, (read) => read(), call)) {
    if (!sameHistory(header, cursor)) return DIVERGED;
    if (kvs.some(({ key, modRevision }) => cursor.known.revisionOf(key) !== modRevision)) return DIVERGED;
    seen += kvs.length;
    revision = header.revision;
  }
  return seen === cursor.known.size ? { outcome: 'same', revision } : DIVERGED;
}

/** Whether the server, asked as of the cursor, has the last write and the last delete as they were seen. */
async function spotCheck(transport: Transport, cursor: Cursor, call: CallOptions): Promise<FenceResult> {
  let revision = 0;
  for (const write of [cursor.known.lastPut, cursor.known.lastDelete]) {
    if (write === undefined) continue;
    const request = { ...keyRange(write.key), revision: cursor.next - 1 };
    const { header, kvs } = await transport.range(request, call);
    if (!sameHistory(header, cursor)) return DIVERGED;
    if (kvs[0]?.modRevision !== cursor.known.revisionOf(write.key)) return DIVERGED;
    revision = header.revision;
  }
  return { outcome: 'same', revision };
}

async function told(check: Promise<FenceResult>): Promise<FenceResult> {
  try {
    return await check;
  } catch (error) {
    if (error instanceof KvstoreError && error.code === 'future-revision') return DIVERGED;
    if (error instanceof KvstoreError && error.code === 'compacted') return COMPACTED;
    throw error;
  }
}

/**
 * Asks a server, by a quorum read **as of the last revision that was followed**, whether it has the history
 * that the cursor stands for. To be done before a watch is resumed: after a restore from a backup nothing but
 * its revisions tells the store from the one before, and once it has grown past the cursor not even they do.
 *
 * Up to 1000 keys every mod revision is compared; beyond, the last write and the last delete that were seen.
 */
export function fence(transport: Transport, cursor: Cursor, call: CallOptions): Promise<FenceResult> {
  const check = cursor.known.size <= COMPARE_ALL_KEYS ? compareAll : spotCheck;
  return told(check(transport, cursor, call));
}

/** {@link fence}, comparing every mod revision however many there are: the periodic reconciliation. */
export function reconcile(transport: Transport, cursor: Cursor, call: CallOptions): Promise<FenceResult> {
  return told(compareAll(transport, cursor, call));
}
