import { fileURLToPath } from 'node:url';

/** `dpcache` for tests that start processes of it, as `bundle-program.ts` makes it of `src` before a run. */
export const PROGRAM: string = fileURLToPath(new URL('../../../dist-test/program/main.js', import.meta.url));
