import { assert } from '../../base/assert.ts';
import type { Random, Timer } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { EitherSignal } from '../../base/follow-signal.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { sleep } from '../../base/sleep.ts';
import type { Runtime } from '../../base/system-clock.ts';
import { elapsedSince } from '../../kvstore/session/held-lease.ts';
import { ElectionLease, type ElectionLeaseOptions } from './election-lease.ts';

/** The permission to write. */
export interface Leadership {
  /**
   * Returns true if no other operator can be the leader now, or during a request that is sent now and takes at most
   * {@link writeMs}.
   */
  mayWrite(): boolean;
  /** Maximum duration of a request that {@link mayWrite} has allowed. Default: that of the writer. */
  readonly writeMs?: number;
}

/** The leadership of an operator without Kubernetes: it is always the leader, because there are no other operators. */
export const SOLE_LEADER: Leadership = { mayWrite: () => true };

/** The times of an election. All candidates of one Lease must have the same. */
export interface ElectionTimes {
  /** Time after its last renewal at which another candidate may acquire the Lease. */
  readonly leaseMs: number;
  /** Time after its last renewal at which a leader steps down. Less than `leaseMs`. */
  readonly renewDeadlineMs: number;
  /**
   * Time between two renewals. A candidate waits 1 to 2.2 times as long between two reads. 1.2 times this time must be
   * less than `renewDeadlineMs`.
   */
  readonly retryMs: number;
}

/** The times of Cilium. */
const ELECTION_TIMES: ElectionTimes = { leaseMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2000 };

export interface LeaderElectionOptions extends Runtime {
  /** A client of the API server with the Lease. */
  readonly client: ElectionLeaseOptions['client'];
  /** Unique to this process: {@link electionIdentity}. */
  readonly identity: string;
  /** Namespace of the Lease. Default `default`. */
  readonly namespace?: string | undefined;
  /** Default: 15 s, 10 s and 2 s, as in Cilium. */
  readonly times?: ElectionTimes | undefined;
  /**
   * Called before each attempt of a candidate. If it returns false, the candidate leaves the Lease to others. Default:
   * always true.
   */
  readonly isCandidate?: (() => boolean) | undefined;
  /** Called for the first failed attempt with each reason since the last success. */
  readonly onFailure?: ((error: unknown) => void) | undefined;
  /** Called if an attempt succeeds after failures, also if another operator holds the Lease. */
  readonly onRecovered?: (() => void) | undefined;
}

export interface LeaderElectionStatus {
  readonly identity: string;
  readonly state: 'idle' | 'candidate' | 'leader';
  /** Holder of the Lease when it was last read or written; `undefined` if it had none. */
  readonly holder: string | undefined;
  /** Milliseconds since the last renewal of this process. */
  readonly renewedMs: number | undefined;
  /**
   * Milliseconds until this candidate may acquire the Lease if the holder does not renew it; 0 if it may acquire it
   * now; `undefined` if this process is not a candidate.
   */
  readonly freeInMs: number | undefined;
  /** Number of failed reads and renewals. */
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** `leaderelection.JitterFactor` of client-go, so that candidates do not read the Lease at the same times. */
const JITTER = 1.2;
const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

/** Returns `<hostname>-<10 random letters>`. */
export function electionIdentity(hostname: string, random: Random): string {
  const letters = Array.from({ length: 10 }, () => LETTERS[Math.floor(random() * LETTERS.length)]);
  return `${hostname}-${letters.join('')}`;
}

/** Returns the reason if election is impossible with these times, without a final period. */
export function electionFault({ leaseMs, renewDeadlineMs, retryMs }: ElectionTimes): string | undefined {
  if (retryMs > 0 && renewDeadlineMs < leaseMs && retryMs * JITTER < renewDeadlineMs) return undefined;
  return `the lease duration (${leaseMs} ms) must be greater than the renew deadline (${renewDeadlineMs} ms), and the deadline greater than ${JITTER} times the retry period (${retryMs} ms), which must not be 0`;
}

/**
 * Leader election on a Lease, as in client-go. Clocks need not agree: a candidate acquires a Lease that, by the
 * candidate's clock, has not changed for the duration of the Lease. The leader counts from the time **before** it sent
 * its last successful renewal, and therefore from earlier than any candidate:
 *
 *     leader     sent ├──────── may write ─────────┤deadline      lease┊
 *     candidate        seen ├───────────────────────────────────────── lease ┤ may take it
 *                                                  ├─ for pending ─────┊
 *                                                   requests and slow clocks
 *
 * Covered: partitions; delayed or lost requests and answers; a process stopped for any time; a suspended
 * machine; clocks that are set, or run a third too fast or slow. Not covered: an operator of another program that
 * does not check its leadership before a write; and a request that takes effect later than {@link writeMs} after it
 * was sent, which only its preconditions can stop.
 */
export class LeaderElection implements Leadership {
  readonly writeMs: number;
  readonly #options: LeaderElectionOptions;
  readonly #lease: ElectionLease;
  readonly #times: ElectionTimes;
  readonly #guard = new CallbackGuard();
  #state: LeaderElectionStatus['state'] = 'idle';
  #failures = 0;
  #lastFailure: Failure | undefined;
  /** Messages of the failures since the last success. */
  readonly #reported = new Set<string>();

