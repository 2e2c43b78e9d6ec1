import { equalBytes } from '../bytes.ts';
import { KvstoreError } from '../errors.ts';
import type { KeyRange } from '../key-range.ts';
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
} from '../transport.ts';
import { SortedKeys } from './sorted-keys.ts';

/** What a key was from one revision on; `value` undefined: it was deleted. */
interface Version {
  readonly key: string;
  readonly value: Uint8Array | undefined;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly lease: LeaseID;
}

/** A frozen copy of a store, as `etcdctl snapshot save` makes one. */
export interface StoreSnapshot {
  readonly revision: number;
  readonly compactRevision: number;
  readonly versions: ReadonlyMap<string, readonly Version[]>;
  readonly log: readonly (readonly TransportEvent[])[];
}

const EMPTY = new Uint8Array(0);
const NO_EVENTS: readonly TransportEvent[] = [];

/**
 * The multi-version store of an etcd in one process: revisions, history, compaction, transactions. Keeps every
 * version of a key until it is compacted. Pure: no time, no streams; `MemoryServer` adds leases and watches.
 *
 *     versions  key → [create, modify, …, delete]      reads as of a revision
 *     log       revision → events of that revision     watches from a revision
 */
export class MemoryStore {
  readonly #versions = new Map<string, Version[]>();
  readonly #keys = new SortedKeys();
  /** Index 0 is the events of revision `compactRevision + 1`. */
  #log: (readonly TransportEvent[])[] = [];
  #revision = 1;
  #compactRevision = 1;
  readonly #clusterID: string;
  readonly #onLeaseChange: (key: string, from: LeaseID, to: LeaseID) => void;

  /** @param onLeaseChange called when a key is bound to another lease than before (`'0'` for none) */
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

  /** The version of the key as of a revision, if the key existed then. */
  #at(key: string, revision: number): Version | undefined {
    const version = this.#versions.get(key)?.findLast(({ modRevision }) => modRevision <= revision);
    return version?.value === undefined ? undefined : version;
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
    for (const key of this.#keys.range(request)) {
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

  /** Applies a transaction; the events are those of its revision, none when it wrote nothing. */
  txn(request: TxnRequest): { response: TxnResponse; events: readonly TransportEvent[] } {
    const succeeded = request.compare.every((compare) => this.#holds(compare));
    const operations = succeeded ? request.writes : (request.otherwise ?? []);
    const { events, deleted } = this.#write(operations);
    return { response: { header: this.header, succeeded, deleted }, events };
  }

  #write(operations: readonly WriteOperation[]): { events: readonly TransportEvent[]; deleted: number } {
    const revision = this.#revision + 1;
    const events: TransportEvent[] = [];
    let deleted = 0;
    for (const operation of operations) {
      if (operation.op === 'put') {
        events.push(this.#put(operation.key, operation.value, operation.lease, revision));
      } else {
        const gone = this.#delete(operation.range, revision);
        deleted += gone.length;
        events.push(...gone);
      }
    }
    if (events.length === 0) return { events: NO_EVENTS, deleted };
    this.#revision = revision;
    this.#log.push(events);
    return { events, deleted };
  }

  #put(key: string, value: Uint8Array, lease: LeaseID, revision: number): TransportEvent {
    const old = this.#at(key, this.#revision);
    const copy = Uint8Array.from(value); // the caller may go on using its own
    this.#record({
      key,
      value: copy,
      createRevision: old?.createRevision ?? revision,
      modRevision: revision,
      lease,
    });
    this.#onLeaseChange(key, old?.lease ?? NO_LEASE, lease);
    return { key, value: copy, modRevision: revision };
  }

  #delete(range: KeyRange, revision: number): TransportEvent[] {
    const existing = [...this.#keys.range(range)].flatMap((key) => this.#at(key, this.#revision) ?? []);
    return existing.map(({ key, lease }) => {
      this.#record({ key, value: undefined, createRevision: 0, modRevision: revision, lease: NO_LEASE });
      this.#onLeaseChange(key, lease, NO_LEASE);
      return { key, value: undefined, modRevision: revision };
    });
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

  /** Events from `startRevision` on, one array per revision. @throws KvstoreError `compacted` */
  eventsFrom(startRevision: number): readonly (readonly TransportEvent[])[] {
    if (startRevision <= this.#compactRevision) {
      throw new KvstoreError('compacted', `revision ${startRevision} has been compacted`);
    }
    return this.#log.slice(startRevision - this.#compactRevision - 1);
  }

  /**
   * Forgets what came before `revision`: reads below it and watches from it fail.
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

  /** Becomes what the snapshot holds; revisions go back with it. Leases are not part of it. */
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
