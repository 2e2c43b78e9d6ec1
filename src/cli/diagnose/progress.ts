import type { Clock } from '../../base/clock.ts';
import { type Output, printable } from '../../process/terminal.ts';

/** Interval of the lines. A command that ends within the first interval writes none. */
const INTERVAL_MS = 5_000;

/** Returns a listener that writes at most one line of progress every 5 s, and ignores the other lines. */
export function slowProgress(output: Output, clock: Clock): (line: string) => void {
  let next = clock.now() + INTERVAL_MS;
  return (line) => {
    const now = clock.now();
    if (now < next) return;
    next = now + INTERVAL_MS;
    output.write(`${printable(line)}\n`);
  };
}
