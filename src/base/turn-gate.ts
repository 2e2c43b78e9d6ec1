import {
  checkArgument,
  checkArguments,
  FUNCTION,
  ITERABLE,
  NUMBER,
  objectWith,
  optional,
  optionsWith,
  POSITIVE,
  SIGNAL,
} from './arguments.ts';
import type { Clock } from './clock.ts';
import { onAbort } from './follow-signal.ts';
import { CallbackGuard, type FaultListener } from './guard.ts';
import { KeyedQueue } from './keyed-queue.ts';
import { systemClock } from './system-clock.ts';

/** Clock, scheduler and limits of a {@link TurnGate}. */
export interface TurnGateOptions {
  /** Default: the system clock. */
  readonly clock?: Pick<Clock, 'now'> | undefined;
  /** Calls `callback` in a later turn of the event loop, after other callbacks: `setImmediate`. */
  readonly nextTurn: (callback: () => void) => unknown;
  /** Weight of one turn, in events. Default 2048: about 5 ms of decoding and engine work, at 2 to 3 µs each. */
  readonly weightPerTurn?: number | undefined;
  /** Duration of one turn, after which no piece is started. Default 5 ms. */
  readonly msPerTurn?: number | undefined;
  /**
   * Returns the total time in which the event loop was not idle. If given, a turn begins at the end of the previous
   * one, so that its duration includes other callbacks, such as received messages. Default: it begins with its first
   * piece.
   */
  readonly activeMs?: (() => number) | undefined;
  /** Receives each error of {@link TurnGate.runInBackground}. Default: errors are only counted. */
  readonly onFault?: FaultListener | undefined;
}

const WEIGHT_PER_TURN = 2048;
const MS_PER_TURN = 5;
/** Slices are short, so that a turn ends soon after its time: a slice of 256 events takes less than 1 ms. */
const SLICES_PER_TURN = 8;

/**
 * Limits the work in one turn of the event loop. Each producer has small pieces of work, but 250 clusters that sync
 * concurrently have 1,000 batches of events in one turn. When the weight or the time of a turn is used up, the
 * remaining pieces wait for the next turn.
 *
 * First in, first out: producers that wait for each piece before they add the next get equal shares. Every turn runs at
 * least one piece of any weight. Pieces never run inside each other. If no piece waits, a piece costs one read of the
 * clock, and each turn with pieces costs one callback.
 */
export class TurnGate {
  readonly #options: TurnGateOptions;
  readonly #guard: CallbackGuard;
  /** The waiting pieces with their weights. A piece does not throw. */
  readonly #waiting = new KeyedQueue<() => void, number>();
  /** Weight of the pieces started in this turn. */
  #spentWeight = 0;
  /** The result of {@link now} at the beginning of this turn; see {@link TurnGateOptions.activeMs}. */
  #turnStartedAt = 0;
  #isTurnScheduled = false;

  constructor(options: TurnGateOptions) {
    checkArgument('new TurnGate: options', options, OPTIONS);
    this.#options = options;
    this.#guard = new CallbackGuard(options.onFault);
  }

  /** Number of errors of {@link TurnGate.runInBackground}. */
  get faults(): number {
    return this.#guard.faults;
  }

  /** Number of waiting pieces. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Weight of one slice, in events. Callers split long work into slices of this weight. */
  get slice(): number {
    const { weightPerTurn = WEIGHT_PER_TURN } = this.#options;
    return Math.max(1, Math.floor(weightPerTurn / SLICES_PER_TURN));
  }

  /** Like {@link TurnGate.run} without `work`: the caller does work of this weight after the promise resolves. */
  pass(weight: number, signal?: AbortSignal): Promise<boolean> {
    return this.run(weight, () => {}, signal);
  }

  /**
   * Runs `work` now if no piece waits and this turn has room, otherwise in a later turn. Resolves to true if `work`
   * ran, or to false if the signal fired first. Rejects if `work` throws; other pieces are not affected.
   */
  run(weight: number, work: () => void, signal?: AbortSignal): Promise<boolean> {
    if (signal?.aborted === true) return Promise.resolve(false);
    return new Promise((resolve, reject) => {
      let leaveSignal = (): void => {};
      const piece = (): void => {
        leaveSignal();
        try {
          work();
          resolve(true);
        } catch (error) {
          reject(error);
        }
      };
      if (this.#waiting.size === 0 && this.#hasRoom()) {
        this.#start(piece, weight);
        return;
      }
      this.#waiting.set(piece, weight);
      leaveSignal = onAbort(signal, () => {
        this.#waiting.delete(piece);
        resolve(false);
      });
    });
  }

