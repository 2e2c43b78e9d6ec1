import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import type { IPSink, MeshEngines, NodeSink, ServiceSink } from '../../src/clustermesh/engines.ts';
import { FaultyMemoryBackend } from '../../src/kvstore/memory/faulty-memory-backend.ts';
import type { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { newCluster, OWN, writeIP, writeNode, writeService } from './support/mesh-world.ts';
import { agent, agentForEachTest, clock, restart, statusOf } from './support/set-up.ts';

agentForEachTest();

function cluster(): MemoryServer {
  const server = newCluster(clock, 'a', 1);
  writeIP(server, '10.1.0.1', 0x1_0200);
  writeNode(server, 'a', 'n1', '192.168.1.1');
  writeService(server, 'a', 's0', '10.1.0.1');
  return server;
}

async function follow(): Promise<MemoryServer> {
  const server = cluster();
  await agent.add('a', server);
  await settle(8);
  expect(statusOf().state).toBe('ready');
  return server;
}

const settledTo = async <T>(promise: Promise<T>): Promise<T | 'pending'> => {
  const pending = settle(6).then(() => 'pending' as const);
  return await Promise.race([promise, pending]);
};

describe('a client whose creation never ends (freeze: remove and stop never resolved, claims stayed)', () => {
  const hangs = (): Promise<never> => new Promise(() => {});

  const followUnclosable = async (): Promise<MemoryServer> => {
    const server = cluster();
    await agent.mesh.add('a', () => {
      const backend = new FaultyMemoryBackend({ server, clock });
      backend.close = hangs;
      return backend;
    });
    await settle(8);
    return server;
  };

  it('does not prevent the removal of its cluster with all its state (I10)', async () => {
    await follow();
    await agent.mesh.add('a', hangs);
    await settle();
    expect(statusOf()).toMatchObject({ state: 'connecting', connected: false });
    expect(statusOf().tasks.map(({ name, state }) => [name, state])).toEqual([['connect', 'running']]);
    expect(await settledTo(agent.mesh.remove('a'))).toBe(true);
    expect([agent.ipcache.size, agent.nodes.size]).toEqual([0, 0]);
  });

  it('does not prevent the mesh from stopping, nor another client from being created', async () => {
    await follow();
    await agent.mesh.add('a', hangs);
    const server = cluster();
    expect(await settledTo(agent.mesh.add('a', () => agent.connect('a', server)))).toBe('reconnected');
    await settle(8);
    expect(statusOf().state).toBe('ready');
    await agent.mesh.add('a', hangs);
    expect(await settledTo(agent.mesh.stop())).toBeUndefined();
    expect(agent.ipcache.size).toBe(2);
    expect(clock.pending).toBe(0);
  });

  it('is aborted by its signal; a client that is created anyway is closed', async () => {
    const made = new FaultyMemoryBackend({ clock });
    let closed = 0;
    made.close = () => {
      closed++;
      return Promise.resolve();
    };
    const signals: AbortSignal[] = [];
    let give = (_client: FaultyMemoryBackend): void => {};
    await agent.mesh.add('a', (signal) => {
      signals.push(signal);
      return new Promise((resolve) => {
        give = resolve;
      });
    });
    await settle();
    expect(signals.map(({ aborted }) => aborted)).toEqual([false]);
    await agent.mesh.remove('a');
    expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
    give(made);
    await settle();
    expect(closed).toBe(1);
  });

  it('is abandoned after half a minute, and retried', async () => {
    let attempts = 0;
    const server = cluster();
    await agent.mesh.add('a', () => (++attempts === 1 ? hangs() : agent.connect('a', server)));
    await advance(clock, 29_900);
    expect([attempts, statusOf().state]).toEqual([1, 'connecting']);
    await advance(clock, 1_000);
    expect([attempts, statusOf().state]).toEqual([2, 'ready']);
    expect(statusOf().lastFailure?.message).toBe('its kvstore client was not created within 30 s');
  });

  it('or whose close never ends is abandoned after some time', async () => {
    await followUnclosable();
    const removing = agent.mesh.remove('a');
    await advance(clock, 4_900);
    expect(await settledTo(removing)).toBe('pending');
    await advance(clock, 200);
    expect(await settledTo(removing)).toBe(true);
    expect(agent.ipcache.size).toBe(0);
  });

  it('or whose close never ends is reported if another one replaces it', async () => {
    const server = await followUnclosable();
    const adding = agent.add('a', server);
    await advance(clock, 5_100);
    await adding;
    expect(statusOf()).toMatchObject({
      state: 'ready',
      lastFailure: { message: 'its kvstore client was not closed within 5 s' },
    });
  });

  it('is not created for a cluster that was removed while it waited for its turn', async () => {
    let open = (): void => {};
    const nextTurn = (turn: () => void): void => {
      open = turn;
    };
    const gate = new TurnGate({ clock, nextTurn, weightPerTurn: 1 });
    await restart(() => ({ gate }));
    let made = 0;
    const connect = (): Promise<never> => {
      made++;
      return hangs();
    };
    for (const name of ['a', 'b', 'c']) await agent.mesh.add(name, connect);
    await settle();
    const before = made;
    expect(before).toBeLessThan(3);
    for (const name of ['a', 'b', 'c']) void agent.mesh.remove(name);
    await settle();
    for (let turn = 0; turn < 50; turn++) {
      open();
      await settle();
    }
    expect([made, agent.mesh.names]).toEqual([before, []]);
  });
});

/** Returns an agent whose engines are wrapped by `spoil`. */
async function spoil(
  change: (engines: { ipcache: IPSink; services: ServiceSink; nodes: NodeSink }) => MeshEngines,
): Promise<void> {
  await restart(({ ipcache, services, nodes }) => {
    if (!ipcache || !services || !nodes) throw new Error('engines');
    return change({ ipcache, services, nodes });
  });
}

describe('an engine that throws', () => {
  /** Lets `withdrawCluster` fail a number of times. */
  async function failing(times: number): Promise<{ readonly calls: () => number }> {
    let calls = 0;
    await spoil(({ services }) => ({
      services: {
        mergeExternalServiceUpdate: (service) => services.mergeExternalServiceUpdate(service),
        mergeExternalServiceDelete: (key) => services.mergeExternalServiceDelete(key),
        mergeExternalSliceUpdate: (slice) => services.mergeExternalSliceUpdate(slice),
        mergeExternalSliceDelete: (slice) => services.mergeExternalSliceDelete(slice),
        withdrawCluster: (name) => {
          if (++calls <= times) throw new Error('the sink failed');
          return services.withdrawCluster(name);
        },
      },
    }));
    return { calls: () => calls };
  }

  it('once during a withdrawal is called again; the cluster can be removed and added (freeze: rejected for ever)', async () => {
    const { calls } = await failing(1);
    const server = await follow();
    const removing = agent.mesh.remove('a');
    await settle(4);
    // The others do not wait for it.
    expect([agent.ipcache.size, agent.nodes.size]).toEqual([0, 0]);
    expect(statusOf()).toMatchObject({ state: 'draining' });
    expect(statusOf().lastFailure?.message).toBe(
      'an engine failed to delete the state of the cluster: the sink failed',
    );
    await advance(clock, 1_000);
    expect(await removing).toBe(true);
    expect([calls(), agent.mesh.names]).toEqual([2, []]);
    await agent.add('a', server);
    await settle(8);
    expect(statusOf().state).toBe('ready');
  });

  it('for ever does not block the cluster, and the mesh can be stopped', async () => {
    const { calls } = await failing(Number.POSITIVE_INFINITY);
    await follow();
    const removing = agent.mesh.remove('a');
    await advance(clock, 0.5 * (200 + 400 + 800 + 1600));
    expect(await settledTo(removing)).toBe(true); // and not after another pause
    expect([calls(), agent.mesh.names]).toEqual([5, []]);
    expect(agent.ipcache.size).toBe(0);
  });

  it('for ever ends its withdrawal when it is abandoned (regression: the history stayed uncertain)', async () => {
    const reports: boolean[] = [];
    await spoil(({ services }) => ({
      services: {
        mergeExternalServiceUpdate: (service) => services.mergeExternalServiceUpdate(service),
        mergeExternalServiceDelete: (key) => services.mergeExternalServiceDelete(key),
        mergeExternalSliceUpdate: (slice) => services.mergeExternalSliceUpdate(slice),
        mergeExternalSliceDelete: (slice) => services.mergeExternalSliceDelete(slice),
        withdrawCluster: () => {
          throw new Error('the sink failed');
        },
      },
      onWithdrawal: (_cluster, isRunning) => reports.push(isRunning),
    }));
    await follow();
    const removing = agent.mesh.remove('a');
    await advance(clock, 5_000);
    await removing;
    expect(reports).toEqual([true, true, true, true, true, false]);
  });

  it('while a cluster is followed is counted and reported; other clusters continue (freeze: in the local cluster the process ended)', async () => {
    const failing = (nodes: NodeSink): NodeSink => ({
      nodeUpdated: (node) => {
        if (node.name === 'n1') throw new Error('the sink failed');
        return nodes.nodeUpdated(node);
      },
      nodeDeleted: (node) => nodes.nodeDeleted(node),
      withdraw: (by) => nodes.withdraw(by),
    });
    await spoil(({ ipcache, nodes }) => ({ ipcache, nodes: failing(nodes) }));
    const [server, ownServer] = [cluster(), newCluster(clock, OWN, 9)];
    writeNode(server, 'a', 'n2', '192.168.1.2');
    for (const name of ['n1', 'n2']) writeNode(ownServer, OWN, name, '192.168.9.1');
    await agent.add('a', server);
    const own = agent.followOwnOn(agent.connect(OWN, ownServer), {
      ipcache: undefined,
      nodes: failing(agent.nodes),
      tap: undefined,
    });
    await settle(8);
    for (const status of [statusOf(), own.status()]) {
      expect(status).toMatchObject({
        state: 'ready',
        lastFailure: { message: 'an engine failed: the sink failed' },
      });
      expect(status.resources.nodes).toMatchObject({ keys: 2, faults: 1 });
    }
    expect([...agent.nodes.nodes()].map(({ cluster: of, name }) => `${of}/${name}`).sort()).toEqual([
      'a/n2',
      'own/n2',
    ]);
  });
});

describe('a listener for changes of clusters', () => {
  it('is called when a cluster is added, ready, lost, fails or is removed, without polling', async () => {
    const seen: unknown[] = [];
    const off = agent.mesh.onChange((name) => {
      seen.push([name, agent.mesh.statusOf(name)?.state]);
      throw new Error('a broken listener');
    });
    await follow();
    agent.links.get('a')?.link.down();
    await settle(4);
    await agent.mesh.remove('a');
    const states = seen.map((entry) => JSON.stringify(entry));
    expect(states.at(0)).toBe('["a","connecting"]');
    expect(states).toContain('["a","ready"]');
    expect(states).toContain('["a","unreachable"]');
    // Phases that pass within one turn are not reported: the configuration is read and validated in the same
    // turn.
    expect(states).not.toContain('["a","validating"]');
    expect(states.at(-1)).toBe('["a",null]');
    off();
    await agent.add('a', cluster());
    expect(seen).toHaveLength(states.length);
  });

  it('costs no timer: a mesh that is complete, or unreachable, sets only those of its watches and backoffs', async () => {
    await restart(() => ({ serviceTTLMs: 600_000 }));
    for (let i = 0; i < 10; i++) {
      await agent.mesh.add(`c${i}`, () => Promise.reject(new Error('down')));
    }
    await settle(4);
    // For each cluster, one timer of the backoff and one of the expiry.
    expect(clock.pending).toBe(20);
  });
});
