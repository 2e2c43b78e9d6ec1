import fc from 'fast-check';

// A property runs 300 times unless it says otherwise, always over the same cases: `npm run test:long` runs it 20,000 times over
// others, and the tests named `mutants` show that 300 detect a broken engine. `PROPERTY_RUNS` asks for another number.
const { PROPERTY_RUNS } = process.env;
fc.configureGlobal(
  PROPERTY_RUNS === undefined ? { numRuns: 300, seed: 20_261_122 } : { numRuns: Number(PROPERTY_RUNS) },
);
