import type { Stryker } from '@stryker-mutator/core';

/** What Stryker says of a mutant. */
export type MutantResult = Awaited<ReturnType<Stryker['runMutationTest']>>[number];

/** A mutant with what it replaces, as texts of one line. */
export interface Mutant {
  readonly status: MutantResult['status'];
  readonly file: string;
  readonly lineNumber: number;
  /** The line of the source in which it begins, without indentation. */
  readonly line: string;
  readonly original: string;
  readonly replacement: string;
}

const LONGEST = 120;

/** White space collapsed, and the middle of a long text left out. */
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

/** Describes a result of Stryker; `source` is the text of its file. */
export function describeMutant(result: MutantResult, file: string, source: string): Mutant {
  const lines = source.split('\n');
  const { start } = result.location;
  return {
    status: result.status,
    file,
    lineNumber: start.line,
    line: lines[start.line - 1]?.trim() ?? '',
    original: oneLine(between(lines, result.location)),
    replacement: oneLine(result.replacement),
  };
}
