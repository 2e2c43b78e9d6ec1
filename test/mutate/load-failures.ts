import type { Reporter, TestModule, Vitest } from 'vitest/node';

/**
 * A reporter of Vitest that makes an error of the run out of a test file that could not be loaded. Stryker's runner looks
 * at tests and at errors of the run: a file that has failed before it had tests would count as passed.
 */
export class LoadFailures implements Reporter {
  #vitest: Vitest | undefined;

  onInit(vitest: Vitest): void {
    this.#vitest = vitest;
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    for (const error of modules.flatMap((module) => module.errors())) {
      this.#vitest?.state.catchError(error, 'Load Error');
    }
  }
}
