import { processGate } from '../base/node/process-gate.ts';
import type { ApiApp, ApiContext } from './api-context.ts';
import { addDescription, createBaseApp } from './base-app.ts';
import { addDatapathRoutes, SOCKET_ONLY_PATHS } from './routes/datapath-routes.ts';
import { addDigestRoutes } from './routes/digest-routes.ts';
import { addEngineRoutes } from './routes/engine-routes.ts';
import { addHistoryRoutes } from './routes/history-routes.ts';
import { addIPRoutes } from './routes/ip-routes.ts';
import { addLookupRoutes } from './routes/lookup-routes.ts';
import { addSearchRoutes } from './routes/search-routes.ts';
import { addSettingsRoute, type SettingsDocument } from './routes/settings-routes.ts';
import { addStatusRoutes } from './routes/status-routes.ts';
import { addUIRoutes, type UIFile } from './routes/ui-routes.ts';
import { addWhatIfRoutes } from './routes/whatif-routes.ts';

export interface AppOptions extends ApiContext {
  /** Package version for the API description. */
  readonly version: string;
  /** Files of the page, if it is served. */
  readonly page?: readonly UIFile[] | undefined;
  /** Returns the settings in use; undefined if the agent shows a recorded state. */
  readonly settings?: (() => SettingsDocument) | undefined;
}

/** Creates the application with all routes of the agent. It answers requests from a socket or direct calls. */
export function createApp(options: AppOptions): ApiApp {
  const app = createBaseApp({ ...options, socketOnly: SOCKET_ONLY_PATHS });
  const context = { ...options, gate: processGate(options.clock) };
  addIPRoutes(app, context);
  addLookupRoutes(app, context);
  addEngineRoutes(app, context);
  addHistoryRoutes(app, context);
  addSearchRoutes(app, context);
  addStatusRoutes(app, context);
  addWhatIfRoutes(app, context);
  addDigestRoutes(app, context);
  addDatapathRoutes(app, context);
  addSettingsRoute(app, options.settings);
  if (options.page !== undefined) addUIRoutes(app, options.page);
  addDescription(app, options.version, 'IP, service and node caches of a cluster mesh.');
  return app;
}
