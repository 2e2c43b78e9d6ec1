const { PROPERTY_RUNS = '300' } = process.env;

/**
 * Returns the parameters of a property whose runs are expensive: `runs` instead of 300 runs in `npm test`. If
 * `PROPERTY_RUNS` is set, as in `npm run test:long`, the runs increase by the same factor as those of other properties.
 */
export function fewerRuns(runs: number): { readonly numRuns: number } {
  return { numRuns: Math.ceil((runs * Number(PROPERTY_RUNS)) / 300) };
}
