import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Rejection } from '../../src/base/rejection.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import type { ClusterNode } from '../../src/model/cluster-node.ts';
import type { ClusterIdentity } from '../../src/model/identity-cache.ts';
import { RESERVED_IDENTITIES } from '../../src/model/numeric-identity.ts';
import { ByteBuffer } from '../../src/net/byte-buffer.ts';
import type { CheckpointEngines } from '../../src/restore/checkpoint.ts';
import { CHECKPOINT, SECTION, type Section, writeCheckpoint } from '../../src/restore/checkpoint-file.ts';
import { type CheckpointEntry, writeEntry } from '../../src/restore/entry-codec.ts';
import { NumberedTexts } from '../../src/restore/numbered-texts.ts';
import type { ImportedState, Restoration } from '../../src/restore/restoration.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { MemoryFolder } from './support/memory-folder.ts';
import { contents, engines, OWN, REMOTE, restart, save } from './support/world.ts';

const CLUSTERS = [OWN, ...REMOTE];

/** One fact about a cluster. */
interface Fact {
  readonly cluster: string;
  readonly what: 'entry' | 'node' | 'identity';
  readonly number: number;
  /** True if an owner has a part after the name of its cluster, or one that is no cluster's. */
  readonly named: boolean;
}

const facts: fc.Arbitrary<readonly Fact[]> = fc.uniqueArray(
  fc.record({
    cluster: fc.constantFrom(...CLUSTERS),
    what: fc.constantFrom('entry', 'node', 'identity'),
    number: fc.nat(9),
    named: fc.boolean(),
  }),
  { selector: ({ what, number }) => what + number, maxLength: 12 },
);

function learnFact({ ipcache, nodes }: CheckpointEngines, { cluster, what, number, named }: Fact): void {
  const isOwn = cluster === OWN;
  if (what === 'entry') {
    const name = isOwn ? 'east/allow' : `${cluster}/gone`;
    const claim = { identity: number, owner: named ? name : isOwn ? '' : cluster } as const;
    ipcache.upsert(`10.0.0.${number}`, { ...claim, source: isOwn ? 'k8s' : 'clustermesh' });
  } else if (what === 'node') {
    nodes.nodeUpdated({ cluster, name: `n${number}`, source: isOwn ? 'k8s' : 'clustermesh' });
  }
}

const inOrder = (texts: readonly string[]): readonly string[] => [...texts].sort();

const textOf = ({ cluster, what, number }: Fact): string => `${what} ${number} of ${cluster}`;

/** Returns the restored content, in the form of {@link textOf}. */
function restored({ ipcache, nodes }: CheckpointEngines, restoration: Restoration): readonly string[] {
  const entries = Array.from(ipcache.entries(), ({ source, identity, owner }) => [source, identity, owner]);
  return inOrder([
    ...entries.map(
      ([source, number, owner]) => `entry ${number} of ${source === 'restored' && (owner || OWN)}`,
    ),
    ...Array.from(nodes.nodes(), ({ cluster, name }) => `node ${name.slice(1)} of ${cluster}`),
    ...Array.from(restoration.identities(), ({ cluster, identity }) => `identity ${identity} of ${cluster}`),
  ]);
}

const json = (kind: Section['kind'], value: unknown): Section => ({
  kind,
  payload: Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)),
});

const HEADER = { cluster: OWN, writtenAt: 1_000, knownAt: [] };
const ENTRY: CheckpointEntry = {
  key: '10.0.0.1',
  source: 'kvstore',
  owner: '',
  identity: RESERVED_IDENTITIES.init,
  hostIP: undefined,
  encryptKey: 0,
  k8s: undefined,
};

/** Returns a section of entries, each like `ENTRY` with other fields. */
function entriesSection(...entries: readonly Partial<CheckpointEntry>[]): Section {
  const out = new ByteBuffer(new Uint8Array(16), Number.POSITIVE_INFINITY);
  const texts = new NumberedTexts();
  for (const entry of entries) writeEntry(out, texts, { ...ENTRY, ...entry });
  return { kind: SECTION.entries, payload: out.bytesFrom(0) };
}

/** Returns a folder with a checkpoint of these sections, between a header and an end. */
async function folderOf(sections: readonly Section[], header: unknown = HEADER): Promise<MemoryFolder> {
  const folder = new MemoryFolder();
  await writeCheckpoint(folder, [json(SECTION.header, header), ...sections, json(SECTION.end, {})]);
  return folder;
}

