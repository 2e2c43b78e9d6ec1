import { checkArguments, FUNCTION, ITERABLE, NUMBER, optional, SIGNAL } from './arguments.ts';
import type { Clock } from './clock.ts';

/** What a {@link TurnGate} takes from its process, and how much it lets through. */
export interface TurnGateOptions {
  readonly clock: Pick<Clock, 'now'>;
  /** Calls back in a later turn of the event loop, when others have had theirs: `setImmediate`. */
  readonly nextTurn: (callback: () => void) => unknown;
  /** Weight of one turn, in events. Default 4096: about 10 ms of decoding and engine work, at 2 to 3 µs each. */
  readonly weightPerTurn?: number | undefined;
  /** Time of one turn, after which no more is begun. Default 5 ms. */
  readonly msPerTurn?: number | undefined;
}

interface Piece {
  readonly weight: number;
  /** Does the work; throws nothing. */
  readonly run: () => void;
}

const WEIGHT_PER_TURN = 4096;
const MS_PER_TURN = 5;
/** So that a turn ends soon after its time is over: a slice of 512 events takes about 1 ms. */
const SLICES_PER_TURN = 8;

/**
 * Lets work through that is done in pieces by many who do not know of each other, so that together they do not
 * hold up the event loop: a batch of events is small, but 250 clusters that sync at once have 1,000 of them in
 * the same turn. Once the weight or the time of a turn is spent, the rest waits for the next.
 *
 * First come, first served: who waits for one piece before giving the next gets one for each that another gets.
 * Every turn does at least one piece, however heavy. Pieces never run inside each other. While nothing has to
 * wait a piece costs a look at the clock, and there is a callback for each turn in which there were any.
 */
export class TurnGate {
  readonly #options: TurnGateOptions;
  readonly #waiting = new Set<Piece>();
  #spent = 0;
  #begun = 0;
  /** Whether the next turn has been asked for. */
  #turning = false;

  constructor(options: TurnGateOptions) {
    this.#options = options;
  }

  /** Pieces that wait for their turn. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Weight of one slice of what can be cut anywhere. */
  get slice(): number {
    const { weightPerTurn = WEIGHT_PER_TURN } = this.#options;
    return Math.max(1, Math.floor(weightPerTurn / SLICES_PER_TURN));
  }

  /** {@link run} of something that only begins here, and weighs so much later. */
  pass(weight: number, signal?: AbortSignal): Promise<boolean> {
    return this.run(weight, () => {}, signal);
  }

  /**
   * Runs `work`: now if nothing waits and this turn has room, else in a later one. Resolves to whether it ran; it
   * does not run once the signal has fired. Rejects with what `work` throws, which affects no other work.
   */
  run(weight: number, work: () => void, signal?: AbortSignal): Promise<boolean> {
    if (signal?.aborted === true) return Promise.resolve(false);
    return new Promise((resolve, reject) => {
      const letGo = (): void => {
        this.#waiting.delete(piece);
        resolve(false);
      };
      const run = (): void => {
        signal?.removeEventListener('abort', letGo);
        try {
          work();
          resolve(true);
        } catch (error) {
          reject(error);
        }
      };
      const piece: Piece = { weight, run };
      if (this.#waiting.size === 0 && this.#hasRoom()) {
        this.#do(piece);
        return;
      }
      signal?.addEventListener('abort', letGo, { once: true });
      this.#waiting.add(piece);
    });
  }

  /**
   * {@link run} for each step of an iterator, which is what one `next` does; each weighs as much as a {@link slice}.
   * Resolves to whether all of them ran; none begins once the signal has fired. Rejects with what a step throws, and runs
   * no more.
   */
  async runSteps(steps: Iterable<unknown>, signal?: AbortSignal): Promise<boolean> {
    const iterator = steps[Symbol.iterator]();
    let done: boolean | undefined = false;
    const step = (): void => {
      done = iterator.next().done;
    };
    while (!done) if (!(await this.run(this.slice, step, signal))) return false;
    return true;
  }

  #hasRoom(): boolean {
    const { clock, weightPerTurn = WEIGHT_PER_TURN, msPerTurn = MS_PER_TURN } = this.#options;
    if (this.#spent === 0) return true;
    return this.#spent < weightPerTurn && clock.now() - this.#begun < msPerTurn;
  }

  #do({ weight, run }: Piece): void {
    if (this.#spent === 0) this.#begun = this.#options.clock.now();
    this.#spent += Math.max(1, weight);
    this.#askForTurn();
    run();
  }

  #askForTurn(): void {
    if (this.#turning) return;
    this.#turning = true;
    this.#options.nextTurn(() => this.#turn());
  }

  #turn(): void {
    this.#turning = false;
    this.#spent = 0;
    for (const piece of this.#waiting) {
      if (!this.#hasRoom()) return;
      this.#waiting.delete(piece);
      this.#do(piece);
    }
  }
}

checkArguments(TurnGate, {
  pass: { weight: NUMBER, signal: optional(SIGNAL) },
  run: { weight: NUMBER, work: FUNCTION, signal: optional(SIGNAL) },
  runSteps: { steps: ITERABLE, signal: optional(SIGNAL) },
});

/** Lets everything through at once, in one slice: each piece is a turn of its own. The gate of those who were given none. */
export const OPEN_GATE: TurnGate = new TurnGate({
  clock: { now: () => 0 },
  nextTurn: (callback) => callback(),
  weightPerTurn: Number.POSITIVE_INFINITY,
});
