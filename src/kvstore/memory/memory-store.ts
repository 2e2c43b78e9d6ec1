import { SortedList } from '../../base/sorted-list.ts';
import { equalBytes } from '../codec/bytes.ts';
import { compareKeys, inRange, type KeyRange } from '../codec/key-range.ts';
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

/** A version of a key, from one revision on. `value` is undefined if it was deleted. */
interface Version {
  readonly key: string;
  readonly value: Uint8Array | undefined;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly lease: LeaseID;
}

/** A version that a transaction writes, and the one that it replaces if the key exists. */
interface Change {
  readonly version: Version;
  readonly old: Version | undefined;
}

/** A frozen copy of a store, like one of `etcdctl snapshot save`. */
export interface StoreSnapshot {
  readonly revision: number;
  readonly compactRevision: number;
  readonly versions: ReadonlyMap<string, readonly Version[]>;
  readonly log: readonly (readonly TransportEvent[])[];
}

const EMPTY = new Uint8Array(0);
const NO_EVENTS: readonly TransportEvent[] = [];

/**
 * The multi-version store of etcd in one process: revisions, history, compaction, transactions. Keeps every version of a key until
 * compaction. Pure: no time and no streams; `MemoryServer` adds leases and watches.
 *
 *     versions  key → [create, modify, …, delete]      reads as of a revision
 *     log       revision → events of that revision     watches from a revision
 */
export class MemoryStore {
  readonly #versions = new Map<string, Version[]>();
  readonly #keys = new SortedList<string>(compareKeys);
  /** Index 0 has the events of revision `compactRevision + 1`. */
  #log: (readonly TransportEvent[])[] = [];
  #revision = 1;
  #compactRevision = 1;
  readonly #clusterID: string;
  readonly #onLeaseChange: (key: string, from: LeaseID, to: LeaseID) => void;

  /** @param onLeaseChange called when the lease of a key changes (`'0'` for none) */
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

