import { expect, it } from 'vitest';
import { identityKey } from '../../src/kvstore/codec/keys.ts';
import { identityCollection } from '../../src/kvstore/gc/collections.ts';
import type { KvstoreBackend } from '../../src/kvstore/session/backend.ts';
import { clusterIdentityRange, type NumericIdentity } from '../../src/model/numeric-identity.ts';

it('the keys of identities are examined over many turns (regressions: 250,000 keys, and 65,000 master keys, in one turn)', async () => {
  const range = clusterIdentityRange(0);
  const value = new TextEncoder().encode('k8s:app=web;');
  const listing = Array.from({ length: 20_000 }, (_, i) => ({
    key: identityKey((range.min + i) as NumericIdentity),
    value,
    modRevision: i + 1,
    createRevision: i + 1,
  }));
  const backend = { listPrefix: () => Promise.resolve(listing) } as unknown as KvstoreBackend;
  let turns = 0;
  const countTurn = (): void => {
    turns++;
    timer = setImmediate(countTurn);
  };
  let timer = setImmediate(countTurn);
  const stale = await identityCollection(backend, range).list(new AbortController().signal);
  clearImmediate(timer);
  expect(stale.size).toBe(20_000);
  expect(turns).toBeGreaterThan(7); // four for all keys, four for the master keys
});
