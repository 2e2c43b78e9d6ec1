import type { Ask } from '../api/api-client.ts';
import { fired } from '../base/follow-signal.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { sleep } from '../base/sleep.ts';
import { systemClock } from '../base/system-clock.ts';
import { stateDocument } from '../client/state-document.ts';
import { showState } from '../client/summary.ts';
import { InputError } from '../process/input-error.ts';
import type { ReloadedSettings, Reloads } from '../process/reload.ts';
import type { RunContext } from '../process/run-context.ts';
import { type RunOptions, runWithApi } from '../process/served-process.ts';
import { type ColourEnvironment, type Output, Terminal, writeLines } from '../process/terminal.ts';
import { play } from '../recording/play.ts';
import { readPlayScript } from '../recording/play-script.ts';
import { Agent } from './agent.ts';
import { AgentApi } from './agent-api.ts';
import { LiveView } from './live-view.ts';
import type { AgentOptions } from './options.ts';

/**
 * Time between the last step of a script and the line about its end, so that the changes of the step are shown
 * before.
 */
const SETTLE_MS = 1_000;

/** The settings changed by a reload. */
export interface ReloadedAgentSettings extends ReloadedSettings {
  readonly manifests: readonly string[];
  /** See `AgentOptions`; undefined: no limit. */
  readonly rateLimit: RateLimitOptions | undefined;
}

/** An agent after its initial sync. */
interface RunningAgent {
  readonly agent: Agent;
  readonly api: AgentApi;
  /** True if all sources were complete at the end of the initial sync. */
  readonly complete: boolean;
  readonly reloads: Reloads<ReloadedAgentSettings> | undefined;
}

export interface ShowContext extends RunContext {
  readonly output: Output;
  readonly env: ColourEnvironment;
}

/**
 * Starts an agent, calls `use` when the initial sync is complete or has stalled, and stops the agent when `use` has
 * settled. If the signal fires before the initial sync is complete, calls `onInterrupt` instead of `use`.
 */
function withAgent<T>(
  options: AgentOptions,
  run: RunOptions<ReloadedAgentSettings>,
  context: RunContext,
  use: (running: RunningAgent) => T | Promise<T>,
  onInterrupt: () => T = failInterrupted,
): Promise<T> {
  const { log, signal } = context;
  const agent = new Agent(options, { log, clock: systemClock, random: Math.random });
  const { serve, settings } = run;
  const api = new AgentApi(agent, { log, clock: systemClock, page: serve?.page, settings });
  return runWithApi(agent, api, run, context, (problems, reloads) => {
    if (signal.aborted && problems.length > 0) return onInterrupt();
    for (const problem of problems) log.error(problem);
    return use({ agent, api, complete: problems.length === 0, reloads });
  });
}

function failInterrupted(): never {
  throw new InputError('interrupted before the initial sync was done');
}

/**
 * Prints the state after the initial sync, as text or as a `StateDocument`. Resolves to true if all sources were
 * complete.
 */
export function printState(
  options: AgentOptions,
  format: 'text' | 'json',
  context: ShowContext,
): Promise<boolean> {
  const { output, env } = context;
  return withAgent(options, {}, context, ({ agent, complete }) => {
    if (format === 'text') showState(agent, agent.status(), new Terminal(output, env));
    else writeLines(output, `${JSON.stringify(stateDocument(agent.contents()), null, 1)}\n`);
    return complete;
  });
}

/** An answer; `complete` is true if all sources were complete. */
export interface MeshAnswer<T> {
  readonly answer: T;
  readonly complete: boolean;
}

/**
 * Starts an agent, calls `use` with its API when the initial sync is complete or has stalled, and stops the agent.
 */
export function askMesh<T>(
  options: AgentOptions,
  use: (ask: Ask) => Promise<T>,
  context: RunContext,
): Promise<MeshAnswer<T>> {
  return withAgent(options, {}, context, async ({ api, complete }) => ({
    answer: await use(api.ask),
    complete,
  }));
}

export interface FollowMeshOptions extends RunOptions<ReloadedAgentSettings> {
  /** Path of a script of changes to play. */
  readonly script?: string | undefined;
  /** If true, all changes of a burst are shown; by default the first ones, and the number of the others. */
  readonly all?: boolean | undefined;
  /**
   * If true, no changes are shown and messages are written to the log, for collectors that read the log and the output
   * as one stream.
   */
  readonly quiet?: boolean | undefined;
}

/**
 * Shows the state after the initial sync, then each change, until the signal fires. Plays a script if there is one.
 */
export async function followMesh(
  options: AgentOptions,
  { script, all, quiet = false, ...run }: FollowMeshOptions,
  context: ShowContext,
): Promise<void> {
  const { signal, log, output, env } = context;
  const steps = script === undefined ? [] : await readPlayScript(script);
  const terminal = new Terminal(output, env);
  const use = async ({ agent, api, reloads }: RunningAgent): Promise<void> => {
    const live = quiet ? undefined : new LiveView(agent, terminal, systemClock, all);
    const print = (text: string): void => (live === undefined ? log.info(text) : live.print(text));
    if (live === undefined) for (const line of addressLines(api)) log.info(line);
    else {
      showState(agent, agent.status(), terminal);
      // Without settings, the agent shows a recorded state, which does not change.
      const last = run.settings === undefined ? 'Ctrl-C stops.' : 'Changes follow; Ctrl-C stops.';
      for (const line of [...addressLines(api), last]) terminal.line(terminal.paint('faint', line));
    }
    using _following = live?.follow();
    const apply = async ({ manifests, rateLimit }: ReloadedAgentSettings): Promise<void> => {
      await agent.readManifests(manifests, signal);
      agent.changeRates(rateLimit ?? {});
    };
    reloads?.begin(apply, () => print('Reloaded settings and manifests.'));
    const listener = {
      onStep: (step: { readonly text: string }): void => print(step.text),
      onFailure: (action: { readonly kind: string }, reason: string): void =>
        log.error(`--play: ${action.kind}: ${reason}`),
    };
    if (steps.length > 0) {
      await play(steps, agent, listener, systemClock, signal);
      await sleep(systemClock, SETTLE_MS, signal);
      if (!signal.aborted) print('The script is done. Ctrl-C stops the agent.');
    }
    await fired(signal);
    print('Stopped.');
  };
  await withAgent(options, run, context, use, () => {});
}

function addressLines({ socket, url, hasPage }: AgentApi): readonly string[] {
  return [
    ...(socket === undefined ? [] : [`Status: dpcache status --socket ${socket}`]),
    ...(url === undefined || !hasPage ? [] : [`Page: ${url}/`]),
    ...(url === undefined ? [] : [`API: ${url}/v1/status, described by ${url}/openapi.json`]),
  ];
}
