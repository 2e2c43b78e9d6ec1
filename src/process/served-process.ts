import { type Metrics, problemsMetric } from '../api/metrics/metric.ts';
import { ProcessMetrics } from '../api/metrics/process-metrics.ts';
import { Scrape } from '../api/metrics/scrape.ts';
import { type HealthProblem, healthProblems, type ProblemSource } from '../api/problems.ts';
import { createProcessApp } from '../api/process-app.ts';
import type { SettingsDocument } from '../api/routes/settings-routes.ts';
import type { StepDocument } from '../api/status-document.ts';
import { EitherSignal, fired } from '../base/follow-signal.ts';
import { type Runtime, systemClock } from '../base/system-clock.ts';
import { FaultReport } from './fault-report.ts';
import { InputError } from './input-error.ts';
import type { Logger } from './log.ts';
import { type ReloadedSettings, type ReloadSource, Reloads } from './reload.ts';
import type { RunContext } from './run-context.ts';
import { ServedApi, type ServeOptions } from './served-api.ts';
import type { Step } from './start-step.ts';
import { Startup } from './startup.ts';
import { openSteps } from './step-text.ts';
import { version } from './version.ts';

export interface RunOptions<S extends ReloadedSettings = ReloadedSettings> {
  /** Addresses of the API; undefined: no API is served. */
  readonly serve?: ServeOptions | undefined;
  /** Source of reloads. If undefined, settings cannot be reloaded and SIGHUP ends the process. */
  readonly reload?: ReloadSource<S> | undefined;
  /** Returns the settings in use, for the API; undefined if the process shows a recorded state. */
  readonly settings?: (() => SettingsDocument) | undefined;
}

/** A process that starts in steps and stops in the reverse order. */
export interface SteppedProcess<T> {
  /** Runs the steps of `first`, then those of the process. */
  start(signal: AbortSignal, first: readonly Step[]): Promise<T>;
  stop(): Promise<unknown>;
}

/**
 * Runs an agent, an operator or a kvstoremesh. Serves the API from the beginning, so that a long start can be observed,
 * runs the steps of the start, and calls `use` with its result. Finally stops everything, also after a failure. A
 * reload request (SIGHUP) that arrives earlier does not end the process: it waits until `use` handles requests.
 */
export async function runWithApi<T, R, S extends ReloadedSettings>(
  process: SteppedProcess<T>,
  api: ServedApi,
  { serve, reload }: RunOptions<S>,
  context: RunContext,
  use: (started: T, reloads: Reloads<S> | undefined) => R | Promise<R>,
): Promise<R> {
  using reloads = reload && new Reloads(reload, context);
  const serveApi: Step = { name: 'API', start: () => serve && api.serve(serve), stop: () => api.stop() };
  try {
    return await use(await process.start(context.signal, [serveApi]), reloads);
  } finally {
    await process.stop();
  }
}

export interface ProcessContext extends Runtime {
  readonly log: Logger;
  /** Ends the process with an error. */
  readonly end: (reason: string) => void;
}

/** A process without engines that runs until its signal fires: an operator or a kvstoremesh. */
export interface ServedProcess {
  /** Steps of the start, in order. Steps of one stage run concurrently. The stop reverses the order. */
  readonly stages: readonly (readonly Step[])[];
  /** Returns the status as plain data. The runner adds the steps of the start. */
  status(): object;
  /** Returns one sentence for each reason, except open steps, why the process is not ready. */
  blockers(): readonly string[];
  /** Returns the state that determines the current problems, in addition to the steps and the blockers. */
  problemSource(): Omit<ProblemSource, 'steps' | 'socket'>;
  /** Returns the tables of the metrics. A status for several metrics is read with `scrape.once`. Called only once. */
  metrics(scrape: Scrape): readonly Metrics[];
}

/** The fields added by the runner to the status of a {@link ServedProcess}. */
export interface ProcessDocument {
  readonly steps: readonly StepDocument[];
  /** One sentence for each reason why the process is not ready. */
  readonly blockers: readonly string[];
}

/** Runs a process until the signal fires. Throws `InputError` if it cannot start or has ended itself. */
export async function runProcess(
  make: (context: ProcessContext) => ServedProcess,
  options: RunOptions,
  { log, signal }: RunContext,
): Promise<void> {
  const clock = systemClock;
  const ended = new AbortController();
  const process = make({ log, clock, random: Math.random, end: (reason) => ended.abort(reason) });
  const startup = new Startup({ log, clock });
  using either = new EitherSignal(signal, ended.signal);
  const stepped: SteppedProcess<boolean> = {
    start: (until, first) => startup.start([first, ...process.stages], until),
    stop: () => startup.stop(),
  };
  const context = { log, signal: either.signal };
  await runWithApi(
    stepped,
    newApi(process, startup, options, { log, clock }),
    options,
    context,
    async (isStarted, reloads) => {
      if (!isStarted) return;
      reloads?.begin(
        () => {},
        () => log.info('reloaded settings'),
      );
      await fired(either.signal);
    },
  );
  if (ended.signal.aborted) throw new InputError(String(ended.signal.reason));
}

/** Returns the API of a process. Its status and blockers include the steps of the start. */
function newApi(
  process: ServedProcess,
  startup: Startup,
  { serve, settings }: RunOptions,
  { log, clock }: Pick<ProcessContext, 'log' | 'clock'>,
): ServedApi {
  const page = serve?.page;
  const blockers = (): readonly string[] => {
    const open = openSteps(startup.status()).flatMap(({ text, waitsFor }) => [text, ...waitsFor]);
    return [...new Set([...open, ...process.blockers()])];
  };
  const faults = new FaultReport(log, clock);
  const scrape = new Scrape();
  const problems = (): readonly HealthProblem[] => {
    const source = { ...process.problemSource(), steps: startup.status(), socket: serve?.socket };
    return healthProblems(source, blockers(), clock.wallTime());
  };
  const problemTable: Metrics = { dpcache_problems: problemsMetric(problems) };
  const metrics = new ProcessMetrics([problemTable, ...process.metrics(scrape)], scrape);
  const app = createProcessApp({
    clock,
    blockers,
    problems,
    version: version(),
    page,
    metrics,
    settings,
    status: () => ({ ...process.status(), steps: startup.status(), blockers: blockers() }),
    onFault: (err) => faults.add('an API request', { err }),
  });
  return new ServedApi(app, { log, clock, metrics, page, faults });
}
