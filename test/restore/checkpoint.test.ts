import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Rejection } from '../../src/base/rejection.ts';
import type { ClusterService } from '../../src/model/cluster-service.ts';
import { checkpointSections } from '../../src/restore/checkpoint.ts';
import { SECTION } from '../../src/restore/checkpoint-file.ts';
import { text } from '../servicecache/support/plain.ts';
import { MemoryFolder } from './support/memory-folder.ts';
import {
  contents,
  engines,
  type Knowledge,
  knowledge,
  learn,
  OWN,
  partText,
  REMOTE,
  restart,
  save,
} from './support/world.ts';

const ASYNC_RUNS = { numRuns: Math.min(2_000, Number(process.env['PROPERTY_RUNS'] ?? 100)) };

/**
 * Engines with content, the folder with their checkpoint, and the next engines, which have not read it yet.
 */
async function restarted(known: Knowledge): Promise<
  ReturnType<typeof restart> & {
    readonly before: ReturnType<typeof engines>;
    readonly folder: MemoryFolder;
  }
> {
  const before = engines();
  learn(before, known);
  const folder = new MemoryFolder();
  await save(folder, before, known.identities);
  return { before, folder, ...restart(folder) };
}

/** Returns the owners of the claims of each key. */
function whose({ ipcache }: ReturnType<typeof engines>): readonly string[] {
  return Array.from(ipcache.entries(), ({ key, source, owner }) => `${key} ${source} ${owner}`).sort();
}

/** Returns the sections of a checkpoint: kind, text and length. */
function sectionsOf(
  known: ReturnType<typeof engines>,
  identities: Knowledge['identities'] = [],
): readonly { readonly kind: number; readonly text: string; readonly length: number }[] {
  const header = { cluster: OWN, writtenAt: 1_000, knownAt: new Map() };
  return Array.from(checkpointSections(known, identities, header), ({ kind, payload }) => {
    return { kind, text: Buffer.from(payload).toString(), length: payload.length };
  });
}

/** Adds these backends of cluster `east` to a service. */
function offerCart({ services }: ReturnType<typeof engines>, backends: ClusterService['backends']): void {
  const none = new Map();
  services.mergeExternalServiceUpdate({
    cluster: 'east',
    namespace: 'shop',
    name: 'cart',
    backends,
    clusterID: 2,
    frontends: none,
    labels: none,
    selector: none,
    includeExternal: true,
    shared: true,
  });
}

