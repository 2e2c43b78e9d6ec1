import { defineConfig, type ViteUserConfig } from 'vitest/config';
import { LoadFailures } from './load-failures.ts';
import { ROOMS } from './rooms.ts';

const { MUTATED_ROOM = '' } = process.env;

/** How Stryker runs the tests of a room. A test that a mutant leaves hanging fails soon. */
const config: ViteUserConfig = defineConfig({
  test: {
    include: [...(ROOMS[MUTATED_ROOM]?.tests ?? [])],
    setupFiles: ['test/mutate/property-setup.ts'],
    testTimeout: 60_000,
    // Modules are loaded once for each mutant, not once for each test file: a third less work.
    isolate: false,
    reporters: [new LoadFailures()],
  },
});
export default config;
