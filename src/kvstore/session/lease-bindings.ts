import { SortedMap } from '../../base/sorted-map.ts';
import type { HeldLease } from './held-lease.ts';
import { LeasedKeys } from './leased-keys.ts';

/** The binding of a key to a lease, made before each write under a lease. Its fields do not change. */
export interface Binding {
  readonly key: string;
  /** @internal */
  readonly held: HeldLease;
  /** @internal The row of the key. If the row has another order, it belongs to another binding. */
  readonly row: number;
  /** Number of bindings made by the client, including this one, modulo 2³². */
  readonly order: number;
  /**
   * Revision of the store after the last known write of the key under the lease; 0 if the revision is unknown,
   * {@link UNWRITTEN} if no write is known. Writes that may have taken effect count.
   */
  readonly writtenAt: number;
}

/** The `writtenAt` of a key without a known write under its lease. */
const UNWRITTEN = -1;

// Limits the size of a revocation, because etcd deletes all keys of the lease in one transaction. Cilium has the same
// limit.
const KEYS_PER_LEASE = 1000;
/**
 * Maximum number of rows of a lease, for each of its keys or for each of `KEYS_PER_LEASE`, whichever are more. If there
 * are more rows, those of keys that have left the lease are dropped.
 */
const MAX_ROWS_PER_KEY = 4;
/** Maximum numbers of keys and of rows in one step of {@link LeaseBindings.unbindBelow}. A row takes about 5 ns. */
const KEYS_PER_STEP = 256;
const ROWS_PER_STEP = 1 << 16;

/** Returns true if an order is in (`previous`, `latest`]. All three are modulo 2³². */
export function isOrderAfter(order: number, previous: number, latest: number): boolean {
  return (order - previous - 1) >>> 0 < (latest - previous) >>> 0;
}

/** Returns the number of a lease in the rows of its keys. It is not 0, which means no lease. */
function numberOf({ order }: HeldLease): number {
  return order + 1;
}

/**
 * Binds the keys of a client to its leases, at most 1000 keys to each. A key is bound before its write, so that every
 * written key is reported if its lease is lost.
 *
 * A put binds its key before its request, and calls `settle` afterwards. A delete calls `bindingOf`, and `unbind`
 * afterwards.
 */
export class LeaseBindings {
  readonly #keys = new LeasedKeys();
  /** The held leases by {@link numberOf}. */
  readonly #byNumber = new Map<number, HeldLease>();
  /** Leases with room for more keys. New keys use the oldest of them, so that the newest become empty and expire. */
  readonly #withRoom = new SortedMap<HeldLease, true>((one, other) => one.order - other.order);
  /** Called when a lease without keys gets one. */
  readonly #onFirstKey: (lease: HeldLease) => void;
  #count = 0;

  constructor(onFirstKey: (lease: HeldLease) => void) {
    this.#onFirstKey = onFirstKey;
  }

  addLease(lease: HeldLease): void {
    this.#byNumber.set(numberOf(lease), lease);
    this.#withRoom.set(lease, true);
  }

  /** Removes a lease. Its keys stay until they are bound again, or taken by {@link takeKeysOf}. */
  removeLease(lease: HeldLease): void {
    this.#byNumber.delete(numberOf(lease));
    this.#withRoom.delete(lease);
  }

