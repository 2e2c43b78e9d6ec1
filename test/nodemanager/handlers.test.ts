import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { DeliveryQueue } from '../../src/base/delivery-queue.ts';
import { CallbackGuard } from '../../src/base/guard.ts';
import { HANDLER_BACKOFF } from '../../src/nodemanager/handler-calls.ts';
import { HandlerFeed } from '../../src/nodemanager/handler-feed.ts';
import type { HandlerFault } from '../../src/nodemanager/node-handler.ts';
import { parseNode } from '../../src/nodemanager/parse-node.ts';
import { growthPerItem } from '../base/support/cpu-time.ts';
import { WALL_TIME_AT_0 } from '../base/support/manual-clock.ts';
import { settle } from '../kvstore/support/settle.ts';
import { ConfiguredHandler, DeferredHandler, settled } from './support/deferred-handler.ts';
import { addresses, fresh, node } from './support/node-fixtures.ts';

const gone = (name: string) => ({ cluster: 'east', name, source: 'kvstore' }) as const;

describe('an asynchronous handler', () => {
  it('is called one at a time for a node; changes during a call are merged, with the right old node', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    for (const bootID of ['1', '2', '3']) manager.nodeUpdated(node('a', { bootID }));
    expect(handler.running).toEqual(['add a 1']);
    await handler.succeed();
    expect(handler.running).toEqual(['update a 1→3']);
    manager.nodeUpdated(node('a', { bootID: '4' }));
    await handler.succeed();
    await handler.succeed();
    expect(handler.take()).toEqual(['add a 1', 'update a 1→3', 'update a 3→4']);
  });

  it('receives a signal of its own in each call, so that abort listeners of many calls do not accumulate', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    for (const name of ['a', 'b']) manager.nodeUpdated(node(name));
    const [ofA, ofB] = handler.signals;
    await handler.succeed();
    manager.nodeUpdated(node('a', { bootID: '2' }));
    const signals = [ofA, ...handler.signals];
    expect(signals).toHaveLength(3);
    expect(new Set(signals).size).toBe(3);
    manager.close();
    expect(signals.map((signal) => signal?.aborted)).toEqual([false, true, true]);
    expect(ofB?.aborted).toBe(true);
  });

  it('is measured: each call until its promise settles, or it returns or throws', async () => {
    const { manager, clock } = fresh();
    const sums = (): readonly (number | undefined)[] => {
      const [status] = manager.status().handlers;
      return [status?.durations.counts.reduce((a, b) => a + b), status?.durations.sumMs];
    };
    const deferred = new DeferredHandler();
    const unsubscribe = manager.subscribe(deferred);
    manager.nodeUpdated(node('a'));
    clock.advance(30);
    expect(sums()).toEqual([0, 0]);
    await deferred.succeed();
    expect(sums()).toEqual([1, 30]);
    manager.nodeUpdated(node('b'));
    clock.advance(5);
    await deferred.fail();
    expect(sums()).toEqual([2, 35]);
    unsubscribe();
    manager.subscribe({
      nodeAdd: ({ name }) => {
        clock.advance(7);
        if (name === 'b') throw new Error('no netlink');
      },
      nodeUpdate: () => {},
      nodeDelete: () => {},
    });
    expect(sums()).toEqual([2, 14]);
  });

  it('does not receive a node that was added and deleted before its turn', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler, { concurrency: 1 });
    manager.nodeUpdated(node('a'));
    manager.nodeUpdated(node('b'));
    manager.nodeDeleted(gone('b'));
    await handler.succeed();
    expect(handler.take()).toEqual(['add a ']);
    expect(manager.status().handlers[0]).toMatchObject({ pending: 0, running: 0 });
  });

  it('does not receive a change that was undone before its turn', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.nodeUpdated(node('a', { bootID: '1' }));
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '2' }));
    manager.nodeUpdated(node('a', { bootID: '1' }));
    await handler.succeed();
    expect(handler.take()).toEqual(['add a 1']);
  });

  it('receives a node that is deleted and added again as two calls, or as an update before the delete starts', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    manager.nodeDeleted(gone('a'));
    manager.nodeUpdated(node('a', { bootID: '2' }));
    await handler.succeed();
    expect(handler.take()).toEqual(['add a 1', 'update a 1→2']);
    await handler.succeed();
    manager.nodeDeleted(gone('a'));
    manager.nodeUpdated(node('a', { bootID: '3' }));
    await handler.succeed();
    expect(handler.take()).toEqual(['delete a 2', 'add a 3']);
  });

  it('has no more concurrent calls than configured, and takes nodes in turn', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    for (const name of ['a', 'b', 'c', 'd']) manager.nodeUpdated(node(name));
    manager.subscribe(handler, { concurrency: 2 });
    expect(handler.running).toEqual(['add a ', 'add b ']);
    await handler.succeed('b');
    expect(handler.running).toEqual(['add a ', 'add c ']);
    await handler.succeed('a');
    await handler.succeed('c');
    expect(handler.running).toEqual(['add d ']);
  });

  it('does not delay other nodes or other handlers', async () => {
    const { manager } = fresh();
    const [slow, quick] = [new DeferredHandler(), new DeferredHandler()];
    manager.subscribe(slow);
    manager.subscribe(quick);
    manager.nodeUpdated(node('a'));
    await quick.succeed('a');
    manager.nodeUpdated(node('b'));
    expect(slow.running).toEqual(['add a ', 'add b ']);
    expect(quick.running).toEqual(['add b ']);
  });
});

