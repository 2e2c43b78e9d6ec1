import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import {
  type ConflictDocument,
  type ConflictModel,
  ConflictScan,
  meshConflicts,
} from '../../src/api/conflicts.ts';
import type { StatusDocument } from '../../src/api/status-document.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { Prefix } from '../../src/net/prefix.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { settle } from '../agent/support/fake-clock.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { testApp } from './support/test-app.ts';

interface NodeOf {
  readonly cluster: string;
  readonly name: string;
  readonly cidrs: readonly string[];
}

function modelOf(nodes: readonly NodeOf[], ids: readonly (readonly [string, number])[] = []): ConflictModel {
  const ipcache = new IPCache();
  const manager = new NodeManager({
    ipcache,
    clock: new ManualClock(),
    clusterName: 'own',
    nodeName: 'me',
  });
  for (const { cluster, name, cidrs } of nodes)
    manager.nodeUpdated({
      cluster,
      name,
      source: 'clustermesh',
      addresses: [],
      ipv4AllocCIDR: cidrs[0],
      ipv4SecondaryAllocCIDRs: cidrs.slice(1),
    });
  const clusters = ids.map(([name, id]) => ({ name, id, state: 'ready' }));
  const status = (): StatusDocument => ({ cluster: 'own', clusters }) as unknown as StatusDocument;
  return { ipcache, nodes: manager, status };
}

function found(model: ConflictModel): readonly ConflictDocument[] {
  return [...meshConflicts(model)].filter((one) => one !== undefined);
}

const cidr = fc.constantFrom(
  '10.0.0.0/8',
  '10.1.0.0/16',
  '10.1.2.0/24',
  '10.1.3.0/24',
  '10.2.0.0/16',
  '11.0.0.0/24',
);
const nodes = fc.uniqueArray(
  fc.record({
    cluster: fc.constantFrom('a', 'b', 'c'),
    name: fc.constantFrom('n1', 'n2', 'n3'),
    cidrs: fc.uniqueArray(cidr, { minLength: 1, maxLength: 2 }),
  }),
  { selector: ({ cluster, name }) => `${cluster}/${name}`, maxLength: 8 },
);

