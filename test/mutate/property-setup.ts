import fc from 'fast-check';

// The same inputs in each run, so that scores are comparable. A mutant is detected by the first failure,
// which is not shrunk because no one reads it.
const { PROPERTY_RUNS = '50' } = process.env;
fc.configureGlobal({ numRuns: Number(PROPERTY_RUNS), seed: 20_240_229, endOnFailure: true });
