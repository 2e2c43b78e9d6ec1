/**
 * Returns the index of the last of `count` ascending positions that is not above `position`; -1 if all are above it.
 */
export function indexAtMost(positions: ArrayLike<number>, count: number, position: number): number {
  let low = -1;
  let high = count - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((positions[middle] ?? 0) <= position) low = middle;
    else high = middle - 1;
  }
  return low;
}
