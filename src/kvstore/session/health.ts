import {
  atLeast,
  checkArgument,
  checkArguments,
  FUNCTION,
  objectWith,
  optional,
  optionsWith,
  SIGNAL,
} from '../../base/arguments.ts';
import type { Failure } from '../../base/failure.ts';
import { sleep } from '../../base/sleep.ts';
import { interruptible, Supervisor } from '../../base/supervisor.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { HEARTBEAT_KEY } from '../codec/keys.ts';
import { encodeTimestamp } from '../codec/timestamp.ts';
import type { KvstoreBackend } from './backend.ts';
import { asKvstoreError } from './errors.ts';
import type { EndpointStatus } from './transport.ts';

/** Health of a kvstore as seen by this process. */
export interface KvstoreHealthStatus {
  /** `unknown` before the first check and after {@link KvstoreHealth.run}; `failing` if the last quorum read failed. */
  readonly quorum: 'unknown' | 'ok' | 'failing';
  /**
   * `stale`: the heartbeat has not changed for two minutes, because its writer or the server is stuck. `never`: no
   * heartbeat was seen; clusters without an operator have none.
   */
  readonly heartbeat: 'never' | 'fresh' | 'stale';
  readonly endpoints: readonly EndpointStatus[];
  /** Number of failed checks. */
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** Options of {@link KvstoreHealth}. */
export interface KvstoreHealthOptions extends RuntimeOptions {
  /** The kvstore to check. The caller closes it. */
  readonly backend: Pick<KvstoreBackend, 'get' | 'endpoints'>;
  /** Interval of the checks in milliseconds. Default: 15,000. */
  readonly intervalMs?: number | undefined;
  /** Receives the failures of checks. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** Interval of heartbeats (SEMANTICS 5). */
export const HEARTBEAT_INTERVAL_MS = 60_000;
/** Age of a stale heartbeat: two were missed. */
export const STALE_MS: number = 2 * HEARTBEAT_INTERVAL_MS;
const CHECK_MS = 15_000;
/** Number of intervals until a refused check is repeated. Each refusal makes all watches check their rights. */
const REFUSED_INTERVALS = 10;

/** Checks the quorum, the heartbeat and each endpoint, by default every 15 s. */
export class KvstoreHealth {
  readonly #options: KvstoreHealthOptions & Runtime;
  readonly #tasks: Supervisor;
  #quorum: KvstoreHealthStatus['quorum'] = 'unknown';
  /** True if the user may not read the heartbeat. */
  #isRefused = false;
  #endpoints: readonly EndpointStatus[] = [];
  /** Mod revision of the last heartbeat, 0 if there was none, and when a check first read it. */
  #heartbeatRevision = 0;
  #heartbeatAt = 0;

  constructor(options: KvstoreHealthOptions) {
    checkArgument('new KvstoreHealth: options', options, HEALTH_OPTIONS);
    this.#options = withRuntime(options);
    const { clock, random, onFailure } = this.#options;
    this.#tasks = new Supervisor({ clock, random, onFailure });
  }

  status(): KvstoreHealthStatus {
    const { failures, lastFailure } = this.#tasks.status();
    const heartbeat = this.#heartbeat;
    return { quorum: this.#quorum, heartbeat, endpoints: this.#endpoints, failures, lastFailure };
  }

  get #heartbeat(): KvstoreHealthStatus['heartbeat'] {
    if (this.#heartbeatRevision === 0) return 'never';
    return this.#options.clock.now() - this.#heartbeatAt > STALE_MS ? 'stale' : 'fresh';
  }

  /** Runs checks until the signal fires, even if the backend ignores the signal. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs = CHECK_MS } = this.#options;
    while (!signal.aborted) {
      await this.check(signal);
      await sleep(clock, this.#isRefused ? REFUSED_INTERVALS * intervalMs : intervalMs, signal);
    }
    this.#quorum = 'unknown';
  }

  /** Runs one check. Never rejects. */
  async check(signal?: AbortSignal): Promise<void> {
    try {
      await this.#tasks.run('health', (until) => interruptible(() => this.#read(until), until), { signal });
      this.#quorum = 'ok';
      this.#isRefused = false;
    } catch (error) {
      this.#isRefused = asKvstoreError(error).code === 'forbidden';
      if (signal?.aborted !== true) this.#quorum = 'failing'; // the supervisor counts the failure
    }
  }

  /**
   * Reads the heartbeat, by a quorum read, and the state of the endpoints, which is stored even if the heartbeat cannot
   * be read.
   */
  async #read(signal: AbortSignal): Promise<void> {
    const { backend, clock } = this.#options;
    const readEndpoints = async (): Promise<void> => {
      this.#endpoints = await backend.endpoints({ signal });
    };
    const [heartbeat] = await Promise.all([backend.get(HEARTBEAT_KEY, { signal }), readEndpoints()]);
    if (heartbeat === undefined || heartbeat.modRevision === this.#heartbeatRevision) return;
    this.#heartbeatRevision = heartbeat.modRevision;
    this.#heartbeatAt = clock.now();
  }
}

const HEALTH_OPTIONS = optionsWith({
  backend: objectWith({ get: FUNCTION, endpoints: FUNCTION }),
  intervalMs: optional(atLeast(0)),
});

checkArguments(KvstoreHealth, { run: { signal: SIGNAL }, check: { signal: optional(SIGNAL) } });

/** Counters of a {@link Heartbeat}. */
export interface HeartbeatStatus {
  readonly beats: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** Options of {@link Heartbeat}. */
export interface HeartbeatOptions extends RuntimeOptions {
  /** The kvstore to write. The caller closes it. */
  readonly backend: Pick<KvstoreBackend, 'update'>;
  /** Receives the failures of heartbeats. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** Writes the heartbeat every minute, under the lease of the session. A fresh heartbeat proves a running operator. */
export class Heartbeat {
  readonly #options: HeartbeatOptions & Runtime;
  readonly #tasks: Supervisor;
  #beats = 0;

  constructor(options: HeartbeatOptions) {
    checkArgument(
      'new Heartbeat: options',
      options,
      optionsWith({ backend: objectWith({ update: FUNCTION }) }),
    );
    this.#options = withRuntime(options);
    const { clock, random, onFailure } = this.#options;
    this.#tasks = new Supervisor({ clock, random, onFailure });
  }

  status(): HeartbeatStatus {
    const { failures, lastFailure } = this.#tasks.status();
    return { beats: this.#beats, failures, lastFailure };
  }

  /** Writes heartbeats until the signal fires. A failed heartbeat is skipped; the next one is on time. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      // the supervisor counts the failure
      await this.#tasks.run('heartbeat', (until) => this.#beat(until), { signal }).catch(() => {});
      await sleep(this.#options.clock, HEARTBEAT_INTERVAL_MS, signal);
    }
  }

  async #beat(signal: AbortSignal): Promise<void> {
    const { backend, clock } = this.#options;
    const now = encodeTimestamp(clock.wallTime());
    await backend.update(HEARTBEAT_KEY, now, { leased: true, signal });
    this.#beats++;
  }
}

checkArguments(Heartbeat, { run: { signal: SIGNAL } });
