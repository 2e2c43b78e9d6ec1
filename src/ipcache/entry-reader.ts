import type { Int32Rows } from '../base/int32-rows.ts';
import type { ObjectColumn } from '../base/object-column.ts';
import type { NumericIdentity } from '../identity/numeric-identity.ts';
import type { Source } from '../identity/source.ts';
import { IdentityLists } from './identity-lists.ts';
import type { ClaimWriter, IPCacheEntry, K8sMetadata } from './types.ts';

/** A claim taken out of the rows: complete, canonical, immutable. */
export interface HeldClaim extends IPCacheEntry {
  readonly source: Source;
  readonly owner: string;
}

// Columns of a row; see the drawing below.
export const IDENTITY = 0;
export const HOST_AND_KEY = 1;
export const WRITER_AND_FLAGS = 2;
export const STRIDE = 3;

/** Flags that the engine keeps with a row. */
export const FLAG = {
  /** A full-length CIDR under an endpoint IP. */
  shadowed: 1,
  /** Some claim on this key has been overruled, or replaced by another writer's. */
  contested: 2,
} as const;

/** One of {@link FLAG}. */
export type Flag = (typeof FLAG)[keyof typeof FLAG];

export const FLAG_BITS = 8;
export const KEY_BITS = 8;
const KEY_MASK: number = (1 << KEY_BITS) - 1;

/** What an empty row has for a writer. */
const NO_WRITER_ID = 0;
const NO_WRITER: ClaimWriter = { source: 'unspec', owner: '' };

/** Where the parts of rows are kept. */
export interface EntryColumns {
  readonly rows: Int32Rows;
  readonly k8s: ObjectColumn<K8sMetadata>;
  readonly hosts: ObjectColumn<string>;
  readonly writers: ObjectColumn<ClaimWriter>;
}

/**
 * The effective claim of every key, by slot, in columns of integers:
 *
 *     slot ─►│ identity │ host·key │ writer·flags │    and    k8s[slot]
 *                           │           │
 *                       HostTable   WriterTable       no writer: the row is empty
 *
 * A row costs 12 bytes, and 8 for the reference to the metadata object that was handed in. The lists by identity, 8
 * bytes more, are made when one is asked for, and kept from then on.
 */
export class EntryReader {
  protected readonly columns: EntryColumns;
  /** Undefined until they are asked for: writes touch fewer lines without them. */
  protected lists: IdentityLists | undefined;
  /** Shared by forks: those of a reader whose forks are asked for lists have them from the beginning. */
  readonly #wanted: { lists: boolean };
  /** Of the lists. */
  readonly #seed: number;

  constructor(columns: EntryColumns, seed = 0, wanted: { lists: boolean } = { lists: false }) {
    this.columns = columns;
    this.#seed = seed;
    this.#wanted = wanted;
  }

  /** The rows as they are now; later writes do not show. Costs a few words a page. */
  fork(): EntryReader {
    const { rows, k8s, hosts, writers } = this.columns;
    const columns = { rows: rows.fork(), k8s: k8s.fork(), hosts: hosts.fork(), writers: writers.fork() };
    const fork = new EntryReader(columns, this.#seed, this.#wanted);
    if (this.#wanted.lists) fork.lists = this.#allLists().fork();
    return fork;
  }

  /** Whether no row of the page of a slot has been written since one of the readers was forked from the other. */
  sharesPage(other: EntryReader, slot: number): boolean {
    return this.columns.rows.sharesPage(other.columns.rows, slot);
  }

  /** Whether a row surely says the same in another reader; false may also mean that it takes a closer look. */
  holdsSame(slot: number, other: EntryReader): boolean {
    const [mine, theirs] = [this.columns, other.columns];
    const [page, otherPage] = [mine.rows.pageOf(slot), theirs.rows.pageOf(slot)];
    const at = mine.rows.offsetOf(slot);
    const hostAndKey = page[at + HOST_AND_KEY] ?? 0;
    return (
      page[at + IDENTITY] === otherPage[at + IDENTITY] &&
      hostAndKey === otherPage[at + HOST_AND_KEY] &&
      page[at + WRITER_AND_FLAGS] === otherPage[at + WRITER_AND_FLAGS] &&
      mine.k8s.get(slot) === theirs.k8s.get(slot) &&
      hostText(mine.hosts, hostAndKey) === hostText(theirs.hosts, hostAndKey)
    );
  }

  has(slot: number, flag: Flag): boolean {
    return (this.columns.rows.get(slot, WRITER_AND_FLAGS) & flag) !== 0;
  }

  /** The number of the writer whose claim is in the row. */
  writer(slot: number): number {
    return this.columns.rows.get(slot, WRITER_AND_FLAGS) >>> FLAG_BITS;
  }

  identity(slot: number): NumericIdentity {
    return identityOf(this.columns.rows.get(slot, IDENTITY));
  }

  /** The attributes of a row as listeners receive them. */
  entry(slot: number): IPCacheEntry {
    const { rows, k8s, hosts } = this.columns;
    const page = rows.pageOf(slot);
    const at = rows.offsetOf(slot);
    const hostAndKey = page[at + HOST_AND_KEY] ?? 0;
    return {
      identity: identityOf(page[at + IDENTITY]),
      hostIP: hostText(hosts, hostAndKey),
      encryptKey: hostAndKey & KEY_MASK,
      k8s: k8s.get(slot),
    };
  }

  /** The claim in a row. */
  claim(slot: number): HeldClaim {
    const { rows, k8s, hosts, writers } = this.columns;
    const page = rows.pageOf(slot);
    const at = rows.offsetOf(slot);
    const hostAndKey = page[at + HOST_AND_KEY] ?? 0;
    const { source, owner } = writers.get((page[at + WRITER_AND_FLAGS] ?? 0) >>> FLAG_BITS) ?? NO_WRITER;
    return {
      identity: identityOf(page[at + IDENTITY]),
      hostIP: hostText(hosts, hostAndKey),
      encryptKey: hostAndKey & KEY_MASK,
      k8s: k8s.get(slot),
      source,
      owner,
    };
  }

  /** Slots whose entry has this identity, in no order. The first call walks all rows, some 30 ns each. */
  slotsOfIdentity(identity: number): Generator<number, void, void> {
    this.#wanted.lists = true;
    return this.#allLists().of(identity);
  }

  /** How many slots that are. Costs the first call the same. */
  countOfIdentity(identity: number): number {
    this.#wanted.lists = true;
    return this.#allLists().count(identity);
  }

  #allLists(): IdentityLists {
    if (this.lists !== undefined) return this.lists;
    const lists = new IdentityLists(this.#seed);
    const { rows } = this.columns;
    for (let slot = 0; slot < rows.limit; slot++) {
      if (this.writer(slot) !== NO_WRITER_ID) lists.add(slot, rows.get(slot, IDENTITY));
    }
    this.lists = lists;
    return lists;
  }
}

function identityOf(word: number | undefined): NumericIdentity {
  // Only identities that claimFault has checked are ever stored.
  return ((word ?? 0) >>> 0) as NumericIdentity;
}

/** Hosts are numbered from one; zero is none. */
function hostText(hosts: ObjectColumn<string>, hostAndKey: number): string | undefined {
  const host = hostAndKey >>> KEY_BITS;
  return host === 0 ? undefined : hosts.get(host - 1);
}
