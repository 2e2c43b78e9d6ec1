import { equalBytes } from './bytes.ts';
import { asKvstoreError } from './errors.ts';
import type { KeyValue } from './transport.ts';
import { type Anchor, Anchors } from './watch/anchors.ts';

/** A key as it is now, or as it was at a revision; rejects with `compacted` or `future-revision` where that is not known. */
export type ReadOwn = (key: string, revision?: number) => Promise<KeyValue | undefined>;

/**
 * The last writes of a client under its leases: a store in whose history they are not was restored from a backup. By that a
 * client learns of it that watches nothing. Others may delete or overwrite these keys: what is not there now is looked for
 * at the revision at which it was put; only where that has been compacted a missing key counts as a restore.
 */
export class OwnWrites {
  readonly #puts = new Anchors();
  #deleted: { readonly key: string; readonly revision: number } | undefined;

  put(key: string, value: Uint8Array, revision: number): void {
    this.#puts.put(key, value, revision);
    this.#puts.seal();
  }

  deleted(key: string, revision: number): void {
    this.forget(key);
    this.#deleted = { key, revision };
  }

  /** The key may be gone. To be called before a delete is sent: a look at the same time must not take it for a restore. */
  forget(key: string): void {
    this.#puts.drop(key);
  }

  /** The store is another one, or was restored. */
  clear(): void {
    this.#puts.clear();
    this.#deleted = undefined;
  }

  /** Whether the store shows the last put, or a later one, or once did; and not what was deleted last. */
  async areShown(read: ReadOwn): Promise<boolean> {
    const [put] = this.#puts.newestFirst;
    const deleted = this.#deleted;
    const kv = put && (await read(put.key));
    const ghost = deleted && (await read(deleted.key));
    if (deleted !== undefined && ghost !== undefined && ghost.modRevision < deleted.revision) return false;
    if (put === undefined || !this.#puts.newestFirst.includes(put)) return true; // it is being deleted
    if (kv === undefined) return wasShown(put, read);
    return kv.modRevision > put.modRevision || isOf(put, kv);
  }
}

function isOf(put: Anchor, kv: KeyValue | undefined): boolean {
  return kv?.modRevision === put.modRevision && equalBytes(kv.value, put.value);
}

/** Whether somebody has taken away what was put: it is in the history. */
async function wasShown(put: Anchor, read: ReadOwn): Promise<boolean> {
  try {
    return isOf(put, await read(put.key, put.modRevision));
  } catch (error) {
    const { code } = asKvstoreError(error);
    if (code === 'compacted' || code === 'future-revision') return false;
    throw error;
  }
}
