import type { Description } from '../api/metrics/description.ts';
import { ProcessMetrics } from '../api/metrics/process-metrics.ts';
import { createProcessApp } from '../api/process-app.ts';
import type { StepDocument } from '../api/status-document.ts';
import type { Clock, Random } from '../base/clock.ts';
import { systemClock } from '../base/system-clock.ts';
import { InputError } from './input-error.ts';
import type { Logger } from './log.ts';
import type { RunContext } from './run-context.ts';
import { ServedApi, type ServeOptions } from './served-api.ts';
import type { Step } from './start-step.ts';
import { Startup } from './startup.ts';
import { openSteps } from './step-text.ts';
import { version } from './version.ts';

/** What a process takes from its surroundings. */
export interface ProcessContext {
  readonly log: Logger;
  readonly clock: Clock;
  readonly random: Random;
  /** Ends the process, for a reason of its own. */
  readonly end: (why: string) => void;
}

/** A process without engines, that does something until it is asked to end. */
export interface ServedProcess {
  /** What is started, in this order, and stopped in the reverse one; steps of one line at the same time. */
  readonly stages: readonly (readonly Step[])[];
  /** How it stands, as plain data; the steps of its start are added. */
  status(): object;
  /** What keeps it from being ready, beside its start: a sentence each. */
  blockers(): readonly string[];
  readonly metrics: readonly Description[];
}

/** How such a process stands, as its API says it. */
export interface ProcessDocument {
  readonly steps: readonly StepDocument[];
  /** What keeps it from being ready, a sentence each. */
  readonly blockers: readonly string[];
}

/**
 * Runs a process until the signal fires, or it ends by itself, and is asked over the API meanwhile. Throws `InputError` when
 * it cannot be started, and when it has ended by itself.
 */
export async function runProcess(
  make: (context: ProcessContext) => ServedProcess,
  serve: ServeOptions,
  { log, signal }: RunContext,
): Promise<void> {
  const clock = systemClock;
  const ended = new AbortController();
  const process = make({ log, clock, random: Math.random, end: (why) => ended.abort(why) });
  const startup = new Startup({ log, clock });
  const blockers = (): readonly string[] => {
    const open = openSteps(startup.status()).flatMap(({ text, waitsFor }) => [text, ...waitsFor]);
    return [...new Set([...open, ...process.blockers()])];
  };
  const app = createProcessApp({
    ...{ clock, blockers, version: version(), metrics: new ProcessMetrics(process.metrics) },
    status: () => ({ ...process.status(), steps: startup.status(), blockers: blockers() }),
    onFault: (error) => log.error({ err: error }, 'a request of the API has failed'),
  });
  const api = new ServedApi(app, log);
  const served: Step = { name: 'API', start: () => api.serve(serve), stop: () => api.stop() };
  const either = AbortSignal.any([signal, ended.signal]);
  try {
    if (await startup.start([[served], ...process.stages], either)) await fired(either);
  } finally {
    await startup.stop();
  }
  if (ended.signal.aborted) throw new InputError(String(ended.signal.reason));
}

function fired(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
