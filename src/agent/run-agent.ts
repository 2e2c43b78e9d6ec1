import type { Ask } from '../api/api-client.ts';
import { sleep } from '../base/sleep.ts';
import { systemClock } from '../base/system-clock.ts';
import { Agent } from './agent.ts';
import { AgentApi } from './agent-api.ts';
import { InputError } from './input-error.ts';
import { LiveView } from './live-view.ts';
import type { AgentOptions } from './options.ts';
import { play } from './play.ts';
import { readPlayScript } from './play-script.ts';
import { type ReloadSource, Reloads } from './reload.ts';
import type { RunContext } from './run-context.ts';
import type { ServeOptions } from './served-api.ts';
import type { Step } from './start-step.ts';
import { stateDocument } from './state-document.ts';
import { showState } from './summary.ts';
import { type ColourEnvironment, type Output, Terminal, writeLines } from './terminal.ts';

/** What the last step of a script sets off is shown before the script is said to be over. */
const SETTLE_MS = 1_000;

/** What running an agent takes from its process that shows something. */
export interface ShowContext extends RunContext {
  readonly output: Output;
  readonly env: ColourEnvironment;
}

/**
 * Runs `use` with an agent whose first sync is over and its API, and stops both whatever becomes of it. With `serve` the
 * API is served from the beginning, so that a first sync that takes long can be looked at. Throws `InputError` when it is
 * interrupted before that: there is nothing to show.
 */
async function withAgent<T>(
  options: AgentOptions,
  { log, signal }: RunContext,
  use: (agent: Agent, api: AgentApi, complete: boolean) => T | Promise<T>,
  serve?: ServeOptions,
): Promise<T> {
  const agent = new Agent(options, { log, clock: systemClock, random: Math.random });
  const api = new AgentApi(agent, { log, clock: systemClock, page: serve?.page });
  const served: Step = {
    name: 'API',
    start: () => serve && api.serve(serve),
    stop: () => api.stop(),
  };
  try {
    const missing = await agent.start(signal, [served]);
    if (signal.aborted && missing.length > 0)
      throw new InputError('interrupted before the first sync was over: nothing is shown');
    for (const sentence of missing) log.error(sentence);
    return await use(agent, api, missing.length === 0);
  } finally {
    await agent.stop();
  }
}

function until(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Whether everything that was asked for has been complete. */
export type Completeness = 'complete' | 'incomplete';

/** Prints what is known after the first sync: for people, or as a `StateDocument`. */
export function printState(
  options: AgentOptions,
  format: 'text' | 'json',
  context: ShowContext,
): Promise<Completeness> {
  const { output, env } = context;
  return withAgent(options, context, (agent, _api, complete) => {
    if (format === 'text') showState(agent, agent.status(), new Terminal(output, env));
    else writeLines(output, `${JSON.stringify(stateDocument(agent.contents()), null, 1)}\n`);
    return complete ? 'complete' : 'incomplete';
  });
}

/** An answer, and whether everything that was asked for has been complete when it was given. */
export interface Asked<T> {
  readonly answer: T;
  readonly complete: boolean;
}

/** Lets `use` ask an agent that has had its first sync and ends afterwards. */
export function askMesh<T>(
  options: AgentOptions,
  use: (ask: Ask) => Promise<T>,
  context: RunContext,
): Promise<Asked<T>> {
  return withAgent(options, context, async (_agent, api, complete) => ({
    answer: await use(api.ask),
    complete,
  }));
}

/** How {@link followMesh} shows a mesh. */
export interface FollowOptions {
  /** A script of changes to play. */
  readonly script: string | undefined;
  /** Shows every change of a burst. */
  readonly all: boolean;
  /** Where the agent can be asked meanwhile. */
  readonly serve: ServeOptions;
  /** Its settings are read anew when they are asked for. */
  readonly reload?: ReloadSource | undefined;
}

/** Shows what is known, then every change, until it is asked to end; plays a script if there is one. */
export async function followMesh(
  options: AgentOptions,
  { script, all, serve, reload }: FollowOptions,
  context: ShowContext,
): Promise<void> {
  const { signal, log, output, env } = context;
  using reloads = reload && new Reloads(reload, { log, signal });
  const steps = script === undefined ? [] : await readPlayScript(script);
  const terminal = new Terminal(output, env);
  const show = async (agent: Agent, api: AgentApi): Promise<void> => {
    showState(agent, agent.status(), terminal);
    for (const line of reachedLines(api)) terminal.line(terminal.paint('faint', line));
    terminal.line(terminal.paint('faint', 'Every change is shown from here on; Ctrl-C ends.'));
    const view = new LiveView(agent, terminal, systemClock, { all });
    using _following = view.follow();
    reloads?.begin(agent, (text) => view.say(text));
    const audience = {
      onStep: ({ say }: { readonly say: string }): void => view.say(say),
      onFailure: (action: { readonly kind: string }, why: string): void =>
        log.error(`--play: ${action.kind}: ${why}`),
    };
    await play(steps, agent, audience, systemClock, signal);
    if (steps.length > 0) await sleep(systemClock, SETTLE_MS, signal);
    if (steps.length > 0 && !signal.aborted)
      view.say('The script is over; the agent goes on. Ctrl-C ends it.');
    await until(signal);
    view.say('Stopped.');
  };
  await withAgent(options, context, show, serve);
}

/** How others ask this agent. */
function reachedLines({ socket, url, hasPage }: AgentApi): readonly string[] {
  return [
    ...(socket === undefined ? [] : [`The agent can be asked: dpcache status --socket ${socket}`]),
    ...(url === undefined || !hasPage ? [] : [`Its page: ${url}/`]),
    ...(url === undefined ? [] : [`Its API: ${url}/v1/status, described by ${url}/openapi.json`]),
  ];
}
