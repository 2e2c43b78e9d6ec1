/**
 * Returns the parameters of a property whose runs are expensive: `runs` instead of 300 runs in `npm test`. If
 * `PROPERTY_RUNS` is set, as in `npm run test:long`, its runs are those of other properties.
 */
export function fewerRuns(runs: number): { readonly numRuns?: number } {
  return process.env['PROPERTY_RUNS'] === undefined ? { numRuns: runs } : {};
}
