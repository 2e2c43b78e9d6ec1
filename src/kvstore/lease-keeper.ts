import type { Clock } from '../base/clock.ts';
import { sleep } from '../base/sleep.ts';
import type { Supervisor } from '../base/supervisor.ts';
import { asKvstoreError, KvstoreError } from './errors.ts';
import type { LeaseID, Transport } from './transport.ts';

/** A lease as etcd's own clients write it in keys. */
export function leaseHex(lease: LeaseID): string {
  return BigInt.asUintN(64, BigInt(lease)).toString(16);
}

/** Options of {@link LeaseKeeper}. */
export interface LeaseKeeperOptions {
  readonly transport: Transport;
  readonly clock: Clock;
  /** What it is called in the supervisor's status. */
  readonly name: string;
  /** Owns the keepalives. */
  readonly supervisor: Supervisor;
  readonly ttlSeconds: number;
  /**
   * Somebody else takes over when a lease ends, as with locks: it counts as lost before the server can have ended it,
   * and also when only the system's time says that it may have ended, because the machine was suspended.
   */
  readonly exclusive?: boolean | undefined;
  /** Receives the keys that were bound to a lease that was lost. */
  onLost(keys: readonly string[]): void;
}

/** That a key is bound to a lease. Each write under a lease makes a new one. */
export interface Binding {
  readonly key: string;
  readonly lease: LeaseID;
}

interface HeldLease {
  readonly id: LeaseID;
  readonly keys: Set<string>;
  /** When the server was last asked for it with success, on both clocks. */
  asked: Moment;
}

interface Moment {
  readonly now: number;
  readonly wall: number;
}

// etcd revokes a lease in one transaction over all of its keys; upstream keeps these transactions small too.
const KEYS_PER_LEASE = 1000;
const BACKOFF = { baseMs: 500, capMs: 5000 };
// The server counts from a later moment than we do; the rest is for clocks that do not run equally fast.
const EXCLUSIVE_PART = 0.9;
// How often a lease is looked at in its time, at least. With the part above, the loss of an exclusive one is noticed at
// 94 % of its time at the latest; a lock's lease of 25 s is looked at every second.
const TICKS = 6;
const EXCLUSIVE_TICKS = 25;
const MAX_TICK_MS = 5000;

