import { checkArguments, optional, SIGNAL } from '../base/arguments.ts';
import type { Clock, Random } from '../base/clock.ts';
import type { Failure } from '../base/failure.ts';
import { sleep } from '../base/sleep.ts';
import { interruptible, Supervisor } from '../base/supervisor.ts';
import type { KvstoreBackend } from './backend.ts';
import { HEARTBEAT_KEY } from './codec/keys.ts';
import { encodeTimestamp } from './codec/timestamp.ts';
import type { EndpointStatus } from './transport.ts';

/** How healthy a kvstore looks from here. */
export interface KvstoreHealthStatus {
  /** `unknown` before the first look; `failing`: no quorum read has succeeded in the last look. */
  readonly quorum: 'unknown' | 'ok' | 'failing';
  /**
   * `stale`: the heartbeat has not changed for two minutes, so its writer, or what we read from, stands still.
   * `never`: it was not seen yet; clusters without an operator have none.
   */
  readonly heartbeat: 'never' | 'fresh' | 'stale';
  readonly endpoints: readonly EndpointStatus[];
  /** Looks that have failed. */
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** Options of {@link KvstoreHealth}. */
export interface KvstoreHealthOptions {
  readonly backend: Pick<KvstoreBackend, 'get' | 'endpoints'>;
  readonly clock: Clock;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
  /** Receives the failures of looks. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** Heartbeats are written so often (SEMANTICS 5). */
export const HEARTBEAT_INTERVAL_MS = 60_000;
const STALE_MS: number = 2 * HEARTBEAT_INTERVAL_MS;
const LOOK_MS = 15_000;

/** Looks every 15 s whether a quorum answers, whether the heartbeat beats, and how each endpoint does. */
export class KvstoreHealth {
  readonly #options: KvstoreHealthOptions;
  readonly #tasks: Supervisor;
  #quorum: KvstoreHealthStatus['quorum'] = 'unknown';
  #endpoints: readonly EndpointStatus[] = [];
  #beat = 0;
  #beatAt = 0;

  constructor(options: KvstoreHealthOptions) {
    const { clock, random = Math.random, onFailure } = options;
    this.#options = options;
    this.#tasks = new Supervisor({ clock, random, onFailure });
  }

  status(): KvstoreHealthStatus {
    const age = this.#options.clock.now() - this.#beatAt;
    const heartbeat = this.#beat === 0 ? 'never' : age > STALE_MS ? 'stale' : 'fresh';
    const { failures, lastFailure } = this.#tasks.status();
    return { quorum: this.#quorum, heartbeat, endpoints: this.#endpoints, failures, lastFailure };
  }

  /** Looks until the signal fires, whatever the backend does with it. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.look(signal);
      await sleep(this.#options.clock, LOOK_MS, signal);
    }
  }

  /** One look. Never rejects. */
  async look(signal?: AbortSignal): Promise<void> {
    const look = (until: AbortSignal): Promise<void> => interruptible(() => this.#look(until), until);
    try {
      await this.#tasks.run('health', look, { signal });
      this.#quorum = 'ok';
    } catch {
      if (signal?.aborted !== true) this.#quorum = 'failing'; // why, is counted
    }
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { backend, clock } = this.#options;
    const [heartbeat, endpoints] = await Promise.all([
      backend.get(HEARTBEAT_KEY, { signal }),
      backend.endpoints({ signal }),
    ]);
    this.#endpoints = endpoints;
    if (heartbeat === undefined || heartbeat.modRevision === this.#beat) return;
    this.#beat = heartbeat.modRevision;
    this.#beatAt = clock.now();
  }
}

checkArguments(KvstoreHealth, { run: { signal: SIGNAL }, look: { signal: optional(SIGNAL) } });

/** What a {@link Heartbeat} has done. */
export interface HeartbeatStatus {
  readonly beats: number;
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** Options of {@link Heartbeat}. */
export interface HeartbeatOptions {
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
  /** Receives the failures of beats. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** Writes the heartbeat every minute, under the session's lease: the sign that an operator runs. */
export class Heartbeat {
  readonly #backend: KvstoreBackend;
  readonly #clock: Clock;
  readonly #tasks: Supervisor;
  #beats = 0;

  constructor(
    backend: KvstoreBackend,
    clock: Clock,
    { random = Math.random, onFailure }: HeartbeatOptions = {},
  ) {
    this.#backend = backend;
    this.#clock = clock;
    this.#tasks = new Supervisor({ clock, random, onFailure });
  }

  status(): HeartbeatStatus {
    const { failures, lastFailure } = this.#tasks.status();
    return { beats: this.#beats, failures, lastFailure };
  }

  /** Beats until the signal fires. A beat that fails is missed; the next one comes in time. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#tasks.run('heartbeat', (until) => this.#beat(until), { signal }).catch(() => {}); // it is counted
      await sleep(this.#clock, HEARTBEAT_INTERVAL_MS, signal);
    }
  }

  async #beat(signal: AbortSignal): Promise<void> {
    const now = encodeTimestamp(this.#clock.wallTime());
    await this.#backend.update(HEARTBEAT_KEY, now, { leased: true, signal });
    this.#beats++;
  }
}

checkArguments(Heartbeat, { run: { signal: SIGNAL } });