describe('a handler of many nodes', () => {
  it('is called for 160,000 nodes at a constant cost per node (regression: a new iterator of a Set for each)', async () => {
    const { clock } = fresh();
    const some = parseNode(node('a'), () => {});
    const growth = await growthPerItem(10_000, async (count) => {
      let left = count;
      const feed = new HandlerFeed(
        {
          nodeAdd: () => Promise.resolve().then(() => void left--),
          nodeUpdate: () => {},
          nodeDelete: () => {},
        },
        {
          clock,
          random: () => 0,
          onFault: () => {},
          onProgress: () => {},
          concurrency: 16,
          deliveries: new DeliveryQueue(new CallbackGuard()),
        },
      );
      for (let i = 0; i < count; i++) feed.change(`node-${i}`, undefined, some, i);
      await settle();
      expect(left).toBe(0);
    });
    expect(growth).toBeLessThan(6);
  });
});

describe('a failed call', () => {
  it('is retried with exponential backoff and full jitter, on the given clock', () => {
    const faults: HandlerFault[] = [];
    const { manager, clock } = fresh({ random: () => 0.5, onHandlerFault: (fault) => faults.push(fault) });
    let attempts = 0;
    manager.subscribe({
      nodeAdd: () => {
        attempts++;
        throw new Error('no netlink');
      },
      nodeUpdate: () => {},
      nodeDelete: () => {},
    });
    manager.nodeUpdated(node('a'));
    for (let i = 0; i < 12; i++) clock.advance(faults.at(-1)?.retryInMs ?? 0);
    expect(attempts).toBe(13);
    const { baseMs, capMs } = HANDLER_BACKOFF;
    const expected = faults.map((_, i) => 0.5 * Math.min(capMs, baseMs * 2 ** i));
    expect(faults.map(({ retryInMs }) => retryInMs)).toEqual(expected);
    expect(expected.at(-1)).toBe(30_000);
    expect(clock.pending).toBe(1);
  });

  it('is retried with the current node, and immediately when the node changes', async () => {
    const { manager, clock } = fresh();
    const handler = new DeferredHandler();
    manager.nodeUpdated(node('a', { bootID: '1' }));
    manager.subscribe(handler);
    await handler.succeed();
    manager.nodeUpdated(node('a', { bootID: '2' }));
    await handler.fail();
    handler.take();
    manager.nodeUpdated(node('a', { bootID: '3' }));
    expect(handler.take(), 'undone without waiting').toEqual(['update a 2→1']);
    await handler.succeed();
    expect(handler.take()).toEqual(['update a 1→3']);
    await handler.succeed();
    expect(manager.status().handlers[0]).toMatchObject({ pending: 0, faults: 1, failing: [] });
    expect(clock.pending).toBe(0);
  });

  it('of a delete succeeds before the node is added again', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.nodeUpdated(node('a', { bootID: '1' }));
    manager.subscribe(handler);
    await handler.succeed();
    manager.nodeDeleted(gone('a'));
    await handler.fail();
    manager.nodeUpdated(node('a', { bootID: '2' }));
    await handler.succeed();
    await handler.succeed();
    expect(handler.take()).toEqual(['add a 1', 'delete a 1', 'delete a 1', 'add a 2']);
  });

  it('of an add is undone if the node is deleted', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    await handler.fail();
    manager.nodeDeleted(gone('a'));
    await handler.succeed();
    expect(handler.take()).toEqual(['add a 1', 'delete a 1']);
    expect(manager.status().handlers[0]?.pending).toBe(0);
  });

  it('of an update is corrected if the node is the earlier one again', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    await handler.succeed();
    manager.nodeUpdated(node('a', { bootID: '2' }));
    await handler.fail();
    manager.nodeUpdated(node('a', { bootID: '1' }));
    await handler.succeed();
    expect(handler.take()).toEqual(['add a 1', 'update a 1→2', 'update a 2→1']);
    expect(manager.status().handlers[0]?.pending).toBe(0);
  });

  it('appears in the status of its handler and in the explanation of its node', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a'));
    await handler.fail();
    const error = { code: 'Error', message: 'no netlink', at: WALL_TIME_AT_0 };
    expect(manager.status().handlers).toMatchObject([
      {
        name: 'deferred',
        pending: 1,
        running: 0,
        faults: 1,
        failing: [{ call: 'add', node: 'east/a', error, failures: 1 }],
      },
    ]);
    expect(manager.explain('east/a')?.handlers).toEqual([
      { handler: 'deferred', applied: false, call: 'add', failures: 1, error },
    ]);
  });

  it.each([
    [
      'throws',
      (error: unknown): void => {
        throw error;
      },
    ],
    ['rejects with', (error: unknown) => Promise.reject(error)],
  ] as const)(
    'is retried if it %s a value without a text (regression: never, or the process ended)',
    async (_, fail) => {
      const { manager, clock } = fresh();
      const added: string[] = [];
      const handler = {
        nodeAdd: ({ name }: { readonly name: string }): void | Promise<void> => {
          if (added.push(name) === 1) return fail(Object.create(null));
        },
        nodeUpdate: () => {},
        nodeDelete: () => {},
      };
      manager.subscribe(handler);
      manager.nodeUpdated(node('a'));
      await settle();
      expect(manager.status().handlers).toMatchObject([
        { pending: 1, failing: [{ error: { message: '{}' } }] },
      ]);
      clock.advance(HANDLER_BACKOFF.capMs);
      expect(added).toEqual(['a', 'a']);
    },
  );

  it('has no further effect if its report fails, too, which is counted', () => {
    const { manager, clock } = fresh({
      onHandlerFault: () => {
        throw new Error('the log is full');
      },
    });
    let attempts = 0;
    manager.subscribe({
      nodeAdd: () => {
        if (++attempts === 1) throw new Error('no netlink');
      },
      nodeUpdate: () => {},
      nodeDelete: () => {},
    });
    expect(manager.nodeUpdated(node('a'))).toBe('applied');
    clock.advance(100);
    expect(attempts).toBe(2);
    expect(manager.status().callbackFaults).toBe(1);
  });
});

