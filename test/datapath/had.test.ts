import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import type { DatapathEngines } from '../../src/datapath/datapath.ts';
import { connectDatapath } from '../../src/datapath/datapath.ts';
import type { IPCache } from '../../src/ipcache/ipcache.ts';
import type { IPCacheChange } from '../../src/ipcache/types.ts';
import type { NodeManager } from '../../src/nodemanager/node-manager.ts';
import type { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { apply as applyToPrefixes, history as prefixHistory } from '../ipcache/support/operations.ts';
import { DeferredHandler, settled } from '../nodemanager/support/deferred-handler.ts';
import { addresses, fresh, node } from '../nodemanager/support/node-fixtures.ts';
import { apply as applyToNodes, history as nodeHistory } from '../nodemanager/support/operations.ts';
import { apply as applyToServices, history as serviceHistory } from '../servicecache/support/operations.ts';
import { cacheOf, service, slice } from '../servicecache/support/scene.ts';
import { Device } from './support/device.ts';
import { RecordingNodeHandler } from './support/recording.ts';

const identity = { identity: 7, source: 'kvstore' } as const;

interface Engines extends DatapathEngines {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
}

function engines(): Engines {
  const { manager: nodes, ipcache } = fresh();
  return { ipcache, nodes, services: cacheOf() };
}

/** Returns the calls that a new device receives. */
function dump(all: Engines): readonly string[] {
  const device = new Device();
  connectDatapath(device.datapath, all)();
  return device.view();
}

/** Writes to any of the engines, in any order. */
const writes = fc
  .array(
    fc.oneof(
      prefixHistory.map((script) =>
        script.map(
          (op) =>
            ({ ipcache }: Engines) =>
              applyToPrefixes(ipcache, op),
        ),
      ),
      serviceHistory.map((script) =>
        script.map(
          (op) =>
            ({ services }: Engines) =>
              applyToServices(services, op),
        ),
      ),
      nodeHistory.map((script) =>
        script.map(
          (op) =>
            ({ nodes, ipcache }: Engines) =>
              applyToNodes({ manager: nodes, ipcache }, op),
        ),
      ),
    ),
    { maxLength: 2 },
  )
  .map((scripts) => scripts.flat());

function write(all: Engines, script: readonly ((all: Engines) => unknown)[]): void {
  for (const each of script) each(all);
}

describe('a device with earlier items', () => {
  it('equals the engines after synced, and receives no item that it already had', async () => {
    await fc.assert(
      fc.asyncProperty(writes, writes, writes, writes, async (earlier, before, meanwhile, after) => {
        const previous = new Device();
        const former = engines();
        write(former, earlier);
        connectDatapath(previous.datapath, former);

        const all = engines();
        write(all, before);
        const device = new Device(previous);
        const connection = connectDatapath(device.datapath, all, { previous: previous.content });
        write(all, meanwhile);
        all.services.markSynced();
        write(all, after);
        expect(await connection.synced).toBe('synced');
        expect(device.view()).toEqual(dump(all));
        write(all, earlier);
        expect(device.view()).toEqual(dump(all));
        expect(device.complaints).toEqual([]);
      }),
    );
  });

  it('keeps items that no source has until the inputs are complete: services are deleted first, nodes last', async () => {
    const former = engines();
    for (const name of ['equal', 'other', 'stale']) former.nodes.nodeUpdated(node(name, { bootID: '1' }));
    for (const ip of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) former.ipcache.upsert(ip, identity);
    former.services.updateService(service());
    former.services.updateEndpoints(slice('checkout', ['10.0.0.5']));
    const previous = new Device();
    connectDatapath(previous.datapath, former);

    const all = engines();
    all.nodes.nodeUpdated(node('equal', { bootID: '1' }));
    all.ipcache.upsert('10.0.0.1', identity);
    const device = new Device(previous);
    const { synced } = connectDatapath(device.datapath, all, { previous: previous.content });
    all.nodes.nodeUpdated(node('other', { bootID: '2' }));
    all.ipcache.upsert('10.0.0.2', { ...identity, identity: 8 });
    await settled();
    expect(device.takeTold()).toEqual(['change east/other', 'change 10.0.0.2/32']);
    all.services.markSynced();
    expect(device.takeTold()).toEqual([]);
    expect(await synced).toBe('synced');
    expect(device.takeTold()).toEqual(['delete shop/checkout', 'delete 10.0.0.3/32', 'delete east/stale']);
    expect(device.complaints).toEqual([]);
  });

  it('deletes 300,000 stale entries over many turns, but none that an engine reports between (regression: in one turn)', async () => {
    const all = engines();
    const turns: (() => void)[] = [];
    const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn: (turn) => turns.push(turn) });
    const prefixOf = (i: number): string => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}/32`;
    const former = engines();
    former.ipcache.upsert('10.0.0.1', identity);
    const previous = new Device();
    connectDatapath(previous.datapath, former);
    const entry = previous.prefixes.get('10.0.0.1/32');
    if (entry === undefined) throw new Error('no entry');
    const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    const had = Array.from({ length: 300_000 }, (_, i) => [prefixOf(i), entry] as const);
    const deleted = new Set<string>();
    let changed = 0;
    const onChanges = (changes: readonly IPCacheChange[]): void => {
      for (const { kind, prefix } of changes) if (kind === 'delete') deleted.add(prefix);
      changed += changes.length;
    };
    const { synced } = connectDatapath({ ipcache: { onChanges } }, all, { previous: { ipcache: had }, gate });
    all.services.markSynced();
    await turn();
    expect([turns.length, changed]).toEqual([1, 8 * 1024]); // a turn has eight slices
    all.ipcache.upsert(prefixOf(299_999), { ...identity, identity: 8 });
    let most = 0;
    for (let next = turns.shift(); next !== undefined; next = turns.shift()) {
      const before = changed;
      next();
      await turn();
      most = Math.max(most, changed - before);
    }
    expect(await synced).toBe('synced');
    expect([most, deleted.size, deleted.has(prefixOf(299_999))]).toEqual([8 * 1024, 299_999, false]);
  });

  it('receives nothing more if it is disconnected in the middle of the sweep', async () => {
    const turns: (() => void)[] = [];
    const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn: (turn) => turns.push(turn) });
    const all = engines();
    const former = engines();
    former.ipcache.upsert('10.0.0.1', identity);
    const previous = new Device();
    connectDatapath(previous.datapath, former);
    const entry = previous.prefixes.get('10.0.0.1/32');
    if (entry === undefined) throw new Error('no entry');
    const had = Array.from({ length: 20_000 }, (_, i) => [`10.1.${i >> 8}.${i & 255}/32`, entry] as const);
    let deleted = 0;
    const onChanges = (changes: readonly IPCacheChange[]): void => {
      deleted += changes.length;
      if (deleted > 3_000) connection();
    };
    const connection = connectDatapath({ ipcache: { onChanges } }, all, { previous: { ipcache: had }, gate });
    all.services.markSynced();
    await new Promise((resolve) => setImmediate(resolve));
    for (let next = turns.shift(); next !== undefined; next = turns.shift()) {
      next();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect([await connection.synced, deleted]).toEqual(['ended', 3 * 1024]);
  });

  it('receives writes of a callback of the sweep after the sweep, not within it', async () => {
    const all = engines();
    const told: string[] = [];
    let depth = 0;
    const former = engines();
    for (const key of ['10.0.0.1', '10.0.0.2']) former.ipcache.upsert(key, identity);
    const previous = new Device();
    connectDatapath(previous.datapath, former);
    const connection = connectDatapath(
      {
        ipcache: {
          onChanges(changes) {
            depth++;
            told.push(...changes.map(({ kind, prefix }) => `${depth} ${kind} ${prefix}`));
            if (changes[0]?.kind === 'delete') all.ipcache.upsert('10.0.0.1', identity);
            depth--;
          },
        },
      },
      all,
      { previous: previous.content },
    );
    all.services.markSynced();
    await connection.synced;
    expect(told).toEqual(['1 delete 10.0.0.1/32', '1 delete 10.0.0.2/32', '1 upsert 10.0.0.1/32']);
  });

  it('receives nothing after a fault in the sweep, as after one in the replay', async () => {
    const former = engines();
    former.ipcache.upsert('10.0.0.1', identity);
    const previous = new Device();
    connectDatapath(previous.datapath, former);
    const all = engines();
    const faults: unknown[] = [];
    const told: string[] = [];
    const fault = new Error('no such map');
    const { synced } = connectDatapath(
      {
        ipcache: {
          onChanges: ([change]) => {
            told.push(change?.prefix ?? '');
            all.ipcache.upsert('10.0.0.8', identity); // is delivered after the sweep
            throw fault;
          },
          onEnded: () => void told.push('ended'),
        },
      },
      all,
      { previous: previous.content, onListenerFault: (error) => faults.push(error) },
    );
    all.services.markSynced();
    expect(await synced).toBe('ended');
    all.ipcache.upsert('10.0.0.9', identity);
    expect([told, faults]).toEqual([['10.0.0.1/32', 'ended'], [fault]]);
  });

  it('receives no end if it disconnects itself in the sweep and then throws', async () => {
    const former = engines();
    former.ipcache.upsert('10.0.0.1', identity);
    const previous = new Device();
    connectDatapath(previous.datapath, former);
    const all = engines();
    const faults: unknown[] = [];
    const told: string[] = [];
    const fault = new Error('no such map');
    const connection = connectDatapath(
      {
        ipcache: {
          onChanges: ([change]) => {
            told.push(change?.prefix ?? '');
            connection();
            throw fault;
          },
          onEnded: () => void told.push('ended'),
        },
      },
      all,
      { previous: previous.content, onListenerFault: (error) => faults.push(error) },
    );
    all.services.markSynced();
    await connection.synced;
    expect([told, faults]).toEqual([['10.0.0.1/32'], [fault]]);
  });

  it.each([
    ['is disconnected', (_all: Engines, disconnect: () => void) => disconnect()],
    [
      'loses the node manager',
      ({ nodes, services }: Engines) => {
        nodes.close();
        services.markSynced();
      },
    ],
  ] as const)('that %s first is not synced, and nothing is deleted', async (_what, happen) => {
    const previous = new Device();
    const former = engines();
    former.nodes.nodeUpdated(node('a'));
    connectDatapath(previous.datapath, former);
    const all = engines();
    const device = new Device(previous);
    const connection = connectDatapath(device.datapath, all, { previous: previous.content });
    happen(all, connection);
    expect(await connection.synced).toBe('ended');
    expect(device.takeTold()).toEqual([]);
  });
});

describe('a handler of nodes', () => {
  it('is synced once it received each known node, and waits for none that fails', async () => {
    const { manager } = fresh();
    for (const name of ['a', 'b']) manager.nodeUpdated(node(name));
    const handler = Object.assign(new DeferredHandler(), { onSynced: () => handler.started.push('synced') });
    manager.subscribe(handler, { concurrency: 1 });
    expect(handler.take()).toEqual(['add a ']);
    await handler.fail('a');
    expect(handler.take()).toEqual(['add b ']);
    manager.nodeUpdated(node('c'));
    await handler.succeed('b');
    expect(handler.take()).toEqual(['synced', 'add c ']);
  });

  it('that throws at every node is synced nevertheless', () => {
    const { manager } = fresh();
    manager.nodeUpdated(node('a'));
    let synced = 0;
    const fail = (): never => {
      throw new Error('no such device');
    };
    manager.subscribe({ nodeAdd: fail, nodeUpdate: fail, nodeDelete: fail, onSynced: () => synced++ });
    expect(synced).toBe(1);
  });

  it('keeps its item of a node that is held back, until that node is announced', () => {
    const told: string[] = [];
    const former = fresh();
    const heldBack = node('a', { addresses: addresses('InternalIP:10.0.0.1') });
    former.manager.nodeUpdated(heldBack);
    const { manager, ipcache } = fresh();
    ipcache.upsert('10.0.0.1', { identity: 5, source: 'local' });
    manager.nodeUpdated(heldBack);
    const handler = new RecordingNodeHandler(({ kind }) => told.push(kind));
    manager.subscribe(handler, { previous: former.manager.nodes() });
    ipcache.delete('10.0.0.1', { source: 'local' });
    expect(told).toEqual(['configuration', 'synced']);
  });

  it('that cannot delete a stale node is synced nevertheless, and retries', async () => {
    const all = engines();
    const former = fresh();
    former.manager.nodeUpdated(node('stale'));
    const handler = new DeferredHandler();
    const nodes = [...former.manager.nodes()];
    const { synced } = connectDatapath({ nodes: handler }, all, { previous: { nodes } });
    all.services.markSynced();
    await settled();
    expect(handler.take()).toEqual(['delete stale ']);
    await handler.fail('stale');
    expect(await synced).toBe('synced');
    expect(all.nodes.status().handlers).toMatchObject([{ pending: 1, failing: [{ call: 'delete' }] }]);
  });

  it('that is disconnected while it deletes a stale node is not synced', async () => {
    const all = engines();
    const former = fresh();
    former.manager.nodeUpdated(node('stale'));
    const handler = new DeferredHandler();
    const connection = connectDatapath({ nodes: handler }, all, {
      previous: { nodes: former.manager.nodes() },
    });
    all.services.markSynced();
    await settled();
    expect(handler.running).toEqual(['delete stale ']);
    connection();
    expect(await connection.synced).toBe('ended');
  });

  it('that fails to change an item receives it again before anything else', async () => {
    const { manager, clock } = fresh();
    const former = fresh();
    former.manager.nodeUpdated(node('a', { bootID: '1' }));
    const handler = new DeferredHandler();
    manager.subscribe(handler, { previous: former.manager.nodes() });
    manager.nodeUpdated(node('a', { bootID: '2' }));
    await handler.fail('a');
    manager.nodeUpdated(node('a', { bootID: '3' }));
    clock.advance(60_000);
    await handler.succeed('a');
    expect(handler.take()).toEqual(['update a 1→2', 'update a 2→1', 'update a 1→3']);
  });
});