  constructor(options: LeaderElectionOptions) {
    const { namespace = 'default', times = ELECTION_TIMES } = options;
    const { leaseMs, renewDeadlineMs } = times;
    const fault = electionFault(times);
    assert(fault === undefined, fault ?? '');
    this.#options = options;
    this.#times = times;
    this.writeMs = leaseMs - renewDeadlineMs;
    this.#lease = new ElectionLease({ ...options, namespace, leaseMs, renewDeadlineMs });
  }

  mayWrite(): boolean {
    const { renewedAt } = this.#lease;
    if (renewedAt === undefined) return false;
    return elapsedSince(renewedAt, this.#options.clock) < this.#times.renewDeadlineMs;
  }

  status(): LeaderElectionStatus {
    const { identity, clock } = this.#options;
    const { holder, renewedAt, freeInMs } = this.#lease;
    return {
      identity,
      state: this.#state,
      holder,
      renewedMs: renewedAt === undefined ? undefined : clock.now() - renewedAt.monotonic,
      freeInMs: this.#state === 'candidate' ? freeInMs : undefined,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
    };
  }

  /**
   * Waits until this process is the leader, runs `lead` once, and renews the Lease while `lead` runs. The signal of
   * `lead` fires when `signal` fires, or when the Lease is lost, which is before another operator can hold it. `lead`
   * must end immediately when its signal fires. When `lead` has settled, releases the Lease if this process still holds
   * it. Resolves to `lost` if the Lease was lost, otherwise to `ended`. Rejects if `lead` throws.
   */
  async run(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<'ended' | 'lost'> {
    assert(this.#state === 'idle', 'the election is not running');
    this.#state = 'candidate';
    try {
      if (!(await this.#acquire(signal))) return 'ended';
      this.#state = 'leader';
      return await this.#lead(lead, signal);
    } finally {
      this.#state = 'idle';
      await this.#lease.release();
    }
  }

  async #acquire(signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    while (!signal.aborted) {
      if (await this.#attempt(signal)) return true;
      await sleep(clock, this.#waitMs(), signal);
    }
    return false;
  }

  /**
   * Returns the time until the next attempt: 1 to 2.2 retry periods, but at most half a retry period after the Lease of
   * another operator expires.
   */
  #waitMs(): number {
    const { random } = this.#options;
    const waitMs = this.#times.retryMs * (1 + random() * JITTER);
    const { freeInMs } = this.#lease;
    return freeInMs === 0 ? waitMs : Math.min(waitMs, freeInMs + (random() * this.#times.retryMs) / 2);
  }

  async #lead(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<'ended' | 'lost'> {
    const ended = new AbortController();
    using either = new EitherSignal(signal, ended.signal);
    const stop = (): void => ended.abort();
    const work = (async () => lead(either.signal))();
    work.then(stop, stop);
    try {
      return (await this.#renew(either.signal)) ? 'lost' : 'ended';
    } finally {
      stop();
      await work;
    }
  }

  /** Renews the Lease. Returns true when the Lease is lost, false if the signal has fired. */
  async #renew(signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    const lost = new AbortController();
    using either = new EitherSignal(signal, lost.signal);
    const lostOrEnded = either.signal;
    let timer: Timer | undefined;
    const setTimer = (): void => {
      const leftMs = (this.#lease.renewedAt?.monotonic ?? 0) + this.#times.renewDeadlineMs - clock.now();
      timer?.cancel();
      timer = clock.after(leftMs, () => lost.abort());
    };
    setTimer();
    while (!lostOrEnded.aborted) {
      await sleep(clock, this.#times.retryMs, lostOrEnded);
      if (lostOrEnded.aborted) break;
      if (await this.#attempt(lostOrEnded)) setTimer();
      else if (this.#lease.isHeldByOther) lost.abort();
    }
    timer?.cancel();
    return !signal.aborted;
  }

  /**
   * Acquires or renews the Lease. Returns false if another operator holds the Lease, or after a failure, which is
   * counted.
   */
  async #attempt(signal: AbortSignal): Promise<boolean> {
    const { clock, isCandidate, onFailure, onRecovered } = this.#options;
    const mayAcquire = (): boolean => this.#state === 'leader' || isCandidate?.() !== false;
    try {
      const isHeld = await this.#lease.acquireOrRenew(signal, mayAcquire);
      if (this.#reported.size > 0) this.#guard.call(onRecovered);
      this.#reported.clear();
      return isHeld;
    } catch (error) {
      if (signal.aborted) return false;
      this.#failures++;
      this.#lastFailure = failureOf(error, clock);
      const { message } = this.#lastFailure;
      if (!this.#reported.has(message)) this.#guard.call(onFailure, error);
      this.#reported.add(message);
      return false;
    }
  }
}