describe('a stop', () => {
  it('aborts running calls, ignores their results, and starts no others', async () => {
    const { manager, clock } = fresh();
    const handler = new DeferredHandler();
    const unsubscribe = manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    manager.nodeUpdated(node('a', { bootID: '2' }));
    const [signal] = handler.signals;
    expect(signal?.aborted).toBe(false);
    unsubscribe();
    expect(signal?.aborted).toBe(true);
    await handler.fail();
    clock.advance(120_000);
    expect(handler.take()).toEqual(['add a 1']);
    expect(clock.pending).toBe(0);
  });

  it('a handler may unsubscribe during a notification', () => {
    const { manager } = fresh();
    let told = 0;
    const unsubscribe = manager.subscribe({
      nodeAdd: () => {
        told++;
        unsubscribe();
      },
      nodeUpdate: () => {},
      nodeDelete: () => {},
    });
    manager.nodeUpdated(node('a'));
    manager.nodeUpdated(node('b'));
    expect(told).toBe(1);
  });

  it('a report of a failure may end the subscription: no timer is left (regression: one was)', () => {
    for (const configuration of [true, false]) {
      let unsubscribe: (() => void) | undefined;
      const { manager, clock } = fresh({ onHandlerFault: () => unsubscribe?.() });
      const fail = (): void => {
        throw new Error('no netlink');
      };
      unsubscribe = manager.subscribe({
        nodeAdd: fail,
        nodeUpdate: fail,
        nodeDelete: fail,
        nodeConfigurationChanged: () => {
          if (configuration && unsubscribe !== undefined) fail();
        },
      });
      if (configuration) manager.configure({ encryption: true });
      else manager.nodeUpdated(node('a'));
      expect(manager.status().handlers).toEqual([]);
      expect(clock.pending).toBe(0);
    }
  });

  it('closed-nodemanager: a handler that subscribes to a closed manager is not called', () => {
    const { manager } = fresh();
    manager.nodeUpdated(node('a'));
    manager.close();
    const calls: string[] = [];
    manager.subscribe({
      nodeAdd: () => void calls.push('add'),
      nodeUpdate: () => {},
      nodeDelete: () => {},
      nodeConfigurationChanged: () => void calls.push('configuration'),
    });
    expect(calls).toEqual([]);
    expect(manager.status().handlers).toEqual([]);
  });

  it('a handler that subscribes while another one closes the manager is not called', () => {
    const { manager } = fresh();
    const calls: string[] = [];
    const late = { nodeAdd: () => void calls.push('add'), nodeUpdate: () => {}, nodeDelete: () => {} };
    manager.subscribe({
      nodeAdd: () => {
        manager.subscribe(late);
        manager.close();
      },
      nodeUpdate: () => {},
      nodeDelete: () => {},
    });
    manager.nodeUpdated(node('a'));
    expect(calls).toEqual([]);
    expect(manager.status().handlers).toEqual([]);
  });

  it('a handler that is subscribed twice by one callback has one subscription (regression: two)', () => {
    const { manager } = fresh();
    const calls: string[] = [];
    const late = { nodeAdd: () => void calls.push('add'), nodeUpdate: () => {}, nodeDelete: () => {} };
    manager.subscribe({
      nodeAdd: () => {
        manager.subscribe(late);
        manager.subscribe(late);
      },
      nodeUpdate: () => {},
      nodeDelete: () => {},
    });
    manager.nodeUpdated(node('a'));
    expect(calls).toEqual(['add']);
    expect(manager.status().handlers).toHaveLength(2);
  });

  it('with deleteOnClose tells each handler to delete its nodes, once', async () => {
    const { manager, clock } = fresh({ deleteOnClose: true });
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    await handler.succeed();
    manager.nodeUpdated(node('a', { bootID: '2' }));
    manager.nodeUpdated(node('b'));
    handler.take();
    manager.close();
    expect(handler.take(), 'the calls of a and b are running').toEqual([]);
    await handler.fail('a');
    expect(handler.take()).toEqual(['delete a 1']);
    await handler.fail('a');
    clock.advance(120_000);
    expect(handler.take()).toEqual([]);
  });
});

