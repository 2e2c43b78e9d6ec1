import { Int32Rows, PAGE_BITS, PAGE_ROWS } from '../columns/int32-rows.ts';
import { ObjectColumn } from '../columns/object-column.ts';
import type { PrefixTable } from '../lpm/prefix-table.ts';
import type { NumericIdentity } from '../model/numeric-identity.ts';
import { type WriterID, WriterTable } from './claims/writer-table.ts';
import { HostTable } from './host-table.ts';
import { metadataOrNone, sameMetadata } from './k8s-metadata.ts';
import {
  type CompleteClaim,
  ENCRYPT_KEY_BITS,
  FLAG_BITS,
  type Flag,
  HOST_AND_ENCRYPT_KEY,
  IDENTITY_WORD,
  ROW_STRIDE,
  RowReader,
  WRITER_AND_FLAGS,
} from './row-reader.ts';
import type { Claim } from './types.ts';

const FLAG_MASK: number = (1 << FLAG_BITS) - 1;

/** Returns the mark of a writer: one of 32 bits. Writers whose numbers are equal modulo 32 share a mark. */
function markOf(writer: WriterID): number {
  return 1 << (writer & 31);
}

/** The writing side of {@link RowReader}. */
export class RowStore extends RowReader {
  readonly hosts: HostTable;
  readonly writers: WriterTable;
  /** For each page of rows, the marks ({@link markOf}) of the writers that may have a claim in it. */
  readonly #writerMarks: number[] = [];

  /** `hostTable` must be empty and is owned by these rows. `seed` is the hash seed of {@link IdentityLists}. */
  constructor(hostTable: PrefixTable, seed?: number) {
    const hosts = new HostTable(hostTable);
    const writers = new WriterTable();
    super(
      {
        rows: new Int32Rows(ROW_STRIDE),
        k8s: new ObjectColumn(),
        hosts: hosts.texts,
        writers: writers.byID,
      },
      seed,
    );
    this.hosts = hosts;
    this.writers = writers;
  }

  /** Memory in bytes, without interned hosts and writers. */
  get bytes(): number {
    return this.columns.rows.bytes + this.columns.k8s.bytes + (this.lists?.bytes ?? 0);
  }

  /** Fills an empty row. `host` is the number of the claim's `hostIP`. */
  fill(slot: number, claim: Claim, host: number): void {
    const { rows, k8s } = this.columns;
    rows.reserve(slot);
    const page = rows.writablePageOf(slot);
    const at = rows.offsetOf(slot);
    page[at + IDENTITY_WORD] = claim.identity;
    page[at + HOST_AND_ENCRYPT_KEY] = (host << ENCRYPT_KEY_BITS) | (claim.encryptKey ?? 0);
    const writer = this.writers.acquire(claim);
    this.#writerMarks[slot >>> PAGE_BITS] = (this.#writerMarks[slot >>> PAGE_BITS] ?? 0) | markOf(writer);
    page[at + WRITER_AND_FLAGS] = writer << FLAG_BITS;
    this.hosts.retain(host);
    k8s.set(slot, metadataOrNone(claim.k8s));
    this.lists?.add(slot, claim.identity);
  }

  /** Updates the attributes of a row for the same writer. Flags are kept. */
  update(slot: number, claim: Claim, host: number): void {
    const { rows, k8s } = this.columns;
    const page = rows.writablePageOf(slot);
    const at = rows.offsetOf(slot);
    const identity = page[at + IDENTITY_WORD] ?? 0;
    if (identity !== (claim.identity | 0)) {
      this.lists?.remove(slot, identity);
      page[at + IDENTITY_WORD] = claim.identity;
      this.lists?.add(slot, claim.identity);
    }
    const previous = (page[at + HOST_AND_ENCRYPT_KEY] ?? 0) >>> ENCRYPT_KEY_BITS;
    if (previous !== host) {
      this.hosts.retain(host);
      this.hosts.release(previous);
    }
    page[at + HOST_AND_ENCRYPT_KEY] = (host << ENCRYPT_KEY_BITS) | (claim.encryptKey ?? 0);
    // Equal metadata keeps the old object, because a new long-lived object costs the garbage collector more than the
    // comparison.
    const metadata = metadataOrNone(claim.k8s);
    if (!sameMetadata(k8s.get(slot), metadata)) k8s.set(slot, metadata);
  }

