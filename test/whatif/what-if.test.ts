import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { History } from '../../src/history/history.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { IPCacheSnapshot } from '../../src/ipcache/snapshot.ts';
import type { Source } from '../../src/model/source.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService } from '../../src/servicecache/service.ts';
import { type Edit, EditError } from '../../src/whatif/edits.ts';
import { type WhatIfAnswer, whatIf } from '../../src/whatif/what-if.ts';
import { fewerRuns } from '../base/support/fewer-runs.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { remote } from '../operator/mirrored-slices/support/slice-world.ts';
import {
  apply,
  EDIT,
  type Engines,
  makeEdits,
  newEngines,
  renaming,
  WRITE,
  WRITES,
  type Write,
} from './support/states.ts';

const EDITS = fc.array(EDIT, { minLength: 1, maxLength: 3 });

function stateOf(writes: readonly Write[], rename?: ReturnType<typeof renaming>): Engines {
  const engines = newEngines();
  for (const write of writes) apply(engines, write, rename);
  return engines;
}

/** The visible changes of prefixes, as text, without their writers. */
function prefixText(
  changes: readonly {
    readonly prefix: string;
    readonly old: object | undefined;
    readonly new: object | undefined;
  }[],
): readonly string[] {
  const entry = (one: object | undefined): string => {
    if (one === undefined) return 'none';
    const { identity, hostIP, encryptKey, k8s } = one as Record<string, unknown>;
    return JSON.stringify([identity, hostIP ?? null, encryptKey, k8s ?? null]);
  };
  return changes.map(({ prefix, old, new: next }) => `${prefix} ${entry(old)} ${entry(next)}`).sort();
}

function nodeTexts(engines: Engines): ReadonlyMap<string, string> {
  return new Map(
    Array.from(engines.nodes.nodes(), (node) => {
      const { source: _, ...fields } = node.toJSON();
      return [node.fullName, JSON.stringify(fields)];
    }),
  );
}

function backendsOf(engines: Engines): ReadonlyMap<string, readonly string[]> {
  return new Map(
    Array.from(engines.services.snapshot(), ([key, { endpoints }]) => [
      key,
      [...endpoints.backends.keys()].sort(),
    ]),
  );
}

/** Returns the answer; undefined if an edit names something unknown. */
async function answerOf(
  engines: Engines,
  edits: readonly Edit[],
  gate?: TurnGate,
): Promise<WhatIfAnswer | undefined> {
  try {
    return await whatIf(engines, edits, { gate, limit: Number.POSITIVE_INFINITY });
  } catch (error) {
    if (error instanceof EditError) return undefined;
    throw error;
  }
}

function plain(answer: WhatIfAnswer) {
  const { prefixes, nodes, services } = answer;
  const { began: _, readAgain: _again, ...summary } = answer.summary;
  return {
    prefixes: prefixText(prefixes),
    covers: prefixes.map(({ prefix, coveredBy }) => `${prefix} ${coveredBy?.prefix}`).sort(),
    nodes: nodes.map(({ kind, node }) => `${kind} ${node}`).sort(),
    services: services
      .map(({ kind, service, before, after, lost }) => `${kind} ${service} ${before} ${after} ${lost}`)
      .sort(),
    summary,
  };
}

/**
 * Expects that the answer to the edits is the difference after they are made on a copy. Returns false if an edit names
 * something unknown. `begin` returns the engines before the writes.
 */
