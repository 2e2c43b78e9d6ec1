import fc from 'fast-check';

// A property runs a thousand times unless it says otherwise. `PROPERTY_RUNS` asks for more of all those.
fc.configureGlobal({ numRuns: Number(process.env['PROPERTY_RUNS'] ?? 1000) });
