import { onTestFinished, vi } from 'vitest';
import type { ApiApp } from '../../../src/api/api-context.ts';
import * as processApp from '../../../src/api/process-app.ts';
import * as systemClock from '../../../src/base/system-clock.ts';
import { createLog, type Logger } from '../../../src/process/log.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

/** An operator or a kvstoremesh that runs in this process with a fake clock. */
export interface RunInTest {
  readonly clock: ManualClock;
  readonly logged: readonly string[];
  readonly ended: Promise<void>;
  readonly stop: AbortController;
  /** Requests a path of its API. */
  readonly get: (path: string) => Promise<string>;
}

/** Runs a process until the test ends. */
export function runInTest(
  run: (context: { readonly log: Logger; readonly signal: AbortSignal }) => Promise<void>,
): RunInTest {
  const clock = new ManualClock();
  vi.spyOn(systemClock, 'systemClock', 'get').mockReturnValue(clock);
  const { createProcessApp } = processApp;
  let app: ApiApp | undefined;
  vi.spyOn(processApp, 'createProcessApp').mockImplementation((options) => {
    app = createProcessApp(options);
    return app;
  });
  const logged: string[] = [];
  const log = createLog('debug', 'text', { write: (line) => logged.push(line.trimEnd()) });
  const stop = new AbortController();
  const ended = run({ log, signal: stop.signal });
  ended.catch(() => {});
  onTestFinished(async () => {
    stop.abort();
    await ended.catch(() => {});
  });
  const get = async (path: string): Promise<string> => (await (await app?.request(path))?.text()) ?? '';
  return { clock, logged, ended, stop, get };
}