/** More nodes than are restored or released in one step. */
const NODES = Array.from({ length: 40 }, (_, i) => ({ cluster: 'east', name: `n${i}` }));
const MANY_NODES = Array.from({ length: 1_000 }, (_, i) => ({
  cluster: 'east',
  name: `n${i}`,
  source: 'k8s',
}));

const LEFT: ImportedState = {
  entries: [
    { ip: '10.0.0.1', identity: 7, k8s: { namespace: 'shop', podName: 'web' } },
    { ip: 'nonsense', identity: 8 },
    { ip: '10.0.0.2', identity: 9 },
  ],
  nodes: [],
  identities: [{ identity: 300, labels: [{ source: 'k8s', key: 'app', value: 'web' }] }],
  knownAt: 500,
};

describe('the restored state of a cluster', () => {
  it('keeps an identity that another cluster has, too, when the first one is released', async () => {
    const folder = new MemoryFolder();
    const known = (cluster: string): ClusterIdentity => ({ cluster, identity: 300, labels: [] });
    await save(folder, engines(), [known('baltic'), known('own')]);
    const { restoration } = restart(folder);
    await restoration.read();
    await restoration.release('baltic');
    expect([restoration.clusterOf(300), restoration.clusters]).toEqual(['own', ['own']]);
  });

  it('equals its earlier state, is counted completely, and is released with this cluster only', async () => {
    const order = fc.shuffledSubarray(CLUSTERS, { minLength: CLUSTERS.length });
    const property = fc.asyncProperty(facts, order, async (said, clusters) => {
      const before = engines();
      for (const fact of said) learnFact(before, fact);
      const count = (what: Fact['what']): number => said.filter((fact) => fact.what === what).length;
      const identities = said
        .filter(({ what }) => what === 'identity')
        .map(({ cluster, number }): ClusterIdentity => ({ cluster, identity: number, labels: [] }));
      const folder = new MemoryFolder();
      await save(folder, before, identities);
      const { next, restoration } = restart(folder);
      expect(await restoration.read()).toEqual({
        kind: 'restored',
        writtenAt: 1_000,
        services: 0,
        entries: count('entry'),
        nodes: count('node'),
        identities: count('identity'),
      });
      for (let gone = 0; gone <= clusters.length; gone++) {
        const left = said.filter(({ cluster }) => !clusters.slice(0, gone).includes(cluster));
        expect(restored(next, restoration)).toEqual(inOrder(left.map(textOf)));
        const ages = new Map(left.map(({ cluster }) => [cluster, 1_000]));
        expect(new Map(restoration.knownTimes)).toEqual(ages);
        expect(CLUSTERS.map((cluster) => restoration.knownAt(cluster))).toEqual(
          CLUSTERS.map((cluster) => ages.get(cluster)),
        );
        expect(
          identities.map(({ identity }) => [restoration.clusterOf(identity), restoration.labelsOf(identity)]),
        ).toEqual(
          identities.map(({ cluster }) => (ages.has(cluster) ? [cluster, []] : [undefined, undefined])),
        );
        await restoration.release(clusters[gone] ?? '');
      }
    });
    await fc.assert(property, { numRuns: Math.min(1_000, Number(process.env['PROPERTY_RUNS'] ?? 150)) });
  });

  it('is also removed if it is released a second time', async () => {
    const { next, restoration } = restart(await folderOf([json(SECTION.nodes, MANY_NODES)]));
    expect(await restoration.read()).toMatchObject({ nodes: 1_000 });
    const first = restoration.release('east');
    await restoration.release('east');
    expect([next.nodes.size, restoration.clusters]).toEqual([0, []]);
    await first;
  });

  it('is released, and not the state restored by others', async () => {
    const { next, restoration } = restart(new MemoryFolder());
    next.ipcache.upsert('10.0.0.1', { identity: 7, source: 'restored', owner: 'east' });
    const id = { namespace: 'shop', name: 'web' };
    next.services.restorePart({ kind: 'offer', id, cluster: 'east', backends: [] });
    const before = contents(next);
    await restoration.release('east');
    await restoration.releaseOffers('east');
    expect(contents(next)).toBe(before);
  });

  it('loses its offers if it is unreachable for too long, and nothing else', async () => {
    const offer = (of: string): object => ({
      kind: 'offer',
      namespace: 'shop',
      name: 'web',
      of,
      more: false,
      backends: [{ address: '10.2.0.1', ports: [] }],
    });
    const folder = await folderOf([
      entriesSection({ source: 'clustermesh', owner: 'east' }),
      json(SECTION.services, [offer('east'), offer('west')]),
    ]);
    const { next, restoration } = restart(folder);
    expect(await restoration.read()).toMatchObject({ services: 2 });
    await restoration.releaseOffers('east');
    expect(Array.from(next.services.parts(), (part) => part.kind === 'offer' && part.cluster)).toEqual([
      'west',
    ]);
    expect([next.ipcache.size, restoration.clusters]).toEqual([1, ['east', 'west']]);
  });
});

