import { deferred } from '../../base/sleep.ts';
import { SortedMap } from '../../base/sorted-map.ts';
import type { Supervisor } from '../../base/supervisor.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import {
  asKvstoreError,
  closedError,
  type KvstoreErrorCode,
  leaseGrantedTwice,
  missingNewLease,
} from './errors.ts';
import { type ClockReading, clockReading, HeldLease, type LeaseTerms } from './held-lease.ts';
import { LeasedKeys } from './leased-keys.ts';
import { untilAborted } from './shared-signal.ts';
import type { LeaseID, Transport } from './transport.ts';

/** Returns a lease as the clients of etcd write it in keys. */
export function leaseHex(lease: LeaseID): string {
  return BigInt.asUintN(64, BigInt(lease)).toString(16);
}

export interface LeaseKeeperOptions extends LeaseTerms {
  readonly transport: Transport;
  /** Name in the status of the supervisor. */
  readonly name: string;
  readonly supervisor: Supervisor;
  /** Splits the loss of many leases, and their keepalives, into short turns. Default: not split. */
  readonly gate?: TurnGate | undefined;
  /**
   * Receives the keys that were bound to a lost lease. If many leases are lost together, their keys arrive in several
   * turns.
   */
  onLost(keys: readonly string[]): void;
  /** Called before the keys of many leases are reported. `reported` resolves after the last of them. */
  onLeasesLost?(reported: Promise<void>): void;
  onGranted?(lease: LeaseID): void;
  /** Called when a lease is lost, or has expired without keys. */
  onEnded?(lease: LeaseID): void;
  /** Called when the server has answered a keepalive. */
  onRenewed?(): void;
}

