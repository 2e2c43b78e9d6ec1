import { equalBytes } from './bytes.ts';
import type { KeyValue } from './transport.ts';
import { Anchors } from './watch/anchors.ts';

/**
 * The last writes of a client under its leases: no other client writes these keys, so a store that does not show them was restored
 * from a backup. By that a client learns of it that watches nothing.
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

  /** Whether the store shows the last put that should still stand, or a later one, and not what was deleted last. */
  async areShown(read: (key: string) => Promise<KeyValue | undefined>): Promise<boolean> {
    const [put] = this.#puts.newestFirst;
    const deleted = this.#deleted;
    const kv = put && (await read(put.key));
    const ghost = deleted && (await read(deleted.key));
    if (deleted !== undefined && ghost !== undefined && ghost.modRevision < deleted.revision) return false;
    if (put === undefined || !this.#puts.newestFirst.includes(put)) return true; // it is being deleted
    if (kv?.modRevision === put.modRevision) return equalBytes(kv.value, put.value);
    return kv !== undefined && kv.modRevision > put.modRevision;
  }
}
