import { expect, it, onTestFinished } from 'vitest';
import { KubernetesFollower } from '../../src/agent/kubernetes-follower.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import type { LocalCluster } from '../../src/clustermesh/local-cluster.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { createLog } from '../../src/process/log.ts';
import { RecordedKubernetes } from '../../src/recording/recorded-kubernetes.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { until } from '../base/support/until.ts';
import { settle } from '../kvstore/support/settle.ts';
import { NO_INPUTS } from './support/agent-under-test.ts';
import { NO_KUBERNETES } from './support/kubernetes-options.ts';

it('keeps following Kubernetes while the local kvstore is connected and listed, but has lost its configuration (K 52)', async () => {
  const clock = new ManualClock();
  const ipcache = new IPCache();
  const resources = Object.fromEntries(
    ['nodes', 'ip', 'identities', 'services'].map((name) => [name, { keys: 0, synced: true }]),
  );
  let isReady = false;
  let changed = (): void => {};
  const own = {
    status: () => ({ connected: true, ready: isReady, resources }),
    onChange: (callback: () => void) => {
      changed = callback;
      return () => {};
    },
  } as unknown as LocalCluster;
  const recorded = new RecordedKubernetes(clock);
  const follower = new KubernetesFollower(
    { ...NO_INPUTS, kvstore: 'etcd' },
    {
      ...NO_KUBERNETES,
      watch: ['nodes'],
    },
    {
      clock,
      random: () => 0.5,
      onReject: () => {},
      onCause: () => {},
      clusterID: () => 1,
      restoredIdentities: () => [],
      log: createLog('silent', 'text', { write: () => {} }),
      gate: new TurnGate({ clock, nextTurn: setImmediate }),
      engines: {
        ipcache,
        nodes: new NodeManager({ ipcache, clock, clusterName: 'own', localNodeName: 'here' }),
        services: new ServiceCache({ clusterName: 'own' }),
      },
      recorded: () => recorded.transport,
      local: () => own,
    },
  );
  const step = follower.follow(() => {});
  onTestFinished(() => step.stop?.() as Promise<void>);
  await step.start({ signal: new AbortController().signal, progress: () => {} });
  const nodes = (): string | undefined => follower.status()?.handover['nodes'];
  await settle(20);
  changed();
  await settle(20);
  expect(nodes()).toBe('following');
  isReady = true;
  changed();
  await until('the kvstore has taken over', () => nodes() === 'resting');
});
