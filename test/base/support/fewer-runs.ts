const { PROPERTY_RUNS = '300' } = process.env;

/**
 * Returns the parameters of a property whose runs are expensive: `runs` runs in `npm test`. If `PROPERTY_RUNS` is set,
 * as in `npm run test:long`, `runs` for each 300 of it.
 */
export function fewerRuns(runs: number): { readonly numRuns: number } {
  return { numRuns: Math.ceil((runs * Number(PROPERTY_RUNS)) / 300) };
}