  /** Returns the version of the key as of a revision, if the key existed then. */
  #at(key: string, revision: number): Version | undefined {
    const version = this.#versions.get(key)?.findLast(({ modRevision }) => modRevision <= revision);
    return version?.value === undefined ? undefined : version;
  }

  *#keysIn(range: KeyRange): Generator<string> {
    for (const key of this.#keys.from(range.start)) {
      if (!inRange(key, range)) return;
      yield key;
    }
  }

  #checkKept(revision: number): void {
    if (revision > this.#revision)
      throw new KvstoreError('future-revision', `revision ${revision} is in the future`);
    if (revision < this.#compactRevision)
      throw new KvstoreError('compacted', `revision ${revision} has been compacted`);
  }

  /** @throws KvstoreError `compacted`, `future-revision` */
  range(request: RangeRequest): RangeResponse {
    const revision = request.revision || this.#revision;
    this.#checkKept(revision);
    const limit = request.limit || Number.POSITIVE_INFINITY;
    const kvs: KeyValue[] = [];
    let count = 0;
    let more = false;
    for (const key of this.#keysIn(request)) {
      const version = this.#at(key, revision);
      if (version?.value === undefined) continue;
      count++;
      if (version.modRevision < (request.minModRevision ?? 0)) continue;
      if (kvs.length === limit) {
        more = true;
        continue;
      }
      const { createRevision, modRevision } = version;
      kvs.push({ key, value: request.keysOnly ? EMPTY : version.value, createRevision, modRevision });
    }
    return { header: this.header, kvs, more, count };
  }

  #holds(compare: Compare): boolean {
    const version = this.#at(compare.key, this.#revision);
    switch (compare.target) {
      case 'exists':
        return version !== undefined;
      case 'create-revision':
        return (version?.createRevision ?? 0) === compare.equals;
      case 'mod-revision':
        return (version?.modRevision ?? 0) === compare.equals;
      case 'value':
        return version?.value !== undefined && equalBytes(version.value, compare.equals);
      case 'lease':
        return version?.lease === compare.equals;
    }
  }

  /** Applies a transaction completely or throws. Returns the events of its revision; none if it wrote nothing. */
  txn(request: TxnRequest): { response: TxnResponse; events: readonly TransportEvent[] } {
    const succeeded = request.compare.every((compare) => this.#holds(compare));
    const changes = this.#plan(succeeded ? request.writes : (request.otherwise ?? []));
    const events = changes.length === 0 ? NO_EVENTS : this.#commit(changes);
    const deleted = changes.reduce((count, { version }) => count + (version.value === undefined ? 1 : 0), 0);
    return { response: { header: this.header, succeeded, deleted }, events };
  }

  /** Returns the versions that the operations write at the next revision. Changes nothing. */
  #plan(operations: readonly WriteOperation[]): readonly Change[] {
    const modRevision = this.#revision + 1;
    const changes: Change[] = [];
    for (const operation of operations) {
      if (operation.op === 'put') {
        const { key, lease } = operation;
        const old = this.#at(key, this.#revision);
        const value = Uint8Array.from(operation.value); // the caller may reuse its buffer
        const createRevision = old?.createRevision ?? modRevision;
        changes.push({ version: { key, value, createRevision, modRevision, lease }, old });
        continue;
      }
      for (const key of this.#keysIn(operation.range)) {
        const old = this.#at(key, this.#revision);
        if (old === undefined) continue;
        changes.push({
          version: { key, value: undefined, createRevision: 0, modRevision, lease: NO_LEASE },
          old,
        });
      }
    }
    return changes;
  }

  #commit(changes: readonly Change[]): readonly TransportEvent[] {
    const events: TransportEvent[] = [];
    for (const { version, old } of changes) {
      const { key, value, modRevision, lease } = version;
      this.#record(version);
      this.#onLeaseChange(key, old?.lease ?? NO_LEASE, lease);
      events.push({ key, value, modRevision });
    }
    this.#revision++;
    this.#log.push(events);
    return events;
  }

  #record(version: Version): void {
    const versions = this.#versions.get(version.key);
    if (versions === undefined) {
      this.#versions.set(version.key, [version]);
      this.#keys.add(version.key);
    } else {
      versions.push(version);
    }
  }

  /**
   * Returns the events of at most `revisions` revisions from `startRevision` on, one array each. @throws KvstoreError `compacted`
   */
  eventsFrom(
    startRevision: number,
    revisions: number = Number.POSITIVE_INFINITY,
  ): readonly (readonly TransportEvent[])[] {
    if (startRevision <= this.#compactRevision) {
      throw new KvstoreError('compacted', `revision ${startRevision} has been compacted`);
    }
    const from = startRevision - this.#compactRevision - 1;
    return this.#log.slice(from, from + revisions);
  }

  /**
   * Discards the history before `revision`. Reads before it fail, and watches from it or before it.
   *
   * @throws KvstoreError `compacted`, `future-revision`
   */
  compact(revision: number): void {
    this.#checkKept(revision);
    this.#log = this.#log.slice(revision - this.#compactRevision);
    this.#compactRevision = revision;
    for (const [key, versions] of this.#versions) {
      const current = versions.findLastIndex((version) => version.modRevision <= revision);
      const from =
        current >= 0 && versions[current]?.value === undefined ? current + 1 : Math.max(current, 0);
      versions.splice(0, from);
      if (versions.length > 0) continue;
      this.#versions.delete(key);
      this.#keys.delete(key);
    }
  }

  snapshot(): StoreSnapshot {
    return {
      revision: this.#revision,
      compactRevision: this.#compactRevision,
      versions: new Map([...this.#versions].map(([key, versions]) => [key, [...versions]])),
      log: [...this.#log],
    };
  }

  /** Replaces the content by the snapshot, and revisions go back with it. Leases are not included. */
  restore(snapshot: StoreSnapshot): void {
    for (const key of this.#versions.keys()) this.#keys.delete(key);
    this.#versions.clear();
    this.#revision = snapshot.revision;
    this.#compactRevision = snapshot.compactRevision;
    this.#log = [...snapshot.log];
    for (const [key, versions] of snapshot.versions) {
      this.#versions.set(key, [...versions]);
      this.#keys.add(key);
    }
  }
}
