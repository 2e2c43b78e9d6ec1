import type { Clock, Timer } from '../../base/clock.ts';

/** Delay of the next call of `whenAllowed` after it rejected. */
const RETRY_MS = 1000;
/** Number of keys that are passed on in a turn of the event loop. */
const KEYS_PER_TURN = 1024;

export interface WaitingDeletesOptions {
  readonly clock: Pick<Clock, 'after'>;
  readonly nextTurn: (callback: () => void) => unknown;
  /** Resolves when deletes that were added before the call are allowed. If it rejects, it is called again. */
  readonly whenAllowed: () => Promise<void>;
  /** Receives each key whose wait has ended. */
  readonly allow: (key: string) => void;
}

/** A wait until deletes are allowed. */
interface Wait {
  readonly keys: Set<string>;
  /** Called at the end of the wait. */
  readonly waiters: (() => void)[];
}

function newWait(): Wait {
  return { keys: new Set(), waiters: [] };
}

/**
 * Deletes which must wait until they are allowed. At most one wait runs and one more is planned. A delete that is added
 * during a wait belongs to a later change, so it is allowed at the end of the planned wait.
 */
export class WaitingDeletes implements Disposable {
  readonly #options: WaitingDeletesOptions;
  /** The planned wait becomes the running one when it starts. */
  #running: Wait | undefined;
  #planned: Wait = newWait();
  /** True from the turn before a wait starts until its end. */
  #isStarted = false;
  /** The retry of a rejected `whenAllowed`. */
  #timer: Timer | undefined;
  #isClosed = false;

  constructor(options: WaitingDeletesOptions) {
    this.#options = options;
  }

  get size(): number {
    return (this.#running?.keys.size ?? 0) + this.#planned.keys.size;
  }

  has(key: string): boolean {
    return this.#running?.keys.has(key) === true || this.#planned.keys.has(key);
  }

  /** Adds a key, unless it is in the running wait. */
  add(key: string): void {
    if (this.#running?.keys.has(key) === true) return;
    this.#planned.keys.add(key);
    this.#start();
  }

  delete(key: string): void {
    this.#running?.keys.delete(key);
    this.#planned.keys.delete(key);
    if (this.size === 0) this.#resolveAll();
  }

  /** Resolves when the present keys have been allowed or deleted, or on dispose. */
  whenPresentAllowed(): Promise<void> {
    if (this.size === 0 || this.#isClosed) return Promise.resolve();
    const last = this.#planned.keys.size > 0 ? this.#planned : this.#running;
    return new Promise((resolve) => {
      last?.waiters.push(resolve);
    });
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#resolveAll();
  }

  #start(): void {
    if (this.#isStarted || this.#planned.keys.size === 0) return;
    this.#isStarted = true;
    this.#options.nextTurn(() => {
      const running = this.#planned;
      this.#running = running;
      this.#planned = newWait();
      this.#wait(running);
    });
  }

  #wait(running: Wait): void {
    const { clock, whenAllowed } = this.#options;
    whenAllowed().then(
      () => this.#passOn(running),
      () => {
        if (!this.#isClosed) this.#timer = clock.after(RETRY_MS, () => this.#wait(running));
      },
    );
  }

  /** Passes on the keys of a wait that has ended, in several turns. A key counts as waiting until then. */
  #passOn(running: Wait, keys: Iterator<string> = running.keys.values()): void {
    const { allow, nextTurn } = this.#options;
    if (this.#isClosed) return;
    for (let count = 0; count < KEYS_PER_TURN; count++) {
      const { done, value } = keys.next();
      if (done === true) {
        this.#end(running);
        return;
      }
      running.keys.delete(value);
      allow(value);
    }
    nextTurn(() => this.#passOn(running, keys));
  }

  #end(running: Wait): void {
    this.#running = undefined;
    this.#isStarted = false;
    resolveWaiters(running);
    if (this.#planned.keys.size === 0) resolveWaiters(this.#planned); // its keys were deleted
    this.#start();
  }

  #resolveAll(): void {
    if (this.#running !== undefined) resolveWaiters(this.#running);
    resolveWaiters(this.#planned);
  }
}

function resolveWaiters({ waiters }: Wait): void {
  for (const resolve of waiters.splice(0)) resolve();
}
