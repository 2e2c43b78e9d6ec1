import { assert } from '../base/assert.ts';
import type { Clock, Random, Timer } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { CallbackGuard } from '../base/guard.ts';
import { sleep } from '../base/sleep.ts';
import type { ObjectReader, ObjectReaderOptions } from '../k8s/client/object-reader.ts';
import type { ObjectPlace, ObjectWriter, ObjectWriterOptions } from '../k8s/client/object-writer.ts';
import type { KubernetesObject } from '../k8s/resource.ts';
import { type Moment, momentOf } from '../kvstore/held-lease.ts';
import { isObject } from '../net/fields.ts';

/** What every delete asks. */
export interface Leadership {
  /** Whether no other can be the leader now, nor while a request of {@link LeaderElection.writeMs} is under way. */
  mayDelete(): boolean;
}

/** That of an operator without Kubernetes: there is no other. */
export const ALONE: Leadership & { readonly writeMs?: number } = { mayDelete: () => true };

/** What all who stand for the same lease agree on. */
export interface ElectionTimes {
  /** How long a lease lasts that is not renewed. */
  readonly leaseMs: number;
  /** So long after its last renewal a leader ceases to be one; less than the lease. */
  readonly renewDeadlineMs: number;
  /** Between two looks, and two renewals; less than the deadline by far. */
  readonly retryMs: number;
}

/** Those of the original. */
const ELECTION_TIMES: ElectionTimes = { leaseMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2000 };

/** Options of {@link LeaderElection}. */
export interface LeaderElectionOptions {
  /** The API server that has the Lease. */
  readonly client: {
    reader(options?: ObjectReaderOptions): ObjectReader;
    writer(options?: ObjectWriterOptions): ObjectWriter;
  };
  readonly clock: Clock;
  readonly random: Random;
  /** Of this process and no other: {@link electionIdentity}. */
  readonly identity: string;
  /** Where the Lease is. Default `default`. */
  readonly namespace?: string | undefined;
  /** Default: 15 s, 10 s and 2 s, as the original. */
  readonly times?: ElectionTimes | undefined;
  readonly onFailure?: ((error: unknown) => void) | undefined;
}

/** An election as data. */
export interface LeaderElectionStatus {
  readonly identity: string;
  readonly state: 'idle' | 'candidate' | 'leader';
  /** Who held the lease when it was last seen; `undefined`: no one. */
  readonly holder: string | undefined;
  /** Milliseconds since the own last renewal. */
  readonly renewedMs: number | undefined;
  /** Looks and renewals that have failed. */
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** The Lease of Cilium's operator: of ours and of those one only works (OPERATOR 1). */
const LEASE_NAME = 'cilium-operator-resource-lock';
const LEASES = { group: 'coordination.k8s.io', version: 'v1', plural: 'leases' };
/** `leaderelection.JitterFactor` of client-go: who waits for a lease does not look in step with others. */
const JITTER = 1.2;
const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

/** `<hostname>-<10 random letters>`. */
export function electionIdentity(hostname: string, random: Random): string {
  const letters = Array.from({ length: 10 }, () => LETTERS[Math.floor(random() * LETTERS.length)]);
  return `${hostname}-${letters.join('')}`;
}

/** Why no one can be elected with these times, if so: a sentence without its end. */
export function electionFault({ leaseMs, renewDeadlineMs, retryMs }: ElectionTimes): string | undefined {
  if (retryMs > 0 && renewDeadlineMs < leaseMs && retryMs * JITTER < renewDeadlineMs) return undefined;
  return `a lease of ${leaseMs} ms must be longer than its deadline of ${renewDeadlineMs} ms, and that than a retry after ${retryMs} ms by far`;
}

interface Seen {
  readonly version: string;
  readonly holder: string;
  /** Own time at which this version was first seen; the writer's time says nothing here. */
  readonly at: number;
  readonly leaseMs: number;
}

function specOf(lease: KubernetesObject): Readonly<Record<string, unknown>> {
  const { spec } = lease;
  return isObject(spec) ? spec : {};
}

/** A time as Kubernetes' `MicroTime`. */
function microTime(wallMs: number): string {
  return `${new Date(wallMs).toISOString().slice(0, -1)}000Z`;
}

/**
 * Leader election on a Lease, as client-go does it, so that clocks need not agree: a candidate takes a lease that it has
 * seen unchanged for as long as it lasts, by its own clock. A leader counts from the moment **before** it sent its last
 * successful renewal, which is before anybody can have seen it:
 *
 *     leader     sent ├──────── may delete ────────┤deadline      lease┊
 *     candidate        seen ├───────────────────────────────────────── lease ┤ may take it
 *                                                  ├─ for requests ────┊
 *                                                   under way, and clocks that run slow
 *
 * Covered: partitions, requests and answers that are delayed or lost, a process that is stopped for any time, a machine that is
 * suspended, clocks that are set or run a third too fast or slow. Not covered: an operator of another make that does not ask before it deletes; a
 * request that takes effect later than {@link writeMs} after it was sent, which its preconditions are for.
 */
export class LeaderElection implements Leadership {
  /** So long a request may take that {@link mayDelete} has let pass. */
  readonly writeMs: number;
  readonly #options: LeaderElectionOptions;
  readonly #place: ObjectPlace;
  readonly #reader: ObjectReader;
  readonly #writer: ObjectWriter;
  readonly #leaseMs: number;
  readonly #deadlineMs: number;
  readonly #retryMs: number;
  readonly #guard = new CallbackGuard();
  #state: LeaderElectionStatus['state'] = 'idle';
  #seen: Seen | undefined;
  /** The lease as we wrote it last; `undefined` when it is not known whether it still is so. */
  #held: KubernetesObject | undefined;
  /** Right before the last renewal that succeeded was sent. */
  #renewedAt: Moment | undefined;
  /** A write was sent that makes the lease ours, whatever is known of its outcome. */
  #mayHold = false;
  #failures = 0;
  #lastFailure: Failure | undefined;

