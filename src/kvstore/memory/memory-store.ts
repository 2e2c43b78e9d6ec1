import { SortedMap } from '../../base/sorted-map.ts';
import { forEachInSteps } from '../../base/turn-gate.ts';
import { charactersOf, equalBytes } from '../codec/bytes.ts';
import { compareKeys, inRange, isOneKey, type KeyRange, NO_END } from '../codec/key-range.ts';
import { KvstoreError } from '../session/errors.ts';
import {
  type Compare,
  type KeyValue,
  type LeaseID,
  NO_LEASE,
  type RangeRequest,
  type RangeResponse,
  type ResponseHeader,
  type TransportEvent,
  type TxnRequest,
  type TxnResponse,
  type WriteOperation,
} from '../session/transport.ts';
import { ExpandedBlocks, packValues, type StoredValue } from './packed-values.ts';

/** The common data of the versions of one transaction. */
interface Commit {
  readonly revision: number;
  /** The lease of each version, by index. If there is only one element, it is the lease of all versions. */
  readonly leases: LeaseID[];
  /** The create revision of each version, by index; missing for new keys. */
  readonly createRevisions: number[];
  /** The longest common prefix of the keys. */
  prefix: string;
}

/** A version of a key, from one revision on. */
export class Version implements StoredValue {
  readonly key: string;
  value: StoredValue['value'];
  readonly #commit: Commit;
  readonly index: number;

  constructor(key: string, value: string | undefined, commit: Commit, index: number) {
    this.key = key;
    this.value = value;
    this.#commit = commit;
    this.index = index;
  }

  get modRevision(): number {
    return this.#commit.revision;
  }

  get createRevision(): number {
    return this.#commit.createRevisions[this.index] ?? this.#commit.revision;
  }

  /** Returns the longest prefix of all keys of the transaction. */
  get commonPrefix(): string {
    return this.#commit.prefix;
  }

  get lease(): LeaseID {
    const { leases } = this.#commit;
    return leases[this.index] ?? leases[0] ?? NO_LEASE;
  }
}

/** A transaction of any number of operations. */
export interface StoreTxn extends Pick<TxnRequest, 'compare'> {
  /** Iterated twice. */
  readonly writes: Iterable<WriteOperation>;
  readonly otherwise?: Iterable<WriteOperation> | undefined;
  /** Throws if the lease of a put does not exist. Called for applied puts, as in etcd. */
  readonly checkLease?: ((lease: LeaseID) => void) | undefined;
}

/** The versions written by a transaction. */
interface Plan {
  readonly versions: readonly Version[];
  /** The present version of the key of each new version, by index; undefined if the key does not exist. */
  readonly replaced: readonly (Version | undefined)[];
  readonly deleted: number;
}

/** Work on a store, in steps of less than 1 ms. */
export type SteppedWork<T> = Generator<void, T, void>;

/** An immutable copy of a store, like the output of `etcdctl snapshot save`. */
export interface MemoryStoreSnapshot {
  readonly revision: number;
  readonly compactRevision: number;
  readonly versions: ReadonlyMap<string, readonly Version[]>;
  readonly log: readonly (readonly Version[])[];
}

const EMPTY = new Uint8Array(0);

// Number of keys in a step, at about 1 µs each.
const KEYS_PER_STEP = 512;

/**
 * The multi-version store of etcd in one process: revisions, history, compaction, transactions. Keeps every version of
 * a key until compaction. Pure: no time and no streams; `MemoryServer` adds leases and watches.
 *
 *     versions  key → [create, modify, …, delete]      reads as of a revision
 *     log       revision → events of that revision     watches from a revision
 */
export class MemoryStore {
  /** The version of each key, or its versions in order. Most keys have one version. */
  readonly #versions = new SortedMap<string, Version | Version[]>(compareKeys);
  /** The keys in `#versions` whose last version is a delete. */
  readonly #deleted = new SortedMap<string, true>(compareKeys);
  /** Index 0 has the versions of revision `compactRevision + 1`. */
  #log: (readonly Version[])[] = [];
  readonly #blocks = new ExpandedBlocks();
  #revision = 1;
  #compactRevision = 1;
  readonly #clusterID: string;
  readonly #onLeaseChange: (key: string, from: LeaseID, to: LeaseID) => void;

  /** @param onLeaseChange called for each written key with its previous and its new lease (`'0'` for none) */
  constructor(clusterID: string, onLeaseChange: (key: string, from: LeaseID, to: LeaseID) => void) {
    this.#clusterID = clusterID;
    this.#onLeaseChange = onLeaseChange;
  }

