import type { Int32Map } from '../base/int32-map.ts';
import type { Int32Rows } from '../base/int32-rows.ts';
import type { ObjectColumn } from '../base/object-column.ts';
import type { NumericIdentity } from '../identity/numeric-identity.ts';
import type { Source } from '../identity/source.ts';
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
export const NEXT = 3;
export const PREVIOUS = 4;
export const STRIDE = 5;

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

const NO_WRITER: ClaimWriter = { source: 'unspec', owner: '' };

/** Where the parts of rows are kept. */
export interface EntryColumns {
  readonly rows: Int32Rows;
  readonly k8s: ObjectColumn<K8sMetadata>;
  /** For each identity the first link of its list. */
  readonly heads: Int32Map;
  readonly hosts: ObjectColumn<string>;
  readonly writers: ObjectColumn<ClaimWriter>;
}

/**
 * The effective claim of every key, by slot, in columns of integers:
 *
 *     slot ─►│ identity │ host·key │ writer·flags │ next │ previous │    and    k8s[slot]
 *                           │           │            └──┬──┘
 *                       HostTable   WriterTable     the other slots of this identity, newest first
 *
 * A row costs 20 bytes, and 8 for the reference to the metadata object that was handed in. Slot 0 is a slot like
 * any other: links are stored plus one, so that the zero of a new row means "none".
 */
export class EntryReader {
  protected readonly columns: EntryColumns;

  constructor(columns: EntryColumns) {
    this.columns = columns;
  }

  /** The rows as they are now; later writes do not show. Costs a few words a page. */
  fork(): EntryReader {
    const { rows, k8s, heads, hosts, writers } = this.columns;
    return new EntryReader({
      rows: rows.fork(),
      k8s: k8s.fork(),
      heads: heads.fork(),
      hosts: hosts.fork(),
      writers: writers.fork(),
    });
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

  /** Slots whose entry has this identity, the one that got it last first. */
  *slotsOfIdentity(identity: number): Generator<number, void, void> {
    const { heads, rows } = this.columns;
    let link = heads.get(identity | 0);
    while (link !== 0) {
      yield link - 1;
      link = rows.get(link - 1, NEXT);
    }
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
