import { fileURLToPath } from 'node:url';

/** `dpcache` for tests that start processes. `bundle-program.ts` creates it from `src` before a run. */
export const PROGRAM: string = fileURLToPath(new URL('../../../dist-test/program/main.js', import.meta.url));
