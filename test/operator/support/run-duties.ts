import { TurnGate } from '../../../src/base/turn-gate.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import type { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import {
  type OperatorDuties,
  type OperatorDutiesOptions,
  operatorDuties,
} from '../../../src/operator/duties.ts';
import type { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';

/** The operator of cluster `a`: it publishes everything except the heartbeat, and collects nothing. */
export const DUTY_OPTIONS: Omit<
  OperatorDutiesOptions,
  'kubernetes' | 'backend' | 'clock' | 'random' | 'gate'
> = {
  clusterName: 'a',
  clusterID: 1,
  maxConnectedClusters: 255,
  identityAllocation: 'crd',
  endpoints: 'ciliumendpoints',
  publish: {
    services: true,
    nodes: true,
    identities: true,
    ips: true,
    clusterConfig: true,
    heartbeat: false,
  },
  intervals: { endpoints: 0, identities: 0, nodes: 0, locks: 0 },
  onReject: () => {},
  onFailure: () => {},
  onAction: () => {},
};

/** The API server and the kvstore of an operator in memory. */
interface OperatedServers {
  readonly clock: ManualClock;
  readonly api: ConstructorParameters<typeof MemoryApiTransport>[0];
  readonly server: MemoryServer;
}

/** Runs all duties of an operator. `stop` ends them and closes the clients; the leases of the operator remain. */
export function runDuties(
  { clock, api, server }: OperatedServers,
  change: Partial<OperatorDutiesOptions> = {},
): { readonly duties: OperatorDuties; readonly stop: () => Promise<void> } {
  const runtime = { clock, random: () => 0.5 };
  const kubernetes = new KubernetesClient(new MemoryApiTransport(api), runtime);
  const backend = new MemoryBackend({ ...runtime, server });
  const gate = new TurnGate({ clock, nextTurn: queueMicrotask });
  const duties = operatorDuties({
    ...DUTY_OPTIONS,
    ...runtime,
    kubernetes,
    backend,
    gate,
    globalByDefault: true,
    ...change,
  });
  const ended = new AbortController();
  const running = duties.all.map((duty) => duty.run(ended.signal));
  const stop = async (): Promise<void> => {
    ended.abort();
    await settle();
    await Promise.all(running);
    await kubernetes.close();
    await backend.close({ keepLeases: true });
  };
  return { duties, stop };
}