describe('close with deleteOnClose', () => {
  it.each(['succeed', 'fail'] as const)(
    'deletes a node whose first add is running, after the add: %s',
    async (end) => {
      const { manager } = fresh({ deleteOnClose: true });
      const handler = new DeferredHandler();
      manager.subscribe(handler);
      manager.nodeUpdated(node('a', { bootID: '1' }));
      manager.close();
      expect(handler.take()).toEqual(['add a 1']);
      await handler[end]();
      expect(handler.take()).toEqual(['delete a 1']);
    },
  );

  it('deletes a node that was deleted while its first add was running', async () => {
    const { manager } = fresh({ deleteOnClose: true });
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    manager.nodeDeleted(node('a'));
    manager.close();
    await handler.succeed();
    expect(handler.take()).toEqual(['add a 1', 'delete a 1']);
  });

  it('does not repeat a delete that is running and succeeds', async () => {
    const { manager } = fresh({ deleteOnClose: true });
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    await handler.succeed();
    manager.nodeDeleted(node('a'));
    manager.close();
    await handler.succeed();
    expect(handler.take()).toEqual(['add a 1', 'delete a 1']);
  });

  it('deletes a node whose add has failed, because a part of it may exist', async () => {
    const { manager } = fresh({ deleteOnClose: true });
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    await handler.fail();
    handler.take();
    manager.close();
    expect(handler.take()).toEqual(['delete a 1']);
  });
});

