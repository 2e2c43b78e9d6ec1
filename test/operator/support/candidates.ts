import type { Clock, Timer } from '../../../src/base/clock.ts';
import { sleep } from '../../../src/base/sleep.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from '../../../src/k8s/client/api-transport.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { LeaderElection } from '../../../src/operator/leader-election.ts';
import type { ManualClock } from '../../base/support/manual-clock.ts';

/** Holds up everything that happens to one process while it is stopped. */
class Pause {
  #waiting: (() => void)[] | undefined;

  stop(): void {
    this.#waiting ??= [];
  }

  go(): void {
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    for (const happen of waiting) happen();
  }

  when(happen: () => void): void {
    if (this.#waiting === undefined) happen();
    else this.#waiting.push(happen);
  }
}

/** The clock of one machine: it runs at its own rate, shows its own time, and rings nothing while the process is stopped. */
class OwnClock implements Clock {
  readonly #base: ManualClock;
  readonly #rate: number;
  readonly #pause: Pause;
  wallOffset: number;

  constructor(base: ManualClock, pause: Pause, rate: number, wallOffset: number) {
    this.#base = base;
    this.#pause = pause;
    this.#rate = rate;
    this.wallOffset = wallOffset;
  }

  now(): number {
    return this.#base.now() * this.#rate;
  }

  wallTime(): number {
    return 1_700_000_000_000 + this.#base.now() + this.wallOffset;
  }

  after(delayMs: number, callback: () => void): Timer {
    let cancelled = false;
    const timer = this.#base.after(delayMs / this.#rate, () =>
      this.#pause.when(() => {
        if (!cancelled) callback();
      }),
    );
    return {
      cancel: () => {
        cancelled = true;
        timer.cancel();
      },
    };
  }
}

/** A way to the API server that delays, and loses for a while. Who gives up a request does not call it back. */
class SlowTransport implements ApiTransport {
  readonly #inner: MemoryApiTransport;
  readonly #base: ManualClock;
  readonly #pause: Pause;
  delayMs: readonly [number, number] = [0, 0];
  loses: 'nothing' | 'requests' | 'answers' = 'nothing';

  constructor(api: MemoryApiServer, base: ManualClock, pause: Pause) {
    this.#inner = new MemoryApiTransport(api);
    this.#base = base;
    this.#pause = pause;
  }

  async send(request: ApiRequest): Promise<ApiAnswer> {
    const [there, back] = this.delayMs;
    if (there > 0) await sleep(this.#base, there);
    if (this.loses === 'requests') return new Promise(() => {});
    const { signal } = new AbortController();
    const answer = await this.#inner.send({ ...request, signal });
    if (back > 0) await sleep(this.#base, back);
    if (this.loses === 'answers') return new Promise(() => {});
    await new Promise<void>((resolve) => this.#pause.when(resolve));
    return answer;
  }

  reset(): void {}

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** What sets a process apart from others. */
export interface CandidateOptions {
  /** How fast its clock runs. */
  readonly rate?: number;
  /** By how much its time of day is off. */
  readonly wallOffset?: number;
  readonly onFailure?: (error: unknown) => void;
}

/** A process that stands for election. */
export class Candidate {
  readonly pause: Pause = new Pause();
  readonly clock: OwnClock;
  readonly transport: SlowTransport;
  readonly election: LeaderElection;
  /** Whether its work runs. */
  working = false;
  #ended = new AbortController();
  #running: Promise<unknown> = Promise.resolve();

  constructor(
    name: string,
    api: MemoryApiServer,
    base: ManualClock,
    { rate = 1, wallOffset = 0, onFailure }: CandidateOptions = {},
  ) {
    this.clock = new OwnClock(base, this.pause, rate, wallOffset);
    this.transport = new SlowTransport(api, base, this.pause);
    const client = new KubernetesClient(this.transport, { clock: this.clock });
    this.election = new LeaderElection({
      ...{ client, clock: this.clock, random: () => 0.5 },
      ...{ identity: name, onFailure },
    });
  }

  /** Stands, and stands again when the lease was lost, until it is ended. */
  start(): void {
    this.#ended = new AbortController();
    const { signal } = this.#ended;
    const lead = async (until: AbortSignal): Promise<void> => {
      this.working = true;
      await new Promise<void>((resolve) => until.addEventListener('abort', () => resolve(), { once: true }));
      this.working = false;
    };
    this.#running = (async () => {
      while (!signal.aborted) await this.election.run(lead, signal);
    })();
  }

  end(): Promise<unknown> {
    this.#ended.abort();
    return this.#running;
  }
}