  constructor(options: LeaderElectionOptions) {
    const { client, namespace = 'default', times = ELECTION_TIMES } = options;
    const { leaseMs, renewDeadlineMs, retryMs } = times;
    const fault = electionFault(times);
    assert(fault === undefined, fault ?? '');
    this.#options = options;
    this.#leaseMs = leaseMs;
    this.#deadlineMs = renewDeadlineMs;
    this.#retryMs = retryMs;
    this.writeMs = leaseMs - renewDeadlineMs;
    this.#place = { kind: LEASES, namespace, name: LEASE_NAME };
    // One that hangs must leave time for another before the deadline.
    const timeoutMs = renewDeadlineMs / 2;
    this.#reader = client.reader({ timeoutMs });
    this.#writer = client.writer({ timeoutMs });
  }

  mayDelete(): boolean {
    if (this.#renewedAt === undefined) return false;
    const { now, wall } = momentOf(this.#options.clock);
    // The lease may be as old as the system's time says: monotonic time may have stood still (ETCD, "Time").
    return Math.max(now - this.#renewedAt.now, wall - this.#renewedAt.wall) < this.#deadlineMs;
  }

  status(): LeaderElectionStatus {
    const { identity, clock } = this.#options;
    return {
      identity,
      state: this.#state,
      holder: this.#seen?.holder || undefined,
      renewedMs: this.#renewedAt === undefined ? undefined : clock.now() - this.#renewedAt.now,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
    };
  }

  /**
   * Waits until it is the leader, runs `lead` once, and renews the lease meanwhile. The signal of `lead` fires when the
   * lease is lost, before it can be another's, or when `signal` does; it is to end then, at once. Resolves when `lead` has
   * settled: to `lost`, or to `ended` with the lease given back. Rejects with what `lead` throws.
   */
  async run(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<'ended' | 'lost'> {
    assert(this.#state === 'idle', 'an election runs once at a time');
    this.#state = 'candidate';
    try {
      if (!(await this.#acquire(signal))) return 'ended';
      this.#state = 'leader';
      return await this.#lead(lead, signal);
    } finally {
      this.#state = 'idle';
      await this.#release();
    }
  }

  async #acquire(signal: AbortSignal): Promise<boolean> {
    const { clock, random } = this.#options;
    while (!signal.aborted) {
      if (await this.#try(signal)) return true;
      await sleep(clock, this.#retryMs * (1 + random() * JITTER), signal);
    }
    return false;
  }

  async #lead(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<'ended' | 'lost'> {
    const over = new AbortController();
    const stop = (): void => over.abort();
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    const work = (async () => lead(over.signal))();
    const settled = work.then(stop, stop);
    try {
      const isLost = await this.#renew(over.signal);
      stop();
      await work;
      return isLost ? 'lost' : 'ended';
    } finally {
      stop();
      signal.removeEventListener('abort', stop);
      await settled;
    }
  }

  /** Until the signal fires, or, true, the lease is lost. */
  async #renew(signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    const lost = new AbortController();
    const until = AbortSignal.any([signal, lost.signal]);
    let timer: Timer | undefined;
    const arm = (): void => {
      const leftMs = (this.#renewedAt?.now ?? 0) + this.#deadlineMs - clock.now();
      timer?.cancel();
      timer = clock.after(leftMs, () => lost.abort());
    };
    arm();
    while (!until.aborted) {
      await sleep(clock, this.#retryMs, until);
      if (until.aborted) break;
      if (await this.#try(until)) arm();
      else if (this.#isOthers()) lost.abort();
    }
    timer?.cancel();
    return !signal.aborted;
  }

  /** Another one held it when it was last seen. */
  #isOthers(): boolean {
    const { holder = '' } = this.#seen ?? {};
    return holder !== '' && holder !== this.#options.identity;
  }

  // ── One look and one write ─────────────────────────────────────────────────────────────────────────────

  async #try(signal: AbortSignal): Promise<boolean> {
    const { clock, onFailure } = this.#options;
    try {
      return await this.#take(signal);
    } catch (error) {
      if (signal.aborted) return false;
      this.#failures++;
      this.#lastFailure = failureOf(error, clock);
      this.#guard.call(onFailure, error);
      return false;
    }
  }

  async #take(signal: AbortSignal): Promise<boolean> {
    const { clock, identity } = this.#options;
    const lease = this.#held ?? (await this.#look(signal));
    if (this.#isTaken()) return false;
    const before = lease === undefined ? {} : specOf(lease);
    const isRenewal = before['holderIdentity'] === identity;
    const transitions = Number(before['leaseTransitions'] ?? 0);
    const now = microTime(clock.wallTime());
    return this.#write(lease, signal, {
      holderIdentity: identity,
      leaseDurationSeconds: Math.ceil(this.#leaseMs / 1000),
      acquireTime: isRenewal ? (before['acquireTime'] ?? now) : now,
      renewTime: now,
      leaseTransitions: isRenewal || lease === undefined ? transitions : transitions + 1,
    });
  }

  async #look(signal: AbortSignal): Promise<KubernetesObject | undefined> {
    const lease = await this.#reader.get(this.#place, signal);
    if (lease === undefined) return undefined;
    const { resourceVersion: version, uid } = lease.metadata;
    const seen = `${uid} ${version}`;
    if (this.#seen?.version === seen) return lease;
    const { holderIdentity, leaseDurationSeconds } = specOf(lease);
    const saidMs = typeof leaseDurationSeconds === 'number' ? leaseDurationSeconds * 1000 : 0;
    const holder = typeof holderIdentity === 'string' ? holderIdentity : '';
    const at = this.#options.clock.now();
    this.#seen = { version: seen, holder, at, leaseMs: Math.max(saidMs, this.#leaseMs) };
    return lease;
  }

  /** Another one held it when it was last seen, and may think so still. */
  #isTaken(): boolean {
    const { at = 0, leaseMs = 0 } = this.#seen ?? {};
    return this.#isOthers() && this.#options.clock.now() - at < leaseMs;
  }

  async #write(
    lease: KubernetesObject | undefined,
    signal: AbortSignal,
    spec: Readonly<Record<string, unknown>>,
  ): Promise<boolean> {
    const { clock } = this.#options;
    const { namespace, name } = this.#place;
    const meta = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease' };
    const holder = String(spec['holderIdentity']);
    this.#held = undefined;
    this.#mayHold ||= holder !== '';
    const sentAt = momentOf(clock);
    const answer = await this.#writer.write(
      lease === undefined
        ? {
            verb: 'create',
            kind: LEASES,
            namespace,
            object: { ...meta, metadata: { name, namespace }, spec },
          }
        : { verb: 'update', place: this.#place, object: { ...lease, ...meta, spec } },
      'to lead',
      signal,
    );
    if (answer.outcome === 'failed') throw answer.error;
    if (answer.outcome === 'refused' || answer.outcome === 'invalid') throw new Error(answer.message);
    if (answer.outcome !== 'done' || answer.object === undefined) return false;
    const { uid, resourceVersion } = answer.object.metadata;
    this.#held = answer.object;
    this.#seen = { version: `${uid} ${resourceVersion}`, holder, at: sentAt.now, leaseMs: this.#leaseMs };
    this.#renewedAt = holder === '' ? undefined : sentAt;
    return true;
  }

  /** Gives the lease back if it is ours, so that the next one need not wait; what fails is no matter: it runs out. */
  async #release(): Promise<void> {
    const { clock, identity } = this.#options;
    const mayHold = this.#mayHold;
    this.#renewedAt = undefined;
    this.#mayHold = false;
    if (!mayHold) return;
    const ended = new AbortController();
    const timer = clock.after(this.#deadlineMs, () => ended.abort());
    try {
      const lease = this.#held ?? (await this.#look(ended.signal));
      if (lease === undefined || specOf(lease)['holderIdentity'] !== identity) return;
      const now = microTime(clock.wallTime());
      const { leaseTransitions = 0 } = specOf(lease);
      const times = { acquireTime: now, renewTime: now };
      await this.#write(lease, ended.signal, {
        ...{ holderIdentity: '', leaseDurationSeconds: 1 },
        ...{ ...times, leaseTransitions },
      });
    } catch {
      // it runs out
    } finally {
      timer.cancel();
      this.#held = undefined;
    }
  }
}
