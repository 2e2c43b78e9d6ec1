import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import {
  type HandoverEvent,
  type HandoverState,
  nextHandover,
} from '../../../src/k8s/feed/kvstore-handover.ts';
import { FeedWorld } from './support/feed-world.ts';
import { ciliumEndpoint, ciliumNode, pod } from './support/objects.ts';

const IP = '10.1.0.10';

function kvstoreSays(world: FeedWorld, identity: number): void {
  const k8s = { namespace: 'shop', podName: 'web' };
  world.ipcache.upsert(IP, { source: 'kvstore', identity, hostIP: '192.0.2.1', k8s });
}

/** Returns the times at which an address was without entry. */
function watchGaps(world: FeedWorld): readonly string[] {
  const gaps: string[] = [];
  world.ipcache.subscribe({
    onChanges: (changes) => {
      for (const { kind, prefix } of changes) if (kind === 'delete') gaps.push(prefix);
    },
  });
  return gaps;
}

describe('the handover machine', () => {
  it.each<[HandoverState, HandoverEvent, HandoverState, string | undefined]>([
    ['following', 'complete', 'withdrawing', 'withdraw'],
    ['following', 'lost', 'following', undefined],
    ['following', 'withdrawn', 'following', undefined],
    ['withdrawing', 'complete', 'withdrawing', undefined],
    ['withdrawing', 'lost', 'following', 'follow'],
    ['withdrawing', 'withdrawn', 'resting', undefined],
    ['resting', 'complete', 'resting', undefined],
    ['resting', 'lost', 'following', 'follow'],
    ['resting', 'withdrawn', 'resting', undefined],
  ])('%s, %s: %s', (state, event, next, action) => {
    expect(nextHandover(state, event)).toEqual({ state: next, action });
  });
});

