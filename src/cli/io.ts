import type { Output } from '../agent/terminal.ts';
import type { Unsubscribe } from '../base/subscription.ts';

/** What a command may use of its process. Tests bring their own. */
export interface CommandIO {
  readonly stdout: Output;
  readonly stderr: Output;
  readonly stdin: AsyncIterable<Uint8Array | string>;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Fires when the process is asked to end. */
  readonly signal: AbortSignal;
  /** Calls `listener` whenever the process is asked to read its settings anew; until then such a signal ends it. */
  readonly onHangup?: (listener: () => void) => Unsubscribe;
}

/** Exit statuses, as `--help` explains them. */
export const EXIT = {
  /** Done; rejected items are reported, and are no failure. */
  ok: 0,
  /** Something could not be read, or what was asked for is not there. */
  failed: 1,
  /** The command line is wrong. */
  usage: 2,
} as const;

/** One of {@link EXIT}. */
export type ExitStatus = (typeof EXIT)[keyof typeof EXIT];

/** Runs what a command does; the status that it gives becomes that of the process. */
export type RunAction = (action: () => Promise<ExitStatus>) => Promise<void>;
