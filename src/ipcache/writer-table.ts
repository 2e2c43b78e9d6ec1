import { compareWriters, type Source } from '../identity/source.ts';
import type { ClaimWriter, Writer } from './types.ts';

/** A small number that stands for a (source, owner) pair while any claim of that writer lives. */
export type WriterID = number;

/**
 * Numbers the writers that hold claims, and counts the claims of each. A number is used again once its writer
 * holds none, so writers that come and go (nodes, clusters) leave nothing behind.
 */
export class WriterTable {
  readonly #idsBySource = new Map<Source, Map<string, WriterID>>();
  readonly #writers: ClaimWriter[] = [];
  readonly #claims: number[] = [];
  readonly #free: WriterID[] = [];

  /** The number of a writer that holds claims, or -1. */
  find(writer: Writer): WriterID {
    return this.#idsBySource.get(writer.source)?.get(writer.owner ?? '') ?? -1;
  }

  /** Counts one more claim of a writer and gives its number. */
  acquire(writer: Writer): WriterID {
    const id = this.#intern(writer.source, writer.owner ?? '');
    this.#claims[id] = this.claimsOf(id) + 1;
    return id;
  }

  /** Counts one claim less; with the last one the number is free. */
  release(id: WriterID): void {
    const left = this.claimsOf(id) - 1;
    this.#claims[id] = left;
    if (left > 0) return;
    const { source, owner } = this.writer(id);
    this.#idsBySource.get(source)?.delete(owner);
    this.#free.push(id);
  }

  claimsOf(id: WriterID): number {
    return this.#claims[id] ?? 0;
  }

  writer(id: WriterID): ClaimWriter {
    return this.#writers[id] ?? NOBODY;
  }

  /** Negative when `a`'s claim is stronger (I4); 0 for one and the same writer. */
  compare(a: WriterID, b: WriterID): number {
    return a === b ? 0 : compareWriters(this.writer(a), this.writer(b));
  }

  /** Effective claims per source. */
  entriesBySource(): ReadonlyMap<Source, number> {
    const counts = new Map<Source, number>();
    for (const [source, ids] of this.#idsBySource) {
      const total = [...ids.values()].reduce((sum, id) => sum + this.claimsOf(id), 0);
      if (total > 0) counts.set(source, total);
    }
    return counts;
  }

  #intern(source: Source, owner: string): WriterID {
    let ids = this.#idsBySource.get(source);
    if (ids === undefined) {
      ids = new Map();
      this.#idsBySource.set(source, ids);
    }
    const known = ids.get(owner);
    if (known !== undefined) return known;
    const id = this.#free.pop() ?? this.#writers.length;
    this.#writers[id] = { source, owner };
    this.#claims[id] = 0;
    ids.set(owner, id);
    return id;
  }
}

const NOBODY: ClaimWriter = { source: 'unspec', owner: '' };