  /** Replaces the claim in a row by the claim of another writer. Flags are kept. */
  replace(slot: number, claim: Claim, host: number): void {
    const { rows, k8s } = this.columns;
    const flags = rows.get(slot, WRITER_AND_FLAGS) & FLAG_MASK;
    const previous = k8s.get(slot);
    this.hosts.retain(host); // it may be the old host, with this row as its only reference
    this.clear(slot);
    this.fill(slot, claim, host);
    this.hosts.release(host);
    if (sameMetadata(previous, k8s.get(slot))) k8s.set(slot, previous); // as in `update`
    rows.set(slot, WRITER_AND_FLAGS, rows.get(slot, WRITER_AND_FLAGS) | flags);
  }

  clear(slot: number): void {
    const { rows, k8s } = this.columns;
    const page = rows.writablePageOf(slot);
    const at = rows.offsetOf(slot);
    this.lists?.remove(slot, page[at + IDENTITY_WORD] ?? 0);
    this.hosts.release((page[at + HOST_AND_ENCRYPT_KEY] ?? 0) >>> ENCRYPT_KEY_BITS);
    this.writers.release((page[at + WRITER_AND_FLAGS] ?? 0) >>> FLAG_BITS);
    page[at + WRITER_AND_FLAGS] = 0;
    k8s.set(slot, undefined);
  }

  setFlag(slot: number, flag: Flag, on: boolean): void {
    const { rows } = this.columns;
    const word = rows.get(slot, WRITER_AND_FLAGS);
    rows.set(slot, WRITER_AND_FLAGS, on ? word | flag : word & ~flag);
  }

  /** Returns the first row in [`from`, `end`) with a claim of this writer, or `end`. Skips pages by their marks. */
  findRowOf(writer: WriterID, from: number, end: number): number {
    for (let slot = from; slot < end; ) {
      const pageEnd = Math.min(end, (slot | (PAGE_ROWS - 1)) + 1);
      if (((this.#writerMarks[slot >>> PAGE_BITS] ?? 0) & markOf(writer)) !== 0) {
        const found = this.#findInPage(writer, slot, pageEnd);
        if (found < pageEnd) return found;
      }
      slot = pageEnd;
    }
    return end;
  }

  #findInPage(writer: WriterID, from: number, end: number): number {
    let seen = 0;
    for (let slot = from; slot < end; slot++) {
      const other = this.writerID(slot);
      if (other === writer) return slot;
      seen |= markOf(other);
    }
    if (end - from === PAGE_ROWS) this.#writerMarks[from >>> PAGE_BITS] = seen; // the whole page was scanned
    return end;
  }

  /** Returns true if a row has exactly the attributes of `claim`, whoever its writer is. */
  hasAttributes(slot: number, claim: Claim, host: number): boolean {
    const { rows, k8s } = this.columns;
    const page = rows.pageOf(slot);
    const at = rows.offsetOf(slot);
    return (
      page[at + IDENTITY_WORD] === (claim.identity | 0) &&
      page[at + HOST_AND_ENCRYPT_KEY] === ((host << ENCRYPT_KEY_BITS) | (claim.encryptKey ?? 0)) &&
      sameMetadata(k8s.get(slot), metadataOrNone(claim.k8s))
    );
  }

  /** Returns a claim as an object to store outside the rows. `host` is the number of its host IP. */
  toCompleteClaim(claim: Claim, host: number): CompleteClaim {
    return {
      identity: claim.identity as NumericIdentity, // checked by claimRejection
      hostIP: this.hosts.text(host),
      encryptKey: claim.encryptKey ?? 0,
      k8s: metadataOrNone(claim.k8s),
      source: claim.source,
      owner: claim.owner ?? '',
    };
  }
}
