/** A Stryker plugin: the test runner. Stryker loads it in processes that do not know TypeScript. */
import { register } from 'tsx/esm/api';

register();
const { InProcessRunner } = await import('./in-process-runner.ts');

export const strykerPlugins = [{ kind: 'TestRunner', name: 'in-process', injectableClass: InProcessRunner }];
