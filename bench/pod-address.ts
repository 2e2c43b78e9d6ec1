/** Returns address number `i` of 10.0.0.0/8. */
export function podAddress(i: number): string {
  return `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`;
}
