/** Ends a bench that does not perform the work that it measures. */
export function expect(what: string, is: number, expected: number): void {
  if (is !== expected) throw new Error(`${what}: ${is}, expected ${expected}`);
}
