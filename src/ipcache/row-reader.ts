import type { Int32Rows } from '../columns/int32-rows.ts';
import type { ObjectColumn } from '../columns/object-column.ts';
import type { NumericIdentity } from '../model/numeric-identity.ts';
import type { Source } from '../model/source.ts';
import type { WriterID } from './claims/writer-table.ts';
import { IdentityLists } from './identity-lists.ts';
import type { ClaimWriter, IPCacheEntry, K8sMetadata } from './types.ts';

/** A claim with its writer: complete, canonical and immutable. */
export interface CompleteClaim extends IPCacheEntry {
  readonly source: Source;
  readonly owner: string;
}

// Words of a row, and their number. See the drawing of RowReader.
export const IDENTITY_WORD = 0;
export const HOST_AND_ENCRYPT_KEY = 1;
export const WRITER_AND_FLAGS = 2;
export const ROW_STRIDE = 3;

/** Flags that the engine keeps with a row. */
export const FLAG = {
  /** A full-length CIDR whose endpoint IP has a claim. */
  shadowed: 1,
  /** Set from the second writer of a key until it has no claim. */
  contested: 2,
} as const;

export type Flag = (typeof FLAG)[keyof typeof FLAG];

/** Width of the flags in the word that they share with the writer. */
export const FLAG_BITS = 8;
/** Width of the encryption key in the word that it shares with the host. */
export const ENCRYPT_KEY_BITS = 8;
const ENCRYPT_KEY_MASK: number = (1 << ENCRYPT_KEY_BITS) - 1;

/** The writer of an empty row. */
const NO_WRITER_ID: WriterID = 0;
const NO_WRITER: ClaimWriter = { source: 'unspec', owner: '' };

/** The columns of all rows, and the tables that they refer to. */
export interface EntryColumns {
  readonly rows: Int32Rows;
  readonly k8s: ObjectColumn<K8sMetadata>;
  readonly hosts: ObjectColumn<string>;
  readonly writers: ObjectColumn<ClaimWriter>;
}

/**
 * The effective claim of every key, by slot, in columns of integers:
 *
 *     slot ─►│ identity │ host·encryptKey │ writer·flags │    and    k8s[slot]
 *                           │                │
 *                       HostTable       WriterTable       writer 0: the row is empty
 *
 * A row takes 12 bytes, plus 8 for the reference to the caller's metadata object. The lists by identity take 8 bytes
 * more. The first lookup by identity builds them.
 */
export class RowReader {
  protected readonly columns: EntryColumns;
  /** Undefined before the first lookup by identity, because writes touch fewer cache lines without them. */
  protected lists: IdentityLists | undefined;
  /**
   * Shared by all forks: true after a lookup by identity in one of them. Each reader then builds its lists before it is
   * forked, so that the fork has them.
   */
  readonly #usesLists: { value: boolean };
  readonly #seed: number;

  constructor(columns: EntryColumns, seed = 0, usesLists: { value: boolean } = { value: false }) {
    this.columns = columns;
    this.#seed = seed;
    this.#usesLists = usesLists;
  }