  /** Unbinds and returns the keys of a removed lease, except those bound to another lease since. */
  takeKeysOf(lease: HeldLease): readonly string[] {
    const keys: string[] = [];
    for (const row of lease.rows) {
      if (this.#keys.leaseOf(row) !== numberOf(lease)) continue; // bound again, or deleted
      keys.push(this.#keys.keyAt(row) ?? '');
      this.#keys.delete(row);
    }
    return keys;
  }

  clear(): void {
    this.#withRoom.clear();
    this.#byNumber.clear();
    this.#keys.clear();
  }

  /** Returns the lease to bind a key to: its present one, or one with room. */
  leaseFor(key: string): HeldLease | undefined {
    return this.#leaseAt(this.#keys.find(key)) ?? this.#withRoom.first;
  }

  bind(lease: HeldLease, key: string): Binding {
    return this.#bindTo(lease, key, this.#keys.ensure(key));
  }

  /**
   * Binds the keys of the writes that follow those with a binding in `bindings`, and adds their bindings. Stops at a
   * key whose lease of {@link leaseFor} does not exist, or may have expired.
   */
  bindNext(writes: readonly { readonly key: string }[], bindings: Binding[]): void {
    let checked: HeldLease | undefined; // successive keys usually have the same lease
    for (let i = bindings.length; i < writes.length; i++) {
      const key = writes[i]?.key ?? '';
      const row = this.#keys.ensure(key);
      const lease = this.#leaseAt(row) ?? this.#withRoom.first;
      if (lease === undefined || (lease !== checked && lease.isExpired)) {
        if (this.#keys.leaseOf(row) === 0) this.#keys.delete(row);
        return;
      }
      checked = lease;
      bindings.push(this.#bindTo(lease, key, row));
    }
  }

  /** Binds a key that an earlier session has written under the lease, at an unknown revision. */
  bindWritten(lease: HeldLease, key: string): void {
    const row = this.#keys.ensure(key);
    this.#bindRow(lease, row);
    this.#keys.setWrittenAt(row, 0);
  }

  /**
   * Returns the binding of a key to a held lease. Call it before a delete, and pass the result to {@link unbind} after
   * the delete.
   */
  bindingOf(key: string): Binding | undefined {
    const row = this.#keys.isEmpty ? -1 : this.#keys.find(key);
    const held = this.#leaseAt(row);
    if (held === undefined) return undefined;
    return { key, held, row, order: this.#keys.orderOf(row), writtenAt: this.#keys.writtenAt(row) };
  }

  /**
   * Number of bindings made so far, modulo 2³². Read it before a delete of a prefix, and pass it to {@link unbindBelow}
   * after the delete.
   */
  get count(): number {
    return this.#count;
  }

  /**
   * Removes a binding after a delete, or a write without a lease. Does nothing if the key was bound again.
   *
   * @param revision revision of the delete or write; if the binding was written at a later revision, it stays
   */
  unbind(binding: Binding | undefined, revision: number = Number.POSITIVE_INFINITY): void {
    if (binding === undefined) return;
    const row = this.#rowOf(binding);
    if (this.#keys.orderOf(row) === binding.order) this.#unbindRow(row, revision);
  }

  /**
   * Unbinds the keys that start with `prefix` after a delete of all of them, in steps. Keys that were bound later stay
   * bound.
   *
   * @param revision of the delete, as in {@link unbind}
   * @param previous the {@link count} when the delete began
   * @returns one iteration for each step, with the keys visited by the step
   */
  *unbindBelow(prefix: string, revision: number, previous: number): Generator<readonly string[], void, void> {
    const keyBelow = this.#keys.below(prefix);
    let keys: string[] = [];
    for (let row = 0; row < this.#keys.limit; row++) {
      const key = keyBelow(row);
      if (key !== undefined) {
        keys.push(key);
        const isLater = isOrderAfter(this.#keys.orderOf(row), previous, this.#count);
        if (!isLater) this.#unbindRow(row, revision);
      }
      if (keys.length < KEYS_PER_STEP && (row + 1) % ROWS_PER_STEP > 0) continue;
      yield keys;
      keys = [];
    }
    if (keys.length > 0) yield keys;
  }

  /**
   * Records that a write under this binding may have taken effect, even if the key was bound again since.
   *
   * If a concurrent delete or a refused write has removed the binding, this restores it, because the write may be later
   * than the delete. If the outcome of the write is unknown, this binds the key again. The new order keeps the key
   * bound after all deletes that have already begun, because the write may be later than they are.
   *
   * @param revision revision of the write; undefined if its outcome is unknown
   */
  confirm(binding: Binding, revision?: number): void {
    const { held, key, order } = binding;
    if (!held.isHeld) return;
    const known = this.#rowOf(binding);
    const lease = this.#leaseAt(known);
    const isRestored = lease === undefined;
    const isBoundAgain = isRestored || revision === undefined;
    const row = isBoundAgain ? this.#keys.ensure(key) : known;
    if (isBoundAgain) this.#bindRow(lease ?? held, row);
    // Restore the order, too: the write is not later than deletes that began after it.
    if (isRestored && revision !== undefined) this.#keys.bind(row, numberOf(held), order);
    const writtenAt = Math.max(binding.writtenAt, revision ?? 0);
    if (writtenAt > this.#keys.writtenAt(row)) this.#keys.setWrittenAt(row, writtenAt);
  }

  /**
   * Confirms the bindings of a transaction if its puts may have taken effect. Otherwise the keys do not belong to this
   * client, and are unbound, unless they were written before.
   */
  settle(bindings: readonly Binding[], mayBeWritten: boolean, revision?: number): void {
    for (const binding of bindings)
      if (mayBeWritten) this.confirm(binding, revision);
      else this.unbind(binding, UNWRITTEN);
  }

  #bindTo(lease: HeldLease, key: string, row: number): Binding {
    const order = this.#bindRow(lease, row);
    return { key, held: lease, row, order, writtenAt: this.#keys.writtenAt(row) };
  }

  /** Binds the key of a row. Returns the order of the binding. */
  #bindRow(lease: HeldLease, row: number): number {
    this.#count = (this.#count + 1) | 0;
    if (this.#count === 0) this.#count = 1; // 0 is the order of a free row
    const previous = this.#keys.leaseOf(row);
    const isMoved = previous !== numberOf(lease);
    if (isMoved && previous !== 0) {
      this.#leaveLease(row);
      this.#keys.setWrittenAt(row, UNWRITTEN);
    }
    this.#keys.bind(row, numberOf(lease), this.#count);
    if (isMoved) this.#addRow(lease, row);
    return this.#count;
  }

  #addRow(lease: HeldLease, row: number): void {
    const isFirst = lease.size++ === 0;
    lease.rows.push(row);
    if (lease.rows.length > MAX_ROWS_PER_KEY * Math.max(lease.size, KEYS_PER_LEASE)) {
      const isBound = (candidate: number): boolean => this.#keys.leaseOf(candidate) === numberOf(lease);
      lease.rows = [...new Set(lease.rows)].filter(isBound);
    }
    if (lease.size === KEYS_PER_LEASE) this.#withRoom.delete(lease);
    if (isFirst) this.#onFirstKey(lease);
  }

  /** Removes a row from its lease, if the lease is held. */
  #leaveLease(row: number): void {
    const lease = this.#leaseAt(row);
    if (lease !== undefined && lease.size-- === KEYS_PER_LEASE) this.#withRoom.set(lease, true);
  }

  #unbindRow(row: number, revision: number): void {
    if (this.#keys.writtenAt(row) > revision) return;
    this.#leaveLease(row);
    this.#keys.delete(row);
  }

  /** Returns the lease of a row if it is held. */
  #leaseAt(row: number): HeldLease | undefined {
    return row < 0 ? undefined : this.#byNumber.get(this.#keys.leaseOf(row));
  }

  /** Returns the row of a bound key, or -1. Searches it only if the key was unbound or bound again. */
  #rowOf({ key, row, order }: Binding): number {
    return this.#keys.orderOf(row) === order ? row : this.#keys.find(key);
  }
}
