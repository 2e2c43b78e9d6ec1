import fc from 'fast-check';

// A property runs a thousand times unless it says otherwise. `PROPERTY_RUNS` asks for more of all those.
const { PROPERTY_RUNS = '1000' } = process.env;
fc.configureGlobal({ numRuns: Number(PROPERTY_RUNS) });
