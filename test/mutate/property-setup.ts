import fc from 'fast-check';

// The same inputs in each run, so that scores can be compared; a mutant is detected by the first failure, which nobody
// reads: it is not shrunk.
const { PROPERTY_RUNS = '50' } = process.env;
fc.configureGlobal({ numRuns: Number(PROPERTY_RUNS), seed: 20_240_229, endOnFailure: true });
