import { assert } from '../../base/assert.ts';
import { ObjectColumn } from '../../columns/object-column.ts';
import type { Source } from '../../model/source.ts';
import type { ClaimWriter, Writer } from '../types.ts';

/** The number, above 0, of a (source, owner) pair while a claim of that writer is effective. */
export type WriterID = number;

/**
 * Numbers the writers that have effective claims, and counts the claims of each. The number of a writer without claims
 * is reused, so that transient writers (nodes, clusters) leave nothing behind.
 */
export class WriterTable {
  readonly #ids = new Map<Source, Map<string, WriterID>>();
  /** The writers by number. The entry of a free number stays until the number is reused. */
  readonly byID: ObjectColumn<ClaimWriter> = new ObjectColumn();
  /** The number of claims of each writer. Index 0 stands for empty rows. */
  readonly #claimCounts: number[] = [0];
  readonly #freeIDs: WriterID[] = [];
  /** The writer of the last `find` and its number, or -1. Writes arrive in runs of one writer. */
  #lastSource: Source | undefined;
  #lastOwner = '';
  #lastID: WriterID = -1;

  /** Returns the number of a writer that has effective claims, or -1. */
  find(writer: Writer): WriterID {
    const owner = writer.owner ?? '';
    if (this.#lastOwner !== owner || this.#lastSource !== writer.source) {
      this.#lastID = this.#ids.get(writer.source)?.get(owner) ?? -1;
      this.#lastSource = writer.source;
      this.#lastOwner = owner;
    }
    return this.#lastID;
  }

  /** Adds a claim of a writer and returns its number. */
  acquire(writer: Writer): WriterID {
    const found = this.find(writer);
    const id = found >= 0 ? found : this.#add(writer.source, writer.owner ?? '');
    this.#lastID = id;
    this.#claimCounts[id] = this.claimsOf(id) + 1;
    return id;
  }

  /** Removes a claim of a writer. After the last one its number is free. */
  release(id: WriterID): void {
    const remaining = this.claimsOf(id) - 1;
    this.#claimCounts[id] = remaining;
    if (remaining > 0) return;
    const { source, owner } = this.writer(id);
    this.#ids.get(source)?.delete(owner);
    this.#freeIDs.push(id);
    if (this.#lastID === id) this.#lastID = -1;
  }

  claimsOf(id: WriterID): number {
    return this.#claimCounts[id] ?? 0;
  }

  /** Returns the writer of a number in use. */
  writer(id: WriterID): ClaimWriter {
    const writer = this.byID.get(id);
    assert(writer !== undefined, 'the writer number is in use');
    return writer;
  }

  /** Returns a predicate of numbers in use: true for wanted writers. It calls `isWanted` once for each writer. */
  testByID(isWanted: (writer: ClaimWriter) => boolean): (id: WriterID) => boolean {
    const tested: ClaimWriter[] = [];
    const results: boolean[] = [];
    return (id) => {
      const writer = this.writer(id);
      if (tested[id] !== writer) {
        tested[id] = writer;
        results[id] = isWanted(writer);
      }
      return results[id] === true;
    };
  }

  /** Yields the writers with effective claims, unordered. */
  *all(): Generator<ClaimWriter, void, void> {
    for (const ids of this.#ids.values()) for (const id of ids.values()) yield this.writer(id);
  }

  /** Returns the number of effective claims of each source. */
  entriesBySource(): Readonly<Partial<Record<Source, number>>> {
    const counts: Partial<Record<Source, number>> = {};
    for (const [source, ids] of this.#ids) {
      const total = [...ids.values()].reduce((sum, id) => sum + this.claimsOf(id), 0);
      if (total > 0) counts[source] = total;
    }
    return counts;
  }

  #add(source: Source, owner: string): WriterID {
    const id = this.#freeIDs.pop() ?? this.#claimCounts.length;
    this.byID.set(id, { source, owner });
    this.#claimCounts[id] = 0;
    const ids = this.#ids.get(source);
    if (ids === undefined) this.#ids.set(source, new Map([[owner, id]]));
    else ids.set(owner, id);
    return id;
  }
}
