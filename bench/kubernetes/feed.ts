import { processGate } from '../../src/base/node/process-gate.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { KubernetesFeed } from '../../src/k8s/feed/kubernetes-feed.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { clientOf } from './access.ts';
import type { Follow } from './following.ts';

/** Follows into the engines, like the agent. */
export const follow: Follow = (task) => {
  const ipcache = new IPCache();
  const services = new ServiceCache({ clusterName: 'own' });
  const gate = processGate(systemClock);
  const feed = new KubernetesFeed({
    source: clientOf(task),
    clusterName: 'own',
    nodeName: 'here',
    clock: systemClock,
    gate,
    ipcache,
    services,
    identities: 'none',
  });
  return {
    sync: (onIP) => {
      ipcache.subscribe({
        onChanges: (changes) => {
          for (const { prefix, new: now } of changes) if (now !== undefined) onIP(prefix.replace('/32', ''));
        },
      });
      return new Promise((resolve) => {
        const end = feed.onChange(() => {
          if (!feed.synced) return;
          end();
          resolve();
        });
        feed.start();
      });
    },
    counts: () => {
      const count = (name: string): number =>
        feed.status().kinds.find((kind) => kind.name === name)?.objects ?? 0;
      return [count('ciliumendpoints'), count('services'), count('endpointslices')];
    },
  };
};