describe('beside a kvstore', () => {
  it('a feed writes until the kvstore is complete, not only connected (K 52)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web'));
    world.cluster.put('ciliumendpoints', ciliumEndpoint('only-here', { ips: ['10.1.0.11'] }));
    kvstoreSays(world, 1001); // it is still listing
    expect(world.at('10.1.0.11')).toBeDefined();
    const gaps = watchGaps(world);
    world.feed.reportKvstore('ip', 'complete');
    expect(world.ipcache.explain(IP)?.claims.map(({ source }) => source)).toEqual(['kvstore']);
    expect(world.at('10.1.0.11')).toBeUndefined();
    expect(gaps).toEqual(['10.1.0.11/32']);
    expect(world.cluster.following).not.toContain('ciliumendpoints');
    expect(world.feed.status().handover).toEqual({
      nodes: 'following',
      ip: 'resting',
      identities: 'following',
    });
  });

  it('an object deleted while the kvstore is lost is removed, and no address is free in between (K 52)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web'));
    kvstoreSays(world, 1001);
    world.feed.reportKvstore('ip', 'complete');
    const gaps = watchGaps(world);
    world.feed.reportKvstore('ip', 'lost');
    world.cluster.settle();
    expect(world.ipcache.explain(IP)?.claims.map(({ source }) => source)).toEqual([
      'kvstore',
      'custom-resource',
    ]);
    world.cluster.delete('ciliumendpoints', 'web', 'shop');
    world.cluster.put('ciliumendpoints', ciliumEndpoint('new', { ips: ['10.1.0.12'] }));
    expect(world.at('10.1.0.12')).toBeDefined();
    expect(gaps).toEqual([]); // the kvstore's claim is kept
    world.ipcache.delete(IP, { source: 'kvstore' }); // the kvstore is connected again, and lists
    world.feed.reportKvstore('ip', 'complete');
    expect([...world.ipcache.entries()]).toEqual([]);
  });

  it('a kvstore that is lost after the stop starts no reflector', async () => {
    const world = await new FeedWorld().started();
    world.feed.reportKvstore('ip', 'complete');
    await world.feed.stop();
    world.feed.reportKvstore('ip', 'lost');
    world.cluster.settle();
    await world.clock.advance(60_000);
    expect(world.cluster.following).toEqual([]);
  });

  it('a CiliumEndpoint that the kvstore overruled is effective when the entry of the kvstore is deleted (K 53)', async () => {
    const world = await new FeedWorld().started();
    kvstoreSays(world, 2000);
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web'));
    expect(world.at(IP)).toContain('2000 ');
    world.ipcache.delete(IP, { source: 'kvstore' });
    expect(world.at(IP)).toContain('1001 ');
  });

  it('nodes and identities are handed over separately; mode crd keeps identities (K 52)', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('ciliumnodes', ciliumNode('n2'));
    world.cluster.put('ciliumidentities', { metadata: { name: '1001' }, 'security-labels': { 'k8s:a': '' } });
    world.feed.reportKvstore('nodes', 'complete');
    expect([world.nodes.size, world.feed.identities.size]).toEqual([0, 1]);
    world.feed.reportKvstore('identities', 'complete');
    expect(world.feed.identities.size).toBe(0);
    const crd = await new FeedWorld({ identities: 'crd' }).started();
    crd.feed.reportKvstore('identities', 'complete');
    expect(crd.cluster.following).toContain('ciliumidentities');
    expect(crd.feed.status().handover.identities).toBe('resting');
  });

  it('pods of all nodes are requested until the kvstore is complete, and again when it is lost (K 12)', async () => {
    const world = await new FeedWorld({ endpoints: 'pods' }).started();
    world.cluster.put('pods', pod('far', { nodeName: 'n2' }));
    kvstoreSays(world, 1001);
    world.feed.reportKvstore('ip', 'complete');
    expect(world.cluster.following).toContain('pods spec.nodeName=n1');
    world.cluster.settle();
    expect(world.ipcache.explain(IP)?.claims.map(({ source }) => source)).toEqual(['kvstore']);
    world.feed.reportKvstore('ip', 'lost');
    expect(world.cluster.following).toContain('pods');
  });

  it('Kubernetes is requested after a random time, because all agents lose a kvstore at the same time (K 52)', async () => {
    const world = await new FeedWorld({ random: () => 0.5 }).started();
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web'));
    kvstoreSays(world, 1001);
    world.feed.reportKvstore('ip', 'complete');
    world.feed.reportKvstore('ip', 'lost');
    expect(world.cluster.following).not.toContain('ciliumendpoints');
    expect(world.feed.blockers()).toEqual(['Kubernetes: ciliumendpoints are not complete (listing)']);
    world.feed.reportKvstore('ip', 'complete'); // the kvstore is connected again before any request
    world.clock.advance(60_000);
    expect(world.cluster.following).not.toContain('ciliumendpoints');
    expect([world.feed.status().handover.ip, world.feed.synced]).toEqual(['resting', true]);
    world.feed.reportKvstore('ip', 'lost');
    world.clock.advance(14_999);
    expect(world.cluster.following).not.toContain('ciliumendpoints');
    world.clock.advance(1);
    expect(world.cluster.following).toContain('ciliumendpoints');
    world.feed.reportKvstore('ip', 'complete');
    world.feed.reportKvstore('ip', 'lost');
    await world.feed.stop();
    expect(world.clock.pending).toBe(0);
  });

  it('pods of all nodes are also requested after a random time (K 12, 52)', async () => {
    const world = await new FeedWorld({ endpoints: 'pods', random: () => 0.5 }).started();
    world.feed.reportKvstore('ip', 'complete');
    world.feed.reportKvstore('ip', 'lost');
    expect(world.cluster.following).not.toContain('pods');
    world.clock.advance(15_000);
    expect(world.cluster.following).toContain('pods');
  });

  it('a kvstore that is complete before the start leaves nothing to follow', async () => {
    const world = new FeedWorld();
    world.feed.reportKvstore('ip', 'complete');
    await world.started();
    expect(world.cluster.following).not.toContain('ciliumendpoints');
    world.feed.reportKvstore('ip', 'lost');
    expect(world.cluster.following).toContain('ciliumendpoints');
  });

  /** A world of 1,000 endpoints that does one step of its work per turn. */
  async function slowWorld(): Promise<{ world: FeedWorld; turn: () => Promise<void> }> {
    const turns: (() => void)[] = [];
    const gate = new TurnGate({
      clock: { now: () => 0 },
      nextTurn: (turn) => turns.push(turn),
      weightPerTurn: 1,
    });
    const world = await new FeedWorld({ gate }).started();
    const turn = async (): Promise<void> => {
      turns.shift()?.();
      for (let tick = 0; tick < 8; tick++) await Promise.resolve();
    };
    while (turns.length > 0) await turn();
    for (let n = 0; n < 1_000; n++) {
      const ips = [`10.2.${n >> 8}.${n & 255}`];
      world.cluster.put('ciliumendpoints', ciliumEndpoint(`p${n}`, { ips }));
    }
    return { world, turn };
  }

  it('a withdrawal that was started twice ends when nothing is left, not before', async () => {
    const { world, turn } = await slowWorld();
    const left = (): number => [...world.ipcache.entries()].length;
    world.feed.reportKvstore('ip', 'complete');
    await turn();
    world.feed.reportKvstore('ip', 'lost');
    world.feed.reportKvstore('ip', 'complete');
    const states = new Set<string>();
    for (let n = 0; left() > 0 && n < 100; n++) {
      states.add(world.feed.status().handover.ip);
      await turn();
    }
    expect([left(), ...states]).toEqual([0, 'withdrawing']);
    for (let n = 0; n < 9; n++) await turn();
    expect(world.feed.status().handover.ip).toBe('resting');
  });

  it('a kvstore that is lost during the withdrawal: no existing entry is lost (K 52)', async () => {
    const { world, turn } = await slowWorld();
    world.feed.reportKvstore('ip', 'complete');
    await turn();
    const left = [...world.ipcache.entries()].length;
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThan(1_000);
    world.feed.reportKvstore('ip', 'lost');
    world.cluster.delete('ciliumendpoints', 'p999', 'shop');
    world.cluster.settle();
    for (let n = 0; n < 100; n++) await turn();
    expect([...world.ipcache.entries()]).toHaveLength(999);
    expect(world.feed.progressOf('ciliumendpoints')?.synced).toBe(true);
    expect(world.feed.status().handover.ip).toBe('following');
  });
});
