import type { StepDocument } from '../api/status-document.ts';
import { assert } from '../base/assert.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import { StartStep, type Step, type StepEnvironment } from './start-step.ts';

/**
 * Runs a start in steps, and the stop in the reverse order. Steps of one stage run concurrently, stages one after the
 * other. A step without progress is logged with its reason, and abandoned when its progress deadline has passed. The
 * stop also works after a failure and in the middle of the start, and stops all started steps even if some hang.
 */
export class Startup {
  readonly #context: StepEnvironment;
  readonly #interrupt = new AbortController();
  #stages: readonly (readonly StartStep[])[] | undefined;
  #stopped: Promise<readonly string[]> | undefined;

  constructor(context: StepEnvironment) {
    this.#context = context;
  }

  /**
   * Resolves to true after all stages, to false if the signal has fired or {@link Startup.stop} was called. Rejects
   * with the error of a step. The caller must stop in each case. May be called once only.
   */
  async start(stages: readonly (readonly Step[])[], signal: AbortSignal): Promise<boolean> {
    assert(this.#stages === undefined, 'a start runs only once');
    this.#stages = stages.map((stage) => stage.map((step) => new StartStep(step, this.#context)));
    // Not disposed, because steps may keep the signal.
    const { signal: interrupt } = new EitherSignal(signal, this.#interrupt.signal);
    for (const stage of this.#stages) {
      if (interrupt.aborted) return false;
      const results = await Promise.all(stage.map((step) => step.begin(interrupt)));
      if (results.includes(false)) return false;
    }
    return true;
  }

  status(): readonly StepDocument[] {
    return this.#steps.map((step) => step.status());
  }

  /**
   * Stops all started steps, the last one first. Resolves to the names of the steps that hang. Never rejects. Further
   * calls return the same promise.
   */
  stop(): Promise<readonly string[]> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  get #steps(): readonly StartStep[] {
    return this.#stages?.flat() ?? [];
  }

  async #stop(): Promise<readonly string[]> {
    this.#interrupt.abort();
    const hanging: string[] = [];
    for (const step of [...this.#steps].reverse()) if (!(await step.stop())) hanging.push(step.name);
    return hanging;
  }
}
