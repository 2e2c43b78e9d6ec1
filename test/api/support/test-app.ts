import type { ApiApp, ApiContext } from '../../../src/api/api-context.ts';
import { createApp } from '../../../src/api/app.ts';
import { ChangeFeed } from '../../../src/api/change-feed.ts';
import { AgentMetrics } from '../../../src/api/metrics/agent-metrics.ts';
import type { SettingsDocument } from '../../../src/api/routes/settings-routes.ts';
import type { UIFile } from '../../../src/api/routes/ui-routes.ts';
import type { Clock } from '../../../src/base/clock.ts';
import { TestModel } from './model.ts';

/** An API over a {@link TestModel} with one object of every kind. */
export interface TestApp extends Pick<ApiContext, 'feed'> {
  readonly app: ApiApp;
  readonly model: TestModel;
  /** Internal errors of requests. */
  readonly faults: unknown[];
  /** Reasons why it is not ready. */
  readonly blocking: string[];
}

const SETTINGS = (): SettingsDocument => ({
  file: '/c.yaml',
  settings: { cluster: { value: 'atlantic', from: 'file' } },
});

/** Creates a {@link TestApp}. Without settings, it is that of a process that shows a recorded state. */
export function testApp(
  model: TestModel = new TestModel().fill(),
  page?: readonly UIFile[],
  clock: Clock = model.clock,
  hasSettings: boolean = true,
): TestApp {
  const feed = new ChangeFeed(model, clock);
  feed.follow();
  const metrics = new AgentMetrics(model, feed);
  const faults: unknown[] = [];
  const blocking: string[] = [];
  const app = createApp({
    model,
    feed,
    metrics,
    clock,
    instance: 'abc',
    version: '1.2.3',
    page,
    settings: hasSettings ? SETTINGS : undefined,
    blockers: () => blocking,
    onFault: (error) => faults.push(error),
  });
  return { app, model, feed, faults, blocking };
}
