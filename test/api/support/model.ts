import type { OriginDocument } from '../../../src/api/documents.ts';
import type { ClusterMetrics, ReadModel, RestoredDocument } from '../../../src/api/read-model.ts';
import type {
  ClusterDetailDocument,
  KubernetesDocument,
  StatusDocument,
} from '../../../src/api/status-document.ts';
import type { RejectionStatus } from '../../../src/base/rejection.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { History } from '../../../src/history/history.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { ClusterIdentity } from '../../../src/model/identity-cache.ts';
import type { Labels } from '../../../src/model/labels.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { createBackend, createEndpointSlice } from '../../../src/servicecache/backend.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import type { ServiceID } from '../../../src/servicecache/service-id.ts';
import { FakeClock } from '../../agent/support/fake-clock.ts';

const CHECKOUT: Labels = [{ source: 'k8s', key: 'app', value: 'checkout' }];

/** A followed cluster with a store of each state. */
const BALTIC: ClusterDetailDocument = {
  name: 'baltic',
  local: false,
  id: 2,
  state: 'watching',
  ready: false,
  connected: true,
  failures: 1,
  connectionChangedAt: '2026-01-02T03:04:05.000Z',
  missing: ['services'],
  keys: { nodes: 1, services: 0 },
  rejected: 1,
  revision: 88_124,
  queuedBytes: 2_048,
  p99Ms: 25,
  stores: [
    {
      resource: 'nodes',
      state: 'watching',
      complete: true,
      keys: 1,
      rejected: 0,
      lists: 1,
      failures: 0,
      revision: 88_124,
      queuedBytes: 0,
      p99Ms: 25,
    },
    {
      resource: 'services',
      state: 'waiting',
      complete: false,
      keys: 0,
      rejected: 1,
      lists: 2,
      failures: 1,
      queuedBytes: 2_048,
      p99Ms: null,
      lastFailure: 'etcdserver: request timed out',
      lastFailureAt: '2026-01-02T03:04:06.000Z',
    },
  ],
  config: { id: 2, capabilities: { syncedCanaries: true, cached: false, maxConnectedClusters: 255 } },
};

/** Engines of a cluster `own`, and a minimal status. */
export class TestModel implements ReadModel {
  readonly clock: FakeClock = new FakeClock();
  readonly ipcache: IPCache = new IPCache();
  readonly services: ServiceCache = new ServiceCache({ clusterName: 'own', nodePort: { enabled: true } });
  readonly nodes: NodeManager;
  /** Records from the start. */
  readonly history: History = new History({
    ipcache: this.ipcache,
    clock: this.clock,
    gate: new TurnGate({ clock: this.clock, nextTurn: setImmediate }),
  });

  constructor() {
    const { clock, ipcache } = this;
    this.nodes = new NodeManager({
      ipcache,
      clock,
      clusterName: 'own',
      nodeName: 'here',
      random: () => 0.5,
    });
    this.history.start();
  }

  readonly labelsOf = (identity: number): Labels | undefined => (identity === 1234 ? CHECKOUT : undefined);

  /** The age of all restored entries. */
  restored: RestoredDocument | undefined;
  readonly restoredOf = (): RestoredDocument | undefined => this.restored;
  readonly clusterOf = (identity: number): string => (identity === 1234 ? 'own' : '');
  readonly originOf = ({ source }: { readonly source: string }): OriginDocument => ({
    text: `test, ${source}`,
    store: 'agent',
  });
  readonly restoredIdentity = (): undefined => undefined;

  identities(): readonly ClusterIdentity[] {
    return [{ identity: 1234, labels: CHECKOUT, cluster: 'own' }];
  }

  clusterNames(): readonly string[] {
    return this.status().clusters.map(({ name }) => name);
  }

  cluster(name: string): ClusterDetailDocument | undefined {
    return name === 'baltic' ? BALTIC : undefined;
  }

  /** The followed sources. */
  readonly followed: ClusterMetrics[] = [];

  clusterMetrics(): readonly ClusterMetrics[] {
    return this.followed;
  }

  rejections(): RejectionStatus {
    return { total: 0, byReason: {}, recent: [] };
  }

  /** Omitted from the status if undefined. */
  kubernetes: KubernetesDocument | undefined;

  status(): StatusDocument {
    const { prefixes, revision } = { prefixes: this.ipcache.size, revision: this.ipcache.revision };
    return {
      cluster: 'own',
      clusterID: 1,
      kvstore: 'memory',
      syncedMs: 5,
      clusters: [],
      configProblems: [],
      steps: [],
      ipcache: { prefixes, revision, shadowed: 0, overruled: 0, listenerFaults: 0 },
      nodes: { nodes: this.nodes.size, overruled: 0, heldBack: [] },
      services: { announced: 0, backends: 0, contested: 0, unknown: 0, listenerFaults: 0 },
      rejected: { total: 0, byReason: {}, recent: [] },
      kubernetes: this.kubernetes,
    };
  }

  /** Adds a global service without backends. */
  addService(id: ServiceID, clusterIP: string): void {
    this.services.updateService(
      createService({
        id,
        clusterIPs: [clusterIP],
        addressing: 'assigned',
        global: true,
        ports: [['http', { port: 80, protocol: 6, nodePort: 0 }]],
      }),
    );
  }

  /** A remote cluster offers a backend. */
  offer(cluster: string, id: ServiceID, address: string): void {
    const none = new Map();
    this.services.mergeExternalServiceUpdate({
      cluster,
      ...id,
      frontends: none,
      labels: none,
      selector: none,
      includeExternal: true,
      shared: true,
      clusterID: 2,
      backends: new Map([[address, new Map([['http', { port: 8080, protocol: 6 }]])]]),
    });
  }

  /** One object of every kind. */
  fill(): this {
    const k8s = {
      namespace: 'shop',
      podName: 'checkout-1',
      namedPorts: new Map([['http', { port: 8080, protocol: 6 }]]),
    };
    this.ipcache.upsert('10.0.0.1', { identity: 1234, source: 'kvstore', hostIP: '192.168.0.1', k8s });
    this.ipcache.upsert('10.0.0.1/32', { identity: 9, source: 'k8s' });
    this.ipcache.upsert('10.0.0.0/8', { identity: 77, source: 'clustermesh', owner: 'baltic' });
    const id = { namespace: 'shop', name: 'checkout' };
    const ports = [['http', { port: 8080, protocol: 6 }]] as const;
    this.addService(id, '172.16.0.10');
    this.services.updateEndpoints(
      createEndpointSlice({
        service: id,
        name: 'slice-1',
        backends: [createBackend({ address: '10.0.0.1', ports })],
      }),
    );
    this.services.markSynced();
    this.nodes.nodeUpdated({
      cluster: 'baltic',
      name: 'node-1',
      source: 'clustermesh',
      addresses: [{ type: 'InternalIP', ip: '192.168.7.1' }],
      labels: new Map([['zone', 'a']]),
    });
    return this;
  }
}
