import { deferred } from '../../base/sleep.ts';
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
import { type Binding, LeaseBindings } from './lease-bindings.ts';
import { LeaseKeepalives } from './lease-keepalives.ts';
import type { LeaseID, Transport } from './transport.ts';
import { untilAborted } from './until-aborted.ts';

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
 * The leases of a client: requests them as keys are bound to them, keeps those with keys alive, and reports the keys of
 * lost ones. A lease is *lost* if the server does not have it, or if no keepalive succeeded during its TTL. A loss is
 * an event and not an error, because the next key gets a new lease. A lease without keys is not kept alive and expires.
 */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  readonly #leases = new Map<LeaseID, HeldLease>();
  /** Number of leases granted or adopted so far. */
  #leaseCount = 0;
  /** The running request for a new lease. */
  #granting: Promise<void> | undefined;
  /** Running adoptions of leases. */
  readonly #adopting = new Map<LeaseID, Promise<HeldLease | undefined>>();
  /** When adoptions began to fail; undefined if the server has answered the last one. Monotonic time. */
  #adoptionsFailSince: number | undefined;
  /** The last leases that must not be adopted: they are lost, or have another TTL. */
  readonly #unadoptable = new Set<LeaseID>();
  readonly #closed = new AbortController();
  readonly #keepalives: LeaseKeepalives;
  #lost = 0;
  /** The bindings of keys to the held leases. */
  readonly bindings: LeaseBindings;

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
    this.#keepalives = new LeaseKeepalives({
      ...options,
      leases: this.#leases,
      signal: this.#closed.signal,
      onLost: (leases) => this.#removeLost(leases),
    });
    // A lease with keys is checked more often.
    this.bindings = new LeaseBindings((lease) => this.#keepalives.schedule(lease));
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
    const find = (): HeldLease | undefined => this.bindings.leaseFor(key);
    return this.#withLease(find, (lease) => this.bindings.bind(lease, key), signal);
  }

  /** Like {@link bind} for several keys. If it rejects, those of the keys that were never written are unbound. */
  async bindAll(
    writes: readonly { readonly key: string }[],
    signal?: AbortSignal,
  ): Promise<readonly Binding[]> {
    const bindings: Binding[] = [];
    try {
      for (;;) {
        this.bindings.bindNext(writes, bindings);
        const next = writes[bindings.length];
        if (next === undefined) return bindings;
        bindings.push(await this.bind(next.key, signal));
      }
    } catch (error) {
      this.bindings.settle(bindings, false);
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
    for (const key of keys) this.bindings.bindWritten(lease, key);
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
    this.bindings.clear();
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
    this.bindings.addLease(lease);
    this.#options.onGranted?.(id);
    this.#keepalives.schedule(lease);
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
      this.bindings.removeLease(lease);
      onEnded?.(lease.id);
    }
    const reported = deferred();
    if (leases.length > 1) onLeasesLost?.(reported.promise);
    gate.runInBackground(this.#reportLost(leases), { signal: this.#closed.signal, onEnd: reported.resolve });
  }

  *#reportLost(leases: readonly HeldLease[]): Generator<void, void, void> {
    for (const lease of leases) {
      const lost = this.bindings.takeKeysOf(lease);
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
