/** Keys of a kvstore, as recorded: the value as text, and the name of the lease. */
export type RecordedKeys = ReadonlyMap<string, RecordedValue>;

export interface RecordedValue {
  readonly v: string;
  readonly lease?: string;
}

/** An external action. */
export interface RecordedStep {
  readonly t: 'step';
  readonly n: number;
  readonly op: string;
  readonly [field: string]: unknown;
}

/** The state after more than a second without changes. */
export interface RecordedQuiet {
  readonly t: 'quiet';
  readonly n: number;
  readonly note?: string;
  readonly [field: string]: unknown;
}

/** The recording of one program, from an empty kvstore on. */
export interface Recording {
  readonly scenario: { readonly name: string; readonly program: string; readonly [field: string]: unknown };
  readonly events: readonly (RecordedStep | RecordedQuiet)[];
}

type Line = { readonly t?: unknown } | null;

/** Returns true if the lines are recordings of programs, false for those of an engine. */
export function isRecording(lines: readonly unknown[]): boolean {
  return (lines[0] as Line)?.t === 'scenario';
}

/** The recordings of a file: each begins with `scenario`. */
export function recordingsOf(lines: readonly unknown[]): readonly Recording[] {
  const recordings: { scenario: Recording['scenario']; events: (RecordedStep | RecordedQuiet)[] }[] = [];
  for (const line of lines) {
    const { t } = line as { readonly t: string };
    if (t === 'scenario') recordings.push({ scenario: line as Recording['scenario'], events: [] });
    else if (t === 'step' || t === 'quiet')
      recordings.at(-1)?.events.push(line as RecordedStep | RecordedQuiet);
  }
  return recordings;
}

type Difference =
  | { readonly full: Readonly<Record<string, RecordedValue>> }
  | { readonly set: Readonly<Record<string, RecordedValue>>; readonly del: readonly string[] };

/** Returns the keys of a quiet point from those of the previous one. */
export function nextKeys(before: RecordedKeys, difference: unknown): RecordedKeys {
  const change = difference as Difference;
  if ('full' in change) return new Map(Object.entries(change.full));
  const next = new Map([...before, ...Object.entries(change.set)]);
  for (const key of change.del) next.delete(key);
  return next;
}