/**
 * Keeps a client's leases alive and spreads its keys over them, at most 1000 on each. A lease is *lost* when
 * the server says so, or when it was not reached for the lease's whole time. Loss is an event and not an error: the
 * next key that asks gets a new lease.
 *
 * Monotonic time may stand still while a machine is suspended. So a keepalive is also due when the system's time says so.
 */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  readonly #ttlMs: number;
  readonly #tickMs: number;
  readonly #leases = new Map<LeaseID, HeldLease>();
  readonly #bindings = new Map<string, Binding>();
  readonly #closed = new AbortController();
  #granting: Promise<void> | undefined;
  #isKeeping = false;
  #lost = 0;

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
    this.#ttlMs = options.ttlSeconds * 1000;
    this.#tickMs = Math.min(
      MAX_TICK_MS,
      this.#ttlMs / (options.exclusive === true ? EXCLUSIVE_TICKS : TICKS),
    );
  }

  /** Leases that are held. */
  get size(): number {
    return this.#leases.size;
  }

  /** Leases that were lost since the start. */
  get lost(): number {
    return this.#lost;
  }

  /** Whether this lease is still held. */
  holds(id: LeaseID): boolean {
    return this.#leases.has(id);
  }

  /**
   * Binds a key: to the lease that it has, or to one with room. Grants one if need be; rejects if that fails.
   *
   * Bind before the write, so that a key that was written is never missed when its lease is lost.
   */
  async bind(key: string): Promise<Binding> {
    for (;;) {
      const id = this.#bindings.get(key)?.lease;
      const lease = id === undefined ? this.#withRoom() : this.#leases.get(id);
      if (lease !== undefined) {
        const binding = { key, lease: lease.id };
        lease.keys.add(key);
        this.#bindings.set(key, binding);
        return binding;
      }
      await this.#grant();
    }
  }

  /** What the key is bound by. Take it before a delete, for {@link unbind} afterwards. */
  bindingOf(key: string): Binding | undefined {
    return this.#bindings.get(key);
  }

  /** What the keys are bound by that start with `prefix`. Looks at every key. */
  bindingsBelow(prefix: string): readonly Binding[] {
    return [...this.#bindings.values()].filter(({ key }) => key.startsWith(prefix));
  }

  /** The key is not bound any more, unless it was bound again since: it was deleted, or written without a lease. */
  unbind(binding: Binding | undefined): void {
    if (binding === undefined || this.#bindings.get(binding.key) !== binding) return;
    this.#bindings.delete(binding.key);
    this.#leases.get(binding.lease)?.keys.delete(binding.key);
  }

  /**
   * A write under this binding has been sent: if a delete that was called meanwhile has unbound the key, it is bound
   * again, because the write may have come after it.
   */
  confirm(binding: Binding): void {
    const lease = this.#leases.get(binding.lease);
    if (lease === undefined || this.#bindings.has(binding.key)) return;
    lease.keys.add(binding.key);
    this.#bindings.set(binding.key, binding);
  }

  /** The server does not know this lease. */
  markLost(id: LeaseID): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    this.#leases.delete(id);
    for (const key of lease.keys) this.#bindings.delete(key);
    this.#lost++;
    this.#options.onLost([...lease.keys]);
  }

  /**
   * Every lease counts as lost: the store was restored from a backup. It may still know them, and keys that were
   * deleted since the backup are back under them. So they are left to expire: what is still wanted is put again
   * under a new lease, and what is not goes with the old one.
   */
  loseAll(): void {
    for (const id of [...this.#leases.keys()]) this.markLost(id);
  }

  /** Stops the keepalives; `revoke` deletes the keys on the server, as far as it can be reached. */
  async close(revoke: boolean): Promise<void> {
    if (this.#closed.signal.aborted) return;
    this.#closed.abort();
    const held = [...this.#leases.keys()];
    this.#leases.clear();
    this.#bindings.clear();
    if (!revoke) return;
    await Promise.allSettled(held.map((id) => this.#options.transport.revokeLease(id)));
  }

  #withRoom(): HeldLease | undefined {
    for (const lease of this.#leases.values()) if (lease.keys.size < KEYS_PER_LEASE) return lease;
    return undefined;
  }

  /** One grant at a time, shared by all that wait for it. */
  #grant(): Promise<void> {
    this.#granting ??= this.#grantNow().finally(() => {
      this.#granting = undefined;
    });
    return this.#granting;
  }

  async #grantNow(): Promise<void> {
    const { transport, ttlSeconds } = this.#options;
    const { signal } = this.#closed;
    if (signal.aborted) throw new KvstoreError('closed', 'the client was closed');
    const asked = this.#moment();
    const id = await transport.grantLease(ttlSeconds, { signal });
    if (signal.aborted) {
      await transport.revokeLease(id).catch(() => {}); // it is not kept alive: it expires at the latest
      throw new KvstoreError('closed', 'the client was closed');
    }
    this.#leases.set(id, { id, keys: new Set(), asked });
    this.#keep();
  }

  #keep(): void {
    if (this.#isKeeping) return;
    this.#isKeeping = true;
    const { supervisor, name } = this.#options;
    const { signal } = this.#closed;
    void supervisor.keep(`${name}: expiry`, () => this.#watch(), { signal });
    void supervisor.keep(`${name}: keepalive`, () => this.#keepAlive(), { signal, backoff: BACKOFF });
  }

  #moment(): Moment {
    const { clock } = this.#options;
    return { now: clock.now(), wall: clock.wallTime() };
  }

  /** How long ago the server was asked: at least, and at most if the machine may have been suspended meanwhile. */
  #age({ asked }: HeldLease): { readonly least: number; readonly most: number } {
    const { now, wall } = this.#moment();
    const least = now - asked.now;
    return { least, most: Math.max(least, wall - asked.wall) };
  }

  /** Marks leases as lost when their time is over, whatever becomes of keepalives. */
  async #watch(): Promise<void> {
    const { clock, exclusive = false } = this.#options;
    const { signal } = this.#closed;
    while (!signal.aborted) {
      await sleep(clock, this.#tickMs, signal);
      for (const lease of [...this.#leases.values()]) {
        const { least, most } = this.#age(lease);
        const isOver = exclusive ? most >= this.#ttlMs * EXCLUSIVE_PART : least >= this.#ttlMs;
        if (isOver) this.markLost(lease.id);
      }
    }
  }

  /** Asks the server for each lease that is due; rejects when one of them fails, and is called again. */
  async #keepAlive(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#closed;
    while (!signal.aborted) {
      const due = [...this.#leases.values()].filter((lease) => this.#age(lease).most >= this.#ttlMs / 3);
      const failed = (await Promise.allSettled(due.map((lease) => this.#ask(lease)))).find(isRejected);
      if (failed !== undefined) throw failed.reason;
      await sleep(clock, this.#tickMs, signal);
    }
  }

  async #ask(lease: HeldLease): Promise<void> {
    const asked = this.#moment();
    try {
      await this.#options.transport.keepLeaseAlive(lease.id, { signal: this.#closed.signal });
      lease.asked = asked;
    } catch (error) {
      if (asKvstoreError(error).code !== 'lease-not-found') throw error;
      this.markLost(lease.id);
    }
  }
}

function isRejected(result: PromiseSettledResult<void>): result is PromiseRejectedResult {
  return result.status === 'rejected';
}