  get header(): ResponseHeader {
    return { clusterID: this.#clusterID, revision: this.#revision, raftTerm: 2 };
  }

  get revision(): number {
    return this.#revision;
  }

  get compactRevision(): number {
    return this.#compactRevision;
  }

  /** Number of packed blocks of values that reads have expanded so far. */
  get expansions(): number {
    return this.#blocks.expansions;
  }

  /** Returns the version of the key as of a revision, if the key existed then. */
  #versionAt(key: string, revision: number): Version | undefined {
    const stored = this.#versions.get(key);
    return stored && versionAt(stored, revision);
  }

  /** Yields the version of each key of a range as of a revision, in order; undefined if the key did not exist then. */
  *#versionsIn(range: KeyRange, revision: number): Generator<Version | undefined> {
    for (const [key, stored] of this.#versions.from(range.start)) {
      if (!inRange(key, range)) return;
      yield versionAt(stored, revision);
    }
  }

  /** Throws if the store has no history at this revision. */
  #checkKept(revision: number): void {
    if (revision > this.#revision)
      throw new KvstoreError('future-revision', `revision ${revision} is in the future`);
    if (revision < this.#compactRevision)
      throw new KvstoreError('compacted', `revision ${revision} has been compacted`);
  }

  /**
   * Returns the keys of a range as of `revision`. If the history contains `minModRevision`, the cost depends on the
   * number of writes since then, and not on the number of keys in the range. For an old `revision`, the cost also
   * depends on the number of writes since `revision`.
   *
   * @param maxBlocks ends the page after this number of expanded blocks, with `more` if keys are left. Default: no
   *   limit
   * @throws KvstoreError `compacted`, `future-revision`, `invalid-request`
   */
  range(request: RangeRequest, maxBlocks: number = Number.POSITIVE_INFINITY): RangeResponse {
    checkKey(request.start);
    const revision = request.revision || this.#revision;
    this.#checkKept(revision);
    const { minModRevision = 0, limit } = request;
    const isInHistory = minModRevision > this.#compactRevision;
    const kvs: KeyValue[] = [];
    const expansionLimit = this.#blocks.expansions + maxBlocks;
    let more = false;
    const versions = isInHistory
      ? this.#changedSince(minModRevision, request).map((key) => this.#versionAt(key, revision))
      : this.#versionsIn(request, revision);
    for (const version of versions) {
      if (version?.value === undefined || version.modRevision < minModRevision) continue;
      more = (kvs.length === limit && limit > 0) || this.#blocks.expansions >= expansionLimit;
      if (more) break;
      const { key, createRevision, modRevision } = version;
      const value = request.keysOnly ? undefined : this.#blocks.bytesOf(version);
      kvs.push({ key, value: value ?? EMPTY, createRevision, modRevision, ...leaseOf(version) });
    }
    return { header: this.header, kvs, more, count: this.#count(request, revision) };
  }

  /** Returns the keys in the range written at `revision` or later, in order. */
  #changedSince(revision: number, range: KeyRange): readonly string[] {
    const keys = new Set<string>();
    for (const versions of this.versionsFrom(revision))
      for (const { key } of versions) if (inRange(key, range)) keys.add(key);
    return [...keys].sort(compareKeys);
  }

  #countIn(keys: Pick<SortedMap<string, unknown>, 'size' | 'rank'>, { start, end }: KeyRange): number {
    return (end === NO_END ? keys.size : keys.rank(end)) - keys.rank(start);
  }

  /** Returns true if a transaction needs more than one step. */
  isLarge({ writes, otherwise = [] }: TxnRequest): boolean {
    let keys = 0;
    for (const operations of [writes, otherwise])
      for (const operation of operations)
        keys +=
          operation.op === 'put' || isOneKey(operation.range)
            ? 1
            : this.#countIn(this.#versions, operation.range);
    return keys >= KEYS_PER_STEP;
  }

  /**
   * Returns the number of keys in the range as of a revision: the present number, without the keys that later writes
   * created, and with those that they deleted.
   */
  #count(range: KeyRange, revision: number): number {
    let count = Math.max(0, this.#countIn(this.#versions, range) - this.#countIn(this.#deleted, range));
    if (revision === this.#revision) return count;
    for (const versions of this.versionsFrom(revision + 1))
      for (const { key, value, createRevision, modRevision } of versions) {
        const isDelete = value === undefined;
        const isCreate = !isDelete && createRevision === modRevision;
        if (!(isDelete || isCreate) || !inRange(key, range)) continue;
        count += isDelete ? 1 : -1;
      }
    return count;
  }

  #holds(compare: Compare): boolean {
    const version = this.#versionAt(compare.key, this.#revision);
    switch (compare.target) {
      case 'create-revision':
        return (version?.createRevision ?? 0) === compare.equals;
      case 'mod-revision':
        return (version?.modRevision ?? 0) === compare.equals;
      case 'value':
        return version !== undefined && equalBytes(this.#blocks.bytesOf(version) ?? EMPTY, compare.equals);
      case 'lease':
        return (version?.lease ?? NO_LEASE) === compare.equals;
    }
  }

  /**
   * Applies a transaction, one slice of keys for each step. If it throws, it has changed nothing. No other call may
   * read or write the store between two steps, but a watch may read the log, because the new revision is added in the
   * last step. Like etcd, rejects invalid operations also if they would not be applied.
   */
  *txn({ compare, writes, otherwise = [], checkLease }: StoreTxn): SteppedWork<TxnResponse> {
    for (const { key } of compare) checkKey(key);
    for (const operations of [writes, otherwise]) yield* checkOperations(operations);
    const succeeded = compare.every((condition) => this.#holds(condition));
    const { versions, replaced, deleted } = yield* this.#plan(succeeded ? writes : otherwise, checkLease);
    yield* packValues(versions);
    if (versions.length > 0) yield* this.#commit(versions, replaced);
    return { header: this.header, succeeded, deleted };
  }

  /**
   * Returns the versions that the operations would write at the next revision, and the replaced ones. Changes nothing.
   */
  *#plan(operations: Iterable<WriteOperation>, checkLease: StoreTxn['checkLease']): SteppedWork<Plan> {
    const commit: Commit = { revision: this.#revision + 1, leases: [], createRevisions: [], prefix: '' };
    const versions: Version[] = [];
    const replaced: (Version | undefined)[] = [];
    const removed = new Set<string>();
    const add = (key: string, value: string | undefined, lease: LeaseID, old: Version | undefined): void => {
      const index = versions.length;
      if (index === 0) commit.prefix = key;
      while (!key.startsWith(commit.prefix)) commit.prefix = commit.prefix.slice(0, -1);
      commit.leases.push(lease);
      if (old !== undefined) commit.createRevisions[index] = old.createRevision;
      versions.push(new Version(key, value, commit, index));
      replaced.push(old);
    };
    let visited = 0;
    for (const operation of operations) {
      if (++visited % KEYS_PER_STEP === 0) yield;
      if (operation.op === 'put') {
        const { key, lease } = operation;
        if (lease !== NO_LEASE) checkLease?.(lease);
        add(key, charactersOf(operation.value), lease, this.#versionAt(key, this.#revision));
        continue;
      }
      for (const old of this.#versionsIn(operation.range, this.#revision)) {
        if (++visited % KEYS_PER_STEP === 0) yield;
        if (old === undefined || removed.has(old.key)) continue;
        removed.add(old.key);
        add(old.key, undefined, NO_LEASE, old);
      }
    }
    if (commit.leases.every((lease) => lease === commit.leases[0])) commit.leases.splice(1);
    return { versions, replaced, deleted: removed.size };
  }

  /** Adds the versions to the store, one slice for each step, then the new revision to the log. */
  *#commit(versions: readonly Version[], replaced: Plan['replaced']): SteppedWork<void> {
    for (const [index, version] of versions.entries()) {
      if (index % KEYS_PER_STEP === KEYS_PER_STEP - 1) yield;
      this.#record(version);
      this.#onLeaseChange(version.key, replaced[index]?.lease ?? NO_LEASE, version.lease);
    }
    this.#revision++;
    this.#log.push(versions);
  }

  #record(version: Version): void {
    const { key, value } = version;
    const stored = this.#versions.get(key);
    if (stored === undefined) this.#versions.set(key, version);
    else if (stored instanceof Version) this.#versions.set(key, [stored, version]);
    else stored.push(version);
    if (value === undefined) this.#deleted.set(key, true);
    else if (stored !== undefined) this.#deleted.delete(key);
  }

  /**
   * Returns the versions of at most `revisions` revisions from `startRevision` on, one array for each revision. Their
   * values are not copied: see {@link MemoryStore.eventOf}.
   *
   * @throws KvstoreError `compacted`
   */
  versionsFrom(
    startRevision: number,
    revisions: number = Number.POSITIVE_INFINITY,
  ): readonly (readonly Version[])[] {
    if (startRevision <= this.#compactRevision) {
      throw new KvstoreError('compacted', `revision ${startRevision} has been compacted`);
    }
    const from = startRevision - this.#compactRevision - 1;
    return this.#log.slice(from, from + revisions);
  }

  eventOf(version: Version): TransportEvent {
    const { key, modRevision } = version;
    return { key, value: this.#blocks.bytesOf(version), modRevision, ...leaseOf(version) };
  }

  /**
   * Discards the history before `revision`, one slice of keys for each step. From the first step on, reads at an older
   * revision fail, and so do watches that start at or before `revision`. The cost depends on the size of the discarded
   * history.
   *
   * @throws KvstoreError `compacted`, `future-revision`
   */
  compact(revision: number): SteppedWork<void> {
    this.#checkKept(revision);
    return this.#discardUntil(revision);
  }

  *#discardUntil(revision: number): SteppedWork<void> {
    const discarded = this.#log.slice(0, revision - this.#compactRevision);
    this.#log = this.#log.slice(discarded.length);
    this.#compactRevision = revision;
    // Only keys that were written in the discarded history can have a version that no read returns any more.
    let visited = 0;
    for (const versions of discarded)
      for (const { key } of versions) {
        if (++visited % KEYS_PER_STEP === 0) yield;
        this.#discard(key, revision);
      }
  }

  /** Discards the versions of a key that no read as of `revision` or later returns. */
  #discard(key: string, revision: number): void {
    const stored = this.#versions.get(key);
    if (stored === undefined) return;
    const versions = Array.isArray(stored) ? stored : [stored];
    const current = versions.findLastIndex((version) => version.modRevision <= revision);
    const isDeleted = current >= 0 && versions[current]?.value === undefined;
    const [first, ...later] = versions.slice(isDeleted ? current + 1 : Math.max(current, 0));
    if (first !== undefined) {
      this.#versions.set(key, later.length === 0 ? first : [first, ...later]);
      return;
    }
    this.#versions.delete(key);
    this.#deleted.delete(key);
  }

  snapshot(): MemoryStoreSnapshot {
    const versions = Array.from(
      this.#versions.from(''),
      ([key, stored]) => [key, Array.isArray(stored) ? [...stored] : [stored]] as const,
    );
    return {
      revision: this.#revision,
      compactRevision: this.#compactRevision,
      versions: new Map(versions),
      log: [...this.#log],
    };
  }

  /** Replaces the content and the revision by those of the snapshot. Leases are not included. */
  restore(snapshot: MemoryStoreSnapshot): void {
    this.#versions.clear();
    this.#deleted.clear();
    this.#revision = snapshot.revision;
    this.#compactRevision = snapshot.compactRevision;
    this.#log = [...snapshot.log];
    for (const versions of snapshot.versions.values()) for (const version of versions) this.#record(version);
  }
}

