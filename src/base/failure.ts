import type { Clock } from './clock.ts';

/** A failure as plain data for a status. */
export interface Failure {
  /** The `code` of the error, such as `unavailable`. If it has none, its name, such as `TypeError`. */
  readonly code: string;
  readonly message: string;
  /** Wall time, milliseconds since the epoch. */
  readonly at: number;
}

/** Returns the message of a thrown value. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** Returns the {@link Failure} for a thrown value. */
export function failureOf(thrown: unknown, clock: Pick<Clock, 'wallTime'>): Failure {
  const at = clock.wallTime();
  if (!(thrown instanceof Error)) return { code: typeof thrown, message: String(thrown), at };
  const code = 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : thrown.name;
  return { code, message: thrown.message, at };
}