  /** Returns the current rows. Later writes do not change the copy. Costs a few words a page. */
  fork(): RowReader {
    const { rows, k8s, hosts, writers } = this.columns;
    const columns = { rows: rows.fork(), k8s: k8s.fork(), hosts: hosts.fork(), writers: writers.fork() };
    const fork = new RowReader(columns, this.#seed, this.#usesLists);
    if (this.#usesLists.value) fork.lists = this.#builtLists().fork();
    return fork;
  }

  /** Returns true if the page of a slot was not written since one of the readers was forked from the other. */
  sharesPage(other: RowReader, slot: number): boolean {
    return this.columns.rows.sharesPage(other.columns.rows, slot);
  }

  /** Returns true if a row has the same content in another reader. If false, the entries may still be equal. */
  holdsSame(slot: number, other: RowReader): boolean {
    const [mine, theirs] = [this.columns, other.columns];
    const [page, otherPage] = [mine.rows.pageOf(slot), theirs.rows.pageOf(slot)];
    const at = mine.rows.offsetOf(slot);
    const hostAndEncryptKey = page[at + HOST_AND_ENCRYPT_KEY] ?? 0;
    return (
      page[at + IDENTITY_WORD] === otherPage[at + IDENTITY_WORD] &&
      hostAndEncryptKey === otherPage[at + HOST_AND_ENCRYPT_KEY] &&
      page[at + WRITER_AND_FLAGS] === otherPage[at + WRITER_AND_FLAGS] &&
      mine.k8s.get(slot) === theirs.k8s.get(slot) &&
      hostText(mine.hosts, hostAndEncryptKey) === hostText(theirs.hosts, hostAndEncryptKey)
    );
  }

  hasFlag(slot: number, flag: Flag): boolean {
    return (this.columns.rows.get(slot, WRITER_AND_FLAGS) & flag) !== 0;
  }

  /** Returns the number of the writer whose claim is in a row; 0 if the row is empty. */
  writerID(slot: number): WriterID {
    return this.columns.rows.get(slot, WRITER_AND_FLAGS) >>> FLAG_BITS;
  }

  /** Returns true if a row has a claim. */
  isUsed(slot: number): boolean {
    return this.writerID(slot) !== NO_WRITER_ID;
  }

  identity(slot: number): NumericIdentity {
    return identityOf(this.columns.rows.get(slot, IDENTITY_WORD));
  }

  k8s(slot: number): K8sMetadata | undefined {
    return this.columns.k8s.get(slot);
  }

  /** Returns the attributes of a row, as listeners receive them. */
  entry(slot: number): IPCacheEntry {
    const { rows, k8s, hosts } = this.columns;
    const page = rows.pageOf(slot);
    const at = rows.offsetOf(slot);
    const hostAndEncryptKey = page[at + HOST_AND_ENCRYPT_KEY] ?? 0;
    return {
      identity: identityOf(page[at + IDENTITY_WORD]),
      hostIP: hostText(hosts, hostAndEncryptKey),
      encryptKey: hostAndEncryptKey & ENCRYPT_KEY_MASK,
      k8s: k8s.get(slot),
    };
  }

  claim(slot: number): CompleteClaim {
    const { rows, k8s, hosts, writers } = this.columns;
    const page = rows.pageOf(slot);
    const at = rows.offsetOf(slot);
    const hostAndEncryptKey = page[at + HOST_AND_ENCRYPT_KEY] ?? 0;
    const { source, owner } = writers.get((page[at + WRITER_AND_FLAGS] ?? 0) >>> FLAG_BITS) ?? NO_WRITER;
    return {
      identity: identityOf(page[at + IDENTITY_WORD]),
      hostIP: hostText(hosts, hostAndEncryptKey),
      encryptKey: hostAndEncryptKey & ENCRYPT_KEY_MASK,
      k8s: k8s.get(slot),
      source,
      owner,
    };
  }

  /** Yields the slots of the entries with this identity, unordered. The first call scans all rows, about 30 ns each. */
  slotsOfIdentity(identity: number): Generator<number, void, void> {
    return this.#builtLists().of(identity);
  }

  /** Yields the identities of all entries, unordered. The first call scans all rows. */
  identities(): Generator<number, void, void> {
    return this.#builtLists().identities();
  }

  /** Returns the number of slots with this identity. The first call scans all rows. */
  countOfIdentity(identity: number): number {
    return this.#builtLists().count(identity);
  }

  #builtLists(): IdentityLists {
    if (this.lists !== undefined) return this.lists;
    const lists = new IdentityLists(this.#seed);
    const { rows } = this.columns;
    for (let slot = 0; slot < rows.limit; slot++) {
      if (this.isUsed(slot)) lists.add(slot, rows.get(slot, IDENTITY_WORD));
    }
    this.lists = lists;
    this.#usesLists.value = true;
    return lists;
  }
}

function identityOf(word: number | undefined): NumericIdentity {
  // All stored identities were checked by claimRejection.
  return ((word ?? 0) >>> 0) as NumericIdentity;
}

/** Returns the text of a host. Host numbers start at one; zero is no host. */
function hostText(hosts: ObjectColumn<string>, hostAndEncryptKey: number): string | undefined {
  const host = hostAndEncryptKey >>> ENCRYPT_KEY_BITS;
  return host === 0 ? undefined : hosts.get(host - 1);
}
