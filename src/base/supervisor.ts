import { type Backoff, backoffDelay } from './backoff.ts';
import { type Failure, failureOf } from './failure.ts';
import { followSignal, onAbort } from './follow-signal.ts';
import { CallbackGuard } from './guard.ts';
import { sleep } from './sleep.ts';
import type { Runtime } from './system-clock.ts';

/** Options of {@link Supervisor}. */
export interface SupervisorOptions extends Runtime {
  /** Receives every failure of every task, with the task's name. Its own errors are ignored. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** Options of a task. */
export interface TaskOptions {
  /** Stops the task, like {@link Supervisor.stop}. */
  readonly signal?: AbortSignal | undefined;
}

/** Status of one task. */
export interface TaskStatus {
  readonly name: string;
  /**
   * `waiting`: the task failed and will be restarted after its backoff. `stopping`: its signal has fired but it has not
   * settled.
   */
  readonly state: 'running' | 'waiting' | 'stopping';
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** The current background tasks of an object, and all their failures so far. */
export interface SupervisorStatus {
  /** The running tasks in order of start. A settled task is removed (I11). */
  readonly tasks: readonly TaskStatus[];
  /** Number of failures of all tasks, settled ones included. */
  readonly failures: number;
  readonly lastFailure: Failure | undefined;
}

/** Work of a task. It must end when its signal fires. */
export type Work<T> = (signal: AbortSignal) => T | Promise<T>;

const BACKOFF: Backoff = { baseMs: 200, capMs: 15_000 };

/** The state of a task until it has settled. */
class Task {
  readonly name: string;
  readonly signal: AbortSignal;
  readonly #controller = new AbortController();
  /** Releases the parent signal after the task has settled. */
  readonly release: () => void;
  settled: Promise<unknown> = Promise.resolve();
  /** True between a failure and the restart. */
  waiting = false;
  failures = 0;
  lastFailure: Failure | undefined;

  constructor(name: string, parent: AbortSignal | undefined) {
    this.name = name;
    this.signal = this.#controller.signal;
    this.release = followSignal(parent, this.#controller);
  }

  stop(): void {
    this.#controller.abort();
  }

  status(): TaskStatus {
    const { name, failures, lastFailure } = this;
    return { name, state: this.#state, failures, lastFailure };
  }

  get #state(): TaskStatus['state'] {
    if (this.signal.aborted) return 'stopping';
    return this.waiting ? 'waiting' : 'running';
  }
}

/**
 * Runs tasks in the background: once, or with restarts after failures. Each task has a name and a signal, and its
 * failures are counted and reported (I12). `stop` waits for all tasks. The supervisor handles all rejections, except
 * those of {@link run}, which the caller receives.
 */
export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #guard = new CallbackGuard();
  readonly #tasks = new Set<Task>();
  #failures = 0;
  #lastFailure: Failure | undefined;

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  /**
   * Runs `work` once and returns its result. A rejection after the signal has fired is not counted or reported as a
   * failure.
   */
  run<T>(name: string, work: Work<T>, options: TaskOptions = {}): Promise<T> {
    const task = new Task(name, options.signal);
    return this.#track(task, async () => {
      try {
        return await work(task.signal);
      } catch (error) {
        this.#recordFailure(task, error);
        throw error;
      }
    });
  }

  /**
   * Runs `work` until it resolves or the signal fires. If it rejects, restarts it after a jittered exponential backoff,
   * which is reset when a run lasted longer than the cap. Resolves when the task ends; never rejects.
   */
  runWithRestart(
    name: string,
    work: Work<void>,
    { signal, backoff = BACKOFF }: TaskOptions & { readonly backoff?: Backoff } = {},
  ): Promise<void> {
    const { clock, random } = this.#options;
    const task = new Task(name, signal);
    return this.#track(task, async () => {
      for (let failures = 1; !task.signal.aborted; failures++) {
        const startedAt = clock.now();
        try {
          await work(task.signal);
          return;
        } catch (error) {
          this.#recordFailure(task, error);
        }
        if (clock.now() - startedAt > backoff.capMs) failures = 1;
        task.waiting = true;
        await sleep(clock, backoffDelay(failures, backoff, random), task.signal);
        task.waiting = false;
      }
    });
  }

  status(): SupervisorStatus {
    const tasks = [...this.#tasks].map((task) => task.status());
    return { tasks, failures: this.#failures, lastFailure: this.#lastFailure };
  }

  /**
   * Fires the signals of all running tasks and resolves when they have settled. Tasks that start later are not
   * affected. A task must not wait for this promise.
   */
  async stop(): Promise<void> {
    const tasks = [...this.#tasks];
    for (const task of tasks) task.stop();
    await Promise.all(tasks.map(({ settled }) => settled));
  }

  #track<T>(task: Task, work: () => Promise<T>): Promise<T> {
    this.#tasks.add(task);
    const result = work();
    const settled = (): void => {
      this.#tasks.delete(task);
      task.release();
    };
    task.settled = result.then(settled, settled);
    return result;
  }

  #recordFailure(task: Task, error: unknown): void {
    if (task.signal.aborted) return;
    const { clock, onFailure } = this.#options;
    task.failures++;
    task.lastFailure = failureOf(error, clock);
    this.#failures++;
    this.#lastFailure = task.lastFailure;
    this.#guard.call(onFailure, error, task.name);
  }
}

/**
 * Runs `work` that may ignore its signal. Rejects with the signal's reason as soon as the signal fires. A later result
 * of `work` is passed to `discard`; later errors of `work` and errors of `discard` are ignored.
 */
export function interruptible<T>(
  work: () => T | Promise<T>,
  signal: AbortSignal,
  discard: (late: T) => unknown = () => {},
): Promise<T> {
  return new Promise((resolve, reject) => {
    const leaveSignal = onAbort(signal, () => reject(signal.reason));
    if (signal.aborted) return;
    (async () => {
      const result = await work();
      if (signal.aborted) await discard(result);
      else resolve(result);
    })()
      .catch(reject)
      .finally(leaveSignal);
  });
}
