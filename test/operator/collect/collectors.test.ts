import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { AssertionError } from '../../../src/base/assert.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES } from '../../../src/k8s/memory/resource-types.ts';
import type { ObjectWriterOptions } from '../../../src/k8s/rest/object-writer.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { IDENTITY_LOCKS_PREFIX, identityKey, identityValueKey } from '../../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { type CollectorsOptions, collectors } from '../../../src/operator/collect/collectors.ts';
import type { Action, Duty, DutyStatus } from '../../../src/operator/duty.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance } from '../../kvstore/support/settle.ts';

const MINUTE = 60_000;
const RANGE = { min: 256, max: 65_535 };

describe('the collectors of an operator', () => {
  let clock: ManualClock;
  let api: MemoryApiServer;
  let client: KubernetesClient;
  let backend: MemoryBackend;
  let leads: boolean;
  let actions: Action[];
  let ended: AbortController;
  let running: Promise<unknown>;
  let duties: readonly Duty[];

  beforeEach(() => {
    clock = new ManualClock();
    api = new MemoryApiServer({ clock });
    client = new KubernetesClient(new MemoryApiTransport(api), { clock, random: () => 0 });
    backend = new MemoryBackend({ clock });
    leads = true;
    actions = [];
    ended = new AbortController();
    running = Promise.resolve();
  });
  afterEach(async () => {
    ended.abort();
    await advance(clock, 1000);
    await running;
    await Promise.all([client.close(), backend.close()]);
  });

  const user = (plural: string, namespace?: string): ApiUser => {
    const type = CLUSTER_TYPES.find((one) => one.plural === plural);
    if (type === undefined) throw new Error(`no kind ${plural}`);
    return new ApiUser(new MemoryApiTransport(api), type, namespace);
  };
  function make(more: Partial<CollectorsOptions> = {}): readonly Duty[] {
    return collectors({
      clock,
      election: { mayWrite: () => leads },
      kubernetes: client,
      kvstore: { backend, cluster: 'atlantic', identities: RANGE },
      onAction: (action) => actions.push(action),
      ...more,
    });
  }
  function run(more: Partial<CollectorsOptions> = {}): void {
    duties = make(more);
    running = Promise.all(duties.map((duty) => duty.run(ended.signal)));
  }
  const status = (name: string): DutyStatus => {
    const found = duties.find((duty) => duty.name === name);
    if (found === undefined) throw new Error(`no duty ${name}`);
    return found.status();
  };
  async function pod(name: string): Promise<string> {
    const { metadata } = await user('pods', 'shop').create(name);
    await user('pods', 'shop').ask({
      method: 'PATCH',
      path: `${user('pods', 'shop').path(name)}/status`,
      body: { status: { phase: 'Running' } },
      contentType: 'application/merge-patch+json',
    });
    return metadata.uid;
  }
  async function endpoint(name: string, uid: string, id: number): Promise<void> {
    const endpoints = user('ciliumendpoints', 'shop');
    await endpoints.create(name, {}, { ownerReferences: [{ kind: 'Pod', name, uid }] });
    await endpoints.ask({
      method: 'PATCH',
      path: `${endpoints.path(name)}/status`,
      body: { status: { identity: { id } } },
      contentType: 'application/merge-patch+json',
    });
  }

  it('delete the objects of a deleted pod and node, one after the other, with reasons', async () => {
    await user('nodes').create('n1');
    await user('ciliumnodes').create('n1');
    for (const id of ['1001', '1002']) await user('ciliumidentities').create(id);
    await endpoint('a', await pod('a'), 1001);
    await endpoint('b', await pod('b'), 1002);
    await backend.update(identityKey(300), bytesOfText('k8s:a=1;'));
    await backend.update(identityKey(301), bytesOfText('k8s:b=1;'));
    await backend.update(identityValueKey('k8s:b=1;', '10.0.0.1'), bytesOfText('301'));
    run();
    await advance(clock, 20 * MINUTE);
    expect(actions.map(({ action: what }) => what)).toEqual(['delete cilium/state/identities/v1/id/300']);
    await user('pods', 'shop').delete('a');
    await user('nodes').delete('n1');
    await advance(clock, 100 * MINUTE);
    expect(actions.slice(1).map(({ duty, action: what, reason: why }) => [duty, what, why])).toEqual([
      ['node-gc', 'delete ciliumnodes.cilium.io/v2 n1', 'Node n1 does not exist, in rounds 5 and 6'],
      [
        'endpoint-gc',
        'delete ciliumendpoints.cilium.io/v2 shop/a',
        'pod shop/a does not exist, in rounds 5 and 6',
      ],
      [
        'identity-gc-crd',
        'update ciliumidentities.cilium.io/v2 1001',
        'no endpoint used identity 1001 in any round of the timeout, up to round 4',
      ],
      [
        'identity-gc-crd',
        'delete ciliumidentities.cilium.io/v2 1001',
        'no endpoint used identity 1001 since it was marked, up to round 7',
      ],
    ]);
    expect(actions.every(({ outcome }) => outcome === 'done')).toBe(true);
    expect(status('endpoint-gc')).toMatchObject({
      state: 'running',
      failures: 0,
      lastFailure: undefined,
      rounds: {
        deleted: 1,
        conflicts: 0,
        marked: 0,
        lastRoundAt: WALL_TIME_AT_0 + 115 * MINUTE + 5000,
        nextRoundAt: WALL_TIME_AT_0 + 120 * MINUTE + 5000,
      },
    });
    expect(status('unmanaged-kube-dns').state).toBe('off');
    expect(duties.map((duty) => duty.name)).toEqual([
      ...['endpoint-gc', 'identity-gc-crd', 'node-gc', 'unmanaged-kube-dns'],
      ...['ciliumnetworkpolicies-status-gc', 'ciliumclusterwidenetworkpolicies-status-gc'],
      ...['endpoint-slices', 'identity-gc', 'lock-gc'],
    ]);
  });

  it('follow each kind once, also with the duty that batches endpoints (regression: twice)', async () => {
    run({ slices: {} });
    await advance(clock, 10_000);
    const followed = client.status().resources.map((one) => one.resource);
    expect([...followed].sort()).toEqual([...new Set(followed)].sort());
    expect(followed).toHaveLength(6);
  });

  it('report missing and refused kinds separately, and continue when they are available', async () => {
    const [crd, slices] = ['ciliumidentities', 'ciliumendpointslices'].map((plural) =>
      CLUSTER_TYPES.find((type) => type.plural === plural),
    );
    if (crd === undefined || slices === undefined) throw new Error('no such kind');
    api.stopServing(crd);
    api.stopServing(slices); // a cluster may lack them
    api.deny('list', 'nodes');
    api.deny('delete', 'ciliumendpoints');
    await endpoint('a', 'gone', 1001);
    run();
    await advance(clock, 11 * MINUTE);
    expect(status('identity-gc-crd')).toMatchObject({
      state: 'waiting',
      failures: 0,
      lastFailure: {
        code: 'not-ready',
        message: 'the server does not serve ciliumidentities.cilium.io/v2: its CRD is not installed',
      },
    });
    expect(status('node-gc')).toMatchObject({
      state: 'waiting',
      lastFailure: {
        message: expect.stringMatching(/^nodes\/v1: .+: grant the verb "list" on the resource "nodes"/),
      },
    });
    expect(status('endpoint-gc')).toMatchObject({
      state: 'running',
      failures: 1,
      rounds: { marked: 1, deleted: 0 },
      lastFailure: {
        code: 'refused',
        message: expect.stringMatching(
          /^cannot delete ciliumendpoints.cilium.io\/v2 shop\/a: .+: grant the verb "delete" on the resource "ciliumendpoints" of the API group "cilium.io"$/,
        ),
      },
    });
    expect(status('lock-gc')).toMatchObject({ state: 'running', failures: 0 });
    api.serve(crd);
    api.allow('list', 'nodes');
    api.allow('delete', 'ciliumendpoints');
    await advance(clock, 6 * MINUTE);
    expect(status('identity-gc-crd')).toMatchObject({ state: 'running', lastFailure: undefined });
    expect(status('node-gc').state).toBe('running');
    expect(status('endpoint-gc').rounds?.deleted).toBe(1);
  });

  it('delete nothing while the server is unreachable, nor according to one that is behind', async () => {
    run();
    await advance(clock, MINUTE);
    api.holdCache();
    await endpoint('a', await pod('a'), 1001);
    api.releaseCache();
    api.down();
    await advance(clock, 20 * MINUTE);
    expect(status('endpoint-gc')).toMatchObject({
      state: 'waiting',
      lastFailure: { message: expect.stringMatching(/ is not watched: /) },
    });
    api.up();
    await advance(clock, 20 * MINUTE);
    expect(actions).toEqual([]);
    expect(status('endpoint-gc').state).toBe('running');
  });

  it('delete nothing without the lease', async () => {
    leads = false;
    await endpoint('a', 'gone', 1001);
    await backend.update(identityKey(300), bytesOfText('k8s:a=1;'));
    run();
    await advance(clock, 31 * MINUTE);
    expect(actions.filter(({ outcome }) => outcome !== 'not-leader')).toEqual([]);
    expect(status('endpoint-gc').lastFailure).toMatchObject({ code: 'not-leader' });
    expect(status('identity-gc').lastFailure).toMatchObject({ code: 'not-leader' });
    leads = true;
    await advance(clock, 15 * MINUTE);
    expect(actions.filter(({ outcome }) => outcome === 'done').map(({ action: what }) => what)).toEqual([
      ...['delete ciliumendpoints.cilium.io/v2 shop/a', 'delete cilium/state/identities/v1/id/300'],
    ]);
  });

  it('print each delete with its reason in a dry run, and send none', async () => {
    const lines: string[] = [];
    await endpoint('a', 'gone', 1001);
    await backend.update(identityKey(300), bytesOfText('k8s:a=1;'));
    run({ dryRun: (line) => lines.push(line) });
    await advance(clock, 20 * MINUTE);
    expect(new Set(lines)).toEqual(
      new Set([
        'delete ciliumendpoints.cilium.io/v2 shop/a: pod shop/a does not exist, in rounds 2 and 3',
        'delete ciliumendpoints.cilium.io/v2 shop/a: pod shop/a does not exist, in rounds 3 and 4',
        'delete cilium/state/identities/v1/id/300: no node references the identity',
      ]),
    );
    expect(await backend.get(identityKey(300))).toBeDefined();
    expect(
      (await user('ciliumendpoints', 'shop').ask({ path: user('ciliumendpoints', 'shop').path('a') })).status,
    ).toBe(200);
  });

  it('delete no identities of other clusters in one kvstore', async () => {
    const stale = [300, 65_536 + 300];
    for (const id of stale) await backend.update(identityKey(id), bytesOfText(`k8s:of=${id};`));
    run();
    await advance(clock, 31 * MINUTE);
    const left = (await backend.listPrefix('cilium/state/identities/v1/id/')).map(({ key }) => key);
    expect(left).toEqual([identityKey(65_536 + 300)]);
  });

  it('of a failing kvstore count it, mark nothing, and delete stale keys two rounds later', async () => {
    await backend.update(identityKey(300), bytesOfText('k8s:a=1;'));
    const reset = new KvstoreError('unavailable', 'connection reset');
    vi.spyOn(backend, 'listPrefix').mockRejectedValueOnce(reset).mockRejectedValueOnce(reset);
    run();
    await advance(clock, MINUTE);
    for (const name of ['identity-gc', 'lock-gc'])
      expect(status(name)).toMatchObject({
        failures: 1,
        lastFailure: { code: 'unavailable', message: 'connection reset' },
      });
    expect(status('identity-gc').rounds).toMatchObject({ rounds: 0, marked: 0 });
    expect(status('lock-gc').rounds).toMatchObject({ rounds: 2, marked: 0 });
    await advance(clock, 15 * MINUTE);
    expect(status('identity-gc').rounds).toMatchObject({ rounds: 1, marked: 1, deleted: 0 });
    await advance(clock, 15 * MINUTE);
    expect(status('identity-gc').rounds).toMatchObject({ rounds: 2, deleted: 1 });
    expect(actions).toEqual([
      {
        duty: 'identity-gc',
        action: `delete ${identityKey(300)}`,
        outcome: 'done',
        reason: 'no node references the identity, unchanged since revision 2, in rounds 1 and 2',
      },
    ]);
  });

  it('delete a lock that is not released', async () => {
    const lock = `${IDENTITY_LOCKS_PREFIX}k8s:a=1;/1f`;
    await backend.update(lock, bytesOfText(''));
    run();
    await advance(clock, 24_000);
    expect(await backend.get(lock)).toBeDefined();
    await advance(clock, 2000);
    expect(await backend.get(lock)).toBeUndefined();
    expect(actions.map(({ duty, reason: why }) => [duty, why])).toEqual([
      ['lock-gc', 'the lock was not released, unchanged since revision 2, in rounds 1 and 2'],
    ]);
  });

  it('have a row in the status if they are off, and wait if they are on', () => {
    const off = { endpoints: 0, identities: 0, nodes: 0, kvstoreIdentities: 0, locks: 0 };
    const states = (more: Partial<CollectorsOptions>): Readonly<Record<string, DutyStatus>> =>
      Object.fromEntries(make(more).map((one) => [one.name, one.status()]));
    const names = [
      ...['endpoint-gc', 'identity-gc-crd', 'node-gc', 'unmanaged-kube-dns'],
      ...['ciliumnetworkpolicies-status-gc', 'ciliumclusterwidenetworkpolicies-status-gc'],
      ...['endpoint-slices', 'identity-gc', 'lock-gc'],
    ];
    expect(states({ intervals: off })).toEqual(
      Object.fromEntries(
        names.map((name) => [name, { name, state: 'off', failures: 0, lastFailure: undefined }]),
      ),
    );
    const on = { policyStatus: 120_000, unmanagedDns: 15_000 };
    expect(Object.values(states({ intervals: on, slices: {} })).map(({ state }) => state)).toEqual(
      new Array(9).fill('waiting'),
    );
  });

  it('run at their default intervals, or at those of the options', async () => {
    const wait = (): object =>
      Object.fromEntries(
        duties.flatMap((duty) => {
          const { lastRoundAt, nextRoundAt } = duty.status().rounds ?? {};
          return lastRoundAt === undefined ? [] : [[duty.name, (nextRoundAt ?? 0) - lastRoundAt]];
        }),
      );
    run();
    await advance(clock, 10_000);
    const rounds = {
      'endpoint-gc': 5 * MINUTE,
      'identity-gc-crd': 15 * MINUTE,
      'node-gc': 5 * MINUTE,
      'identity-gc': 15 * MINUTE,
      'lock-gc': 25_000,
    };
    expect(wait()).toEqual(rounds);
    ended.abort();
    await running;
    ended = new AbortController();
    const kvstore = { kvstoreIdentities: 20 * MINUTE, locks: 30_000 };
    const more = { policyStatus: 9 * MINUTE, unmanagedDns: 10 * MINUTE };
    run({
      intervals: { endpoints: 6 * MINUTE, identities: 7 * MINUTE, nodes: 8 * MINUTE, ...kvstore, ...more },
    });
    await advance(clock, 10_000);
    expect(wait()).toEqual({
      'endpoint-gc': 6 * MINUTE,
      'identity-gc-crd': 7 * MINUTE,
      'node-gc': 8 * MINUTE,
      'unmanaged-kube-dns': 10 * MINUTE,
      'ciliumnetworkpolicies-status-gc': 9 * MINUTE,
      'ciliumclusterwidenetworkpolicies-status-gc': 9 * MINUTE,
      'identity-gc': 20 * MINUTE,
      'lock-gc': 30_000,
    });
  });

  it('write at their rates, within the time of the leader, and only as the leader', () => {
    const asked: ObjectWriterOptions[] = [];
    const kubernetes = {
      follow: client.follow.bind(client),
      firstServed: client.firstServed.bind(client),
      reader: () => client.reader(),
      writer: (options: ObjectWriterOptions = {}) => {
        asked.push(options);
        return client.writer(options);
      },
    };
    make({ kubernetes, slices: {}, election: { mayWrite: () => leads, writeMs: 7_000 } });
    expect(asked.map(({ perSecond }) => perSecond)).toEqual([20, 2500 / 60, 10]);
    expect(asked.map(({ timeoutMs }) => timeoutMs)).toEqual([7_000, 7_000, 7_000]);
    expect(asked.map(({ mayWrite }) => mayWrite?.())).toEqual([true, true, true]);
    leads = false;
    expect(asked.map(({ mayWrite }) => mayWrite?.())).toEqual([false, false, false]);
  });

  it('do not start with settings that delete objects in use', () => {
    expect(() => make({ intervals: { endpoints: 0 } })).toThrow(AssertionError);
    expect(() => make({ intervals: { endpoints: 0, identities: 0 } })).not.toThrow();
    expect(() => make({ intervals: { kvstoreIdentities: 10 * MINUTE } })).toThrow(AssertionError);
  });
});
