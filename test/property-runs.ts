import fc from 'fast-check';

// A property runs a thousand times unless it says otherwise, always over the same cases: what fails once in thousands of
// runs is looked for where somebody waits for it. `PROPERTY_RUNS` asks for more of all those, each time over other cases.
const { PROPERTY_RUNS } = process.env;
fc.configureGlobal(
  PROPERTY_RUNS === undefined ? { numRuns: 1000, seed: 20_261_122 } : { numRuns: Number(PROPERTY_RUNS) },
);
