import type { Stryker } from '@stryker-mutator/core';
import { operatorsOf, symbolAt } from './source-place.ts';

/** A mutant as Stryker reports it. */
export type MutantResult = Awaited<ReturnType<Stryker['runMutationTest']>>[number];

/** A mutant and the code that it replaces, as texts of one line. */
export interface Mutant {
  readonly status: MutantResult['status'];
  readonly file: string;
  readonly lineNumber: number;
  /** The function, class member or constant where the mutant begins. */
  readonly symbol: string;
  /** Its operators before and after, without names: `_ < _ → _ <= _`. */
  readonly change: string;
  readonly original: string;
  readonly replacement: string;
}

const LONGEST = 120;

/** Collapses white space, and omits the middle of a long text. */
function oneLine(text: string): string {
  const line = text.trim().replaceAll(/\s+/g, ' ');
  return line.length <= LONGEST ? line : `${line.slice(0, LONGEST / 2)} … ${line.slice(-LONGEST / 2)}`;
}

function between(lines: readonly string[], { start, end }: MutantResult['location']): string {
  const part = lines.slice(start.line - 1, end.line);
  part[part.length - 1] = part.at(-1)?.slice(0, end.column - 1) ?? '';
  part[0] = part[0]?.slice(start.column - 1) ?? '';
  return part.join('\n');
}

/** Returns the operators of the replaced code and of its replacement. */
export function changeOf(original: string, replacement: string): string {
  return `${operatorsOf(original)} → ${operatorsOf(replacement)}`;
}

/** Describes a result of Stryker; `source` is the text of its file. */
export function describeMutant(result: MutantResult, file: string, source: string): Mutant {
  const lines = source.split('\n');
  const { start } = result.location;
  const original = between(lines, result.location);
  return {
    status: result.status,
    file,
    lineNumber: start.line,
    symbol: symbolAt(lines, start.line),
    change: changeOf(original, result.replacement),
    original: oneLine(original),
    replacement: oneLine(result.replacement),
  };
}
