import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ClusterMesh, type ClusterMeshOptions } from '../../src/clustermesh/cluster-mesh.ts';
import type { IPSink, NodeSink, ServiceSink } from '../../src/clustermesh/engines.ts';
import { happenings, I9_reconnectIsColdStart, I10_noOrphans, type MakeMesh } from './support/mesh-laws.ts';

/** Returns a mesh whose engines are wrapped by `spoil`. */
function spoilt(spoil: (engines: Required<Engines>) => Partial<Engines>): MakeMesh {
  return (options) => {
    const { ipcache, services, nodes } = options;
    if (!ipcache || !services || !nodes) throw new Error('engines');
    return new ClusterMesh({ ...options, ...spoil({ ipcache, services, nodes }) });
  };
}

interface Engines {
  readonly ipcache: IPSink;
  readonly services: ServiceSink;
  readonly nodes: NodeSink;
}

const ignoresIPDeletes = spoilt(({ ipcache }) => ({
  ipcache: {
    upsert: (key, claim) => ipcache.upsert(key, claim),
    delete: () => 'not-found',
    withdraw: (by) => ipcache.withdraw(by),
    batch: (apply) => ipcache.batch(apply),
  },
}));

const ignoresServiceDeletes = spoilt(({ services }) => ({
  services: {
    mergeExternalServiceUpdate: (service) => services.mergeExternalServiceUpdate(service),
    mergeExternalServiceDelete: () => 'not-found',
    mergeExternalSliceUpdate: (slice) => services.mergeExternalSliceUpdate(slice),
    mergeExternalSliceDelete: () => 'not-found',
    withdrawCluster: (cluster) => services.withdrawCluster(cluster),
  },
}));

const keepsEverything = spoilt(({ ipcache, nodes, services }) => ({
  ipcache: { ...passing(ipcache), withdraw: () => 0, delete: () => 'not-found' },
  nodes: { nodeUpdated: (node) => nodes.nodeUpdated(node), nodeDeleted: () => 'x', withdraw: () => 0 },
  services: {
    mergeExternalServiceUpdate: (service) => services.mergeExternalServiceUpdate(service),
    mergeExternalServiceDelete: () => 'x',
    mergeExternalSliceUpdate: (slice) => services.mergeExternalSliceUpdate(slice),
    mergeExternalSliceDelete: () => 'x',
    withdrawCluster: () => 'x',
  },
}));

function passing(ipcache: IPSink): IPSink {
  return {
    upsert: (key, claim) => ipcache.upsert(key, claim),
    delete: (key, by) => ipcache.delete(key, by),
    withdraw: (by) => ipcache.withdraw(by),
    batch: (apply) => ipcache.batch(apply),
  };
}

/** Withdraws the right source, but of all owners. */
const forgetsOwners = spoilt(({ ipcache }) => ({
  ipcache: {
    ...passing(ipcache),
    upsert: (key, claim) => ipcache.upsert(key, { ...claim, owner: 'mesh' }),
    delete: (key, by) => ipcache.delete(key, { ...by, owner: 'mesh' }),
    withdraw: (by) => ipcache.withdraw({ ...by, owner: 'mesh' }),
  },
}));

/** Stops a cluster instead of removing it. */
class Lingering extends ClusterMesh {
  override remove(): Promise<boolean> {
    return Promise.resolve(true);
  }
}

const lingers: MakeMesh = (options: ClusterMeshOptions) => new Lingering(options);

describe('a broken mesh is detected', () => {
  it.each([
    ['ignores deleted IPs', ignoresIPDeletes],
    ['ignores deleted services', ignoresServiceDeletes],
    ['makes one owner of all clusters', forgetsOwners],
  ] as const)('I9 catches a mesh that %s', async (_what, makeMesh) => {
    const outcome = await fc.check(
      fc.asyncProperty(happenings, (script) => I9_reconnectIsColdStart(script, makeMesh)),
      { endOnFailure: true, seed: 12 },
    );
    expect(outcome.failed).toBe(true);
  });

  it.each([
    ['withdraws nothing', keepsEverything],
    ['makes one owner of all clusters', forgetsOwners],
    ['lets removed clusters linger', lingers],
  ] as const)('I10 catches a mesh that %s', async (_what, makeMesh) => {
    const outcome = await fc.check(
      fc.asyncProperty(happenings, (script) => I10_noOrphans(script, makeMesh)),
      { endOnFailure: true, seed: 12 },
    );
    expect(outcome.failed).toBe(true);
  });
});