describe('a start', () => {
  it('without a checkpoint restores nothing', async () => {
    const { restoration } = restart(new MemoryFolder());
    expect(await restoration.read()).toEqual({ kind: 'none' });
  });

  it('restores the valid items of a checkpoint, counts them, and reports the others', async () => {
    const service = { kind: 'service', namespace: 'shop', name: 'web', service: { addressing: 'headless' } };
    const folder = await folderOf([
      entriesSection({}, { key: '10.0.0.2', hostIP: 'nonsense', source: 'clustermesh', owner: 'west' }),
      json(SECTION.nodes, [7, { cluster: 'east', name: '' }]),
      json(SECTION.services, [{ ...service, kind: 'x' }, service]),
      json(SECTION.identities, [['east', 2 ** 32, []], ['east'], [], {}]),
    ]);
    const rejected: Rejection[] = [];
    const { next, restoration } = restart(folder, { onReject: (one) => rejected.push(one) });
    const counts = { entries: 1, nodes: 0, services: 1, identities: 0 };
    expect(await restoration.read()).toEqual({ kind: 'restored', writtenAt: 1_000, ...counts });
    expect([next.ipcache.size, next.nodes.size, [...next.services.parts()].length]).toEqual([1, 0, 1]);
    expect(rejected.map(({ at, reason, field }) => `${at}: ${reason} ${field}`)).toEqual([
      'checkpoint, service: unknown-value kind',
      'checkpoint, identity: out-of-range [1]',
      'checkpoint, identity: missing-field [1]',
      'checkpoint, identity: missing-field [0]',
      'checkpoint, identity: wrong-type record',
    ]);
  });

  it.each([
    ['nodes', '{}'],
    ['services', 'no JSON'],
    ['identities', '7'],
  ] as const)('sets a checkpoint aside whose section of %s is no list', async (kind, text) => {
    const folder = await folderOf([entriesSection({}), json(SECTION[kind], text)]);
    const { next, restoration } = restart(folder);
    const set = {
      kind: 'set-aside',
      fault: 'torn',
      message: 'a section is not a list; renamed to checkpoint.torn',
    };
    expect(await restoration.read()).toEqual(set);
    expect([next.ipcache.size, restoration.clusters]).toEqual([0, []]);
  });

  it.each([
    ['no JSON', 'header'],
    [[], 'header'],
    [{ ...HEADER, cluster: '' }, 'cluster'],
    [{ ...HEADER, writtenAt: -1 }, 'writtenAt'],
    [{ ...HEADER, writtenAt: 8.64e15 + 1 }, 'writtenAt'],
    [{ ...HEADER, knownAt: [['east', 9e15]] }, 'knownAt[0][1]'],
    [{ cluster: OWN }, 'writtenAt'],
    [{ ...HEADER, knownAt: [['east', 7], ['west']] }, 'knownAt[1][1]'],
    [{ ...HEADER, knownAt: [7] }, 'knownAt[0]'],
    [{ ...HEADER, clusterID: 512 }, 'clusterID'],
  ])('reports an invalid header: %j', async (header, field) => {
    const rejected: Rejection[] = [];
    const { restoration } = restart(await folderOf([], header), { onReject: (one) => rejected.push(one) });
    expect(await restoration.read()).toMatchObject({ kind: 'set-aside', fault: 'foreign' });
    expect(rejected).toMatchObject([
      { reason: 'unusable-checkpoint', field: 'checkpoint', value: '"foreign"' },
    ]);
    expect(rejected[0]?.message).toContain(`checkpoint: ${field} `);
  });

  it.each([
    [2, 2],
    [undefined, 0],
  ])('has the id of the local cluster in the header, %j, as %i', async (clusterID, expected) => {
    const { restoration } = restart(await folderOf([], { ...HEADER, clusterID }));
    expect(restoration.clusterID).toBe(0);
    await restoration.read();
    expect(restoration.clusterID).toBe(expected);
  });

  it.each([
    ['of another cluster', { ...HEADER, cluster: 'baltic' }, 'unreadable'],
    ['of its cluster', HEADER, 'restored'],
  ] as const)(
    'leaves the folder of a running agent as it is if it is read-only: %s',
    async (_, header, kind) => {
      const folder = await folderOf([entriesSection({})], header);
      folder.files.set(`${CHECKPOINT}.1.unfinished`, Buffer.from('x'));
      const before = new Map(folder.files);
      const rejected: Rejection[] = [];
      const { restoration } = restart(folder, { readOnly: true, onReject: (one) => rejected.push(one) });
      const outcome = await restoration.read();
      expect([outcome.kind, rejected.length, folder.files]).toEqual([
        kind,
        kind === 'restored' ? 0 : 1,
        before,
      ]);
      if (outcome.kind === 'unreadable')
        expect(outcome.message).toBe('the state belongs to cluster baltic, not to own');
    },
  );

  it('that cannot set an invalid checkpoint aside leaves it, and reports both', async () => {
    const folder = new MemoryFolder();
    folder.files.set(CHECKPOINT, Buffer.from('x'));
    folder.readOnly = new Error('read-only file system');
    const message = 'the file ends within a section; cannot rename it: read-only file system';
    expect(await restart(folder).restoration.read()).toEqual({ kind: 'unreadable', message });
  });

  it('that is interrupted ends with the current section', async () => {
    const sections = [1, 2, 3].map((host) => entriesSection({ key: `10.0.0.${host}` }));
    const folder = await folderOf(sections);
    const { next, restoration } = restart(folder);
    const interrupt = new AbortController();
    let progress = 0;
    const onProgress = (): void => {
      if (++progress === 2) interrupt.abort(); // the header, and one section of entries
    };
    expect(await restoration.read(interrupt.signal, onProgress)).toEqual({ kind: 'interrupted' });
    expect([progress, next.ipcache.size, folder.opened]).toEqual([2, 1, 0]);
  });
});

