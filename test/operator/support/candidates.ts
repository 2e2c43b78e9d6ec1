import type { Clock, Timer } from '../../../src/base/clock.ts';
import { sleep } from '../../../src/base/sleep.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { ApiError } from '../../../src/k8s/rest/api-error.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { LeaderElection } from '../../../src/operator/elect/leader-election.ts';
import type { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';

/** Delays all events of one process while it is suspended. */
export class Pause {
  #waiting: (() => void)[] | undefined;

  stop(): void {
    this.#waiting ??= [];
  }

  /** Continues: all due events happen in their order, each followed by its consequences. */
  async go(): Promise<void> {
    for (let next = this.#waiting?.shift(); next !== undefined; next = this.#waiting?.shift()) {
      next();
      await settle(1);
    }
    this.#waiting = undefined;
  }

  when(happen: () => void): void {
    if (this.#waiting === undefined) happen();
    else this.#waiting.push(happen);
  }
}

/**
 * The clock of one machine, with its own rate and time of day. No alarm rings while the process is suspended.
 */
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

/** Delays and losses on a link to a server. */
export class SlowLink {
  readonly #base: ManualClock;
  readonly #pause: Pause;
  /** Delay of the request and of the answer. */
  delayMs: readonly [number, number] = [0, 0];
  loses: 'nothing' | 'requests' | 'answers' = 'nothing';

  constructor(base: ManualClock, pause: Pause) {
    this.#base = base;
    this.#pause = pause;
  }

  /** Carries a request, and its answer or failure back. Never settles if one of them is lost. */
  async carry<T>(run: () => Promise<T>): Promise<T> {
    const [there, back] = this.delayMs;
    if (there > 0) await sleep(this.#base, there);
    if (this.loses === 'requests') return new Promise(() => {});
    const answer = run();
    await answer.catch(() => {});
    if (back > 0) await sleep(this.#base, back);
    if (this.loses === 'answers') return new Promise(() => {});
    await new Promise<void>((resolve) => this.#pause.when(resolve));
    return answer;
  }
}

/** A link to the API server with delays and temporary losses. An aborted request may still arrive. */
class SlowTransport extends SlowLink implements ApiTransport {
  readonly #inner: MemoryApiTransport;
  readonly #pause: Pause;
  /** Receives each request on its arrival, and then the status of its answer. */
  onArrival: (request: ApiRequest) => (status: number) => void = () => () => {};

  constructor(api: MemoryApiServer, base: ManualClock, pause: Pause) {
    super(base, pause);
    this.#inner = new MemoryApiTransport(api);
    this.#pause = pause;
  }

  send(request: ApiRequest): Promise<ApiAnswer> {
    const isWatch = request.path.includes('watch=');
    const signal = isWatch ? request.signal : new AbortController().signal;
    return this.carry(async () => {
      const answered = this.onArrival(request);
      const answer = await this.#inner.send({ ...request, signal });
      answered(answer.status);
      return { ...answer, body: this.#held(answer.body) };
    });
  }

  /** While the process is suspended it receives nothing of a stream; a lost part is lost with the stream. */
  async *#held(body: ApiAnswer['body']): AsyncGenerator<Uint8Array> {
    for await (const bytes of body) {
      if (this.loses !== 'nothing') throw new ApiError('unavailable', 'the connection was reset');
      await new Promise<void>((resolve) => this.#pause.when(resolve));
      yield bytes;
    }
  }

  reset(): void {}

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** Options of a process. */
export interface CandidateOptions {
  /** Rate of its clock. */
  readonly rate?: number;
  /** Offset of its time of day. */
  readonly wallOffset?: number;
  readonly mayStand?: () => boolean;
  readonly onFailure?: (error: unknown) => void;
  readonly onRecovered?: () => void;
}

/** Resolves when the signal fires. */
function fired(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}

/** A candidate process for the election. */
export class Candidate {
  readonly pause: Pause = new Pause();
  readonly clock: OwnClock;
  readonly transport: SlowTransport;
  readonly client: KubernetesClient;
  readonly election: LeaderElection;
  /** Its work while it leads. */
  lead: (signal: AbortSignal) => Promise<void> = fired;
  /** True if its work runs. */
  working = false;
  #ended = new AbortController();
  #running: Promise<unknown> = Promise.resolve();

  constructor(
    name: string,
    api: MemoryApiServer,
    base: ManualClock,
    { rate = 1, wallOffset = 0, mayStand: isCandidate, onFailure, onRecovered }: CandidateOptions = {},
  ) {
    this.clock = new OwnClock(base, this.pause, rate, wallOffset);
    this.transport = new SlowTransport(api, base, this.pause);
    this.client = new KubernetesClient(this.transport, { clock: this.clock, random: () => 0.5 });
    const { client } = this;
    this.election = new LeaderElection({
      client,
      clock: this.clock,
      random: () => 0.5,
      identity: name,
      isCandidate,
      onFailure,
      onRecovered,
    });
  }

  /** Becomes a candidate, again after each lost lease, until it is ended. */
  start(): void {
    this.#ended = new AbortController();
    const { signal } = this.#ended;
    const lead = async (until: AbortSignal): Promise<void> => {
      this.working = true;
      await this.lead(until);
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
