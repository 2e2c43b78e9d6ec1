import type { StepDocument } from '../api/status-document.ts';
import { assert } from '../base/assert.ts';
import { StartStep, type Step, type StepsContext } from './start-step.ts';

/**
 * A start in steps, and the stop in the reverse order. Steps of one stage run at the same time, stages one after the other.
 * A step that stands still is named with what it waits for, and is given up when its time is over, counted from when it came
 * further last. Whatever was begun is stopped: after a failure, in the middle of the start, and while others hang.
 */
export class Startup {
  readonly #context: StepsContext;
  readonly #interrupt = new AbortController();
  #stages: readonly (readonly StartStep[])[] | undefined;
  #stopped: Promise<readonly string[]> | undefined;

  constructor(context: StepsContext) {
    this.#context = context;
  }

  /**
   * Resolves to whether all stages were gone through: false when the signal has fired or {@link Startup.stop} was called.
   * Rejects with what a step has failed with. The caller stops in each case. Once only.
   */
  async start(stages: readonly (readonly Step[])[], signal: AbortSignal): Promise<boolean> {
    assert(this.#stages === undefined, 'the start has begun');
    this.#stages = stages.map((stage) => stage.map((step) => new StartStep(step, this.#context)));
    const interrupt = AbortSignal.any([signal, this.#interrupt.signal]);
    for (const stage of this.#stages) {
      if (interrupt.aborted) return false;
      const begun = await Promise.all(stage.map((step) => step.begin(interrupt)));
      if (begun.includes(false)) return false;
    }
    return true;
  }

  /** Every step, in order. */
  status(): readonly StepDocument[] {
    return this.#steps.map((step) => step.status());
  }

  /** Takes everything back, last step first. Resolves to the names of the steps that hang; never rejects. Calls are one. */
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
