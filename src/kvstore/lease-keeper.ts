import { interruptible, type Supervisor } from '../base/supervisor.ts';
import { abortedError, asKvstoreError, KvstoreError } from './errors.ts';
import { HeldLease, type LeaseTerms, momentOf } from './held-lease.ts';
import type { LeaseID, Transport } from './transport.ts';

/** A lease as etcd's own clients write it in keys. */
export function leaseHex(lease: LeaseID): string {
  return BigInt.asUintN(64, BigInt(lease)).toString(16);
}

/** Options of {@link LeaseKeeper}. */
export interface LeaseKeeperOptions extends LeaseTerms {
  readonly transport: Transport;
  /** What it is called in the supervisor's status. */
  readonly name: string;
  /** Owns the keepalives. */
  readonly supervisor: Supervisor;
  /** Receives the keys that were bound to a lease that was lost. */
  onLost(keys: readonly string[]): void;
  /** Called with each lease that is granted. */
  onGranted?(lease: LeaseID): void;
  /** Called when the server has answered for a lease. */
  onKept?(): void;
}

/** That a key is bound to a lease. Each write under a lease makes a new one. */
export interface Binding {
  readonly key: string;
  readonly lease: LeaseID;
  /** The store's revision when the write had been made; 0 while that is not known. */
  writtenAt: number;
}

// etcd revokes a lease in one transaction over all of its keys; upstream keeps these transactions small too.
const KEYS_PER_LEASE = 1000;

/**
 * Keeps a client's leases alive and spreads its keys over them, at most 1000 on each. A lease is *lost* when
 * the server says so, or when it was not reached for the lease's whole time. Loss is an event and not an error: the
 * next key that asks gets a new lease. A lease to which nothing is bound any more is left to expire.
 */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  readonly #leases = new Map<LeaseID, HeldLease>();
  readonly #bindings = new Map<string, Binding>();
  readonly #closed = new AbortController();
  #granting: Promise<void> | undefined;
  #isKeeping = false;
  /** Ends the pause until the leases are looked at again. */
  #wake: () => void = () => {};
  #lost = 0;

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
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
   *
   * @param signal ends the wait for a lease that is being granted: nothing is bound then
   */
  bind(key: string, signal?: AbortSignal): Promise<Binding> {
    return this.#held(() => {
      const id = this.#bindings.get(key)?.lease;
      const lease = id === undefined ? this.#withRoom() : this.#leases.get(id);
      return lease && this.#bindTo(lease, key);
    }, signal);
  }

  /** A lease that is held, whichever; nothing is bound to it. */
  any(): Promise<LeaseID> {
    return this.#held(() => this.#leases.values().next().value?.id);
  }

  /** What the key is bound by. Take it before a delete, for {@link unbind} afterwards. */
  bindingOf(key: string): Binding | undefined {
    return this.#bindings.get(key);
  }

  /** What the keys are bound by that start with `prefix`. Looks at every key. */
  bindingsBelow(prefix: string): readonly Binding[] {
    return [...this.#bindings.values()].filter(({ key }) => key.startsWith(prefix));
  }

  /**
   * The key is not bound any more, unless it was bound again since: it was deleted, or written without a lease.
   *
   * @param revision of that; a write that is known to be later counts. Answers may come in another order.
   */
  unbind(binding: Binding | undefined, revision: number = Number.POSITIVE_INFINITY): void {
    if (binding === undefined || this.#bindings.get(binding.key) !== binding) return;
    if (binding.writtenAt > revision) return;
    this.#bindings.delete(binding.key);
    this.#leases.get(binding.lease)?.keys.delete(binding.key);
  }

  /**
   * A write under this binding has been sent: if a delete that was called meanwhile has unbound the key, it is bound
   * again, because the write may have come after it.
   *
   * @param revision as of which it has been made, if that is known
   */
  confirm(binding: Binding, revision: number = 0): void {
    binding.writtenAt = revision;
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
    if (lease.keys.size === 0) return; // it was left to expire
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
    this.#closed.abort();
    const held = [...this.#leases.keys()];
    this.#leases.clear();
    this.#bindings.clear();
    if (!revoke) return;
    await Promise.allSettled(held.map((id) => this.#options.transport.revokeLease(id)));
  }

  /** What `take` gives of the leases that are held; where it gives nothing, one more is granted. */
  async #held<T>(take: () => T | undefined, signal?: AbortSignal): Promise<T> {
    for (;;) {
      this.#expire();
      const taken = take();
      if (taken !== undefined) return taken;
      await this.#granted(signal);
    }
  }

  /** Others may wait for the same one: it is granted all the same. */
  async #granted(signal: AbortSignal | undefined): Promise<void> {
    if (signal === undefined) return this.#grant();
    try {
      await interruptible(() => this.#grant(), signal);
    } catch (error) {
      throw signal.aborted ? abortedError() : error;
    }
  }

  #bindTo(lease: HeldLease, key: string): Binding {
    const binding: Binding = { key, lease: lease.id, writtenAt: 0 };
    if (lease.keys.size === 0) this.#wake(); // from now on it is looked at more often
    lease.keys.add(key);
    this.#bindings.set(key, binding);
    return binding;
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
    const { transport, clock, ttlSeconds } = this.#options;
    const { signal } = this.#closed;
    if (signal.aborted) throw new KvstoreError('closed', 'the client was closed');
    const asked = momentOf(clock);
    const id = await transport.grantLease(ttlSeconds, { signal });
    if (signal.aborted) {
      await transport.revokeLease(id).catch(() => {}); // it is not kept alive: it expires at the latest
      throw new KvstoreError('closed', 'the client was closed');
    }
    this.#leases.set(id, new HeldLease(id, asked, this.#options));
    this.#options.onGranted?.(id);
    this.#keep();
  }

  #keep(): void {
    this.#wake();
    if (this.#isKeeping) return;
    this.#isKeeping = true;
    const { supervisor, name } = this.#options;
    const { signal } = this.#closed;
    signal.addEventListener('abort', () => this.#wake());
    void supervisor.keep(name, () => this.#keepAll(), { signal });
  }

  async #keepAll(): Promise<void> {
    while (!this.#closed.signal.aborted) {
      this.#expire();
      for (const lease of this.#leases.values()) if (lease.dueIn <= 0) void this.#ask(lease);
      await this.#pause();
    }
  }

  #pause(): Promise<void> {
    const ms = Math.min(...[...this.#leases.values()].map(({ lookIn }) => lookIn));
    return new Promise((resolve) => {
      const timer = Number.isFinite(ms) ? this.#options.clock.after(ms, resolve) : undefined;
      this.#wake = () => {
        timer?.cancel();
        resolve();
      };
    });
  }

  /** Leases whose time is over are lost, whatever becomes of keepalives. */
  #expire(): void {
    for (const lease of [...this.#leases.values()]) if (lease.isOver) this.markLost(lease.id);
  }

  async #ask(lease: HeldLease): Promise<void> {
    const { transport, supervisor, name, onKept } = this.#options;
    const { signal } = this.#closed;
    const keepAlive = (): Promise<unknown> => transport.keepLeaseAlive(lease.id, { signal });
    try {
      await lease.ask(() => supervisor.run(`${name}: keepalive`, keepAlive, { signal }));
      onKept?.();
    } catch (error) {
      if (asKvstoreError(error).code === 'lease-not-found') this.markLost(lease.id);
    }
    this.#wake();
  }
}