describe('whenApplied', () => {
  const outcomeOf = async (promise: Promise<string>): Promise<string> =>
    Promise.race([promise, settled().then(() => 'pending')]);

  it('resolves immediately if nothing is pending', async () => {
    const { manager } = fresh();
    manager.subscribe({ nodeAdd: () => {}, nodeUpdate: () => {}, nodeDelete: () => {} });
    manager.nodeUpdated(node('a'));
    expect(await outcomeOf(manager.whenApplied())).toBe('applied');
  });

  it('waits for every handler, up to a revision and not beyond', async () => {
    const { manager } = fresh();
    const [one, two] = [new DeferredHandler(), new DeferredHandler()];
    manager.subscribe(one);
    manager.subscribe(two);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    const first = manager.whenApplied(manager.revision);
    manager.nodeUpdated(node('a', { bootID: '2' }));
    const second = manager.whenApplied();
    await one.succeed();
    expect(await outcomeOf(first)).toBe('pending');
    await two.succeed();
    expect(await outcomeOf(first)).toBe('applied');
    expect(await outcomeOf(second)).toBe('pending');
    await one.succeed();
    await two.succeed();
    expect(await outcomeOf(second)).toBe('applied');
  });

  it('waits for one node only if one is named', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a'));
    manager.nodeUpdated(node('b'));
    const b = manager.whenApplied('east/b');
    await handler.succeed('b');
    expect(await outcomeOf(b)).toBe('applied');
    expect(await outcomeOf(manager.whenApplied('east/a'))).toBe('pending');
  });

  it('waits for failing calls until they succeed, including a delete in between', async () => {
    const { manager, clock } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    await handler.fail();
    manager.nodeUpdated(node('a', { bootID: '2' }));
    const applied = manager.whenApplied();
    await handler.succeed(); // the delete of what the failed call may have left
    expect(await outcomeOf(applied)).toBe('pending');
    await handler.fail();
    clock.advance(60_000);
    await handler.succeed();
    expect(await outcomeOf(applied)).toBe('applied');
    expect(handler.take()).toEqual(['add a 1', 'delete a 1', 'add a 2', 'add a 2']);
  });

  it('does not wait for unsubscribed handlers, nor for nodes that are held back', async () => {
    const { manager, ipcache } = fresh();
    const unsubscribe = manager.subscribe(new DeferredHandler());
    manager.nodeUpdated(node('a'));
    const applied = manager.whenApplied();
    unsubscribe();
    expect(await outcomeOf(applied)).toBe('applied');
    ipcache.upsert('10.0.0.1', { identity: 1000, source: 'local' });
    manager.nodeUpdated(node('b', { addresses: addresses('InternalIP:10.0.0.1') }));
    expect(await outcomeOf(manager.whenApplied())).toBe('applied');
  });

  it('resolves to closed if the call that it follows closes the manager (regression: to applied)', async () => {
    const { manager } = fresh();
    let applied: Promise<unknown> | undefined;
    manager.subscribe({
      nodeAdd: () => {
        applied = manager.whenApplied();
        manager.close();
      },
      nodeUpdate: () => {},
      nodeDelete: () => {},
    });
    manager.nodeUpdated(node('a'));
    expect(await applied).toBe('closed');
  });

  it('resolves to aborted if the signal fires first, and then leaves no listener', async () => {
    const { manager } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a'));
    const abort = new AbortController();
    const { signal } = abort;
    const applied = manager.whenApplied(manager.revision, signal);
    expect(await outcomeOf(manager.whenApplied('east/a', AbortSignal.abort()))).toBe('aborted');
    expect(await outcomeOf(applied)).toBe('pending');
    const later = manager.whenApplied();
    abort.abort();
    expect(await outcomeOf(applied)).toBe('aborted');
    const unused = new AbortController();
    const beforeApplied = manager.whenApplied('east/a', unused.signal);
    expect(getEventListeners(unused.signal, 'abort')).toHaveLength(1);
    await handler.succeed();
    expect(await outcomeOf(beforeApplied)).toBe('applied');
    expect(await outcomeOf(later)).toBe('applied');
    expect(getEventListeners(unused.signal, 'abort')).toHaveLength(0);
  });

  it('resolves to closed if the manager is closed first', async () => {
    const { manager } = fresh();
    manager.subscribe(new DeferredHandler());
    manager.nodeUpdated(node('a'));
    const applied = manager.whenApplied();
    manager.close();
    expect(await outcomeOf(applied)).toBe('closed');
    expect(await outcomeOf(manager.whenApplied())).toBe('closed');
  });
});

