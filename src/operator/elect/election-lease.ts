import type { Clock } from '../../base/clock.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import type { ObjectReader, ObjectReaderOptions } from '../../k8s/rest/object-reader.ts';
import type { ObjectPlace, ObjectWriter, ObjectWriterOptions } from '../../k8s/rest/object-writer.ts';
import { type ClockReading, clockReading } from '../../kvstore/session/held-lease.ts';
import { isObject } from '../../net/fields.ts';
import { versionOf } from '../collect/observed-kind.ts';

export interface ElectionLeaseOptions {
  /** A client of the API server with the Lease. */
  readonly client: {
    reader(options?: ObjectReaderOptions): ObjectReader;
    writer(options?: ObjectWriterOptions): ObjectWriter;
  };
  readonly clock: Clock;
  /** Unique to this process. */
  readonly identity: string;
  readonly namespace: string;
  /** See `ElectionTimes`. */
  readonly leaseMs: number;
  readonly renewDeadlineMs: number;
}

/**
 * The Lease of Cilium's operator, so that this operator and Cilium's never lead at the same time (OPERATOR 1).
 */
const LEASE_NAME = 'cilium-operator-resource-lock';
const LEASES = { group: 'coordination.k8s.io', version: 'v1', plural: 'leases' };

/** The Lease as it was last read or written. */
interface ObservedLease {
  /** uid and resource version. */
  readonly version: string;
  readonly holder: string;
  /**
   * Local time at which this version of the Lease was first read. The time in the Lease is ignored, because clocks may
   * differ.
   */
  readonly firstReadAt: number;
  /** The duration in the Lease, at least the duration of this process. */
  readonly leaseMs: number;
}

function specOf(lease: KubernetesObject): Readonly<Record<string, unknown>> {
  const { spec } = lease;
  return isObject(spec) ? spec : {};
}

function microTime(wallMs: number): string {
  return `${new Date(wallMs).toISOString().slice(0, -1)}000Z`;
}

/** The Lease of an election, as one candidate reads and writes it. */
export class ElectionLease {
  readonly #options: ElectionLeaseOptions;
  readonly #place: ObjectPlace;
  readonly #reader: ObjectReader;
  readonly #writer: ObjectWriter;
  #observed: ObservedLease | undefined;
  /** The Lease as this process wrote it last; `undefined` if it may have changed since. */
  #written: KubernetesObject | undefined;
  #renewedAt: ClockReading | undefined;
  /** True if this process has sent a write that acquires the Lease, even if its outcome is unknown. */
  #mayHold = false;

  constructor(options: ElectionLeaseOptions) {
    const { client, namespace, renewDeadlineMs } = options;
    this.#options = options;
    this.#place = { kind: LEASES, namespace, name: LEASE_NAME };
    // A hanging request must leave time for another one before the deadline.
    const timeoutMs = renewDeadlineMs / 2;
    this.#reader = client.reader({ timeoutMs });
    // The Lease would expire during a long Retry-After. The next attempt follows after the retry period.
    this.#writer = client.writer({ timeoutMs, maxTries: 1 });
  }

  /** Time immediately before the last successful renewal of this process was sent; undefined after the release. */
  get renewedAt(): ClockReading | undefined {
    return this.#renewedAt;
  }

  /** Holder of the Lease when it was last read or written; `undefined` if it had none. */
  get holder(): string | undefined {
    return this.#observed?.holder || undefined;
  }

  /** True if another operator held the Lease when it was last read. */
  get isHeldByOther(): boolean {
    return this.holder !== undefined && this.holder !== this.#options.identity;
  }

