import { expect, it } from 'vitest';
import { connectDatapath } from '../../src/datapath/datapath.ts';
import { DeferredHandler } from '../nodemanager/support/deferred-handler.ts';
import { addresses, fresh, node } from '../nodemanager/support/node-fixtures.ts';
import { cacheOf, service, slice } from '../servicecache/support/scene.ts';
import {
  RecordingIPCacheListener,
  RecordingNodeHandler,
  RecordingServiceListener,
} from './support/recording.ts';

it('a datapath receives the current state, nodes first, then every change, until it is disconnected', () => {
  const { manager, ipcache } = fresh();
  const services = cacheOf();
  manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:10.0.0.1') }));
  services.updateService(service());
  services.updateEndpoints(slice('checkout', ['10.0.0.5']));
  const told: string[] = [];
  const off = connectDatapath(
    {
      nodes: new RecordingNodeHandler((record) => told.push(`node ${record.kind}`)),
      ipcache: new RecordingIPCacheListener((record) => {
        told.push(
          record.kind === 'change' ? `${record.change.kind} ${record.change.prefix}` : 'ipcache synced',
        );
      }),
      services: new RecordingServiceListener((record) => {
        told.push(record.kind === 'event' ? `service ${record.event.action}` : `services ${record.kind}`);
      }),
    },
    { nodes: manager, ipcache, services },
  );
  expect(told.splice(0)).toEqual([
    'node configuration',
    'node add',
    'node synced',
    'upsert 10.0.0.1/32',
    'ipcache synced',
    'service update',
    'services synced',
  ]);
  manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:10.0.0.2') }));
  services.markSynced();
  expect(told.splice(0)).toEqual([
    'upsert 10.0.0.2/32',
    'delete 10.0.0.1/32',
    'node update',
    'services inputs-complete',
  ]);
  off();
  manager.deleteAllNodes();
  expect(told).toEqual([]);
});

it('a datapath receives nothing for callbacks that it omits', () => {
  const { manager, ipcache } = fresh();
  const told: string[] = [];
  const nodes = new RecordingNodeHandler((record) => told.push(record.kind));
  connectDatapath({ nodes }, { nodes: manager, ipcache, services: cacheOf() });
  manager.nodeUpdated(node('a'));
  manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'kvstore' });
  expect(told).toEqual(['configuration', 'synced', 'add', 'delete']);
});

it('a datapath whose connection fails is not subscribed (regression: the parts before the failing one were)', () => {
  const { manager, ipcache } = fresh();
  const told: string[] = [];
  const nodes = new RecordingNodeHandler((record) => told.push(record.kind));
  const listener = new RecordingIPCacheListener((record) => told.push(record.kind));
  const services = Object.assign(cacheOf(), {
    subscribe: (): never => {
      throw new Error('no more listeners');
    },
  });
  expect(() => connectDatapath({ nodes, ipcache: listener }, { nodes: manager, ipcache, services })).toThrow(
    'no more listeners',
  );
  told.length = 0;
  manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:10.0.0.1') }));
  expect(told).toEqual([]);
});

it('a datapath with concurrency 1 is called for one node after the other (regression: the option was ignored)', async () => {
  const { manager, ipcache } = fresh();
  const engines = { nodes: manager, ipcache, services: cacheOf() };
  const nodes = new DeferredHandler();
  expect(() => connectDatapath({ nodes }, engines, { concurrency: 0 })).toThrow(
    'connectDatapath: options.concurrency must be at least 1, not 0',
  );
  connectDatapath({ nodes }, engines, { concurrency: 1 });
  for (const name of ['a', 'b']) manager.nodeUpdated(node(name));
  expect(nodes.take()).toEqual(['add a ']);
  await nodes.succeed('a');
  expect(nodes.take()).toEqual(['add b ']);
});
