import { readFileSync } from 'node:fs';
import type { Row } from './report.ts';

/** What another program measured of its own cache: nanoseconds by row name, `n` and `bytesPerEntry`. */
export type OtherProgram = Readonly<Record<string, number>>;

/** Reads `{"n": …, "fresh": …, "unchanged": …, …, "bytesPerEntry": …}`; what is no number is left out. */
export function readOtherProgram(file: string): OtherProgram {
  const content: unknown = JSON.parse(readFileSync(file, 'utf8'));
  if (typeof content !== 'object' || content === null) throw new Error(`${file}: not a JSON object`);
  const numbers = Object.entries(content).filter(([, value]) => Number.isFinite(value));
  return Object.fromEntries(numbers);
}

/** How many times faster, or smaller, we are, for each row that both have. By the clock on the wall, as others measure. */
export function timesFaster(
  other: OtherProgram,
  { rows, bytesPerEntry }: { readonly rows: Readonly<Record<string, Row>>; readonly bytesPerEntry: number },
): Readonly<Record<string, number>> {
  const ours = { ...rows, bytesPerEntry: { wallNs: bytesPerEntry } };
  return Object.fromEntries(
    Object.entries(ours).flatMap(([name, { wallNs }]) => {
      const theirs = other[name];
      return theirs === undefined ? [] : [[name, theirs / wallNs]];
    }),
  );
}
