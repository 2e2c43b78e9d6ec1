import fc from 'fast-check';
import { expect, it } from 'vitest';
import { recordDocuments } from '../../src/agent/recorded-documents.ts';
import { History } from '../../src/history/history.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../base/support/manual-clock.ts';
import { attributes, writerName } from '../ipcache/support/naive-ipcache.ts';
import { apply, history as operations } from '../ipcache/support/operations.ts';
import { H3_undoingEndsAtTheStart, H6_changesNoOutcome } from './support/laws.ts';
import { itemsOf } from './support/past-lists.ts';

const never = { cancel: (): void => {} };

it('H3: undoing the changes of a prefix from now on ends at the state of the start', async () => {
  await H3_undoingEndsAtTheStart(200);
});

it('H6: outcomes and listeners are the same with and without a history', () => {
  H6_changesNoOutcome(300);
});

it('lists the changes of all keys in the order of their sequence numbers', async () => {
  await fc.assert(
    fc.asyncProperty(operations, async (all) => {
      const clock = new ManualClock();
      const cache = new IPCache();
      const history = new History({ ipcache: cache, clock });
      history.start();
      for (const operation of all) {
        clock.advance(1);
        apply(cache, operation);
      }
      const records = await itemsOf(history.past.records());
      expect(records.map(({ sequence }) => sequence)).toEqual(records.map((_, i) => records.length - i));
      for (const record of records) {
        if (record.kind !== 'prefix') continue;
        const own = (await itemsOf(history.past.of(record.key))).find(
          ({ sequence }) => sequence === record.sequence,
        );
        expect(own).toMatchObject({ key: record.key, at: record.at, writer: record.writer });
        // Directly after the change, the claim is live.
        const moment = history.at(record.key, { sequence: record.sequence });
        const claim = moment?.claims.find(
          (one) => one.key === record.key && writerName(one) === writerName(record.writer),
        );
        expect(claim && attributes(claim)).toBe(record.after && attributes(record.after));
      }
    }),
    { numRuns: 100 },
  );
});

it('has no moment within a batch, even if time passes while it is recorded (I8)', () => {
  const clock = new ManualClock();
  const cache = new IPCache();
  // Each look at the time takes a millisecond.
  const slow = {
    now: () => {
      clock.advance(1);
      return clock.now();
    },
    wallTime: () => clock.wallTime(),
    after: () => never,
  };
  const history = new History({ ipcache: cache, clock: slow });
  const claims = [
    { source: 'kvstore', identity: 1 },
    { source: 'k8s', identity: 2 },
  ] as const;
  cache.upsert('10.0.0.1', claims[0]);
  history.start();
  for (const [add, remove] of [claims.toReversed(), claims]) {
    cache.batch(() => {
      if (add !== undefined) cache.upsert('10.0.0.1', add);
      if (remove !== undefined) cache.delete('10.0.0.1', remove);
    });
  }
  const { from } = history.retained;
  const counts = Array.from({ length: 12 }, (_, at) => history.at('10.0.0.1', from + at)?.claims.length);
  expect(new Set(counts)).toEqual(new Set([1]));
});

it('records the release of a restored claim only if its source has another one', async () => {
  const clock = new ManualClock();
  const cache = new IPCache();
  const restored = { source: 'restored', owner: 'baltic', identity: 7 } as const;
  const real = { source: 'kvstore', identity: 7 } as const;
  for (const key of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) cache.upsert(key, restored);
  cache.upsert('10.0.0.1', real);
  cache.upsert('10.0.0.2', { ...real, identity: 8 });
  const history = new History({ ipcache: cache, clock });
  history.start();
  clock.advance(1);
  cache.withdraw(restored);
  clock.advance(1);
  const records = await itemsOf(history.past.records());
  const keys = records.flatMap((record) => (record.kind === 'prefix' ? record.key : []));
  expect(keys.sort()).toEqual(['10.0.0.2', '10.0.0.3']);
  expect(history.at('10.0.0.3', WALL_TIME_AT_0)?.effective).toMatchObject({
    identity: 7,
    source: 'restored',
  });
  expect(history.at('10.0.0.1', WALL_TIME_AT_0)?.effective).toMatchObject({ identity: 7 });
  cache.upsert('10.0.0.1', restored); // again, and deleted: not linked to the omitted claims
  clock.advance(1);
  cache.delete('10.0.0.1', real);
  clock.advance(1);
  expect(history.at('10.0.0.1', WALL_TIME_AT_0 + 2)?.claims).toHaveLength(2);
});

it('records no change if a cluster returns after a restart as it was (regression: one for each prefix and node)', async () => {
  const clock = new ManualClock();
  const cache = new IPCache();
  const nodes = new NodeManager({ ipcache: cache, clock, clusterName: 'own', nodeName: 'here' });
  const node = {
    cluster: 'baltic',
    name: 'n1',
    addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }],
  } as const;
  const claim = { owner: 'baltic', identity: 7 } as const;
  const keys = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4'];
  nodes.nodeUpdated({ ...node, source: 'restored' });
  for (const key of keys) cache.upsert(key, { ...claim, source: 'restored' });
  for (const key of ['10.0.0.3', '10.0.0.4']) cache.upsert(key, { source: 'k8s', identity: 9 }); // visible
  const history = new History({ ipcache: cache, clock });
  history.start();
  recordDocuments(history, { nodes, services: new ServiceCache({ clusterName: 'own' }) });
  clock.advance(1000);
  nodes.nodeUpdated({ ...node, source: 'clustermesh' });
  cache.batch(() => cache.upsert('10.0.0.1', { ...claim, source: 'clustermesh' }));
  cache.upsert('10.0.0.2', { ...claim, identity: 8, source: 'clustermesh' }); // changed meanwhile
  cache.upsert('10.0.0.3', { ...claim, source: 'kvstore' }); // visible in place of another identity
  cache.upsert('10.0.0.4', { ...claim, source: 'clustermesh' }); // overruled (regression: recorded the release)
  cache.withdraw({ source: 'restored', owner: 'baltic' });
  clock.advance(1000);
  const records = await itemsOf(history.past.records());
  expect(records.flatMap((one) => (one.kind === 'mark' ? [] : one.key)).reverse()).toEqual([
    '10.0.0.2',
    '10.0.0.3',
    '10.0.0.2',
  ]);
  const uncertain = { certain: false, reason: 'cluster-incomplete', subjects: ['baltic'] };
  expect(history.at('10.0.0.1', WALL_TIME_AT_0 + 500)).toMatchObject({ effective: claim, ...uncertain });
  expect(history.at('192.168.0.1', WALL_TIME_AT_0 + 500)).toMatchObject({
    effective: { identity: 6 },
    ...uncertain,
  });
  expect(history.at('10.0.0.1', WALL_TIME_AT_0 + 1500)).toMatchObject({ effective: claim, certain: true });
});
