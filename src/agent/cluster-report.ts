import type { Clock, Timer } from '../base/clock.ts';
import type { ClusterStatus } from './agent-status.ts';
import type { Logger } from './log.ts';

/** How often the clusters are looked at; one that is away at two looks running is told. */
const LOOK_MS = 1_000;

/** A cluster as it was at the last look. */
interface Seen {
  /** Since when it has been out of reach, or incomplete from the start. */
  readonly since: number | undefined;
  /** Whether that has been said. */
  readonly told: boolean;
}

function howLong(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}

/**
 * Says in the log when a cluster goes out of reach and when it is back, and which clusters come and go. What is known
 * stays meanwhile (SEMANTICS 6), so that nothing else would show it. The end of trouble has the level of its
 * beginning: whoever read the one is to read the other.
 */
export class ClusterReport {
  readonly #look: () => readonly ClusterStatus[];
  readonly #log: Logger;
  readonly #clock: Clock;
  #seen: ReadonlyMap<string, Seen> = new Map();
  #timer: Timer | undefined;

  constructor(look: () => readonly ClusterStatus[], log: Logger, clock: Clock) {
    this.#look = look;
    this.#log = log;
    this.#clock = clock;
  }

  /** Begins with what stands now; what is not complete has been told by the first sync. */
  start(): void {
    const now = this.#clock.now();
    const first = ({ name, ready }: ClusterStatus): readonly [string, Seen] => [
      name,
      { since: ready ? undefined : now, told: !ready },
    ];
    this.#seen = new Map(this.#look().map(first));
    this.#again();
  }

  stop(): void {
    this.#timer?.cancel();
  }

  #again(): void {
    this.#timer = this.#clock.after(LOOK_MS, () => {
      this.#compare();
      this.#again();
    });
  }

  #compare(): void {
    const before = this.#seen;
    const clusters = this.#look();
    this.#seen = new Map(clusters.map((cluster) => [cluster.name, this.#next(cluster)]));
    for (const name of before.keys()) {
      if (!this.#seen.has(name)) this.#log.info(`cluster ${name} has left the mesh`);
    }
  }

  #next(cluster: ClusterStatus): Seen {
    const { name, connected, ready, lastFailure } = cluster;
    const before = this.#seen.get(name);
    const now = this.#clock.now();
    if (before === undefined) this.#log.info(`cluster ${name} has joined the mesh`);
    const { since, told } = before ?? { since: undefined, told: false };
    if (connected && (ready || !told)) {
      if (told)
        this.#log.warn(`cluster ${name} is in reach and complete, after ${howLong(now - (since ?? now))}`);
      return { since: undefined, told: false };
    }
    if (told || since === undefined) return { since: since ?? now, told };
    const why = lastFailure === undefined ? '' : `: ${lastFailure}`;
    this.#log.warn(`cluster ${name} is out of reach, and what is known of it grows old${why}`);
    return { since, told: true };
  }
}