describe('the configuration', () => {
  it('is delivered before the first node, and again when it has changed', async () => {
    const { manager } = fresh();
    const handler = new ConfiguredHandler();
    manager.nodeUpdated(node('a'));
    manager.subscribe(handler);
    expect(handler.take()).toEqual(['configuration', 'add a ']);
    await handler.succeed();
    manager.configure({ encryption: true });
    expect(handler.take()).toEqual(['configuration']);
    expect(handler.configurations.map(({ encryption }) => encryption)).toEqual([false, true]);
  });

  it('changes the claims of nodes in the ipcache', () => {
    const { manager, ipcache } = fresh();
    manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:10.0.0.1'), encryptionKey: 3 }));
    expect(ipcache.get('10.0.0.1')).toMatchObject({ hostIP: undefined, encryptKey: 0 });
    manager.configure({ encryption: true, nodeEncryption: true });
    expect(ipcache.get('10.0.0.1')).toMatchObject({ hostIP: '10.0.0.1', encryptKey: 3 });
    manager.configure({ encryption: false, remoteNodeIdentities: false });
    expect(ipcache.size).toBe(0);
  });

  it('keeps the settings that are omitted or undefined', () => {
    const { manager } = fresh({ encryption: undefined, underlay: 'ipv6' });
    const before = manager.configuration;
    expect(before).toMatchObject({ remoteNodeIdentities: true, encryption: false, underlay: 'ipv6' });
    manager.configure({ remoteNodeIdentities: undefined, underlay: undefined, encryption: true });
    expect(manager.configuration).toEqual({ ...before, encryption: true });
  });

  it('waits until no call runs; nodes wait until it has succeeded', async () => {
    const { manager, clock } = fresh();
    const handler = new ConfiguredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a'));
    handler.broken = true;
    manager.configure({ hostFirewall: true });
    manager.nodeUpdated(node('b'));
    expect(handler.take()).toEqual(['configuration', 'add a ']);
    await handler.succeed();
    expect(handler.take()).toEqual(['configuration']);
    expect(manager.status().handlers[0]?.failing).toMatchObject([{ call: 'configuration', node: undefined }]);
    handler.broken = false;
    clock.advance(60_000);
    expect(handler.take()).toEqual(['configuration', 'add b ']);
  });
});

describe('a failed configuration', () => {
  it('is replaced by the next one immediately, without the rest of its backoff', () => {
    const { manager } = fresh();
    const handler = new ConfiguredHandler();
    manager.subscribe(handler);
    handler.broken = true;
    manager.configure({ hostFirewall: true });
    handler.broken = false;
    handler.take();
    manager.configure({ encryption: true });
    expect(handler.take()).toEqual(['configuration']);
    expect(manager.status().handlers[0]?.failing).toEqual([]);
  });
});