async function expectDifference(
  begin: (rename?: ReturnType<typeof renaming>) => Engines,
  writes: readonly Write[],
  edits: readonly Edit[],
): Promise<boolean> {
  const engines = begin();
  for (const write of writes) apply(engines, write);
  const answer = await answerOf(engines, edits);
  if (answer === undefined) return false;
  const rename = renaming(edits);
  const copy = begin(rename);
  for (const write of writes) apply(copy, write, rename);
  makeEdits(copy, edits, rename, (node) =>
    (engines.nodes.claimsOf(node)[0]?.fields.addresses ?? []).map(({ ip }) => ip),
  );

  const changes = IPCacheSnapshot.diff(engines.ipcache.snapshot(), copy.ipcache.snapshot());
  expect(prefixText(answer.prefixes)).toEqual(prefixText(changes));
  const wrongCovers = answer.prefixes.filter(({ prefix, kind, coveredBy }) => {
    if (kind !== 'gone') return false;
    const found = copy.ipcache.lookup(prefix.replace(/\/\d+/, ''));
    if (found === undefined) return coveredBy !== undefined;
    return /\/(32|128)/.test(prefix) && coveredBy?.claim.identity !== found.identity;
  });
  expect(wrongCovers).toEqual([]);

  const [nodesBefore, nodesAfter] = [nodeTexts(engines), nodeTexts(copy)];
  const gone = [...nodesBefore.keys()].filter((name) => !nodesAfter.has(name));
  expect(
    answer.nodes
      .filter(({ kind }) => kind === 'gone')
      .map(({ node }) => node)
      .sort(),
  ).toEqual(gone.sort());
  for (const [name, text] of nodesBefore)
    if (nodesAfter.has(name) && nodesAfter.get(name) !== text)
      expect(answer.nodes.map(({ node }) => node)).toContain(name);

  const [before, after] = [backendsOf(engines), backendsOf(copy)];
  const wrongServices = [...before].filter(([key, backends]) => {
    const change = answer.services.find(({ service }) => service === key);
    const then = after.get(key);
    const lost = backends.filter((address) => then?.includes(address) !== true).length;
    return (
      (change?.lost ?? 0) !== lost ||
      (change?.kind === 'gone') !== (then === undefined) ||
      (change?.kind === 'empty') !== (backends.length > 0 && then?.length === 0) ||
      (change !== undefined && change.after !== (then?.length ?? 0))
    );
  });
  expect(wrongServices).toEqual([]);
  const created = [...after.keys()].filter((key) => !before.has(key));
  expect(
    answer.services
      .filter(({ kind }) => kind === 'created')
      .map(({ service }) => service)
      .sort(),
  ).toEqual(created.sort());
  return true;
}

/** Returns engines with a history, and with claims of one cluster that all have one identity. */
function equalIdentities(count: number): (rename?: ReturnType<typeof renaming>) => Engines {
  return (rename = (source) => source) => {
    const engines = newEngines();
    new History({ ipcache: engines.ipcache, clock: new ManualClock() }).start();
    for (let i = 0; i < count; i++)
      engines.ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, {
        identity: 7,
        source: rename('clustermesh'),
        owner: 'baltic',
      });
    return engines;
  };
}

describe('W1: the answer is the difference after the edits are made on a copy', () => {
  it('for random states and edits', async () => {
    await fc.assert(
      fc.asyncProperty(WRITES, EDITS, async (writes, edits) => {
        fc.pre(await expectDifference(newEngines, writes, edits));
      }),
      fewerRuns(100),
    );
  });

  it('with a history, for 5,000 claims of one identity', async () => {
    await fc.assert(
      fc.asyncProperty(WRITES, EDITS, async (writes, edits) => {
        fc.pre(await expectDifference(equalIdentities(5_000), writes, edits));
      }),
      { numRuns: Math.ceil(Number(process.env['PROPERTY_RUNS'] ?? 400) / 50) },
    );
  });

  it('with a history, if a cluster of 65,000 claims of one identity is removed', async () => {
    const edits = [{ edit: 'remove-cluster', cluster: 'baltic' }] as const;
    expect(await expectDifference(equalIdentities(65_000), [], edits)).toBe(true);
  });
});

describe('W2: nothing is written', () => {
  it('keeps dumps, revisions and outcomes, and calls no listener', async () => {
    await fc.assert(
      fc.asyncProperty(WRITES, EDITS, async (writes, edits) => {
        const engines = stateOf(writes);
        let calls = 0;
        const count = (): void => void calls++;
        engines.ipcache.subscribe({ onChanges: count });
        engines.ipcache.subscribeOwners({ onOwnerChanges: count });
        engines.services.subscribe({ onEvents: count });
        engines.nodes.subscribe({ nodeAdd: count, nodeUpdate: count, nodeDelete: count });
        calls = 0;
        const dump = (): unknown => [
          [...engines.ipcache.entries({ includeShadowed: true })],
          [...engines.ipcache.contested()],
          engines.ipcache.status(),
          engines.services.status(),
          engines.services.revision,
          [...engines.services.parts()].length,
          engines.nodes.status(),
          engines.nodes.configuration,
        ];
        const before = dump();
        await answerOf(engines, edits);
        expect(dump()).toEqual(before);
        expect(calls).toBe(0);
      }),
      { numRuns: 60 },
    );
  });
});

