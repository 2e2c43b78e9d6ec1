import { readFileSync } from 'node:fs';
import type { Row } from './report.ts';

/** The figures of another program for its own cache: nanoseconds by row name, `n` and `bytesPerEntry`. */
export type OtherProgram = Readonly<Record<string, number>>;

/** Reads `{"n": …, "fresh": …, "unchanged": …, …, "bytesPerEntry": …}`. Values other than numbers are ignored. */
export function readOtherProgram(file: string): OtherProgram {
  const content: unknown = JSON.parse(readFileSync(file, 'utf8'));
  if (typeof content !== 'object' || content === null) throw new Error(`${file}: not a JSON object`);
  const numbers = Object.entries(content).filter(([, value]) => Number.isFinite(value));
  return Object.fromEntries(numbers);
}

/** Returns the other program's figure divided by ours, for each common row, in wall time, as others measure. */
export function timesFaster(
  other: OtherProgram,
  { rows, bytesPerEntry }: { readonly rows: Readonly<Record<string, Row>>; readonly bytesPerEntry: number },
): Readonly<Record<string, number>> {
  const ours = { ...rows, bytesPerEntry: { wallNs: bytesPerEntry } };
  return Object.fromEntries(
    Object.entries(ours).flatMap(([name, { wallNs }]) => {
      const otherValue = other[name];
      return otherValue === undefined ? [] : [[name, otherValue / wallNs]];
    }),
  );
}
