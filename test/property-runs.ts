import fc from 'fast-check';

// By default, a property runs 150 times, always with the same cases. `npm run test:long` runs it 20,000 times with
// other cases. The tests named `mutants` show that about 150 runs detect a broken engine. `PROPERTY_RUNS` sets another
// number, with other cases.
const { PROPERTY_RUNS } = process.env;
fc.configureGlobal(
  PROPERTY_RUNS === undefined ? { numRuns: 150, seed: 20_261_122 } : { numRuns: Number(PROPERTY_RUNS) },
);