describe('W3: writes go on during the evaluation', () => {
  it('answers for the moment at which it ends', async () => {
    await fc.assert(
      fc.asyncProperty(WRITES, fc.array(WRITE, { maxLength: 12 }), EDITS, async (writes, later, edits) => {
        const engines = stateOf(writes);
        const rest = [...later];
        // One step in each turn, and a write between two turns.
        const gate = new TurnGate({
          clock: { now: () => 0 },
          weightPerTurn: 1,
          nextTurn: (callback) =>
            setImmediate(() => {
              const write = rest.shift();
              if (write !== undefined) apply(engines, write);
              callback();
            }),
        });
        const answer = await answerOf(engines, edits, gate);
        const settled = await answerOf(engines, edits);
        if (answer === undefined || settled === undefined) {
          expect(answer).toBe(settled);
          return;
        }
        expect(plain(answer)).toEqual(plain(settled));
        expect(answer.summary.ended.ipcache).toBe(engines.ipcache.revision);
      }),
      { numRuns: 150 },
    );
  });
});

describe('the local node, whose addresses are claimed with source local', () => {
  const own = (source: Source) => {
    const ipcache = new IPCache();
    const clock = new ManualClock();
    const nodes = new NodeManager({
      ipcache,
      clock,
      clusterName: 'own',
      nodeName: 'here',
      localNodeIsHost: true,
    });
    const addresses = [{ type: 'InternalIP', ip: '192.168.0.1' }] as const;
    nodes.nodeUpdated({ cluster: 'own', name: 'here', addresses, source });
    ipcache.upsert('192.168.0.2', { identity: 1, source: 'local', owner: 'host-ips' });
    return { ipcache, nodes };
  };
  const goneOf = async (source: Source, removed: Source): Promise<readonly string[]> => {
    const { prefixes } = await whatIf(own(source), [{ edit: 'remove-source', source: removed }]);
    return prefixes.map(({ kind, prefix }) => `${kind} ${prefix}`).sort();
  };

  it('keeps them without the source local if another source announces it (regression: predicted as gone)', async () => {
    expect(await goneOf('custom-resource', 'local')).toEqual(['gone 192.168.0.2/32']);
  });

  it('loses them with the source that announces it', async () => {
    expect(await goneOf('custom-resource', 'custom-resource')).toEqual(['gone 192.168.0.1/32']);
    expect(await goneOf('local', 'local')).toEqual(['gone 192.168.0.1/32', 'gone 192.168.0.2/32']);
  });
});

describe('a node manager that is closed', () => {
  it('has no changes, because it ignores settings and deletions', async () => {
    const engines = stateOf([]);
    const node = {
      cluster: 'own',
      name: 'here',
      addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }],
    } as const;
    engines.nodes.nodeUpdated({ ...node, source: 'kvstore' });
    engines.nodes.nodeDeleted({ ...node, source: 'k8s' });
    expect(engines.nodes.closed).toBe(true);
    for (const edit of [
      { edit: 'setting', settings: { remoteNodeIdentities: false } },
      { edit: 'remove-node', node: 'own/here' },
    ] as const) {
      const { prefixes, nodes, summary } = await whatIf(engines, [edit]);
      expect([prefixes, nodes, summary.loses]).toEqual([[], [], false]);
    }
  });
});

describe('a node manager that is closed during the evaluation', () => {
  it('has no changes (regression: the claims of nodes that were read before had changed)', async () => {
    const engines = stateOf([]);
    for (let i = 0; i < 200; i++) {
      const addresses = [{ type: 'InternalIP', ip: `192.168.0.${i}` }] as const;
      engines.nodes.nodeUpdated({ cluster: 'own', name: `node-${i}`, addresses, source: 'kvstore' });
    }
    const gate = new TurnGate({
      clock: { now: () => 0 },
      weightPerTurn: 1,
      nextTurn: (callback) =>
        setImmediate(() => {
          engines.nodes.close();
          callback();
        }),
    });
    const edits = [{ edit: 'setting', settings: { remoteNodeIdentities: false } }] as const;
    const { prefixes, nodes } = await whatIf(engines, edits, { gate });
    expect([prefixes, nodes]).toEqual([[], []]);
  });
});