/** Returns the version of a key as of a revision; undefined if the key did not exist then. */
function versionAt(stored: Version | readonly Version[], revision: number): Version | undefined {
  const version =
    stored instanceof Version ? stored : stored.findLast(({ modRevision }) => modRevision <= revision);
  return version?.value === undefined || version.modRevision > revision ? undefined : version;
}

function leaseOf({ lease }: Version): Pick<KeyValue, 'lease'> {
  return lease === NO_LEASE ? {} : { lease };
}

/** Throws if a key is empty, or if two operations write one key and one of them is a put. */
function* checkOperations(operations: Iterable<WriteOperation>): SteppedWork<void> {
  const put = new Set<string>();
  const deletes: KeyRange[] = [];
  yield* forEachInSteps(operations, KEYS_PER_STEP, (operation) => {
    const key = operation.op === 'put' ? operation.key : operation.range.start;
    checkKey(key);
    if (operation.op === 'delete') deletes.push(operation.range);
    else if (put.has(key)) throw duplicateKey(key);
    else put.add(key);
  });
  for (const key of put) if (deletes.some((range) => inRange(key, range))) throw duplicateKey(key);
}

function checkKey(key: string): void {
  if (key === '') throw new KvstoreError('invalid-request', 'the key is empty');
}

function duplicateKey(key: string): KvstoreError {
  return new KvstoreError('invalid-request', `the transaction writes ${key} twice`);
}
