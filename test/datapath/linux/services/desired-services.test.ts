import { expect, it } from 'vitest';
import { DesiredServices } from '../../../../src/datapath/linux/services/desired-services.ts';
import { createService } from '../../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../../src/servicecache/service-cache.ts';

it('names the services that ask for affinity, as long as they do', () => {
  const cache = new ServiceCache({ clusterName: 'own' });
  cache.markSynced();
  const desired = new DesiredServices({ nodePort: { enabled: false }, nodeName: 'here' });
  cache.subscribe(desired.listener(() => {}));
  const id = (name: string) => ({ namespace: 'shop', name });
  const update = (name: string, sessionAffinitySeconds: number): void =>
    void cache.updateService(createService({ id: id(name), addressing: 'assigned', sessionAffinitySeconds }));
  for (const [name, seconds] of [
    ['a', 0],
    ['b', 30],
    ['c', 30],
    ['d', 30],
  ] as const)
    update(name, seconds);
  expect([...desired.withAffinity].sort()).toEqual(['shop/b', 'shop/c', 'shop/d']);
  update('a', 30);
  update('b', 0);
  cache.deleteService(id('c'));
  expect([...desired.withAffinity].sort()).toEqual(['shop/a', 'shop/d']);
});
