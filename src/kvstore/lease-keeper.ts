import { backoffDelay } from '../base/backoff.ts';
import type { Clock, Random, Timer } from '../base/clock.ts';
import { asKvstoreError, KvstoreError } from './errors.ts';
import type { LeaseID, Transport } from './transport.ts';

/** What a {@link LeaseKeeper} is made of. */
export interface LeaseKeeperOptions {
  readonly transport: Transport;
  readonly clock: Clock;
  readonly random: Random;
  readonly ttlSeconds: number;
  /** Told when a lease was lost, with the keys that were bound to it. */
  onLost(lease: LeaseID, keys: readonly string[]): void;
}

interface HeldLease {
  readonly id: LeaseID;
  readonly keys: Set<string>;
  timer: Timer;
  /** When the server last said that it lives. */
  aliveAt: number;
  failures: number;
}

// etcd revokes a lease in one transaction over all of its keys; upstream keeps these transactions small too.
const KEYS_PER_LEASE = 1000;
const RETRY = { baseMs: 500, capMs: 5000 };

/**
 * Keeps a client's leases alive and spreads its keys over them, at most 1000 on each. A lease is *lost* when
 * the server says so, or when it has not been reached for a whole TTL. Loss is an event and not an error: the
 * next key that asks gets a new lease.
 */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  readonly #leases = new Map<LeaseID, HeldLease>();
  readonly #leaseOf = new Map<string, HeldLease>();
  readonly #closed = new AbortController();
  #granting: Promise<HeldLease> | undefined;
  #lost = 0;

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
  }

  /** Leases that are held. */
  get size(): number {
    return this.#leases.size;
  }

  /** The leases that are held. */
  get ids(): readonly LeaseID[] {
    return [...this.#leases.keys()];
  }

  /** Leases that were lost since the start. */
  get lost(): number {
    return this.#lost;
  }

  /** Whether this lease is held still. */
  holds(id: LeaseID): boolean {
    return this.#leases.has(id);
  }

  /** The lease for a key: the one that it has, or one with room. Grants one if need be; rejects if that fails. */
  async leaseFor(key: string): Promise<LeaseID> {
    for (;;) {
      const lease = this.#leaseOf.get(key) ?? this.#withRoom();
      if (lease !== undefined) {
        this.#bind(key, lease);
        return lease.id;
      }
      await this.#grant();
    }
  }

  /** The key is bound to no lease any more: deleted, or written without. */
  unbind(key: string): void {
    this.#leaseOf.get(key)?.keys.delete(key);
    this.#leaseOf.delete(key);
  }

  /** {@link unbind} for every key that starts with `prefix`. */
  unbindPrefix(prefix: string): void {
    for (const key of this.#leaseOf.keys()) if (key.startsWith(prefix)) this.unbind(key);
  }

  /** The server does not know this lease. */
  markLost(id: LeaseID): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    lease.timer.cancel();
    this.#leases.delete(id);
    for (const key of lease.keys) this.#leaseOf.delete(key);
    this.#lost++;
    this.#options.onLost(id, [...lease.keys]);
  }

  /**
   * Every lease counts as lost: the store was restored from a backup. It may know them still, and keys that were
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
    const held = [...this.#leases.values()];
    this.#leases.clear();
    this.#leaseOf.clear();
    for (const lease of held) lease.timer.cancel();
    if (!revoke) return;
    await Promise.allSettled(held.map(({ id }) => this.#options.transport.revokeLease(id)));
  }

  #bind(key: string, lease: HeldLease): void {
    lease.keys.add(key);
    this.#leaseOf.set(key, lease);
  }

  #withRoom(): HeldLease | undefined {
    for (const lease of this.#leases.values()) if (lease.keys.size < KEYS_PER_LEASE) return lease;
    return undefined;
  }

  /** One grant at a time, shared by all who wait for it. */
  #grant(): Promise<HeldLease> {
    this.#granting ??= this.#grantNow().finally(() => {
      this.#granting = undefined;
    });
    return this.#granting;
  }

  async #grantNow(): Promise<HeldLease> {
    const { transport, clock, ttlSeconds } = this.#options;
    const { signal } = this.#closed;
    if (signal.aborted) throw new KvstoreError('closed', 'the client was closed');
    const asked = clock.now();
    const id = await transport.grantLease(ttlSeconds, { signal });
    if (signal.aborted) {
      await transport.revokeLease(id).catch(() => {}); // nobody keeps it: it expires at the latest
      throw new KvstoreError('closed', 'the client was closed');
    }
    const lease: HeldLease = { id, keys: new Set(), aliveAt: asked, failures: 0, timer: this.#later(id) };
    this.#leases.set(id, lease);
    return lease;
  }

  #later(id: LeaseID, delayMs: number = (this.#options.ttlSeconds * 1000) / 3): Timer {
    return this.#options.clock.after(delayMs, () => void this.#keepAlive(id));
  }

  async #keepAlive(id: LeaseID): Promise<void> {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    const { transport, clock, random, ttlSeconds } = this.#options;
    const asked = clock.now();
    try {
      await transport.keepLeaseAlive(id, { signal: this.#closed.signal });
      lease.aliveAt = asked;
      lease.failures = 0;
      if (this.#leases.has(id)) lease.timer = this.#later(id);
    } catch (thrown) {
      if (!this.#leases.has(id)) return;
      const gone = asKvstoreError(thrown).code === 'lease-not-found';
      const expired = clock.now() - lease.aliveAt > ttlSeconds * 1000;
      if (gone || expired) return this.markLost(id);
      lease.failures++;
      lease.timer = this.#later(id, backoffDelay(lease.failures, RETRY, random));
    }
  }
}