describe('a drained node', () => {
  const ports = [['http', { port: 80, protocol: 6 }]] as const;
  const backendOn = (nodeName: string, address: string) => createBackend({ address, nodeName, ports });
  const id = { namespace: 'shop', name: 'cart' };
  const pod = (hostIP: string) => ({ identity: 300, hostIP, k8s: { namespace: 'shop', podName: 'a' } });

  it('loses its pods and backends, and stays (regression: only remove-node, which leaves both)', async () => {
    const { ipcache, services, nodes } = newEngines();
    for (const n of [1, 2]) {
      const addresses = [{ type: 'InternalIP', ip: `192.168.0.${n}` }] as const;
      nodes.nodeUpdated({ cluster: 'own', name: `n${n}`, addresses, source: 'k8s' });
      ipcache.upsert(`10.0.${n}.1`, { ...pod(`192.168.0.${n}`), source: 'custom-resource' });
    }
    ipcache.upsert('10.0.1.1', { ...pod('192.168.0.1'), source: 'k8s' }); // overruled
    ipcache.upsert('10.0.1.9', { identity: 4, hostIP: '192.168.0.1', source: 'kvstore' }); // health of the node
    services.updateService(createService({ id, addressing: 'assigned', clusterIPs: ['10.96.0.1'] }));
    const backends = [backendOn('n1', '10.0.1.1'), backendOn('n2', '10.0.2.1')];
    services.updateEndpoints(createEndpointSlice({ service: id, name: 's1', backends }));
    const drained = await whatIf({ ipcache, services, nodes }, [{ edit: 'drain-node', node: 'own/n1' }]);
    expect(drained.prefixes.map(({ kind, prefix }) => [kind, prefix])).toEqual([['gone', '10.0.1.1/32']]);
    expect(drained.services.map(({ kind, service }) => [kind, service])).toEqual([['fewer', 'shop/cart']]);
    expect(drained.nodes).toEqual([]);
    const both = ['own/n1', 'own/n2'].map((node) => ({ edit: 'drain-node', node }) as const);
    const { summary } = await whatIf({ ipcache, services, nodes }, both);
    expect(summary).toMatchObject({ prefixes: { gone: 2 }, services: { empty: 1 }, loses: true });
  });

  it('of a remote cluster loses the backends in its slices', async () => {
    const { ipcache, services, nodes } = newEngines();
    const addresses = [{ type: 'InternalIP', ip: '192.168.0.1' }] as const;
    for (const cluster of ['own', 'baltic'])
      nodes.nodeUpdated({ cluster, name: 'node-of-remote', addresses, source: 'clustermesh' });
    services.updateService(
      createService({ id, addressing: 'assigned', clusterIPs: ['10.96.0.1'], global: true }),
    );
    services.mergeExternalSliceUpdate(remote('baltic', 'cart', 's1', ['10.0.1.1']));
    const drain = async (node: string) =>
      (await whatIf({ ipcache, services, nodes }, [{ edit: 'drain-node', node }])).services.map(
        ({ kind }) => kind,
      );
    expect(await drain('own/node-of-remote')).toEqual([]);
    expect(await drain('baltic/node-of-remote')).toEqual(['empty']);
  });

  it('loses a pod that starts during the evaluation, and one on an address that the node gets', async () => {
    const { ipcache, services, nodes } = newEngines();
    const update = (...ips: string[]): unknown =>
      nodes.nodeUpdated({
        ...{ cluster: 'own', name: 'n1', source: 'k8s' },
        addresses: ips.map((ip) => ({ type: 'InternalIP', ip })),
      });
    update('192.168.0.1');
    ipcache.upsert('10.0.1.1', { ...pod('192.168.0.1'), source: 'k8s' });
    ipcache.upsert('10.0.1.2', { ...pod('192.168.0.2'), source: 'k8s' });
    let turns = 0;
    const gate = new TurnGate({
      clock: { now: () => 0 },
      weightPerTurn: 1,
      nextTurn: (callback) =>
        setImmediate(() => {
          if (turns++ === 0) {
            ipcache.upsert('10.0.1.3', { ...pod('192.168.0.1'), source: 'k8s' });
            update('192.168.0.1', '192.168.0.2');
          }
          callback();
        }),
    });
    const edits = [{ edit: 'drain-node', node: 'own/n1' }] as const;
    const { prefixes } = await whatIf({ ipcache, services, nodes }, edits, { gate });
    expect(turns).toBeGreaterThan(0);
    expect(prefixes.map(({ prefix }) => prefix).sort()).toEqual([1, 2, 3].map((n) => `10.0.1.${n}/32`));
  });
});

