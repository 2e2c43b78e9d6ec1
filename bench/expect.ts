/** Ends a bench that does not do what it is to measure. */
export function expect(what: string, is: number, expected: number): void {
  if (is !== expected) throw new Error(`${what}: ${is}, expected ${expected}`);
}
