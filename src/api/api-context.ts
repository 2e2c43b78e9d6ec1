import type { HttpBindings } from '@hono/node-server';
import type { OpenAPIHono } from '@hono/zod-openapi';
import type { Clock } from '../base/clock.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { ChangeFeed } from './change-feed.ts';
import type { AgentMetrics } from './metrics/agent-metrics.ts';
import type { ReadModel } from './read-model.ts';

/** Dependencies of the API routes. */
export interface ApiContext {
  readonly model: ReadModel;
  readonly feed: ChangeFeed;
  readonly metrics: AgentMetrics;
  readonly clock: Clock;
  /** Identifies this run of the agent, because revisions are valid in one run only. */
  readonly instance: string;
  /** Returns the reasons why the agent is not ready, one sentence each. Empty if it is ready. */
  readonly blockers: () => readonly string[];
  /** Receives the error of a request if it failed because of a bug. */
  readonly onFault: (error: unknown) => void;
}

/**
 * Context of all routes. Routes that read many items share one gate, which spreads their work over turns of the event
 * loop.
 */
export interface RouteContext extends ApiContext {
  readonly gate: TurnGate;
}

/** Environment of a request: its connection, if there is one. */
export interface ApiEnv {
  readonly Bindings: Partial<HttpBindings> & { readonly isUnixSocket?: boolean };
}

/** The application with the routes. */
export type ApiApp = OpenAPIHono<ApiEnv>;
