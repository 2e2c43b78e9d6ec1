import { systemClock } from '../../../src/base/system-clock.ts';
import { ApiHttpServer } from '../../../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { type ClusterAccess, fixedCredentials } from '../../../src/k8s/rest/cluster-access.ts';
import { HttpTransport } from '../../../src/k8s/rest/http-transport.ts';
import { until } from '../../base/support/until.ts';
import { describeApiContract } from '../support/api-contract.ts';
import type { ApiHarness } from '../support/api-harness.ts';

async function openMemory(): Promise<ApiHarness> {
  const api = new MemoryApiServer({ clock: systemClock, streamingLists: true });
  const http = new ApiHttpServer(api);
  const address = await http.listen();
  const as = (token: string): ClusterAccess => ({
    server: `http://${address}`,
    ca: undefined,
    serverName: undefined,
    insecureSkipVerify: false,
    credentials: fixedCredentials(`Bearer ${token}`, undefined),
  });
  api.tokens.add('admin');
  api.tokens.add('powerless');
  for (const verb of ['list', 'watch', 'get', 'delete']) api.deny(verb, 'configmaps', 'powerless');
  const transport = new HttpTransport(as('admin'));
  return {
    until,
    transport,
    offersStreams: true,
    access: as('admin'),
    powerless: as('powerless'),
    unknown: as('unknown'),
    serveWidgets: async () =>
      api.serve({
        group: 'contract.test',
        version: 'v1',
        kind: 'Widget',
        plural: 'widgets',
        namespaced: true,
        hasStatus: true,
      }),
    compact: async () => api.compact(),
    kill: async () => api.down(),
    restart: async () => api.up(),
    close: async () => {
      await transport.close();
      await http.close();
    },
  };
}

describeApiContract('a server in this process', openMemory);
