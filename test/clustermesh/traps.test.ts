import { describe, expect, it } from 'vitest';
import { advance, settle } from '../kvstore/support/settle.ts';
import {
  completeCluster,
  deleteIP,
  newCluster,
  OWN,
  write,
  writeIP,
  writeNode,
} from './support/mesh-world.ts';
import { MovableAddress } from './support/other-kvstore.ts';
import { agent, agentForEachTest, clock, ips, restart } from './support/set-up.ts';

agentForEachTest();

/** An identity of cluster 1. */
const IDENTITY = 0x1_0200;

const READY_AGAIN_MS = 20_000;

describe('traps of other mesh implementations', () => {
  it.each([
    ['an older one', 0],
    ['one that has grown further', 40],
  ])('a watch that resumes against a different etcd is a new list: %s', async (_what, more) => {
    const [first, second] = [newCluster(clock, 'a', 1), newCluster(clock, 'second', 2)];
    for (const address of ['10.1.0.1', '10.1.0.2']) writeIP(first, address, IDENTITY);
    // The same cluster id and name from another etcd, which has the old keys and new ones.
    write(second, 'cilium/cluster-config/a', { id: 1, capabilities: { syncedCanaries: true } });
    completeCluster(second, 'a');
    for (let i = 0; i < more; i++) writeIP(second, '10.1.0.3', 0x1_0200 + i);
    writeIP(second, '10.1.0.2', 0x1_0300);
    writeIP(second, '10.1.0.3', 0x1_0300);
    const address = new MovableAddress(first, clock);
    await agent.mesh.add('a', () => address.connect());
    await settle(8);
    expect(ips()).toEqual(['10.1.0.1', '10.1.0.2']);
    address.moveTo(second);
    await advance(clock, READY_AGAIN_MS);
    expect(ips()).toEqual(['10.1.0.2', '10.1.0.3']);
    expect(agent.ipcache.get('10.1.0.2')?.identity).toBe(0x1_0300);
  });

  it('a different etcd at the same address, of another cluster, adds and removes nothing', async () => {
    const [first, other] = [newCluster(clock, 'a', 1), newCluster(clock, 'b', 2)];
    writeIP(first, '10.1.0.1', IDENTITY);
    writeIP(other, '10.2.0.1', 0x2_0200);
    const address = new MovableAddress(first, clock);
    await agent.mesh.add('a', () => address.connect());
    await settle(8);
    address.moveTo(other);
    await advance(clock, READY_AGAIN_MS);
    expect(ips()).toEqual(['10.1.0.1']);
    expect(agent.mesh.status().clusters[0]?.lastFailure?.message).toContain(
      'does not contain its configuration any more',
    );
  });

  it('deletes missed while disconnected are applied after the reconnect', async () => {
    const server = newCluster(clock, 'a', 1);
    for (const address of ['10.1.0.1', '10.1.0.2']) writeIP(server, address, IDENTITY);
    writeNode(server, 'a', 'n1', '192.168.1.1');
    await agent.add('a', server);
    await settle(8);
    agent.links.get('a')?.link.down();
    deleteIP(server, '10.1.0.1');
    write(server, 'cilium/state/nodes/v1/a/n1', undefined);
    server.compact();
    await advance(clock, READY_AGAIN_MS);
    expect(ips()).toContain('10.1.0.1');
    agent.links.get('a')?.link.up();
    await advance(clock, READY_AGAIN_MS);
    expect(ips()).toEqual(['10.1.0.2']);
    expect(agent.nodes.size).toBe(0);
  });

  it('entries of a removed cluster do not remain, not even under a claim that was stronger (I10)', async () => {
    const [own, server] = [newCluster(clock, OWN, 9), newCluster(clock, 'a', 1)];
    writeIP(own, '10.1.0.1', 0x9_0200);
    writeIP(server, '10.1.0.1', IDENTITY);
    agent.followOwn(own);
    await agent.add('a', server);
    await settle(8);
    await agent.mesh.remove('a');
    deleteIP(own, '10.1.0.1');
    await settle(8);
    expect(ips()).toEqual([]);
  });

  it('a reconnect to the same content notifies no listener: no event storm (I3)', async () => {
    const server = newCluster(clock, 'a', 1);
    for (let i = 0; i < 20; i++) writeIP(server, `10.1.0.${i}`, IDENTITY);
    writeNode(server, 'a', 'n1', '192.168.1.1');
    await agent.add('a', server);
    await settle(8);
    const told: unknown[] = [];
    agent.ipcache.subscribe({ onChanges: (changes) => void told.push(...changes) });
    told.length = 0;
    await agent.add('a', server);
    await advance(clock, READY_AGAIN_MS);
    expect(agent.mesh.status().ready).toBe(true);
    expect(told).toEqual([]);
  });

  it('clusters that lost their connections at the same time do not reconnect at the same time: the backoff has jitter', async () => {
    let spread = 0;
    const random = (): number => {
      spread = (spread + 0.137) % 1;
      return spread;
    };
    await restart(() => ({ random }));
    const attempts: number[] = [];
    for (let i = 0; i < 20; i++) {
      await agent.mesh.add(`c${i}`, () => {
        attempts.push(clock.now());
        throw new Error('the etcd is starting');
      });
    }
    await advance(clock, 60_000);
    expect(new Set(attempts.slice(0, 20)).size).toBe(1);
    expect(new Set(attempts.slice(-20)).size).toBeGreaterThan(10);
  });

  it('a listener that removes the cluster of its notification causes no deadlock', async () => {
    const server = newCluster(clock, 'a', 1);
    for (let i = 0; i < 600; i++) writeIP(server, `10.1.${i >> 8}.${i & 255}`, IDENTITY);
    const removed: Promise<boolean>[] = [];
    agent.ipcache.subscribe({
      onChanges: () => {
        if (removed.length === 0) removed.push(agent.mesh.remove('a'));
      },
    });
    await agent.add('a', server);
    await settle(20);
    expect(await Promise.all(removed)).toEqual([true]);
    expect(ips()).toEqual([]);
    expect(server.streams).toBe(0);
  });

  it('a cluster may have the name of a property of every object', async () => {
    for (const [i, name] of ['constructor', 'toString', 'valueOf'].entries()) {
      const server = newCluster(clock, name, i + 1);
      writeIP(server, `10.${i}.0.1`, ((i + 1) << 16) + 512);
      await agent.add(name, server);
    }
    await settle(12);
    expect(agent.mesh.status().ready).toBe(true);
    expect(agent.ipcache.get('10.0.0.1')?.owner).toBe('constructor');
  });
});
