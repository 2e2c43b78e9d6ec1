import { afterEach, beforeEach } from 'vitest';
import { ClusterMesh, type ClusterMeshOptions } from '../../../src/clustermesh/cluster-mesh.ts';
import type { RemoteClusterStatus } from '../../../src/clustermesh/cluster-status.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { Agent } from './mesh-world.ts';

export let agent: Agent;
export let clock: ManualClock;

/** Creates, before each test of the calling file, an agent that follows no cluster. */
export function agentForEachTest(): void {
  beforeEach(() => {
    clock = new ManualClock();
    agent = new Agent(clock);
  });
  afterEach(() => agent.stop());
}

/** Replaces the agent by one whose mesh has other options. */
export async function restart(
  change: (options: ClusterMeshOptions) => Partial<ClusterMeshOptions>,
): Promise<void> {
  await agent.stop();
  agent = new Agent(clock, (options) => new ClusterMesh({ ...options, ...change(options) }));
}

export function statusOf(name = 'a'): RemoteClusterStatus {
  const status = agent.mesh.statusOf(name);
  if (status === undefined) throw new Error(`${name} is not in the mesh`);
  return status;
}

/** Returns the keys of the ipcache. */
export function ips(): readonly string[] {
  return [...agent.ipcache.entries()].map(({ key }) => key).sort();
}

/** Returns the addresses of the backends of a service. */
export function backendsOf(name: string): readonly string[] {
  return [...(agent.services.get({ namespace: 'ns', name })?.endpoints.backends.keys() ?? [])];
}
