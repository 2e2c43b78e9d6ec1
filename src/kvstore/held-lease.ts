import { backoffDelay } from '../base/backoff.ts';
import type { Clock, Random } from '../base/clock.ts';
import type { LeaseID } from './transport.ts';

/** How leases are held. */
export interface LeaseTerms {
  readonly clock: Clock;
  readonly random: Random;
  readonly ttlSeconds: number;
  /**
   * Somebody else takes over when a lease ends, as with locks: it counts as lost before the server can have ended it,
   * and also when only the system's time says that it may have ended, because the machine was suspended.
   */
  readonly exclusive?: boolean | undefined;
}

/** A moment on both clocks. */
export interface Moment {
  readonly now: number;
  readonly wall: number;
}

/** Reads both clocks. */
export function momentOf(clock: Clock): Moment {
  return { now: clock.now(), wall: clock.wallTime() };
}

const BACKOFF = { baseMs: 500, capMs: 5000 };
// The server counts from a later moment than we do; the rest is for clocks that do not run equally fast.
const EXCLUSIVE_PART = 0.9;
// How often it is looked whether a lease's time is over, at least. With the part above, the loss of an exclusive one is
// noticed at 94 % of its time at the latest; a lock's lease of 25 s is looked at every second.
const LOOKS = 6;
const EXCLUSIVE_LOOKS = 25;
const MAX_LOOK_MS = 5000;

/**
 * A lease as its client sees it: how old it is, when its time is over, when the server is to be asked for it. Its time
 * counts from the last question that was answered, not from the answer.
 *
 * Monotonic time may stand still while a machine is suspended (ETCD, "Time"). So a lease may be as old as the system's
 * time says, if that is more.
 */
export class HeldLease {
  readonly id: LeaseID;
  /** The keys that are bound to it. */
  readonly keys: Set<string> = new Set();
  readonly #terms: LeaseTerms;
  #asked: Moment;
  #isBeingAsked = false;
  #failures = 0;
  #tryAt: number;

  constructor(id: LeaseID, asked: Moment, terms: LeaseTerms) {
    this.id = id;
    this.#terms = terms;
    this.#asked = asked;
    this.#tryAt = asked.now;
  }

  /** Whether it may have ended on the server. */
  get isOver(): boolean {
    const { exclusive = false } = this.#terms;
    const { least, most } = this.#age();
    return exclusive ? most >= this.#ttlMs * EXCLUSIVE_PART : least >= this.#ttlMs;
  }

  /**
   * Milliseconds until the server is to be asked for it: three times in its life, and again after a failure; never while
   * nothing is bound to it: then it is left to expire.
   */
  get dueIn(): number {
    if (this.#isBeingAsked || this.keys.size === 0) return Number.POSITIVE_INFINITY;
    const ms = Math.max(this.#ttlMs / 3 - this.#age().most, this.#tryAt - this.#terms.clock.now());
    return Math.ceil(ms);
  }

  /** Milliseconds until it is to be looked at, because only that tells that a clock was set, or that we were suspended. */
  get lookIn(): number {
    const { exclusive = false } = this.#terms;
    if (this.keys.size === 0) return this.#ttlMs;
    const look = exclusive ? this.#ttlMs / EXCLUSIVE_LOOKS : Math.min(MAX_LOOK_MS, this.#ttlMs / LOOKS);
    return Math.min(this.dueIn, look);
  }

  /** Makes the call that asks the server for it; rejects as that does. */
  async ask(call: () => Promise<unknown>): Promise<void> {
    const { clock, random } = this.#terms;
    const asked = momentOf(clock);
    this.#isBeingAsked = true;
    try {
      await call();
      this.#asked = asked;
      this.#failures = 0;
    } catch (error) {
      this.#failures++;
      this.#tryAt = clock.now() + backoffDelay(this.#failures, BACKOFF, random);
      throw error;
    } finally {
      this.#isBeingAsked = false;
    }
  }

  get #ttlMs(): number {
    return this.#terms.ttlSeconds * 1000;
  }

  /** How long ago the server was asked: at least, and at most if the machine may have been suspended meanwhile. */
  #age(): { readonly least: number; readonly most: number } {
    const { now, wall } = momentOf(this.#terms.clock);
    const least = now - this.#asked.now;
    return { least, most: Math.max(least, wall - this.#asked.wall) };
  }
}
