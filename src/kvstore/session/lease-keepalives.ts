import { onAbort } from '../../base/follow-signal.ts';
import type { Supervisor } from '../../base/supervisor.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import { asKvstoreError } from './errors.ts';
import type { HeldLease, LeaseTerms } from './held-lease.ts';
import type { LeaseID, Transport } from './transport.ts';

/**
 * Leases with a shorter TTL send keepalives with a deadline of a third of it, so that a second keepalive is possible.
 * For longer TTLs the default deadline of the transport, 10 s, is short enough. Example: the lease of locks, 25 s,
 * counts as lost after 22.5 s; its keepalives begin after 8.3 s and 18.8 s.
 */
const MAX_SHORT_TTL_SECONDS = 20;
/** Weight of a keepalive at the gate. Its request takes about 100 µs, and an event 2 to 3 µs. */
const KEEPALIVE_WEIGHT = 40;
/**
 * The pause between two checks is at least 1 ms for each 10 leases. A check takes less than 1 µs for each lease, so
 * checks use at most 1 % of the time.
 */
const LEASES_PER_MS = 10;

export interface LeaseKeepalivesOptions extends LeaseTerms {
  readonly transport: Transport;
  /** Name in the status of the supervisor. */
  readonly name: string;
  readonly supervisor: Supervisor;
  /** Splits the keepalives of many leases into short turns. Default: not split. */
  readonly gate?: TurnGate | undefined;
  /** The held leases. */
  readonly leases: ReadonlyMap<LeaseID, HeldLease>;
  /** If it fires, the keepalives end. */
  readonly signal: AbortSignal;
  /** Called when the server has answered a keepalive. */
  onRenewed?(): void;
  /** Receives held leases that have expired, or that the server does not have. They are then not held any more. */
  onLost(leases: readonly HeldLease[]): void;
}

/** Sends a keepalive for each held lease when it is due, and detects that leases are lost. */
export class LeaseKeepalives {
  readonly #options: LeaseKeepalivesOptions;
  #isStarted = false;
  /** Ends the pause between two checks of the leases. */
  #endPause: () => void = () => {};
  /** Monotonic time; in the past while no pause is running. */
  #pauseEndsAt = Number.NEGATIVE_INFINITY;

  constructor(options: LeaseKeepalivesOptions) {
    this.#options = options;
  }

  /** Includes a held lease in the checks, from the time when it is due. The first call begins the checks. */
  schedule(lease: HeldLease): void {
    const dueAt = this.#options.clock.now() + Math.max(lease.checkIn, this.#minPauseMs);
    if (dueAt < this.#pauseEndsAt) this.#endPause();
    if (this.#isStarted) return;
    this.#isStarted = true;
    const { supervisor, name, signal } = this.#options;
    onAbort(signal, () => this.#endPause());
    void supervisor.runWithRestart(name, () => this.#renewUntilClosed(), { signal });
  }

  /** Checks all leases, then pauses until the next lease is due. If a lease becomes due earlier, the pause ends. */
  async #renewUntilClosed(): Promise<void> {
    const { signal } = this.#options;
    while (!signal.aborted) {
      this.#removeExpired();
      await this.#renewDue();
      if (!signal.aborted) await this.#pause();
    }
  }

  /** Removes expired leases as lost, regardless of running keepalives. */
  #removeExpired(): void {
    const { leases, onLost } = this.#options;
    const expired: HeldLease[] = [];
    for (const lease of leases.values()) if (lease.isExpired) expired.push(lease);
    if (expired.length > 0) onLost(expired);
  }

  async #renewDue(): Promise<void> {
    const { gate = OPEN_GATE, leases, signal } = this.#options;
    for (const lease of leases.values()) {
      if (lease.dueIn > 0) continue;
      if (!(await gate.run(KEEPALIVE_WEIGHT, () => void this.#renew(lease), signal))) return;
    }
  }

  /** Sends a keepalive. */
  async #renew(lease: HeldLease): Promise<void> {
    if (!lease.isHeld) return;
    const { transport, supervisor, name, onRenewed, onLost, ttlSeconds, signal } = this.#options;
    // Without an answer, the next keepalive must be sent before the lease expires.
    const deadlineMs = ttlSeconds < MAX_SHORT_TTL_SECONDS ? Math.floor((ttlSeconds * 1000) / 3) : undefined;
    const keepAlive = (): Promise<number> => transport.keepLeaseAlive(lease.id, { signal, deadlineMs });
    try {
      await lease.renew(() => supervisor.run(`${name}: keepalive`, keepAlive, { signal }));
      onRenewed?.();
    } catch (error) {
      if (lease.isHeld && asKvstoreError(error).code === 'lease-not-found') onLost([lease]);
    }
    this.schedule(lease);
  }

  #pause(): Promise<void> {
    const { clock, leases } = this.#options;
    let pauseMs = Number.POSITIVE_INFINITY;
    for (const { checkIn } of leases.values()) pauseMs = Math.min(pauseMs, checkIn);
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

  get #minPauseMs(): number {
    return Math.floor(this.#options.leases.size / LEASES_PER_MS);
  }
}