describe('an edit that names nothing', () => {
  const engines = stateOf([
    { write: 'claim', key: '10.0.0.1', claim: { identity: 1, source: 'clustermesh', owner: 'baltic' } },
  ]);
  const refusals: readonly (readonly [Edit, string])[] = [
    [{ edit: 'remove-cluster', cluster: 'baltik' }, 'cluster'],
    [{ edit: 'remove-node', node: 'own/none' }, 'node'],
    [{ edit: 'drain-node', node: 'own/none' }, 'node'],
    [{ edit: 'remove-source', source: 'kvstore', owner: 'baltic' }, 'owner'],
    [{ edit: 'delete', key: '10.0.0.1', by: { source: 'k8s' } }, 'key'],
    [{ edit: 'upsert', key: '10.0.0.256', claim: { identity: 1, source: 'k8s' } }, 'key'],
    [{ edit: 'upsert', key: '10.0.0.1', claim: { identity: -1, source: 'k8s' } }, 'identity'],
    [{ edit: 'upsert', key: '10.0.0.1', claim: { identity: 1, source: 'k8s', hostIP: 'x' } }, 'hostIP'],
  ];
  it.each(refusals)('is refused: %o', async (edit, field) => {
    await expect(whatIf(engines, [edit])).rejects.toMatchObject({ name: 'EditError', index: 0, field });
  });

  it.each<readonly [Edit, string]>([
    [{ edit: 'remove-cluster', cluster: 'baltik' }, 'no remote cluster "baltik"'],
    [{ edit: 'remove-node', node: 'own/none' }, 'no node "own/none"'],
    [{ edit: 'remove-source', source: 'kvstore', owner: 'baltic' }, 'kvstore has no owner "baltic"'],
    [{ edit: 'delete', key: '10.0.0.1', by: { source: 'k8s' } }, 'k8s has no claim on "10.0.0.1"'],
    [
      { edit: 'upsert', key: '10.0.0.256', claim: { identity: 1, source: 'k8s' } },
      'key "10.0.0.256" must be an IP address or a CIDR',
    ],
    [{ edit: 'rank', source: 'k8s', place: 'above', other: 'k8s' }, 'other "k8s" must be another source'],
    [
      { edit: 'upsert', key: '10.0.0.1', claim: { identity: -1, source: 'k8s' } },
      '10.0.0.1: identity -1: must be an integer from 0 to 4294967295',
    ],
  ])('has the value in its message (regression: only the fault): %o', async (edit, message) => {
    await expect(whatIf(engines, [edit])).rejects.toThrow(message);
  });

  const unknown: readonly (readonly [object, string])[] = [
    [{ edit: 'remove-cluser', cluster: 'baltic' }, 'edit'],
    [{ edit: 'remove-source', source: 'kv-store' }, 'source'],
    [{ edit: 'rank', source: 'kv-store', place: 'above', other: 'k8s' }, 'source'],
    [{ edit: 'rank', source: 'k8s', place: 'above', other: 'kv-store' }, 'other'],
    [{ edit: 'rank', source: 'k8s', place: 'before', other: 'kvstore' }, 'place'],
    [{ edit: 'rank', source: 'k8s', place: 'above', other: 'k8s' }, 'other'],
    [{ edit: 'setting', settings: { encyption: true } }, 'settings'],
    [{ edit: 'setting', settings: { encryption: 'yes' } }, 'encryption'],
    [{ edit: 'setting', settings: { underlay: 'ipv5' } }, 'underlay'],
  ];
  it.each<readonly [object, string]>([
    [{ edit: 'remove-cluster' }, 'cluster must be a string, not undefined'],
    [{ edit: 'remove-node', node: 5 }, 'node must be a string, not 5'],
    [{ edit: 'drain-node', node: 5 }, 'node must be a string, not 5'],
    [{ edit: 'remove-source', source: 'k8s', owner: 5 }, 'owner must be a string, not 5'],
    [{ edit: 'setting' }, 'settings must be an object, not undefined'],
    [{ edit: 'setting', settings: 5 }, 'settings must be an object, not 5'],
    [{ edit: 'service', service: {} }, 'service must be a result of createService, not {}'],
    [{ edit: 'slice' }, 'slice must be a result of createEndpointSlice, not undefined'],
  ])(
    'is refused without a field (regression: TypeError, no changes, or "undefined is the local cluster"): %o',
    async (edit, message) => {
      const asked = Reflect.apply(whatIf, undefined, [engines, [edit]]);
      await expect(asked).rejects.toMatchObject({ name: 'EditError', index: 0, message });
    },
  );

  it.each(unknown)(
    'is refused if a word of it is unknown (regression: no changes): %o',
    async (edit, field) => {
      const asked = Reflect.apply(whatIf, undefined, [engines, [edit]]);
      await expect(asked).rejects.toMatchObject({ name: 'EditError', index: 0, field });
    },
  );

  it('is not refused when an earlier edit sets the claim under another text of the key', async () => {
    const [written, canonical] = ['2001:DB8::1', '2001:db8::1'];
    const { prefixes } = await whatIf(engines, [
      { edit: 'upsert', key: written, claim: { identity: 1, source: 'k8s' } },
      { edit: 'delete', key: canonical, by: { source: 'k8s' } },
    ]);
    expect(prefixes).toEqual([]);
  });

  it.each([
    { upsert: 'is a later edit', order: [1, 0], source: 'k8s' },
    { upsert: 'is one of another writer', order: [0, 1], source: 'kvstore' },
  ] as const)(
    'is refused although an upsert has its key, if this upsert $upsert',
    async ({ order, source }) => {
      const edits: readonly Edit[] = [
        { edit: 'upsert', key: '10.9.9.9', claim: { identity: 1, source } },
        { edit: 'delete', key: '10.9.9.9', by: { source: 'k8s' } },
      ];
      const asked = whatIf(
        engines,
        order.flatMap((index) => edits[index] ?? []),
      );
      await expect(asked).rejects.toMatchObject({ name: 'EditError', index: order.indexOf(1), field: 'key' });
    },
  );

  it('names the known clusters', async () => {
    const asked = whatIf(engines, [{ edit: 'remove-cluster', cluster: 'baltik' }]);
    await expect(asked).rejects.toMatchObject({ known: ['baltic'], value: 'baltik' });
  });
});

