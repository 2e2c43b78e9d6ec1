import { asKvstoreError } from '../session/errors.ts';
import type { KeyValue } from '../session/transport.ts';
import { type Anchor, Anchors, isUnchanged } from './anchors.ts';

/**
 * Reads a key, optionally at a revision. Rejects with `compacted` or `future-revision` if the revision is not
 * available.
 */
export type ReadKey = (key: string, revision?: number) => Promise<KeyValue | undefined>;

/**
 * Result of the check of a put. `proven`: the store has the put, or a later one of the key. `restored`: the store has
 * another history without the put. `unknown`: the key does not exist and its history is compacted, so the store may
 * have had the put.
 */
type PutVerdict = 'proven' | 'restored' | 'unknown';

/**
 * The last writes of a client under its leases. If the history of the store does not contain one of them, the store was
 * restored from a backup. A client without watches detects a restore in this way.
 *
 * Other clients may delete or overwrite these keys. If a key does not exist any more, its history is read. If the
 * history is compacted, the put proves nothing, and the previous put is checked. If no put proves anything, the store
 * counts as not restored, because otherwise the client would lose all its leases and locks.
 */
export class ClientWrites {
  readonly #puts = new Anchors();
  /** The keys of `#puts`: a set, because each write of a transaction looks up its key. */
  #keys = new Set<string>();
  #lastDelete: { readonly key: string; readonly revision: number } | undefined;

  /**
   * Records a put, unless a put at the same or a later revision is recorded: answers to concurrent transactions arrive
   * in any order.
   */
  put(key: string, value: Uint8Array, revision: number): void {
    if (revision <= this.#puts.newest) return;
    this.forget(key);
    this.#puts.put({ key, value, modRevision: revision });
    this.#puts.copyValues();
    this.#keys = new Set(this.#puts.newestFirst.map((put) => put.key));
  }

  /** Records a delete of a leased key. Only the last one is kept. */
  recordDelete(key: string, revision: number): void {
    this.forget(key);
    this.#lastDelete = { key, revision };
  }

  /**
   * Removes the put of a key that this client deletes. Call it before the delete is sent: otherwise a concurrent check
   * could find the key missing and report a restore.
   */
  forget(key: string): void {
    if (this.#keys.delete(key)) this.#puts.drop({ key });
  }

  forgetBelow(prefix: string): void {
    for (const { key } of this.#puts.newestFirst) if (key.startsWith(prefix)) this.forget(key);
  }

  /** Resets the state after the store was replaced or restored. */
  clear(): void {
    this.#puts.clear();
    this.#keys.clear();
    this.#lastDelete = undefined;
  }

  /**
   * Returns false if the store was restored: it does not have the last put that can be checked, or still has the last
   * deleted key.
   */
  async areInHistory(read: ReadKey): Promise<boolean> {
    const puts = this.#puts.newestFirst;
    if (await this.#isDeleteUndone(read)) return false;
    for (const put of puts) {
      const verdict = await verdictOf(put, read);
      if (!this.#puts.newestFirst.includes(put)) return true; // written during the read: the next check decides
      if (verdict !== 'unknown') return verdict === 'proven';
    }
    return true;
  }

  async #isDeleteUndone(read: ReadKey): Promise<boolean> {
    const lastDelete = this.#lastDelete;
    const kv = lastDelete && (await read(lastDelete.key));
    return lastDelete !== undefined && kv !== undefined && kv.modRevision < lastDelete.revision;
  }
}

async function verdictOf(put: Anchor, read: ReadKey): Promise<PutVerdict> {
  const kv = await read(put.key);
  if (kv === undefined) return verdictOfHistory(put, read);
  return kv.modRevision > put.modRevision || isUnchanged(put, kv) ? 'proven' : 'restored';
}

async function verdictOfHistory(put: Anchor, read: ReadKey): Promise<PutVerdict> {
  try {
    return isUnchanged(put, await read(put.key, put.modRevision)) ? 'proven' : 'restored';
  } catch (error) {
    const { code } = asKvstoreError(error);
    if (code === 'compacted') return 'unknown';
    if (code === 'future-revision') return 'restored';
    throw error;
  }
}
