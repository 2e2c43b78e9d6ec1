import type { Unsubscribe } from '../base/subscription.ts';
import type { Answer } from '../client/answer.ts';
import { type Output, writeLines } from '../process/terminal.ts';

/** The parts of the process that a command uses. Tests provide their own. */
export interface CommandIO {
  readonly stdout: Output;
  readonly stderr: Output;
  readonly stdin: AsyncIterable<Uint8Array | string>;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Fires when the process should end. */
  readonly signal: AbortSignal;
  /** Calls `listener` for each SIGHUP. If there is no listener, SIGHUP ends the process. */
  readonly onHangup?: (listener: () => void) => Unsubscribe;
}

/**
 * The reason of {@link CommandIO.signal} if output can no longer be written, for example because `| head` has ended.
 */
export const OUTPUT_CLOSED = 'output closed';

/** Exit statuses; see `--help`. */
export const EXIT = {
  /** Success. Rejected items are reported, but they are not a failure. */
  ok: 0,
  /** An input cannot be used, the requested object does not exist, or a comparison found a difference. */
  failed: 1,
  /** The command line is invalid. */
  usage: 2,
  /** `whatif`: the change would lose a prefix, a service, or the last backend of one. */
  loses: 3,
} as const;

export type ExitStatus = (typeof EXIT)[keyof typeof EXIT];

/** Runs the action of a command. Its status becomes the exit status of the process. */
export type RunAction = (action: () => Promise<ExitStatus>) => Promise<void>;

/** Format of a command whose output is a text for people or JSON. */
export type OutputFormat = 'text' | 'json';

export function writeAnswer(
  output: Output,
  format: OutputFormat,
  { json, lines }: Pick<Answer, 'json' | 'lines'>,
): void {
  const shown = format === 'json' ? [JSON.stringify(json, null, 1)] : lines;
  writeLines(output, shown.map((line) => `${line}\n`).join(''));
}
