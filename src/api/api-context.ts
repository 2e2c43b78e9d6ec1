import type { HttpBindings } from '@hono/node-server';
import type { OpenAPIHono } from '@hono/zod-openapi';
import type { Clock } from '../base/clock.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { ChangeFeed } from './change-feed.ts';
import type { AgentMetrics } from './metrics/agent-metrics.ts';
import type { ReadModel } from './read-model.ts';

/** What the routes of the API need. */
export interface ApiContext {
  readonly model: ReadModel;
  readonly feed: ChangeFeed;
  readonly metrics: AgentMetrics;
  readonly clock: Clock;
  /** Distinguishes this run of the agent: revisions mean nothing to another. */
  readonly instance: string;
  /** What keeps the agent from being ready, a sentence each; none when it is. */
  readonly blockers: () => readonly string[];
  /** A request has failed because of a bug. */
  readonly onFault: (error: unknown) => void;
}

/** What routes are given beside: reading of lists and of many things is done in turns of the event loop, all through one gate. */
export interface RouteContext extends ApiContext {
  readonly gate: TurnGate;
}

/** The application that routes are added to. Over a connection it is given that, too. */
export type ApiApp = OpenAPIHono<{ Bindings: Partial<HttpBindings> }>;
