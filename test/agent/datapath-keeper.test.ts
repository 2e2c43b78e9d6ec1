import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { DatapathKeeper } from '../../src/agent/datapath-keeper.ts';
import { createLog } from '../../src/agent/log.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

it('a datapath looks whether all is complete once a second, also where it learns twice that the first sync is over', async () => {
  const clock = new ManualClock();
  const ipcache = new IPCache();
  const nodes = new NodeManager({ ipcache, clock, clusterName: 'own', localNodeName: 'here' });
  const engines = { ipcache, nodes, services: new ServiceCache({ clusterName: 'own' }) };
  let looks = 0;
  const keeper = new DatapathKeeper({
    ...{ engines, clock, random: () => 0, nodeName: 'here', clusterName: 'own' },
    log: createLog('silent', 'text', { write: () => {} }),
    options: {
      ...{ pinFolder: join(tmpdir(), 'no-bpf-file-system'), routing: 'off', services: 'off', layout: '1.17' },
      dryRun: true,
    },
    blockers: () => {
      looks++;
      return ['a cluster that does not answer'];
    },
  });
  const step = keeper.step();
  await step.start({ signal: new AbortController().signal, progress: () => {} });
  keeper.firstSyncOver();
  keeper.firstSyncOver();
  looks = 0;
  for (let second = 0; second < 3; second++) clock.advance(1_000);
  expect(looks).toBe(3);
  step.stop?.();
  clock.advance(1_000);
  expect([looks, clock.pending]).toEqual([3, 0]);
});