/** Returns a gate of short turns, and the sum of what was added in one turn. */
function countInTurns(): { readonly gate: TurnGate; readonly most: number; add: (count: number) => void } {
  let [inTurn, most] = [0, 0];
  const gate = new TurnGate({
    clock: new ManualClock(),
    weightPerTurn: 1,
    nextTurn: (callback) =>
      setImmediate(() => {
        inTurn = 0;
        callback();
      }),
  });
  return {
    gate,
    get most() {
      return most;
    },
    add: (count) => {
      inTurn += count;
      most = Math.max(most, inTurn);
    },
  };
}

it('applies to a prefix only the edits that name it, and removals in the order of the edits (regression: each edit to each prefix)', async () => {
  const upsert = (key: string, owner: string): Edit => ({
    edit: 'upsert',
    key,
    claim: { identity: 400, source: 'clustermesh', owner },
  });
  const ipcache = new IPCache();
  ipcache.upsert('10.0.0.1', { identity: 300, source: 'clustermesh', owner: 'c' });
  const removal: Edit = { edit: 'remove-cluster', cluster: 'c' };
  const { prefixes: after } = await whatIf({ ipcache }, [upsert('10.0.0.1', 'c'), removal]);
  const { prefixes: before } = await whatIf({ ipcache }, [removal, upsert('10.0.0.1', 'c')]);
  expect([after, before].map(([difference]) => difference?.kind)).toEqual(['gone', 'changed']);
  let reads = 0;
  const edits = Array.from({ length: 200 }, (_, i) => {
    const edit = upsert(`10.1.0.${i}`, 'c');
    return Object.defineProperty(edit, 'edit', { get: () => ['upsert', reads++][0] });
  });
  const { summary } = await whatIf({ ipcache }, edits);
  expect(summary.prefixes.created).toBe(edits.length);
  expect(reads).toBeLessThan(50 * edits.length); // before: 2 for each pair
});

