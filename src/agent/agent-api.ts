import { randomUUID } from 'node:crypto';
import { type AppOptions, createApp } from '../api/app.ts';
import { ChangeFeed } from '../api/change-feed.ts';
import { AgentMetrics } from '../api/metrics/agent-metrics.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { FaultReport } from '../process/fault-report.ts';
import type { Logger } from '../process/log.ts';
import { ServedApi } from '../process/served-api.ts';
import { version } from '../process/version.ts';
import type { Agent } from './agent.ts';

/** The parts of the process used by the API. */
export interface AgentApiContext extends Pick<AppOptions, 'clock' | 'page' | 'settings'> {
  readonly log: Logger;
}

export class AgentApi extends ServedApi {
  readonly #unfollow: Unsubscribe;

  constructor(agent: Agent, { log, clock, page, settings }: AgentApiContext) {
    const feed = new ChangeFeed(agent, clock);
    const metrics = new AgentMetrics(agent, feed);
    const faults = new FaultReport(log, clock);
    const app = createApp({
      model: agent,
      feed,
      clock,
      metrics,
      instance: randomUUID().slice(0, 8),
      version: version(),
      page,
      settings,
      blockers: () => agent.blockers(),
      onFault: (err) => faults.add('an API request', { err }),
    });
    super(app, { log, clock, metrics, page, faults });
    this.#unfollow = feed.follow();
  }

  /** Stops the API and the change feed. Closes all connections. */
  override async stop(): Promise<void> {
    this.#unfollow();
    await super.stop();
  }
}