describe('conflicts between clusters', () => {
  it('a failed scan for the metrics is not an unhandled rejection', async () => {
    const unhandled: unknown[] = [];
    const onUnhandled = (error: unknown): void => {
      unhandled.push(error);
    };
    process.on('unhandledRejection', onUnhandled);
    const model = modelOf([]);
    const fail = (): never => {
      throw new Error('no status');
    };
    const clock = new ManualClock();
    const scan = new ConflictScan(
      { ...model, status: fail },
      new TurnGate({ clock, nextTurn: setImmediate }),
      clock,
    );
    expect(scan.counts()).toBeUndefined();
    for (let turns = 0; turns < 5; turns++) await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', onUnhandled);
    expect(unhandled).toEqual([]);
  });

  it('are found for a CIDR of pods if one of another cluster contains it', () => {
    fc.assert(
      fc.property(nodes, (all) => {
        const list = all.flatMap(({ cluster, name, cidrs }) =>
          cidrs.map((text) => ({
            cluster,
            claim: `${text} of node ${name}`,
            text,
            prefix: Prefix.parse(text),
          })),
        );
        const expected = list.filter(
          ({ cluster, text, prefix }, index) =>
            list.findIndex((other) => other.cluster === cluster && other.text === text) === index &&
            list.some(
              (other) =>
                other.cluster !== cluster &&
                prefix !== undefined &&
                other.prefix?.contains(prefix) === true &&
                (other.text !== text || other.cluster < cluster),
            ),
        );
        const conflicts = found(modelOf(all));
        expect(conflicts.map(({ sides }) => `${sides[1]?.cluster} ${sides[1]?.claim}`).sort()).toEqual(
          expected.map(({ cluster, claim }) => `${cluster} ${claim}`).sort(),
        );
        for (const { sides } of conflicts) expect(sides[0]?.cluster).not.toBe(sides[1]?.cluster);
      }),
    );
  });

  it('are counted once for a CIDR of several nodes of a cluster (regression: once for each node)', () => {
    const cidrs = ['10.1.0.0/16'];
    const nodesOf = (cluster: string): readonly NodeOf[] =>
      ['n1', 'n2'].map((name) => ({ cluster, name, cidrs }));
    expect(found(modelOf([...nodesOf('a'), ...nodesOf('b')]))).toEqual([
      {
        kind: 'pod-cidr',
        subject: '10.1.0.0/16',
        sides: [
          { cluster: 'a', claim: '10.1.0.0/16 of node n1' },
          { cluster: 'b', claim: '10.1.0.0/16 of node n1' },
        ],
      },
    ]);
  });

  it('are found for prefixes of several clusters, and for ids of several clusters', () => {
    const model = modelOf(
      [],
      [
        ['own', 1],
        ['a', 2],
        ['b', 2],
        ['c', 0],
        ['d', 0],
      ],
    );
    const claim = (owner: string, identity: number) => ({ source: 'clustermesh', owner, identity }) as const;
    model.ipcache.upsert('10.0.0.1', { ...claim('a', 7), hostIP: '192.168.0.1' });
    model.ipcache.upsert('10.0.0.1', claim('b', 8));
    model.ipcache.upsert('10.0.0.2', claim('a', 7));
    model.ipcache.upsert('10.0.0.2', { source: 'generated', identity: 9 });
    model.ipcache.upsert('10.0.0.3', claim('a', 7));
    model.ipcache.upsert('10.0.0.3', { source: 'kvstore', identity: 9 });
    model.ipcache.upsert('10.0.0.4', { source: 'k8s', identity: 1 });
    model.ipcache.upsert('10.0.0.4', { source: 'kvstore', identity: 9 });
    expect(found(model)).toEqual([
      {
        kind: 'cluster-id',
        subject: '2',
        sides: [
          { cluster: 'a', claim: 'id 2, ready' },
          { cluster: 'b', claim: 'id 2, ready' },
        ],
      },
      {
        kind: 'prefix',
        subject: '10.0.0.1/32',
        sides: [
          { cluster: 'a', claim: 'identity 7 on 192.168.0.1' },
          { cluster: 'b', claim: 'identity 8' },
        ],
      },
      {
        kind: 'prefix',
        subject: '10.0.0.3/32',
        sides: [
          { cluster: 'own', claim: 'identity 9' },
          { cluster: 'a', claim: 'identity 7' },
        ],
      },
    ]);
  });

  it.each(['169.254.23.0', 'fe80::1'])(
    'are not found for the router address %s, which nodes of all clusters have (regression: a permanent conflict)',
    (ip) => {
      const model = modelOf([]);
      for (const owner of ['a', 'b']) model.ipcache.upsert(ip, { source: 'clustermesh', owner, identity: 6 });
      expect(found(model)).toEqual([]);
    },
  );

  it('are counted completely, listed up to 1,000 of a kind, and counted again after a minute', async () => {
    const model = modelOf([]);
    const clock = new ManualClock();
    for (let i = 0; i < 3_000; i++)
      for (const owner of ['a', 'b'])
        model.ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, { source: 'clustermesh', owner, identity: 7 });
    const scan = new ConflictScan(model, new TurnGate({ clock, nextTurn: setImmediate }), clock);
    const reads = vi.spyOn(model.ipcache, 'contested');
    expect(scan.counts()).toBeUndefined();
    const { counts, items } = await scan.scan(); // the scan that `counts` has started
    expect(counts).toEqual({ 'pod-cidr': 0, prefix: 3_000, 'cluster-id': 0 });
    expect(items).toHaveLength(1_000);
    model.ipcache.delete('10.0.0.0', { source: 'clustermesh', owner: 'b' });
    clock.advance(59_999);
    expect(scan.counts()).toEqual(counts);
    await settle();
    expect(reads).toHaveBeenCalledTimes(1);
    clock.advance(1);
    expect(scan.counts()).toEqual(counts);
    await scan.scan();
    expect(scan.counts()).toEqual({ ...counts, prefix: 2_999 });
    expect(reads).toHaveBeenCalledTimes(2);
    await scan.scan(); // a request always reads the current state
    expect(reads).toHaveBeenCalledTimes(3);
  });

  it('are searched again after a failed search', async () => {
    const { app, model, faults } = testApp();
    const bug = new Error('bug');
    const contested = vi.spyOn(model.ipcache, 'contested').mockImplementation(() => {
      throw bug;
    });
    expect([(await app.request('/v1/conflicts')).status, faults]).toEqual([500, [bug]]);
    contested.mockRestore();
    expect((await app.request('/v1/conflicts')).status).toBe(200);
  });

  it('are served by the API, and their number is a metric', async () => {
    const { app, model } = testApp();
    for (const owner of ['baltic', 'caspian'])
      model.ipcache.upsert('10.9.0.1', { source: 'clustermesh', owner, identity: 7 });
    const answer = await app.request('/v1/conflicts');
    expect(await answer.json()).toMatchObject({
      counts: { 'pod-cidr': 0, prefix: 1, 'cluster-id': 0 },
      items: [{ kind: 'prefix', subject: '10.9.0.1/32' }],
    });
    expect(await (await app.request('/metrics')).text()).toContain('dpcache_conflicts{kind="prefix"} 1');
  });
});