  /** Milliseconds until the Lease expires if another operator held it when it was last read, else 0. */
  get freeInMs(): number {
    const { firstReadAt = 0, leaseMs = 0 } = this.#observed ?? {};
    return this.isHeldByOther ? Math.max(0, firstReadAt + leaseMs - this.#options.clock.now()) : 0;
  }

  /**
   * Acquires or renews the Lease. Returns false if another operator holds it, or if `mayAcquire` returns false. Throws
   * if a request failed or was rejected.
   */
  async acquireOrRenew(signal: AbortSignal, mayAcquire: () => boolean): Promise<boolean> {
    const { clock, identity, leaseMs } = this.#options;
    const lease = this.#written ?? (await this.#read(signal));
    if (this.freeInMs > 0 || !mayAcquire()) return false;
    const previous = lease === undefined ? {} : specOf(lease);
    const isRenewal = previous['holderIdentity'] === identity;
    const transitions = Number(previous['leaseTransitions'] ?? 0);
    const now = microTime(clock.wallTime());
    return this.#write(lease, signal, {
      holderIdentity: identity,
      leaseDurationSeconds: Math.ceil(leaseMs / 1000),
      acquireTime: isRenewal ? (previous['acquireTime'] ?? now) : now,
      renewTime: now,
      leaseTransitions: isRenewal || lease === undefined ? transitions : transitions + 1,
    });
  }

  /**
   * Releases the Lease if this process holds it, so that the next leader does not have to wait. Failures are ignored,
   * because the Lease expires anyway.
   */
  async release(): Promise<void> {
    const { clock, identity, renewDeadlineMs } = this.#options;
    const mayHold = this.#mayHold;
    this.#renewedAt = undefined;
    this.#mayHold = false;
    if (!mayHold) return;
    const ended = new AbortController();
    const timer = clock.after(renewDeadlineMs, () => ended.abort());
    try {
      const lease = this.#written ?? (await this.#read(ended.signal));
      if (lease === undefined || specOf(lease)['holderIdentity'] !== identity) return;
      const now = microTime(clock.wallTime());
      await this.#write(lease, ended.signal, {
        holderIdentity: '',
        leaseDurationSeconds: 1,
        acquireTime: now,
        renewTime: now,
        leaseTransitions: specOf(lease)['leaseTransitions'] ?? 0,
      });
    } catch {
      // the lease expires
    } finally {
      timer.cancel();
      this.#written = undefined;
    }
  }

  /** Reads the Lease, and records when its version was first read. */
  async #read(signal: AbortSignal): Promise<KubernetesObject | undefined> {
    const { clock, leaseMs } = this.#options;
    const lease = await this.#reader.get(this.#place, signal);
    if (lease === undefined || this.#observed?.version === versionOf(lease)) return lease;
    const { holderIdentity, leaseDurationSeconds } = specOf(lease);
    const requestedMs = typeof leaseDurationSeconds === 'number' ? leaseDurationSeconds * 1000 : 0;
    this.#observed = {
      version: versionOf(lease),
      holder: typeof holderIdentity === 'string' ? holderIdentity : '',
      firstReadAt: clock.now(),
      leaseMs: Math.max(requestedMs, leaseMs),
    };
    return lease;
  }

  /** Writes the Lease. Returns false after a conflict. Throws if the request failed or was rejected. */
  async #write(
    lease: KubernetesObject | undefined,
    signal: AbortSignal,
    spec: Readonly<Record<string, unknown>>,
  ): Promise<boolean> {
    const { clock, leaseMs } = this.#options;
    const { namespace, name } = this.#place;
    const holder = String(spec['holderIdentity']);
    this.#written = undefined;
    this.#mayHold ||= holder !== '';
    const sentAt = clockReading(clock);
    const answer = await this.#writer.write(
      lease === undefined
        ? {
            verb: 'create',
            kind: LEASES,
            namespace,
            object: {
              apiVersion: 'coordination.k8s.io/v1',
              kind: 'Lease',
              metadata: { name, namespace },
              spec,
            },
          }
        : { verb: 'update', place: this.#place, object: { ...lease, spec } },
      'leader election',
      signal,
    );
    if (answer.outcome === 'failed') throw answer.error;
    if (answer.outcome === 'refused' || answer.outcome === 'invalid') throw new Error(answer.message);
    if (answer.outcome !== 'done' || answer.object === undefined) return false;
    this.#written = answer.object;
    this.#observed = { version: versionOf(answer.object), holder, firstReadAt: sentAt.monotonic, leaseMs };
    this.#renewedAt = holder === '' ? undefined : sentAt;
    return true;
  }
}
