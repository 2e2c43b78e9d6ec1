import type { Supervisor } from '../base/supervisor.ts';
import type { Watch } from './backend.ts';
import { LEASE_WITNESSES_PREFIX } from './codec/keys.ts';
import { asKvstoreError } from './errors.ts';
import { leaseHex } from './lease-keeper.ts';
import type { LeaseID } from './transport.ts';

/** What {@link LeaseWitnesses} works with. */
export interface LeaseWitnessesOptions {
  readonly supervisor: Supervisor;
  /** Puts a key under a lease. */
  put(key: string, lease: LeaseID): Promise<unknown>;
  watch(prefix: string, signal: AbortSignal): Watch;
  /** The lease has ended on the server. */
  onGone(lease: LeaseID): void;
}

/**
 * Tells at once of leases that have ended on the server, as when a person revokes one; a keepalive tells of it up to a third of
 * the lease's time later. Each lease has a key of its own, the *witness*, and a watch follows these: one key for each thousand,
 * and one stream.
 *
 * Without the right to these keys, or while the watch is out, keepalives tell.
 */
export class LeaseWitnesses {
  readonly #options: LeaseWitnessesOptions;
  readonly #leases = new Map<string, LeaseID>();
  #isFollowing = false;

  constructor(options: LeaseWitnessesOptions) {
    this.#options = options;
  }

  /** A lease is held from now on. */
  granted(lease: LeaseID, signal: AbortSignal): void {
    const key = `${LEASE_WITNESSES_PREFIX}${leaseHex(lease)}`;
    this.#leases.set(key, lease);
    const { supervisor } = this.#options;
    void supervisor.keep('lease witness', () => this.#put(key, lease), { signal });
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    void supervisor.keep('lease witnesses', (until) => this.#follow(until), { signal });
  }

  async #put(key: string, lease: LeaseID): Promise<void> {
    try {
      await this.#options.put(key, lease);
    } catch (error) {
      const { code } = asKvstoreError(error);
      if (code === 'lease-not-found') this.#gone(key);
      else if (code !== 'forbidden') throw error;
    }
  }

  async #follow(signal: AbortSignal): Promise<void> {
    for await (const events of this.#options.watch(LEASE_WITNESSES_PREFIX, signal))
      for (const { type, key } of events) if (type === 'delete') this.#gone(key);
  }

  #gone(key: string): void {
    const lease = this.#leases.get(key);
    if (lease !== undefined && this.#leases.delete(key)) this.#options.onGone(lease);
  }
}