describe('the imported state of another program', () => {
  it('is restored like a checkpoint, without invalid items, and released as such', async () => {
    const { next, restoration } = restart(new MemoryFolder());
    const bare = new Map<string, string>();
    const nodes = [...NODES.slice(1), { cluster: 'east', name: '' }].map(
      (node): ClusterNode => ({
        ...node,
        clusterID: 2,
        addresses: [],
        labels: bare,
        annotations: bare,
        ipv4SecondaryAllocCIDRs: [],
        ipv6SecondaryAllocCIDRs: [],
        encryptionKey: 0,
        nodeIdentity: 0,
        wireguardPubKey: '',
        bootID: '',
      }),
    );
    expect(await restoration.adopt({ ...LEFT, nodes })).toEqual({ entries: 2, nodes: 39 });
    expect([...restoration.knownTimes].sort()).toEqual([
      ['east', 500],
      [OWN, 500],
    ]);
    expect([restoration.labelsOf(300), restoration.clusterOf(300)]).toEqual([
      LEFT.identities[0]?.labels,
      OWN,
    ]);
    const pod = { source: 'restored', owner: '', identity: 7, k8s: { namespace: 'shop', podName: 'web' } };
    expect([next.ipcache.size, next.ipcache.get('10.0.0.1')]).toMatchObject([2, pod]);
    expect([next.nodes.size, next.nodes.get('east/n1')?.source]).toEqual([39, 'restored']);
    await restoration.release('east');
    expect([next.nodes.size, next.ipcache.size, restoration.clusters]).toEqual([0, 2, [OWN]]);
    await restoration.release(OWN);
    expect([contents(next), [...restoration.identities()]]).toEqual([contents(engines()), []]);
  });

  it.each<[string, Partial<ImportedState>, readonly string[]]>([
    ['nothing', { entries: [], identities: [] }, []],
    ['entries', { identities: [] }, [OWN]],
    ['identities', { entries: [] }, [OWN]],
  ])('counts as of the local cluster only if it contains an item: %s', async (_, left, clusters) => {
    const { restoration } = restart(new MemoryFolder());
    await restoration.adopt({ ...LEFT, ...left });
    expect(restoration.clusters).toEqual(clusters);
  });
});

it('releases the identities of a cluster over several turns (regression: in one turn)', async () => {
  const left: number[] = [];
  const nextTurn = (callback: () => void): void => {
    setImmediate(() => {
      left.push([...restoration.identities()].length);
      callback();
    });
  };
  const gate = new TurnGate({ clock: new ManualClock(), nextTurn, weightPerTurn: 800 }); // a hundred per slice
  const { restoration } = restart(new MemoryFolder(), { gate });
  const identities = Array.from({ length: 5000 }, (_, i) => ({ identity: 300 + i, labels: [] }));
  await restoration.adopt({ entries: [], nodes: [], identities, knownAt: 500 });
  left.length = 0;
  await restoration.release(OWN);
  expect(new Set(left).size).toBeGreaterThanOrEqual(5);
  expect([...restoration.identities()]).toEqual([]);
});