  /**
   * Calls {@link TurnGate.run} for each step (one `next`) of an iterator; each step has the weight of a
   * {@link TurnGate.slice}. Resolves to true if all steps ran. No step starts after the signal has fired. If a step
   * throws, rejects and runs no more steps.
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

  /**
   * Calls {@link TurnGate.runSteps} without a result for the caller. An error of a step or of `onEnd` is counted and
   * passed to `onFault`, because an unhandled rejection would end the process.
   *
   * @param signal if it fires, the remaining steps do not run
   * @param onEnd called after the last step, after the signal has fired, or after a step has thrown
   */
  runInBackground(
    steps: Iterable<unknown>,
    {
      signal,
      onEnd,
    }: { readonly signal?: AbortSignal | undefined; readonly onEnd?: (() => void) | undefined } = {},
  ): void {
    this.#guard.call(async () => {
      try {
        await this.runSteps(steps, signal);
      } finally {
        onEnd?.();
      }
    });
  }

  #hasRoom(): boolean {
    const { weightPerTurn = WEIGHT_PER_TURN, msPerTurn = MS_PER_TURN } = this.#options;
    if (this.#spentWeight === 0) return true;
    return this.#spentWeight < weightPerTurn && this.now() - this.#turnStartedAt < msPerTurn;
  }

  /**
   * @internal
   * Returns the time by which the gate measures turns.
   */
  now(): number {
    const { clock = systemClock, activeMs } = this.#options;
    return activeMs === undefined ? clock.now() : activeMs();
  }

  #start(piece: () => void, weight: number): void {
    if (this.#spentWeight === 0 && this.#options.activeMs === undefined) this.#turnStartedAt = this.now();
    this.#spentWeight += Math.max(1, weight);
    if (!this.#isTurnScheduled) {
      this.#isTurnScheduled = true;
      this.#options.nextTurn(() => this.#runTurn());
    }
    piece();
  }

  #runTurn(): void {
    this.#isTurnScheduled = false;
    this.#spentWeight = 0;
    while (this.#hasRoom()) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      this.#start(...next);
    }
    if (this.#options.activeMs !== undefined) this.#turnStartedAt = this.now();
  }
}

const OPTIONS = optionsWith({
  clock: optional(objectWith({ now: FUNCTION })),
  nextTurn: FUNCTION,
  weightPerTurn: optional(POSITIVE),
  msPerTurn: optional(POSITIVE),
  activeMs: optional(FUNCTION),
});

checkArguments(TurnGate, {
  pass: { weight: NUMBER, signal: optional(SIGNAL) },
  run: { weight: NUMBER, work: FUNCTION, signal: optional(SIGNAL) },
  runSteps: { steps: ITERABLE, signal: optional(SIGNAL) },
  runInBackground: {
    steps: ITERABLE,
    options: optional(objectWith({ signal: optional(SIGNAL), onEnd: optional(FUNCTION) })),
  },
});

/** A gate without limits: all work runs immediately and is not sliced. Used if no gate is configured. */
export const OPEN_GATE: TurnGate = new TurnGate({
  clock: { now: () => 0 },
  nextTurn: (callback) => callback(),
  weightPerTurn: Number.POSITIVE_INFINITY,
});

/** Calls {@link TurnGate.runInBackground}. Without a gate, runs all steps now, and throws if a step throws. */
export function runNowOrInBackground(
  gate: TurnGate | undefined,
  steps: Iterable<unknown>,
  options: Parameters<TurnGate['runInBackground']>[1] = {},
): void {
  if (gate !== undefined) {
    gate.runInBackground(steps, options);
    return;
  }
  for (const _ of steps);
  options.onEnd?.();
}

/** Calls {@link TurnGate.runSteps}, and returns the result of the steps; `undefined` if the signal fired first. */
export async function resultOfSteps<T>(
  gate: TurnGate,
  steps: Generator<unknown, T, void>,
  signal?: AbortSignal,
): Promise<T | undefined> {
  let result: T | undefined;
  const withResult = function* (): Generator<unknown, void, void> {
    result = yield* steps;
  };
  await gate.runSteps(withResult(), signal);
  return result;
}

/** Runs all steps in this turn of the event loop, and returns the result. */
export function runToEnd<T>(steps: Generator<unknown, T, void>): T {
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value;
}

/** Calls `visit` with each item, and yields after every `perStep` items. For {@link TurnGate.runSteps}. */
export function* forEachInSteps<T>(
  items: Iterable<T>,
  perStep: number,
  visit: (item: T) => unknown,
): Generator<undefined, void, void> {
  let visited = 0;
  for (const item of items) {
    visit(item);
    if (++visited % perStep === 0) yield;
  }
}

/**
 * Sorts items in steps of `perStep` items. Returns a new list, in which equal items keep their order. For
 * {@link TurnGate.runSteps}.
 */
export function* sortInSteps<T>(
  items: Iterable<T>,
  perStep: number,
  compare: (a: T, b: T) => number,
): Generator<undefined, readonly T[], void> {
  let runs: (readonly T[])[] = [];
  let run: T[] = [];
  for (const item of items) {
    run.push(item);
    if (run.length < perStep) continue;
    runs.push(run.sort(compare));
    run = [];
    yield;
  }
  runs.push(run.sort(compare));
  while (runs.length > 1) {
    const longer: (readonly T[])[] = [];
    for (let at = 0; at < runs.length; at += 2)
      longer.push(yield* merge(runs[at] ?? [], runs[at + 1] ?? [], perStep, compare));
    runs = longer;
  }
  return runs[0] ?? [];
}

/** Merges two sorted lists, in steps. */
function* merge<T>(
  a: readonly T[],
  b: readonly T[],
  perStep: number,
  compare: (a: T, b: T) => number,
): Generator<undefined, readonly T[], void> {
  const merged: T[] = [];
  for (let i = 0, j = 0; i < a.length || j < b.length; ) {
    const takesFirst = j === b.length || (i < a.length && compare(a[i] as T, b[j] as T) <= 0);
    merged.push((takesFirst ? a[i++] : b[j++]) as T);
    if (merged.length % perStep === 0) yield;
  }
  return merged;
}
