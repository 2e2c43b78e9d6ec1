import type { Supervisor } from '../../base/supervisor.ts';
import { LEASE_WITNESSES_PREFIX } from '../codec/keys.ts';
import type { Watch } from './backend.ts';
import { asKvstoreError } from './errors.ts';
import { leaseHex } from './lease-keeper.ts';
import type { LeaseID } from './transport.ts';

function witnessOf(lease: LeaseID): string {
  return `${LEASE_WITNESSES_PREFIX}${leaseHex(lease)}`;
}

/** Operations and callback of {@link LeaseWitnesses}. */
export interface LeaseWitnessesOptions {
  readonly supervisor: Supervisor;
  put(key: string, lease: LeaseID): Promise<unknown>;
  watch(prefix: string, signal: AbortSignal): Watch;
  /** Called if the lease has ended on the server. */
  onLeaseEnded(lease: LeaseID): void;
}

/**
 * Detects immediately that a lease has ended, for example because a person revoked it. A keepalive would detect this up
 * to a third of the time of the lease later. Each lease has an additional key, the *witness*, and one watch follows all
 * witnesses.
 *
 * A deleted witness does not prove that its lease has ended, because other clients may delete the key. The witness is
 * put again, and the server rejects the put if the lease has ended.
 *
 * Without the right to these keys, and while the watch is interrupted, keepalives detect the end of a lease.
 */
export class LeaseWitnesses {
  readonly #options: LeaseWitnessesOptions;
  /** The witnessed leases by their witness. */
  readonly #leases = new Map<string, LeaseID>();
  #isFollowing = false;

  constructor(options: LeaseWitnessesOptions) {
    this.#options = options;
  }

  /**
   * Starts to witness a granted lease, until {@link stop} is called with it. `signal` ends the puts and the watch. It
   * must be the same for all leases.
   */
  start(lease: LeaseID, signal: AbortSignal): void {
    const key = witnessOf(lease);
    this.#leases.set(key, lease);
    this.#keepPutting(key, signal);
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    void this.#options.supervisor.runWithRestart('lease witnesses', (until) => this.#follow(until), {
      signal,
    });
  }

  /** Forgets an ended lease. Does nothing if the lease is unknown. */
  stop(lease: LeaseID): void {
    this.#leases.delete(witnessOf(lease));
  }

  /** Puts a witness, with retries, until it succeeds or the lease has ended. */
  #keepPutting(key: string, signal: AbortSignal): void {
    void this.#options.supervisor.runWithRestart('lease witness', () => this.#put(key), { signal });
  }

  async #put(key: string): Promise<void> {
    const { put, onLeaseEnded } = this.#options;
    const lease = this.#leases.get(key);
    if (lease === undefined) return;
    try {
      await put(key, lease);
    } catch (error) {
      const { code } = asKvstoreError(error);
      if (code === 'forbidden') return;
      if (code !== 'lease-not-found') throw error;
      if (this.#leases.delete(key)) onLeaseEnded(lease);
    }
  }

  async #follow(signal: AbortSignal): Promise<void> {
    for await (const events of this.#options.watch(LEASE_WITNESSES_PREFIX, signal))
      for (const { type, key } of events)
        if (type === 'delete' && this.#leases.has(key)) this.#keepPutting(key, signal);
  }
}