it('applies to nodes and services only removals and the edits that name them (regression: each edit to each)', async () => {
  const engines = newEngines();
  for (let i = 0; i < 100; i++) {
    engines.nodes.nodeUpdated({ cluster: 'c', name: `n${i}`, source: 'clustermesh' });
    const id = { namespace: 'shop', name: `s${i}` };
    engines.services.updateService(createService({ id, addressing: 'assigned', clusterIPs: ['10.96.0.1'] }));
  }
  let reads = 0;
  const edits = Array.from({ length: 200 }, (_, i): Edit => {
    const claim = { identity: 400, source: 'clustermesh', owner: 'c' } as const;
    const edit = { edit: 'upsert', key: `10.1.0.${i}`, claim } as const;
    return Object.defineProperty({ ...edit }, 'edit', { get: () => ['upsert', reads++][0] });
  });
  const { summary } = await whatIf(engines, edits);
  expect(summary.prefixes.created).toBe(edits.length);
  expect(reads).toBeLessThan(50 * edits.length);
});

it('applies many edits of one prefix and many removals in linear time (regression: minutes for 20,000)', async () => {
  const count = 20_000;
  const ipcache = new IPCache();
  const nodes = newEngines().nodes;
  for (let i = 0; i < count / 10; i++) {
    ipcache.upsert(`10.1.${i >> 8}.${i & 255}`, { identity: 1, source: 'clustermesh', owner: `old-${i}` });
    nodes.nodeUpdated({ cluster: 'c', name: `n${i}`, source: 'clustermesh' });
  }
  const edits = Array.from({ length: count }, (_, i): Edit => {
    const upsert = { edit: 'upsert', key: '10.0.0.1' } as const;
    if (i % 10 > 1) return { ...upsert, claim: { identity: i, source: 'clustermesh', owner: `new-${i}` } };
    const number = Math.floor(i / 10);
    if (i % 10 === 0) return { edit: 'remove-source', source: 'clustermesh', owner: `old-${number}` };
    return { edit: 'remove-node', node: `c/n${number}` };
  });
  const begun = process.cpuUsage();
  const { prefixes, summary } = await whatIf({ ipcache, nodes }, edits, { limit: Number.POSITIVE_INFINITY });
  const { user, system } = process.cpuUsage(begun);
  expect(summary.prefixes).toEqual({ gone: count / 10, changed: 0, revealed: 0, created: 1 });
  expect(summary.nodes.gone).toBe(count / 10);
  // Of equal sources, the owner with the smallest name has the effective claim.
  expect(prefixes.find(({ kind }) => kind === 'created')?.new?.owner).toBe('new-10002');
  expect((user + system) / 1e6).toBeLessThan(10);
});

it('checks many deletes of claims that earlier edits have set (regression: each delete searched all edits)', async () => {
  let reads = 0;
  const edits = Array.from({ length: 200 }, (_, i): Edit => {
    const key = `10.1.0.${i >> 1}`;
    const by = { source: 'clustermesh', owner: 'c' } as const;
    const edit =
      i % 2 === 0 ? ({ edit: 'upsert', key, claim: { identity: 400, ...by } } as const) : undefined;
    const kind = edit === undefined ? 'delete' : 'upsert';
    const whole: Edit = edit ?? { edit: 'delete', key, by };
    return Object.defineProperty({ ...whole }, 'edit', { get: () => [kind, reads++][0] });
  });
  const { prefixes } = await whatIf({ ipcache: new IPCache() }, edits);
  expect(prefixes).toEqual([]);
  expect(reads).toBeLessThan(50 * edits.length);
});

it('applies at most 128 edits of services in a step (regression: each edit to each service, in one turn)', async () => {
  const engines = newEngines();
  const edits = Array.from({ length: 500 }, (_, i) => ({
    edit: 'service' as const,
    service: createService({
      id: { namespace: 'shop', name: `s${i}` },
      addressing: 'assigned',
      clusterIPs: ['10.96.0.1'],
      global: true,
    }),
  }));
  for (const { service } of edits.slice(250)) engines.services.updateService(service);
  const applied = countInTurns();
  const { preview } = engines.services;
  engines.services.preview = (id, changes) => {
    applied.add(changes.length);
    return preview.call(engines.services, id, changes);
  };
  await whatIf(engines, edits, applied);
  expect(applied.most).toBe(128);
});