/** The binding of a key to a lease, made before each write under a lease. Its fields do not change. */
export interface Binding {
  readonly key: string;
  /** @internal */
  readonly held: HeldLease;
  /** @internal The row of the key. If the row has another order, it belongs to another binding. */
  readonly row: number;
  /** Number of bindings made by the keeper, including this one, modulo 2³². */
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
/** Maximum numbers of keys and of rows in one step of {@link LeaseKeeper.unbindBelow}. A row takes about 5 ns. */
const KEYS_PER_STEP = 256;
const ROWS_PER_STEP = 1 << 16;
/**
 * Leases with a shorter TTL send keepalives with a deadline of a third of it, so that a second keepalive is possible.
 * For longer TTLs the default deadline of the transport, 10 s, is short enough. Example: the lease of locks, 25 s,
 * counts as lost after 22.5 s; its keepalives begin after 8.3 s and 18.8 s.
 */
const MAX_SHORT_TTL_SECONDS = 20;
/** Weight of a keepalive at the gate. Its request takes about 100 µs, and an event 2 to 3 µs. */
const KEEPALIVE_WEIGHT = 40;
/**
 * Maximum number of concurrent revocations. For a session of a million keys, which has a thousand leases, sending all
 * requests in one turn took 0.15 s.
 */
const MAX_REVOCATIONS = 16;
/** Maximum number of leases whose adoption is refused without a request: more than a session of 10,000,000 keys has. */
const MAX_UNADOPTABLE = 10_000;
/** Default deadline of a revocation. Processes wait 5 s for the close of a client. */
const REVOCATION_MS = 3500;
/**
 * The pause between two checks is at least 1 ms for each 10 leases. A check takes less than 1 µs for each lease, so
 * checks use at most 1 % of the time.
 */
const LEASES_PER_MS = 10;

/** Returns true if an order is in (`previous`, `latest`]. All three are modulo 2³². */
export function isOrderAfter(order: number, previous: number, latest: number): boolean {
  return (order - previous - 1) >>> 0 < (latest - previous) >>> 0;
}

/** Returns the number by which the rows of keys refer to a lease. It is not 0, which means no lease. */
function numberOf({ order }: HeldLease): number {
  return order + 1;
}

/**
 * Keeps the leases of a client alive and distributes its keys over them, at most 1000 on each. A lease is *lost* if the
 * server does not have it, or if no keepalive succeeded during its TTL. A loss is an event and not an error, because
 * the next key gets a new lease. A lease without keys is not kept alive and expires.
 *
 * A put calls `bindAll` before its request, and `settle` afterwards. A delete calls `bindingOf`, and `unbind`
 * afterwards.
 */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  readonly #leases = new Map<LeaseID, HeldLease>();
  /** The held leases by {@link numberOf}. */
  readonly #byNumber = new Map<number, HeldLease>();
  /** Leases with room for more keys. New keys use the oldest of them, so that the newest become empty and expire. */
  readonly #withRoom = new SortedMap<HeldLease, true>((one, other) => one.order - other.order);
  /** Number of leases granted or adopted so far. */
  #leaseCount = 0;
  readonly #keys = new LeasedKeys();
  #bindingCount = 0;
  /** The running request for a new lease. */
  #granting: Promise<void> | undefined;
  /** Running adoptions of leases. */
  readonly #adopting = new Map<LeaseID, Promise<HeldLease | undefined>>();
  /** When adoptions began to fail; undefined if the server has answered the last one. Monotonic time. */
  #adoptionsFailSince: number | undefined;
  /** The last leases that must not be adopted: they are lost, or have another TTL. */
  readonly #unadoptable = new Set<LeaseID>();
  readonly #closed = new AbortController();
  #isKeepingAlive = false;
  /** Ends the pause between two checks of the leases. */
  #endPause: () => void = () => {};
  /** Monotonic time; in the past while no pause is running. */
  #pauseEndsAt = Number.NEGATIVE_INFINITY;
  #lost = 0;

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
  }

  /** Number of held leases. */
  get size(): number {
    return this.#leases.size;
  }

  /** Number of leases that were lost with keys. */
  get lost(): number {
    return this.#lost;
  }

  /** Returns true if this lease is still held. */
  holds(id: LeaseID): boolean {
    return this.#leases.has(id);
  }

  /**
   * Binds a key to its present lease, or to a lease with room. If there is none, requests a new lease;
   * rejects if the request fails.
   *
   * Call it before the write, so that every written key is reported if its lease is lost.
   *
   * @param signal ends the wait for a new lease; nothing is bound then
   */
  bind(key: string, signal?: AbortSignal): Promise<Binding> {
    const find = (): HeldLease | undefined => this.#leaseAt(this.#keys.find(key)) ?? this.#withRoom.first;
    return this.#withLease(find, (lease) => this.#bindTo(lease, key, this.#keys.ensure(key)), signal);
  }

  /** Like {@link bind} for several keys. If it rejects, those of the keys that were never written are unbound. */
  async bindAll(
    writes: readonly { readonly key: string }[],
    signal?: AbortSignal,
  ): Promise<readonly Binding[]> {
    const bindings: Binding[] = [];
    let unexpired: HeldLease | undefined; // checked in this turn
    try {
      for (const { key } of writes) {
        const row = this.#keys.ensure(key);
        const lease = this.#leaseAt(row) ?? this.#withRoom.first;
        if (lease !== unexpired && lease?.isExpired === false) unexpired = lease;
        if (lease !== undefined && lease === unexpired) {
          bindings.push(this.#bindTo(lease, key, row));
        } else {
          if (this.#keys.leaseOf(row) === 0) this.#keys.delete(row); // the next call may bind nothing
          bindings.push(await this.bind(key, signal));
          unexpired = undefined; // another turn
        }
      }
      return bindings;
    } catch (error) {
      this.settle(bindings, false);
      throw error;
    }
  }

  /**
   * Adopts a lease of an earlier session: keeps it alive, and binds the given keys to it, which the server already has
   * under this lease. Resolves to false, without an effect, if the lease has ended, has another TTL, or was lost
   * before. The same if adoptions have failed for a third of the TTL, because the keys may expire soon.
   *
   * @param prepare called once for each lease, before its first key is bound
   * @param signal ends the wait for the server; nothing is bound then
   */
  async adopt(
    id: LeaseID,
    keys: readonly string[],
    prepare: () => Promise<void>,
    signal?: AbortSignal,
  ): Promise<boolean> {
    const lease = this.#leases.get(id) ?? (await untilAborted(this.#adopt(id, prepare), signal));
    if (lease?.isHeld !== true || lease.isExpired) return false;
    for (const key of keys) {
      const row = this.#keys.ensure(key);
      this.#bindRow(lease, row);
      this.#keys.setWrittenAt(row, 0); // an earlier session has written the key at an unknown revision
    }
    return true;
  }

  /** Returns any lease granted to this session, or a new one if there is none. Binds nothing to it. */
  anyGranted(): Promise<{ readonly lease: LeaseID; readonly isNew: boolean }> {
    const previousLeases = this.#leaseCount;
    const find = (): HeldLease | undefined => {
      for (const lease of this.#leases.values()) if (!lease.isAdopted) return lease;
      return undefined;
    };
    return this.#withLease(find, ({ id, order }) => ({ lease: id, isNew: order >= previousLeases }));
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
  get bindingCount(): number {
    return this.#bindingCount;
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
   * @param previous the {@link bindingCount} when the delete began
   * @returns one iteration for each step, with the keys visited by the step
   */
  *unbindBelow(prefix: string, revision: number, previous: number): Generator<readonly string[], void, void> {
    const keyBelow = this.#keys.below(prefix);
    let keys: string[] = [];
    for (let row = 0; row < this.#keys.limit; row++) {
      const key = keyBelow(row);
      if (key !== undefined) {
        keys.push(key);
        const isLater = isOrderAfter(this.#keys.orderOf(row), previous, this.#bindingCount);
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

  /** Removes a lease which the server does not have any more. */
  markLost(id: LeaseID): void {
    const lease = this.#leases.get(id);
    if (lease !== undefined) this.#removeLost([lease]);
  }

  /**
   * Marks every lease as lost, because the store was restored from a backup. The store may still have the leases, with
   * keys that were deleted after the backup. The leases are not kept alive: required keys are put again under a new
   * lease, and the other keys expire. Running adoptions fail.
   */
  loseAll(): void {
    for (const id of this.#adopting.keys()) this.#recordUnadoptable(id);
    this.#removeLost([...this.#leases.values()], true);
  }

  /**
   * Stops the keepalives. `revoke` deletes the keys on the server if it is reachable; otherwise they expire.
   *
   * @param deadlineMs of each revocation
   * @returns false if a revocation had no answer in time
   */
  async close(revoke: boolean, deadlineMs: number = REVOCATION_MS): Promise<boolean> {
    this.#closed.abort();
    const leases = [...this.#leases.keys()];
    for (const lease of this.#leases.values()) lease.isHeld = false;
    this.#leases.clear();
    this.#withRoom.clear();
    this.#byNumber.clear();
    this.#keys.clear();
    if (!revoke) return true;
    const remaining = leases.values(); // one iterator for all loops, so that each lease is taken by one of them
    const loops = Array.from({ length: MAX_REVOCATIONS }, () => this.#revoke(remaining, deadlineMs));
    return (await Promise.all(loops)).every((code) => code !== 'deadline');
  }

  /**
   * Calls `use` with the lease that `find` returns, in the turn in which the lease was checked not to have expired. If
   * `find` returns none, requests a new lease and calls `find` again.
   */
  async #withLease<T>(
    find: () => HeldLease | undefined,
    use: (lease: HeldLease) => T,
    signal?: AbortSignal,
  ): Promise<T> {
    for (;;) {
      const lease = find();
      if (lease === undefined) await untilAborted(this.#grant(), signal);
      else if (lease.isExpired) this.markLost(lease.id);
      else return use(lease);
    }
  }

  #bindTo(lease: HeldLease, key: string, row: number): Binding {
    const order = this.#bindRow(lease, row);
    return { key, held: lease, row, order, writtenAt: this.#keys.writtenAt(row) };
  }

  /** Binds the key of a row. Returns the order of the binding. */
  #bindRow(lease: HeldLease, row: number): number {
    this.#bindingCount = (this.#bindingCount + 1) | 0;
    if (this.#bindingCount === 0) this.#bindingCount = 1; // 0 is the order of a free row
    const previous = this.#keys.leaseOf(row);
    const isMoved = previous !== numberOf(lease);
    if (isMoved && previous !== 0) {
      this.#leaveLease(row);
      this.#keys.setWrittenAt(row, UNWRITTEN);
    }
    this.#keys.bind(row, numberOf(lease), this.#bindingCount);
    if (isMoved) this.#addRow(lease, row);
    return this.#bindingCount;
  }

  #addRow(lease: HeldLease, row: number): void {
    const isFirst = lease.size++ === 0;
    lease.rows.push(row);
    if (lease.rows.length > MAX_ROWS_PER_KEY * Math.max(lease.size, KEYS_PER_LEASE)) {
      const isBound = (candidate: number): boolean => this.#keys.leaseOf(candidate) === numberOf(lease);
      lease.rows = [...new Set(lease.rows)].filter(isBound);
    }
    if (lease.size === KEYS_PER_LEASE) this.#withRoom.delete(lease);
    if (isFirst) this.#shortenPauseFor(lease); // checks are more frequent from now on
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

  /** Requests a new lease, one at a time. Concurrent callers share the request. */
  #grant(): Promise<void> {
    this.#granting ??= this.#grantNow().finally(() => {
      this.#granting = undefined;
    });
    return this.#granting;
  }

  async #grantNow(): Promise<void> {
    const { transport, clock, ttlSeconds } = this.#options;
    const { signal } = this.#closed;
    if (signal.aborted) throw closedError();
    const requestedAt = clockReading(clock);
    const id = await transport.grantLease(ttlSeconds, { signal });
    if (signal.aborted) {
      await transport.revokeLease(id).catch(() => {}); // without keepalives it expires anyway
      throw closedError();
    }
    this.#hold(id, requestedAt, false);
  }

  /** Adds a granted or adopted lease, and keeps it alive. */
  #hold(id: LeaseID, requestedAt: ClockReading, isAdopted: boolean): HeldLease {
    if (this.#leases.has(id)) throw leaseGrantedTwice(id);
    const lease = new HeldLease(id, requestedAt, this.#options, this.#leaseCount++, isAdopted);
    this.#leases.set(id, lease);
    this.#byNumber.set(numberOf(lease), lease);
    this.#withRoom.set(lease, true);
    this.#options.onGranted?.(id);
    this.#shortenPauseFor(lease);
    this.#startKeepalives();
    return lease;
  }

  /** Adopts a lease, and binds nothing to it. Concurrent callers share the request. */
  #adopt(id: LeaseID, prepare: () => Promise<void>): Promise<HeldLease | undefined> {
    let adopting = this.#adopting.get(id);
    if (adopting === undefined) {
      adopting = this.#adoptNow(id, prepare).finally(() => this.#adopting.delete(id));
      this.#adopting.set(id, adopting);
    }
    return adopting;
  }

  async #adoptNow(id: LeaseID, prepare: () => Promise<void>): Promise<HeldLease | undefined> {
    const { transport, clock, ttlSeconds } = this.#options;
    const { signal } = this.#closed;
    const requestedAt = clockReading(clock);
    const failingMs = requestedAt.monotonic - (this.#adoptionsFailSince ?? requestedAt.monotonic);
    if (this.#unadoptable.has(id) || failingMs > (ttlSeconds * 1000) / 3) return undefined;
    try {
      const ttl = await transport.keepLeaseAlive(id, { signal });
      // The minimum of the server may be longer than the requested TTL.
      if (ttl === ttlSeconds || (ttl > ttlSeconds && ttl === (await this.#grantedTTL()))) {
        await prepare();
        this.#adoptionsFailSince = undefined;
        return this.#unadoptable.has(id) || signal.aborted ? undefined : this.#hold(id, requestedAt, true);
      }
    } catch (error) {
      if (asKvstoreError(error).code !== 'lease-not-found') {
        this.#adoptionsFailSince ??= requestedAt.monotonic;
        throw error;
      }
    }
    this.#adoptionsFailSince = undefined;
    this.#recordUnadoptable(id);
    return undefined;
  }

  /** Returns the TTL of new leases of this session. */
  async #grantedTTL(): Promise<number> {
    const { lease, isNew } = await this.anyGranted();
    try {
      return await this.#options.transport.keepLeaseAlive(lease, { signal: this.#closed.signal });
    } catch (error) {
      if (asKvstoreError(error).code !== 'lease-not-found') throw error;
      this.markLost(lease);
      if (isNew) throw missingNewLease(lease);
      return this.#grantedTTL(); // of another lease
    }
  }

  #recordUnadoptable(id: LeaseID): void {
    this.#unadoptable.add(id);
    if (this.#unadoptable.size <= MAX_UNADOPTABLE) return;
    const [oldest = id] = this.#unadoptable;
    this.#unadoptable.delete(oldest);
  }

  #startKeepalives(): void {
    if (this.#isKeepingAlive) return;
    this.#isKeepingAlive = true;
    const { supervisor, name } = this.#options;
    const { signal } = this.#closed;
    signal.addEventListener('abort', () => this.#endPause());
    void supervisor.runWithRestart(name, () => this.#renewUntilClosed(), { signal });
  }

  /** Checks all leases, then pauses until the next lease is due. If a lease becomes due earlier, the pause ends. */
  async #renewUntilClosed(): Promise<void> {
    while (!this.#closed.signal.aborted) {
      this.#removeExpired();
      await this.#renewDue();
      if (!this.#closed.signal.aborted) await this.#pause();
    }
  }

  /** Removes expired leases as lost, regardless of running keepalives. */
  #removeExpired(): void {
    const expired: HeldLease[] = [];
    for (const lease of this.#leases.values()) if (lease.isExpired) expired.push(lease);
    if (expired.length > 0) this.#removeLost(expired);
  }

  async #renewDue(): Promise<void> {
    const { gate = OPEN_GATE } = this.#options;
    const { signal } = this.#closed;
    for (const lease of this.#leases.values()) {
      if (lease.dueIn > 0) continue;
      if (!(await gate.run(KEEPALIVE_WEIGHT, () => void this.#renew(lease), signal))) return;
    }
  }

  /** Sends a keepalive. */
  async #renew(lease: HeldLease): Promise<void> {
    if (!this.#leases.has(lease.id)) return;
    const { transport, supervisor, name, onRenewed, ttlSeconds } = this.#options;
    const { signal } = this.#closed;
    // Without an answer, the next keepalive must be sent before the lease expires.
    const deadlineMs = ttlSeconds < MAX_SHORT_TTL_SECONDS ? Math.floor((ttlSeconds * 1000) / 3) : undefined;
    const keepAlive = (): Promise<number> => transport.keepLeaseAlive(lease.id, { signal, deadlineMs });
    try {
      await lease.renew(() => supervisor.run(`${name}: keepalive`, keepAlive, { signal }));
      onRenewed?.();
    } catch (error) {
      if (asKvstoreError(error).code === 'lease-not-found') this.markLost(lease.id);
    }
    this.#shortenPauseFor(lease);
  }

  #pause(): Promise<void> {
    const { clock } = this.#options;
    let pauseMs = Number.POSITIVE_INFINITY;
    for (const { checkIn } of this.#leases.values()) pauseMs = Math.min(pauseMs, checkIn);
    pauseMs = Math.max(pauseMs, this.#minPauseMs);
    this.#pauseEndsAt = clock.now() + pauseMs;
    return new Promise((resolve) => {
      const timer = Number.isFinite(pauseMs) ? clock.after(pauseMs, resolve) : undefined;
      this.#endPause = () => {
        timer?.cancel();
        resolve();
      };
    });
  }

  /** Ends the pause between two checks if this lease is due before the end of the pause. */
  #shortenPauseFor(lease: HeldLease): void {
    const dueAt = this.#options.clock.now() + Math.max(lease.checkIn, this.#minPauseMs);
    if (dueAt < this.#pauseEndsAt) this.#endPause();
  }

  get #minPauseMs(): number {
    return Math.floor(this.#leases.size / LEASES_PER_MS);
  }

  /**
   * Removes leases now, and reports their keys in steps of one lease, except keys that are bound again before their
   * step.
   *
   * The removed leases cannot be adopted later. Leases without keys are not recorded for this, because a client which
   * writes rarely lets one expire each time.
   *
   * @param isRestored true if the store was restored: a lease without keys here may then have keys on the server
   */
  #removeLost(leases: readonly HeldLease[], isRestored = false): void {
    const { gate = OPEN_GATE, onEnded, onLeasesLost } = this.#options;
    for (const lease of leases) {
      lease.isHeld = false;
      if (lease.size > 0 || isRestored) this.#recordUnadoptable(lease.id);
      this.#leases.delete(lease.id);
      this.#byNumber.delete(numberOf(lease));
      this.#withRoom.delete(lease);
      onEnded?.(lease.id);
    }
    const reported = deferred();
    if (leases.length > 1) onLeasesLost?.(reported.promise);
    gate.runInBackground(this.#reportLost(leases), { signal: this.#closed.signal, onEnd: reported.resolve });
  }

  *#reportLost(leases: readonly HeldLease[]): Generator<void, void, void> {
    for (const lease of leases) {
      const lost: string[] = [];
      for (const row of lease.rows) {
        if (this.#keys.leaseOf(row) !== numberOf(lease)) continue; // bound again, or deleted
        lost.push(this.#keys.keyAt(row) ?? '');
        this.#keys.delete(row);
      }
      if (lost.length > 0) {
        this.#lost++;
        this.#options.onLost(lost);
      }
      yield;
    }
  }

  /** Revokes leases one by one, until one fails because the server is unreachable. Returns the code of the failure. */
  async #revoke(leases: Iterable<LeaseID>, deadlineMs: number): Promise<KvstoreErrorCode | undefined> {
    const { transport } = this.#options;
    for (const id of leases) {
      const revoked = transport.revokeLease(id, { deadlineMs });
      const failure = await revoked.then(() => undefined, asKvstoreError);
      if (failure !== undefined && failure.code !== 'lease-not-found') return failure.code;
    }
    return undefined;
  }
}
