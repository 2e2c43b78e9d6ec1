import { expect, onTestFinished } from 'vitest';
import { unsubscribeOnce } from '../../../src/base/subscription.ts';
import { runCommand } from '../../../src/cli/program.ts';
import { nothing } from './run.ts';

/** A command that runs in this process. */
export interface StartedProcess {
  readonly hangup: () => void;
  /** Resolves when the process handles SIGHUP. */
  readonly subscribed: () => Promise<void>;
  /** Resolves when the output contains the text `times` times. */
  readonly shows: (text: string, times?: number) => Promise<void>;
  readonly written: () => string;
}

/** Runs a command in this process until the test ends; it must end with status 0 then. */
export function startProcess(
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
): StartedProcess {
  const stop = new AbortController();
  const hangups = new Set<() => void>();
  let written = '';
  let wake = (): void => {};
  const output = {
    write: (text: string) => {
      written += text;
      wake();
    },
  };
  const ended = runCommand(words, {
    stdout: output,
    stderr: output,
    stdin: nothing(),
    env,
    signal: stop.signal,
    onHangup: (listener) => {
      hangups.add(listener);
      return unsubscribeOnce(() => hangups.delete(listener));
    },
  });
  onTestFinished(async () => {
    stop.abort();
    expect(await ended).toBe(0);
    expect(hangups.size).toBe(0);
  });
  return {
    hangup: () => {
      for (const listener of hangups) listener();
    },
    subscribed: () => expect.poll(() => hangups.size).toBe(1),
    shows: async (text, times = 1) => {
      while (written.split(text).length <= times)
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    },
    written: () => written,
  };
}