describe('background validation', () => {
  it('calls for every node once in base × ln(1 + n), spread evenly', () => {
    const { manager, clock } = fresh();
    const at: number[] = [];
    const asked: string[] = [];
    manager.subscribe({
      nodeAdd: () => {},
      nodeUpdate: () => {},
      nodeDelete: () => {},
      nodeValidateImplementation: ({ name }) => {
        asked.push(name);
        at.push(clock.now());
      },
    });
    const names = Array.from({ length: 100 }, (_, i) => `n${i}`);
    for (const name of names) manager.nodeUpdated(node(name));
    const stop = manager.startValidation();
    const interval = manager.clusterSizeDependantInterval(60_000);
    clock.advance(interval);
    expect(new Set(asked)).toEqual(new Set(names));
    expect(asked).toHaveLength(100);
    const gaps = at.slice(1).map((time, i) => time - (at[i] ?? 0));
    expect(Math.max(...gaps) - Math.min(...gaps)).toBeLessThan(1);
    clock.advance(interval);
    expect(asked).toHaveLength(200);
    stop();
    clock.advance(interval);
    expect(asked).toHaveLength(200);
    expect(clock.pending).toBe(0);
  });

  it('calls for several nodes per turn if there are many, and for none if there are none', () => {
    const { manager, clock } = fresh();
    let asked = 0;
    manager.subscribe({
      nodeAdd: () => {},
      nodeUpdate: () => {},
      nodeDelete: () => {},
      nodeValidateImplementation: () => {
        asked++;
      },
    });
    manager.startValidation(1000);
    clock.advance(10_000);
    expect(asked).toBe(0);
    for (let i = 0; i < 1000; i++) manager.nodeUpdated(node(`n${i}`));
    clock.advance(1000); // the turn that was scheduled for an empty cluster
    asked = 0;
    clock.advance(10 * manager.clusterSizeDependantInterval(1000));
    expect(asked).toBeGreaterThan(9900);
    expect(asked).toBeLessThan(10_100);
    manager.close();
    expect(clock.pending).toBe(0);
  });

  it('ends within a turn if a handler closes the manager (regression: the IPCache was written)', () => {
    const { manager, ipcache, clock } = fresh({}, { maxEntries: 1, maxWaiting: 0 });
    for (let i = 0; i < 200; i++)
      manager.nodeUpdated(node(`n${i}`, { addresses: addresses(`InternalIP:10.0.0.${i}`) }));
    let outcomes: unknown;
    manager.subscribe({
      nodeAdd: () => {},
      nodeUpdate: () => {},
      nodeDelete: () => {},
      nodeValidateImplementation: () => {
        manager.close();
        outcomes = ipcache.status().outcomes;
      },
    });
    manager.startValidation(1000);
    clock.advance(1000);
    expect(ipcache.status().outcomes).toEqual(outcomes);
  });

  it('does not delay changes, and is repeated if it fails', async () => {
    const { manager, clock } = fresh();
    const handler = new DeferredHandler();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { bootID: '1' }));
    const stop = manager.startValidation();
    clock.advance(60_000);
    await handler.succeed();
    stop();
    expect(handler.take(), 'it is being told of the node anyway').toEqual(['add a 1']);
    manager.startValidation();
    clock.advance(60_000);
    await handler.fail();
    clock.advance(60_000);
    expect(handler.take()).toEqual(['validate a 1', 'validate a 1']);
    manager.nodeDeleted(gone('a'));
    await handler.succeed();
    expect(handler.take()).toEqual(['delete a 1']);
  });

  it('detects that an address is held for its node once the ipcache has room', () => {
    const { manager, ipcache } = fresh({}, { maxEntries: 1 });
    ipcache.upsert('10.9.9.9', { identity: 1000, source: 'local' });
    manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:10.0.0.1') }));
    expect(manager.status().lostAddresses['east/a']).toEqual([
      { ip: '10.0.0.1', holder: undefined, stronger: false },
    ]);
    ipcache.delete('10.9.9.9', { source: 'local' });
    expect(ipcache.get('10.0.0.1')?.owner).toBe('east/a');
    expect(manager.status().lostAddresses).toEqual({});
  });
});
