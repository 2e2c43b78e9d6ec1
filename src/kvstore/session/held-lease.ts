import { backoffDelay } from '../../base/backoff.ts';
import type { Clock } from '../../base/clock.ts';
import type { Runtime } from '../../base/system-clock.ts';
import type { LeaseID } from './transport.ts';

/** TTL of leases, and the clock. */
export interface LeaseTerms extends Runtime {
  /** Requested TTL. A server with a longer minimum grants its minimum. */
  readonly ttlSeconds: number;
  /**
   * True if another client takes over when the lease ends, as with locks. The lease then counts as lost before the
   * server can expire it.
   */
  readonly exclusive?: boolean | undefined;
}

/** A point in time on both clocks. */
export interface ClockReading {
  readonly monotonic: number;
  readonly wall: number;
}

export function clockReading(clock: Clock): ClockReading {
  return { monotonic: clock.now(), wall: clock.wallTime() };
}

/**
 * Returns the milliseconds since a reading, by the clock for which more time has passed, because monotonic time may
 * stop while a machine is suspended (ETCD, "Time").
 */
export function elapsedSince({ monotonic, wall }: ClockReading, clock: Clock): number {
  return Math.max(clock.now() - monotonic, clock.wallTime() - wall);
}

const BACKOFF = { baseMs: 500, capMs: 5000 };
// A TTL of the server counts at most as this multiple of the requested one, so that the first keepalive after a wrong
// answer is not later than the requested TTL.
const MAX_TTL_FACTOR = 3;
// Fraction of the TTL after which an exclusive lease counts as lost. The margin allows for clocks of different speed.
const EXCLUSIVE_FRACTION = 0.9;
// Minimum number of checks during a TTL. An exclusive lease is checked every 4 % of its TTL (the lease of a lock, 25 s,
// every second), so its loss is detected before 94 %.
const CHECKS_PER_LEASE = 6;
const CHECKS_PER_EXCLUSIVE_LEASE = 25;
const MAX_CHECK_MS = 5000;

/**
 * A lease as its client knows it: its age, its expiry, and the time of its next keepalive. The age counts from the
 * sending of the last answered request, not from its answer.
 *
 * Monotonic time may stop while a machine is suspended (ETCD, "Time"). Keepalives and the expiry of an exclusive lease
 * therefore use the greater age of both clocks.
 */
export class HeldLease {
  readonly id: LeaseID;
  /** Number of keys. */
  size = 0;
  /** The rows of the keys. May also contain former rows of the lease, and a row several times. */
  rows: number[] = [];
  /** False if the lease was lost, or its keeper was closed. */
  isHeld = true;
  /** True if an earlier session was granted the lease. */
  readonly isAdopted: boolean;
  /** Number of leases which the keeper held before this one, lost ones included. */
  readonly order: number;
  readonly #terms: LeaseTerms;
  /** The TTL of the server, known from the first keepalive on. */
  #ttlSeconds: number;
  #requestedAt: ClockReading;
  #isRenewing = false;
  #failures = 0;
  /** Earliest time of the next keepalive after a failure, monotonic. */
  #retryAt: number;

  constructor(
    id: LeaseID,
    requestedAt: ClockReading,
    terms: LeaseTerms,
    order: number = 0,
    isAdopted = false,
  ) {
    this.id = id;
    this.order = order;
    this.isAdopted = isAdopted;
    this.#terms = terms;
    this.#ttlSeconds = terms.ttlSeconds;
    this.#requestedAt = requestedAt;
    this.#retryAt = requestedAt.monotonic;
  }

  /** True if the lease may have expired on the server. */
  get isExpired(): boolean {
    const { exclusive = false, clock } = this.#terms;
    return exclusive
      ? elapsedSince(this.#requestedAt, clock) >= this.#ttlMs * EXCLUSIVE_FRACTION
      : clock.now() - this.#requestedAt.monotonic >= this.#ttlMs;
  }

  /**
   * Milliseconds until the next keepalive, which is due after a third of the TTL, or soon after a failure. Infinity if
   * no key is bound, because such a lease may expire.
   */
  get dueIn(): number {
    if (this.#isRenewing || this.size === 0) return Number.POSITIVE_INFINITY;
    const { clock } = this.#terms;
    const untilThird = this.#ttlMs / 3 - elapsedSince(this.#requestedAt, clock);
    const untilRetry = this.#retryAt - clock.now();
    return Math.ceil(Math.max(untilThird, untilRetry));
  }

  /**
   * Milliseconds until the next check: until the next keepalive, or less, because only a check detects a changed clock
   * or a suspended machine.
   */
  get checkIn(): number {
    const { exclusive = false } = this.#terms;
    if (this.size === 0) return this.#ttlMs;
    const check = exclusive
      ? this.#ttlMs / CHECKS_PER_EXCLUSIVE_LEASE
      : Math.min(MAX_CHECK_MS, this.#ttlMs / CHECKS_PER_LEASE);
    return Math.min(this.dueIn, check);
  }

  /** Makes a keepalive call, which returns the TTL. Rejects if the call rejects. */
  async renew(call: () => Promise<number>): Promise<void> {
    const { clock, random, ttlSeconds } = this.#terms;
    const requestedAt = clockReading(clock);
    this.#isRenewing = true;
    try {
      this.#ttlSeconds = Math.min(await call(), MAX_TTL_FACTOR * ttlSeconds);
      this.#requestedAt = requestedAt;
      this.#failures = 0;
    } catch (error) {
      this.#failures++;
      this.#retryAt = clock.now() + backoffDelay(this.#failures, BACKOFF, random);
      throw error;
    } finally {
      this.#isRenewing = false;
    }
  }

  get #ttlMs(): number {
    return this.#ttlSeconds * 1000;
  }
}
