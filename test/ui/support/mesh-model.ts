import type {
  ClusterDetailDocument,
  ClusterDocument,
  StatusDocument,
} from '../../../src/api/status-document.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { History } from '../../../src/history/history.ts';
import { TestModel } from '../../api/support/model.ts';

/** Returns a cluster that is ready, with other fields. */
export function clusterDocument(name: string, fields: Partial<ClusterDocument> = {}): ClusterDocument {
  return {
    name,
    local: false,
    id: 2,
    state: 'ready',
    ready: true,
    connected: true,
    failures: 0,
    rejected: 0,
    connectionChangedAt: new Date().toISOString(),
    missing: [],
    keys: { nodes: 4, services: 4, identities: 5, ip: 86 },
    ...fields,
  };
}

/** An agent with a mesh of two clusters, and a history with the times of the browser. Its status can be changed. */
export class MeshModel extends TestModel {
  override readonly history: History = new History({ ipcache: this.ipcache, clock: systemClock });

  clusters: readonly ClusterDocument[] = [
    clusterDocument('own', { local: true, id: 1, keys: { nodes: 4, identities: 5, ip: 86 } }),
    clusterDocument('baltic'),
  ];

  /** Fields of the status that differ. */
  changes: Partial<StatusDocument> = {};

  constructor() {
    super();
    this.history.start();
  }

  override cluster(name: string): ClusterDetailDocument | undefined {
    const cluster = this.clusters.find((other) => other.name === name);
    const { stores = [], config } = super.cluster('baltic') ?? {};
    return cluster && { ...cluster, stores, config };
  }

  override status(): StatusDocument {
    const history = { recordsInMemory: 0, bytes: 0, maxBytes: 1, records: {}, lost: {} };
    return { ...super.status(), history, clusters: this.clusters, ...this.changes };
  }
}