describe('a checkpoint', () => {
  it('restores its content, and leaves nothing when every cluster was released', async () => {
    await fc.assert(
      fc.asyncProperty(knowledge, async (known) => {
        const { before, next, restoration } = await restarted(known);
        expect(await restoration.read()).toMatchObject({ kind: 'restored' });
        for (const { services } of [before, next]) services.markSynced();
        expect(contents(next)).toBe(contents(before));
        const held = [...next.ipcache.entries({ includeShadowed: true })];
        expect(held.filter(({ source }) => source !== 'restored')).toEqual([]);
        for (const { identity, labels } of known.identities) {
          expect(text(restoration.labelsOf(identity))).toBe(text(labels));
        }
        for (const cluster of [OWN, ...REMOTE]) await restoration.release(cluster);
        expect(restoration.clusters).toEqual([]);
        expect(contents(next)).toBe(contents(engines()));
        expect([...restoration.identities()]).toEqual([]);
      }),
      ASYNC_RUNS,
    );
  });

  it('leaves the state of the sources, for any concurrent writes and any order of releases', async () => {
    const order = fc.shuffledSubarray([OWN, ...REMOTE], { minLength: 4 });
    await fc.assert(
      fc.asyncProperty(knowledge, knowledge, order, async (known, after, clusters) => {
        const { next, restoration } = await restarted(known);
        await restoration.read();
        learn(next, after);
        for (const cluster of clusters) await restoration.release(cluster);
        const fresh = engines();
        learn(fresh, after);
        for (const { services } of [fresh, next]) services.markSynced();
        expect(contents(next)).toBe(contents(fresh));
      }),
      ASYNC_RUNS,
    );
  });

  it('of a checkpoint is the same checkpoint, with the age of the first', async () => {
    await fc.assert(
      fc.asyncProperty(knowledge, async (known) => {
        const { before, folder, next, restoration } = await restarted(known);
        await restoration.read();
        const second = { writtenAt: 9_000, knownAt: restoration.knownTimes };
        await save(folder, next, restoration.identities(), second);
        const third = restart(folder);
        await third.restoration.read();
        for (const { services } of [before, third.next]) services.markSynced();
        expect(contents(third.next)).toBe(contents(before));
        expect(whose(third.next)).toEqual(whose(next));
        expect([...third.restoration.knownTimes.values()].filter((at) => at !== 1_000)).toEqual([]);
      }),
      ASYNC_RUNS,
    );
  });

  it('has many sections, and slices with more backends than fit in a record', async () => {
    const before = engines();
    for (let i = 0; i < 3_000; i++) {
      before.ipcache.upsert(`10.1.${i >> 8}.${i & 255}`, { identity: i, source: 'kvstore', owner: `o${i}` });
    }
    const backends = new Map<string, ReadonlyMap<string, { port: number; protocol: number }>>();
    const ports = new Map([['http', { port: 80, protocol: 6 }]]);
    for (let i = 0; i < 1_000; i++) backends.set(`10.2.${i >> 8}.${i & 255}`, ports);
    offerCart(before, backends);
    const folder = new MemoryFolder();
    await save(folder, before);
    const { next, restoration } = restart(folder);
    expect(await restoration.read()).toMatchObject({ entries: 3_000, services: 1 });
    expect(contents(next)).toBe(contents(before));
  });

  it('contains any values of remote clusters: unlimited ports make no section that is too long', async () => {
    const before = engines();
    const named = (name: string): ReadonlyMap<string, { port: number; protocol: number }> =>
      new Map([[name.padEnd(17_000, 'x'), { port: 80, protocol: 6 }]]);
    const backends = new Map<string, ReturnType<typeof named>>();
    for (let i = 0; i < 250; i++) {
      const k8s = { namespace: 'shop', podName: 'web', namedPorts: named(`${i}`) };
      const claim = { identity: i, source: 'clustermesh', owner: 'east', k8s } as const;
      before.ipcache.upsert(`10.1.0.${i}`, claim);
      backends.set(`10.2.0.${i}`, named('web'));
    }
    offerCart(before, backends);
    const folder = new MemoryFolder();
    await save(folder, before);
    const { next, restoration } = restart(folder);
    expect(await restoration.read()).toMatchObject({ entries: 250, services: 1 });
    expect([...next.services.parts()].map(partText)).toEqual([...before.services.parts()].map(partText));
  });

  it('contains a value of 1.5 MiB whose bytes JSON escapes by six characters (regression: no checkpoint was written)', async () => {
    const value = '\u0001'.repeat(1.5 * 2 ** 20);
    const identity = { cluster: 'east', identity: 0x2_0001, labels: [{ source: 'k8s', key: 'app', value }] };
    const folder = new MemoryFolder();
    await save(folder, engines(), [identity]);
    const { restoration } = restart(folder);
    expect(await restoration.read()).toMatchObject({ kind: 'restored', identities: 1 });
    expect(restoration.labelsOf(identity.identity)).toEqual(identity.labels);
  });

  it.each([
    [0, 0],
    [64, 1],
    [65, 2],
    [129, 3],
  ])('has %i identities in %i sections, none of which is empty', (count, wanted) => {
    const identities = Array.from({ length: count }, (_, i) => ({ cluster: OWN, identity: i, labels: [] }));
    const sections = sectionsOf(engines(), identities);
    expect(sections.filter(({ kind }) => kind === SECTION.identities)).toHaveLength(wanted);
    expect(sections).toHaveLength(wanted + 2);
  });

  it.each([
    [256, 1],
    [257, 2],
    [513, 3],
  ])('has %i entries in %i sections', (count, wanted) => {
    const known = engines();
    for (let i = 0; i < count; i++)
      known.ipcache.upsert(`10.1.${i >> 8}.${i & 255}`, { identity: i, source: 'kvstore' });
    expect(sectionsOf(known)).toHaveLength(wanted + 2);
  });

  it('has sections that end with a long item: of JSON at 32,768 characters, of entries at 65,536 bytes', () => {
    const known = engines();
    const identities = Array.from({ length: 6 }, (_, identity) => {
      const podName = 'x'.repeat(30_000);
      const key = `10.0.0.${identity}`;
      known.ipcache.upsert(key, { identity, source: 'kvstore', k8s: { namespace: '', podName } });
      return { cluster: OWN, identity, labels: [{ source: 'k8s', key: 'app', value: 'x'.repeat(10_900) }] };
    });
    const sections = sectionsOf(known, identities).slice(1, -1);
    expect(sections.map(({ kind }) => kind)).toEqual([2, 2, 5, 5]);
    const [two, three] = [sections[0]?.length ?? 0, sections[2]?.length ?? 0];
    expect([two > 90_000, two < 91_000, three > 32_768, three < 33_000]).toEqual([true, true, true, true]);
    expect(sections[1]?.length).toBeLessThanOrEqual(two);
    expect(sections[3]?.length).toBe(three);
  });

  it('contains its totals at its end, without the claims of nodes in the IPCache', () => {
    const known = engines();
    const addresses = [{ type: 'InternalIP', ip: '10.0.0.9' }];
    known.nodes.nodeUpdated({ cluster: 'east', name: 'a', source: 'clustermesh', addresses });
    const own = [{ type: 'InternalIP', ip: '10.0.0.8' }];
    known.nodes.nodeUpdated({ cluster: OWN, name: 'me', source: 'k8s', addresses: own });
    for (const [key, owner] of [
      ['10.0.0.1', 'east'],
      ['10.0.0.2', 'east/gone'],
      ['10.0.0.3', 'east/a'],
    ] as const)
      known.ipcache.upsert(key, { identity: 7, source: 'kvstore', owner });
    offerCart(known, new Map());
    const end = sectionsOf(known, [{ cluster: OWN, identity: 300, labels: [] }]).at(-1);
    expect([end?.kind, JSON.parse(end?.text ?? '')]).toEqual([
      SECTION.end,
      { entries: 3, nodes: 1, services: 1, identities: 1 },
    ]);
  });

  it('uses less than 80 bytes for a usual pod', async () => {
    const before = engines();
    const empty = new MemoryFolder();
    await save(empty, before);
    for (let i = 0; i < 5_000; i++) {
      const k8s = { namespace: `team-${i % 50}`, podName: `checkout-7d9c5b8f6d-x${i.toString(36)}` };
      const hostIP = `192.168.${i % 200}.1`;
      before.ipcache.upsert(`10.1.${i >> 8}.${i & 255}`, {
        identity: 70_000 + i,
        source: 'kvstore',
        hostIP,
        k8s,
      });
    }
    const folder = new MemoryFolder();
    const bytes = (await save(folder, before)) - (await save(empty, engines()));
    expect(bytes / 5_000).toBeLessThan(60);
  });

  it('with an invalid record restores the others, and names it', async () => {
    const before = engines();
    before.nodes.nodeUpdated({ cluster: 'east', name: 'a', source: 'clustermesh' });
    const folder = new MemoryFolder();
    const wrong = { cluster: 'east', identity: -1, labels: [] };
    await save(folder, before, [wrong, { cluster: 'east', identity: 300, labels: [] }]);
    const rejected: Rejection[] = [];
    const { restoration } = restart(folder, { onReject: (rejection) => rejected.push(rejection) });
    expect(await restoration.read()).toMatchObject({ kind: 'restored', nodes: 1, identities: 1 });
    expect(rejected).toMatchObject([{ reason: 'out-of-range', field: '[1]' }]);
  });
});
