import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Rejection } from '../../../src/base/rejection.ts';
import { deferred } from '../../../src/base/sleep.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { encodeNode } from '../../../src/kvstore/codec/node.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { parseLabels } from '../../../src/model/labels.ts';
import { ClusterConfigKeeper } from '../../../src/operator/publish/cluster-config.ts';
import { ClusterPublisher } from '../../../src/operator/publish/cluster-publisher.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const KEY = 'cilium/state/nodes/v1/a/n1';
const CONFIG = 'cilium/cluster-config/a';
const random = (): number => 0.5;

describe('the keys of a cluster beside other writers', () => {
  const node = {
    name: 'n1',
    addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }],
    bootID: 'b',
    ipv4SecondaryAllocCIDRs: [],
    ipv6SecondaryAllocCIDRs: [],
    labels: new Map(),
    annotations: new Map(),
    encryptionKey: 0,
    nodeIdentity: 0,
    wireguardPubKey: '',
  };
  const registered = encodeNode({ ...node, cluster: 'a', clusterID: 1 });
  const published = encodeNode({ ...node, cluster: 'a', clusterID: 1 }, { source: 'custom-resource' });
  let clock: ManualClock;
  let server: MemoryServer;
  let backend: MemoryBackend;
  let agent: MemoryBackend;
  let ended: AbortController;
  beforeEach(() => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
    backend = new MemoryBackend({ server, clock, random });
    agent = new MemoryBackend({ server, clock, random });
    ended = new AbortController();
  });
  afterEach(async () => {
    ended.abort();
    await settle();
    await Promise.all([backend.close(), agent.close()]);
  });

  const there = (key: string): string | undefined => {
    const [kv] = server.range(keyRange(key)).kvs;
    return kv && textOfBytes(kv.value);
  };
  const revision = (key: string): number | undefined => server.range(keyRange(key)).kvs[0]?.modRevision;
  const put = (key: string, value: unknown): Promise<number> =>
    agent.update(key, bytesOfText(JSON.stringify(value)));

  function publish(): ClusterPublisher {
    const publisher = new ClusterPublisher({ backend, clock, random, clusterName: 'a', clusterID: 1 });
    void publisher.run(ended.signal);
    publisher.upsertNode(node);
    void publisher.markSynced();
    return publisher;
  }

  function keepConfig(promised?: readonly { synced(): Promise<void> }[]): ClusterConfigKeeper {
    const keeper = new ClusterConfigKeeper({
      backend,
      clock,
      random,
      clusterName: 'a',
      clusterID: 1,
      promised,
    });
    void keeper.run(ended.signal);
    return keeper;
  }

  it('include a node equal to that of its agent only when the key of the agent is deleted (OPERATOR 10)', async () => {
    await agent.update(KEY, registered, { leased: true });
    const before = revision(KEY);
    publish();
    await advance(clock, 400_000);
    expect(revision(KEY)).toBe(before);
    await agent.close();
    await advance(clock, 1000);
    expect(there(KEY)).toBe(textOfBytes(published));
  });

  it('do not replace a key that an agent registers later (regression: it took the key from its lease)', async () => {
    publish();
    await advance(clock, 1000);
    expect(there(KEY)).toBe(textOfBytes(published));
    await agent.update(KEY, registered, { leased: true });
    const before = revision(KEY);
    await advance(clock, 400_000);
    expect(revision(KEY)).toBe(before);
    await agent.close();
    await advance(clock, 1000);
    expect(there(KEY)).toBe(textOfBytes(published));
  });

  it('replace a node that its agent has registered with other values', async () => {
    const other = encodeNode({ ...node, cluster: 'a', clusterID: 1, bootID: 'old' });
    await agent.update(KEY, other, { leased: true });
    publish();
    await advance(clock, 1000);
    expect(there(KEY)).toBe(textOfBytes(published));
  });

  it('include a node without a lease: it stays when the publisher ends', async () => {
    publish();
    await advance(clock, 1000);
    expect(there(CONFIG)).toBeDefined();
    ended.abort();
    await settle();
    await backend.close();
    expect([there(KEY) !== undefined, there(CONFIG)]).toEqual([true, undefined]);
  });

  it('are synced only while no write is pending', async () => {
    const publisher = publish();
    await advance(clock, 1000);
    expect(publisher.status().synced).toBe(true);
    publisher.upsertNode({ ...node, bootID: 'other' });
    expect(publisher.status().synced).toBe(false);
    await settle(6);
    expect(publisher.status().synced).toBe(true);
  });

  it('exclude a value that no reader accepts, and are complete without it (regression: the canary waited for it)', async () => {
    const publisher = publish();
    await advance(clock, 1000);
    publisher.upsertNode({ ...node, bootID: 'x'.repeat(2 << 20) });
    await advance(clock, 1000);
    expect([there(KEY), publisher.status().synced]).toEqual([undefined, true]);
    expect(publisher.status().resources.nodes).toMatchObject({ keys: 0, pending: 0, rejected: 1 });
  });

  it('exclude a value that etcd does not accept in a request with its other operations (regression: no canary ever came)', async () => {
    const publisher = publish();
    const most = 1.5 * 1024 * 1024 - 512;
    const rest = published.length - 1 + KEY.length;
    const refusedWith = (bytes: number): number | undefined => {
      publisher.upsertNode({ ...node, bootID: 'x'.repeat(bytes - rest) });
      return publisher.status().resources.nodes.rejected;
    };
    expect([refusedWith(most), refusedWith(most + 1)]).toEqual([0, 1]);
  });

  describe('are valid for every reader of the mesh', () => {
    const CLUSTER = 'k8s:io.cilium.k8s.policy.cluster';
    const LABELS = parseLabels('k8s:app=web;') ?? [];
    const rejected: string[] = [];
    let publisher: ClusterPublisher;
    beforeEach(() => {
      rejected.length = 0;
      const onReject = ({ reason, message }: Rejection): number => rejected.push(`${reason} ${message}`);
      publisher = new ClusterPublisher({
        backend,
        clock,
        random,
        clusterName: 'a',
        clusterID: 1,
        onReject,
      });
      void publisher.run(ended.signal);
      void publisher.markSynced();
    });
    const values = (prefix: string): Readonly<Record<string, string>> =>
      Object.fromEntries(
        server
          .range(prefixRange(`cilium/state/${prefix}`))
          .kvs.map(({ key, value }) => [key.slice(prefix.length + 13), textOfBytes(value) ?? '']),
      );

    it('and add the label of the cluster to identities (regression: Cilium 1.17 ignored them)', async () => {
      publisher.upsertIdentity(65_792, LABELS);
      publisher.upsertIdentity(65_793, parseLabels(`${CLUSTER}=a;k8s:app=web;`) ?? []);
      await advance(clock, 1000);
      const labels = `k8s:app=web;${CLUSTER}=a;`;
      expect(values('identities/v1/id/')).toEqual({ 65792: labels, 65793: labels });
      expect(rejected).toEqual([]);
    });

    it('without an identity of another cluster, by its labels or its number', async () => {
      publisher.upsertIdentity(65_792, LABELS);
      publisher.upsertIdentity(65_792, parseLabels(`${CLUSTER}=b;`) ?? []);
      publisher.upsertIdentity(131_400, LABELS);
      await advance(clock, 1000);
      expect(values('identities/v1/id/')).toEqual({});
      expect(rejected).toEqual([
        `cluster-name-mismatch cilium/state/identities/v1/id/65792: value "${CLUSTER}=b;": the label io.cilium.k8s.policy.cluster must be ${CLUSTER}=a`,
        expect.stringMatching(/^identity-out-of-range .*131400/),
      ]);
      expect(publisher.status().resources.identities.rejected).toBe(2);
    });

    it('and with canonical keys for IPs (regression: FD00::1, which no reader accepts)', async () => {
      publisher.upsertIP({ key: 'FD00::1', identity: 65_792, hostIP: '192.168.0.1', encryptKey: 0 });
      publisher.upsertIP({ key: 'FD00:0::/64', identity: 65_793, encryptKey: 0 });
      publisher.upsertIP({ key: '10.0.0.1.2', identity: 65_792, encryptKey: 0 });
      await advance(clock, 1000);
      await settle();
      expect(Object.keys(values('ip/v1/default/'))).toEqual(['fd00::/64', 'fd00::1']);
      expect(rejected).toEqual([expect.stringMatching(/^invalid-key .*10\.0\.0\.1\.2/)]);
      publisher.deleteIP('fD00::1');
      publisher.deleteIP('FD00::/64');
      await advance(clock, 1000);
      expect(values('ip/v1/default/')).toEqual({});
    });

    it.each([
      ['ipv4AllocCIDR', { ipv4AllocCIDR: '10.0.0.0/33' }],
      ['ipv6SecondaryAllocCIDRs', { ipv6SecondaryAllocCIDRs: ['fd00::/129'] }],
      ['addresses', { addresses: [{ type: 'InternalIP', ip: '10.0.0.256' }] }],
      ['encryptionKey', { encryptionKey: 300 }],
    ])('without a node whose %s is invalid', async (_, change) => {
      publisher.upsertNode({ ...node, ...change });
      await advance(clock, 1000);
      expect([values('nodes/v1/a/'), rejected.length]).toEqual([{}, 1]);
    });
  });

  it('wait for the promised canaries if the lease is lost during the write (regression: it was written again at once)', async () => {
    const listeners = vi.spyOn(backend, 'onLeaseLost');
    const update = backend.updateIfDifferent.bind(backend);
    const puts = vi.spyOn(backend, 'updateIfDifferent').mockImplementationOnce(async (...write) => {
      const isWritten = await update(...write);
      for (const [listener] of listeners.mock.calls) listener.onLeaseLost([CONFIG]);
      return isWritten;
    });
    const again = deferred();
    const synced = vi.fn(() => again.promise).mockResolvedValueOnce();
    const keeper = keepConfig([{ synced }]);
    await advance(clock, 1000);
    expect([puts.mock.calls.length, keeper.status().published?.synced]).toEqual([1, false]);
    again.resolve();
    await advance(clock, 1000);
    expect([puts.mock.calls.length, keeper.status().published?.synced]).toEqual([2, true]);
  });

  it('do not promise a canary that is lost again during the wait for the others (regression: it was not checked again)', async () => {
    const last = deferred();
    const asked = vi.fn(() => Promise.resolve());
    keepConfig([{ synced: asked }, { synced: () => last.promise }]);
    await backend.update('cilium/state/ip/v1/default/10.0.0.1', bytesOfText('1'), { leased: true });
    await settle();
    for (const lease of server.leases) server.expireLease(lease);
    await advance(clock, 301_000);
    asked.mockReturnValue(new Promise(() => {}));
    last.resolve();
    await advance(clock, 1000);
    expect([asked.mock.calls.length, there(CONFIG)]).toEqual([2, undefined]);
  });

  it('check the promised canaries again in a new run (regression: leases lost in the meantime were not detected)', async () => {
    const synced = vi.fn(() => Promise.resolve());
    const keeper = keepConfig([{ synced }]);
    await advance(clock, 1000);
    ended.abort();
    await settle();
    for (const lease of server.leases) server.expireLease(lease);
    synced.mockReturnValue(new Promise(() => {}));
    ended = new AbortController();
    void keeper.run(ended.signal);
    await advance(clock, 1000);
    expect([there(CONFIG), keeper.status().published?.synced]).toEqual([undefined, false]);
  });

  it('state why the configuration is not written yet (regression: it was incomplete without a reason)', async () => {
    const last = deferred();
    const keeper = keepConfig([{ synced: () => last.promise }]);
    await advance(clock, 1000);
    expect(keeper.status().waitsFor).toBe('it is written after all other keys');
    last.resolve();
    await advance(clock, 1000);
    expect(keeper.status().waitsFor).toBeUndefined();
  });

  it('promise canaries in the configuration, whatever it was before', async () => {
    await put(CONFIG, { id: 9, capabilities: { syncedCanaries: true } });
    keepConfig([]);
    await advance(clock, 1000);
    expect(JSON.parse(there(CONFIG) ?? '')).toEqual({
      id: 1,
      capabilities: { syncedCanaries: true, maxConnectedClusters: 255 },
    });
  });

  it('restore the configuration at once if another client deletes or overwrites it (regression: after five minutes)', async () => {
    const keeper = keepConfig([]);
    await advance(clock, 1000);
    const own = there(CONFIG);
    await agent.delete(CONFIG);
    await settle();
    expect([there(CONFIG), keeper.status().published?.writes]).toEqual([own, 2]);
    await put(CONFIG, { id: 9, capabilities: { syncedCanaries: true } });
    await advance(clock, 2000);
    expect(there(CONFIG)).toBe(own);
    await put('cilium/cluster-config/b', { id: 9, capabilities: {} });
    await advance(clock, 2000);
    expect(keeper.status().published?.writes).toBe(3);
  });

  it('restore a deleted configuration only after the promised canaries', async () => {
    const canaries = deferred();
    const synced = vi.fn(() => canaries.promise).mockResolvedValueOnce();
    const keeper = keepConfig([{ synced }]);
    await advance(clock, 1000);
    await agent.delete(CONFIG);
    await advance(clock, 1000);
    expect([there(CONFIG), keeper.status().published?.synced]).toEqual([undefined, false]);
    canaries.resolve();
    await settle();
    expect([there(CONFIG) === undefined, keeper.status().published?.synced]).toEqual([false, true]);
  });

  it('contest the configuration with backoff', async () => {
    const rival = new ClusterConfigKeeper({
      backend: agent,
      clock,
      random,
      clusterName: 'a',
      clusterID: 2,
      promised: [],
    });
    void rival.run(ended.signal);
    const keeper = keepConfig([]);
    for (let minute = 0; minute < 60; minute++) await advance(clock, 60_000);
    const writes = keeper.status().published?.writes;
    expect(writes).toBeGreaterThan(5);
    expect(writes).toBeLessThan(60);
  });

  it('without canaries never replace the configuration of a writer that promises more (OPERATOR 16)', async () => {
    await put(CONFIG, { id: 1, capabilities: { cached: true } });
    const before = revision(CONFIG);
    const keeper = keepConfig();
    await advance(clock, 130_000);
    expect(revision(CONFIG)).toBe(before);
    await agent.delete(CONFIG);
    await settle();
    expect(JSON.parse(there(CONFIG) ?? '')).toEqual({ id: 1, capabilities: { maxConnectedClusters: 255 } });
    expect(keeper.status().published).toMatchObject({ synced: true, writes: 1 });
  });

  it('report another cluster with the same id, and continue', async () => {
    await put('cilium/cluster-config/b', { id: 1, capabilities: {} });
    const keeper = keepConfig([]);
    await advance(clock, 1000);
    expect(keeper.status().lastFailure?.message).toBe(
      'cluster b has id 1, the same as this cluster: agents follow only one of them',
    );
    expect(there(CONFIG)).toBeDefined();
  });
});
