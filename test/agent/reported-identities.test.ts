import { expect, it } from 'vitest';
import { ReportedIdentities } from '../../src/agent/reported-identities.ts';
import { IdentityResolver } from '../../src/clustermesh/identity-resolver.ts';
import { IdentityCache } from '../../src/model/identity-cache.ts';
import type { NumericIdentity } from '../../src/model/numeric-identity.ts';

it('a cluster that leaves while others get identities changes the version (regression: a sum stayed equal)', () => {
  const caches = new Map([
    ['a', new IdentityCache()],
    ['b', new IdentityCache()],
  ]);
  const add = (cluster: string, id: number): unknown =>
    caches.get(cluster)?.upsert(id as NumericIdentity, [{ source: 'k8s', key: 'app', value: 'x' }]);
  const mesh = {
    get names() {
      return [...caches.keys()];
    },
    identitiesOf: (name: string) => caches.get(name),
    identitiesFor: () => [],
  };
  const identities = new IdentityResolver({ mesh });
  const reported = new ReportedIdentities({
    clusterName: 'own',
    followed: () => ({
      identities,
      identitiesOf: (name) => caches.get(name),
      clusterOf: () => undefined,
    }),
    kubernetes: () => undefined,
  });
  add('a', 0x1_0200);
  const before = reported.version;
  expect(reported.version).toBe(before);
  caches.delete('a');
  add('b', 0x2_0200);
  add('b', 0x2_0201);
  expect(reported.version).not.toBe(before);
});