describe('a large withdrawal', () => {
  it('counts everything, keeps the first ones, and evaluates at most 256 keys in a step', async () => {
    const ipcache = new IPCache();
    const keys = Array.from({ length: 20_000 }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
    for (const [i, key] of keys.entries())
      ipcache.upsert(key, {
        identity: i % 50,
        source: 'clustermesh',
        owner: i % 4 === 0 ? 'baltic' : 'caspian',
      });
    const reads = countInTurns();
    const { claimsOfPrefix } = ipcache;
    ipcache.claimsOfPrefix = (key) => {
      reads.add(1);
      return claimsOfPrefix.call(ipcache, key);
    };
    const { gate } = reads;
    const { prefixes, summary } = await whatIf({ ipcache }, [{ edit: 'remove-cluster', cluster: 'baltic' }], {
      gate,
      limit: 100,
    });
    expect(summary.prefixes).toEqual({ gone: 5_000, changed: 0, revealed: 0, created: 0 });
    expect(summary.loses).toBe(true);
    expect(prefixes.length).toBe(100);
    expect(reads.most).toBeLessThanOrEqual(256);
  });

  it('reads only existing prefixes to find the covering ones (regression: each length in use, in one turn)', async () => {
    const ipcache = new IPCache();
    for (let length = 2; length < 128; length++)
      ipcache.upsert(`8000::/${length}`, { identity: 9, source: 'k8s' });
    for (const cover of ['::/1', 'fd00::/16']) ipcache.upsert(cover, { identity: 8, source: 'k8s' });
    for (let i = 0; i < 200; i++)
      ipcache.upsert(`fd00::${i}`, { identity: 5, source: 'clustermesh', owner: 'baltic' });
    const reads = countInTurns();
    const { claimsOfPrefix } = ipcache;
    ipcache.claimsOfPrefix = (key) => {
      reads.add(1);
      return claimsOfPrefix.call(ipcache, key);
    };
    const { prefixes } = await whatIf({ ipcache }, [{ edit: 'remove-cluster', cluster: 'baltic' }], reads);
    expect(new Set(prefixes.map(({ coveredBy }) => coveredBy?.prefix))).toEqual(new Set(['fd00::/16']));
    expect(reads.most).toBeLessThanOrEqual(256);
  });

  it('finds covering prefixes of every length down to 0', async () => {
    const baltic = { identity: 1, source: 'clustermesh', owner: 'baltic' } as const;
    const all = { identity: 2, source: 'local' } as const;
    const engines = stateOf([
      { write: 'claim', key: '10.0.0.1', claim: baltic },
      { write: 'claim', key: 'fd00::/8', claim: baltic },
      { write: 'claim', key: '0.0.0.0/0', claim: all },
      { write: 'claim', key: '::/0', claim: all },
    ]);
    const { prefixes } = await whatIf(engines, [{ edit: 'remove-cluster', cluster: 'baltic' }]);
    const found = prefixes.map(({ prefix, coveredBy }) => `${prefix} in ${coveredBy?.prefix}`);
    expect(found.sort()).toEqual(['10.0.0.1/32 in 0.0.0.0/0', 'fd00::/8 in ::/0']);
  });

  it('finds a covering prefix that an edit sets in another spelling (regression: not found)', async () => {
    const engines = stateOf([
      { write: 'claim', key: '10.0.0.1', claim: { identity: 1, source: 'clustermesh', owner: 'baltic' } },
    ]);
    const { prefixes } = await whatIf(engines, [
      { edit: 'upsert', key: '::ffff:10.0.0.0/104', claim: { identity: 8, source: 'k8s' } },
      { edit: 'remove-cluster', cluster: 'baltic' },
    ]);
    const gone = prefixes.find(({ kind }) => kind === 'gone');
    expect(gone).toMatchObject({ prefix: '10.0.0.1/32', coveredBy: { prefix: '10.0.0.0/8' } });
  });

  it.each([Number.NaN, -1, 1.5])('refuses the limit %d (regression: kept more or fewer)', async (limit) => {
    await expect(whatIf(stateOf([]), [], { limit })).rejects.toThrow('whatIf: options.limit must be');
  });

  it('ends with the reason of the signal', async () => {
    const gate = new TurnGate({ clock: new ManualClock(), nextTurn: setImmediate, weightPerTurn: 1 });
    const asked = whatIf(stateOf([]), [{ edit: 'rank', source: 'k8s', place: 'above', other: 'kvstore' }], {
      gate,
      signal: AbortSignal.abort(new Error('enough')),
    });
    await expect(asked).rejects.toThrow('enough');
  });
});
