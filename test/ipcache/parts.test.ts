import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { netChanges, sameEntry } from '../../src/ipcache/change.ts';
import { ChangeJournal } from '../../src/ipcache/change-journal.ts';
import { ByWriter } from '../../src/ipcache/claims/by-writer.ts';
import type { KeyImage } from '../../src/ipcache/claims/claim-state.ts';
import { OverruledClaims } from '../../src/ipcache/claims/overruled-claims.ts';
import { WriterTable } from '../../src/ipcache/claims/writer-table.ts';
import { HostIndex } from '../../src/ipcache/entry-indexes.ts';
import { metadataOrNone } from '../../src/ipcache/k8s-metadata.ts';
import { NamedPortIndex } from '../../src/ipcache/named-port-index.ts';
import { OutcomeCounts } from '../../src/ipcache/outcome-counts.ts';
import { PodIndex } from '../../src/ipcache/pod-index.ts';
import { RecentChanges } from '../../src/ipcache/recent-changes.ts';
import type { CompleteClaim } from '../../src/ipcache/row-reader.ts';
import type { IPCacheChange, IPCacheEntry, K8sMetadata, Writer } from '../../src/ipcache/types.ts';
import type { Source } from '../../src/model/source.ts';
import { parseKey, prefixRegister } from '../../src/net/prefix.ts';

const HTTP = { port: 80, protocol: 6 };
const POD: K8sMetadata = { namespace: 'shop', podName: 'web-1', namedPorts: new Map([['http', HTTP]]) };

function entry(fields: Partial<Record<keyof IPCacheEntry, unknown>> = {}): IPCacheEntry {
  return { identity: 300, hostIP: '192.0.2.1', encryptKey: 1, k8s: POD, ...fields } as IPCacheEntry;
}

const OTHER_PORTS: readonly K8sMetadata['namedPorts'][] = [
  undefined,
  new Map([['http', { ...HTTP, port: 81 }]]),
  new Map([['http', { ...HTTP, protocol: 17 }]]),
  new Map([['web', HTTP]]),
  new Map([
    ['http', HTTP],
    ['web', HTTP],
  ]),
];

describe('entries', () => {
  const unlike = [
    undefined,
    entry({ identity: 301 }),
    entry({ hostIP: '192.0.2.2' }),
    entry({ hostIP: undefined }),
    entry({ encryptKey: 2 }),
    entry({ k8s: undefined }),
    entry({ k8s: { ...POD, namespace: 'bank' } }),
    entry({ k8s: { ...POD, podName: 'web-2' } }),
    ...OTHER_PORTS.map((namedPorts) => entry({ k8s: { ...POD, namedPorts } })),
  ];

  it('equal only themselves and their copies', () => {
    const all = [entry(), ...unlike];
    for (const [i, a] of all.entries()) {
      for (const [k, b] of structuredClone(all).entries())
        expect(sameEntry(a, b), `${i} and ${k}`).toBe(i === k);
    }
  });

  it('are equal with no named ports and with an empty map of them', () => {
    const [none, empty] = [undefined, new Map()].map((namedPorts) => entry({ k8s: { ...POD, namedPorts } }));
    expect([sameEntry(none, empty), sameEntry(empty, none)]).toEqual([true, true]);
  });

  it('have no metadata if their attributes are empty', () => {
    const nothing: K8sMetadata = { namespace: '', podName: '' };
    expect([undefined, nothing, { ...nothing, namedPorts: new Map() }].map(metadataOrNone)).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    for (const some of [{ namespace: 'shop' }, { podName: 'web' }, { namedPorts: new Map([['http', HTTP]]) }])
      expect(metadataOrNone({ ...nothing, ...some })).toEqual({ ...nothing, ...some });
  });
});

function change(prefix: string, old: number | undefined, next: number | undefined): IPCacheChange {
  const of = (identity: number | undefined): IPCacheEntry | undefined =>
    identity === undefined ? undefined : entry({ identity });
  return { kind: next === undefined ? 'delete' : 'upsert', prefix, old: of(old), new: of(next) };
}

describe('changes', () => {
  it('are merged to one for each prefix that differs in the end, in the order of their first', () => {
    const net = netChanges([
      change('a', undefined, 1),
      change('b', 5, 6),
      change('c', undefined, 1),
      change('a', 1, 2),
      change('b', 6, 5),
      change('c', 1, undefined),
      change('d', 1, undefined),
      change('a', 2, 3),
    ]);
    expect(net).toEqual([change('a', undefined, 3), change('d', 1, undefined)]);
  });

  it('are kept while there is room, and returned from a revision on if none after it is missing', () => {
    const write = fc.integer({ min: 1, max: 3 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), fc.nat(3), fc.array(write), (capacity, begin, writes) => {
        const recent = new RecentChanges(capacity, begin);
        const all: { readonly revision: number; readonly change: IPCacheChange }[] = [];
        let revision = begin;
        for (const count of [0, ...writes]) {
          const changes = Array.from({ length: count }, (_, i) => change(`${all.length + i}`, 1, 2));
          if (count > 0) recent.add(++revision, changes);
          all.push(...changes.map((one) => ({ revision, change: one })));
          const forgotten = all[all.length - capacity - 1]?.revision ?? begin;
          for (let from = 0; from <= revision + 1; from++) {
            const after = all.filter((one) => one.revision > from).map((one) => one.change);
            expect(recent.since(from)).toEqual(from < forgotten ? undefined : after);
          }
        }
      }),
    );
  });
});

describe('writers', () => {
  const writer: fc.Arbitrary<Writer> = fc.record({
    source: fc.constantFrom<Source>('k8s', 'kvstore', 'clustermesh'),
    owner: fc.constantFrom(undefined, '', 'a', 'b', 's a'),
  });
  const step = fc.record({ by: writer, other: writer, gone: fc.option(fc.nat()), at: fc.nat(3) });
  const nameOf = ({ source, owner }: Writer): string => JSON.stringify([source, owner ?? '']);

  it('have a number while they have claims, which are counted', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const table = new WriterTable();
        const held: { readonly id: number; readonly by: Writer }[] = [];
        for (const { by, other, gone } of steps) {
          if (gone === null) held.push({ id: table.acquire(by), by });
          else for (const { id } of held.splice(gone % Math.max(held.length, 1), 1)) table.release(id);
          for (const each of [other, by, by]) {
            const same = held.filter((one) => nameOf(one.by) === nameOf(each));
            expect(new Set([table.find(each), ...same.map(({ id }) => id)]).size).toBe(1);
            if (same.length === 0) expect(table.find(each)).toBe(-1);
            else expect(table.claimsOf(table.find(each))).toBe(same.length);
          }
          for (const { id, by: holder } of held) {
            expect(id).toBeGreaterThan(0);
            expect(table.writer(id)).toEqual({ source: holder.source, owner: holder.owner ?? '' });
          }
          const sources = new Set(held.map((one) => one.by.source));
          const counts = [...sources].map((source) => [
            source,
            held.filter((one) => one.by.source === source).length,
          ]);
          expect(table.entriesBySource()).toEqual(Object.fromEntries(counts));
        }
        // Numbers are reused: never more than the writers at one time.
        expect(table.acquire({ source: 'unspec' })).toBeLessThanOrEqual(16);
      }),
    );
  });

  it('are found in the pages that were added for them', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const places = new ByWriter<number>(() => new Map());
        const model = new Map<string, Set<number>>();
        for (const { by, other, gone, at } of steps) {
          const own = model.get(nameOf(by)) ?? new Set();
          model.set(nameOf(by), own);
          if (gone === null) {
            places.add(by, at);
            own.add(at);
          } else {
            places.delete(by, at);
            own.delete(at);
          }
          for (const each of [by, other])
            expect([...places.of(each).keys()]).toEqual([...(model.get(nameOf(each)) ?? [])]);
        }
      }),
    );
  });
});

describe('named ports', () => {
  const ports = fc.array(
    fc.tuple(
      fc.constantFrom('http', 'dns', '1dns'),
      fc.record({ port: fc.constantFrom(0, 53, 80, 65_535), protocol: fc.constantFrom(0, 6, 17, 255) }),
    ),
    { maxLength: 3 },
  );
  const step = fc.record({ ports, gone: fc.option(fc.nat()), asks: fc.boolean() });

  it('equal those of all entries, sorted, and are replaced when they change', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const index = new NamedPortIndex();
        const held: IPCacheEntry[] = [];
        const sets = (): unknown =>
          ['1dns', 'dns', 'http'].map((name) => {
            const all = held.flatMap(({ k8s }) => k8s?.namedPorts?.get(name) ?? []);
            const distinct = new Map(all.map((port) => [`${port.port}/${port.protocol}`, port]));
            return [...distinct.values()].sort((a, b) => a.port - b.port || a.protocol - b.protocol);
          });
        let known = sets();
        for (const { ports: named, gone, asks } of steps) {
          if (gone === null) {
            held.push(
              entry({ k8s: named.length === 0 ? undefined : { ...POD, namedPorts: new Map(named) } }),
            );
            index.add(0, held.at(-1) ?? expect.fail());
          } else for (const one of held.splice(gone % Math.max(held.length, 1), 1)) index.remove(0, one);
          const wanted = sets();
          expect(['1dns', 'dns', 'http'].map((name) => index.sets().get(name) ?? [])).toEqual(wanted);
          expect([...index.sets().values()].filter((set) => set.length === 0)).toEqual([]);
          if (!asks) continue;
          expect(index.takeChanged()).toBe(JSON.stringify(wanted) !== JSON.stringify(known));
          known = wanted;
        }
      }),
    );
  });
});

describe('outcomes', () => {
  const OUTCOMES = [
    'applied',
    'unchanged',
    'overruled',
    'deleted',
    'not-found',
    'not-owner',
    'invalid',
    'capacity',
  ] as const;

  it('are counted separately', () => {
    const counts = new OutcomeCounts();
    for (const [i, outcome] of OUTCOMES.entries()) {
      counts.count(outcome);
      counts.count(outcome, 10 * i);
    }
    expect(counts.snapshot()).toEqual(
      Object.fromEntries(OUTCOMES.map((outcome, i) => [outcome, 1 + 10 * i])),
    );
  });
});

describe('the indexes of entries', () => {
  it('return the same slot list for two entries of one pod, or of one host, and for no others', () => {
    const pod = (namespace: string, podName: string): IPCacheEntry => entry({ k8s: { namespace, podName } });
    const pods = [pod('shop', 'a'), pod('shop', 'b'), pod('bank', 'a'), entry({ k8s: undefined })];
    const hosts = ['192.0.2.1', '192.0.2.2', undefined].map((hostIP) => entry({ hostIP }));
    for (const [index, entries] of [
      [new PodIndex(() => undefined), pods] as const,
      [new HostIndex(), hosts] as const,
    ])
      for (const a of entries) for (const b of entries) expect(index.isSame(a, { ...b })).toBe(a === b);
  });

  it('return the slots of a pod or a host, one or several, and none after they are removed', () => {
    const [pods, hosts] = [new PodIndex(() => entry().k8s), new HostIndex()];
    const found = (): unknown =>
      [pods.of('shop', 'web-1'), hosts.of('::ffff:192.0.2.1')].map((slots) => [...slots].sort());
    for (const slot of [3, 5, 7]) for (const index of [pods, hosts]) index.add(slot, entry());
    expect(found()).toEqual([
      [3, 5, 7],
      [3, 5, 7],
    ]);
    for (const slot of [5, 3]) for (const index of [pods, hosts]) index.remove(slot, entry());
    expect(found()).toEqual([[7], [7]]);
    for (const index of [pods, hosts]) index.remove(7, entry());
    expect(found()).toEqual([[], []]);
    for (const index of [pods, hosts]) index.add(1, entry({ k8s: undefined, hostIP: undefined }));
    for (const index of [pods, hosts]) index.remove(1, entry({ k8s: undefined, hostIP: undefined }));
    expect([[...pods.of('', '')], [...hosts.of('')], [...hosts.of('no address')]]).toEqual([[], [], []]);
  });
});

describe('overruled claims', () => {
  const claim = (source: Source, owner = '', identity = 1): CompleteClaim =>
    ({ ...entry({ identity }), source, owner }) as CompleteClaim;

  it('are one of each writer, the strongest first, counted and found by slot and by writer', () => {
    const claims = new OverruledClaims();
    const held = (slot: number): unknown =>
      claims.list(slot).map(({ source, owner, identity }) => `${source}/${owner} ${identity}`);
    for (const each of [claim('generated'), claim('clustermesh', 'b'), claim('clustermesh', 'a')])
      claims.put(1, each);
    claims.put(2, claim('generated'));
    claims.put(1, claim('clustermesh', 'b', 2));
    expect([claims.count, held(1), held(2), held(3)]).toEqual([
      4,
      ['clustermesh/a 1', 'clustermesh/b 2', 'generated/ 1'],
      ['generated/ 1'],
      [],
    ]);
    expect(claims.find(1, { source: 'clustermesh', owner: 'b' })?.identity).toBe(2);
    expect([claims.find(1, { source: 'k8s' }), claims.find(3, { source: 'generated' })]).toEqual([
      undefined,
      undefined,
    ]);
    expect([...claims.slotsOf({ source: 'generated' }).keys()].sort()).toEqual([1, 2]);
    claims.remove(2, { source: 'generated' });
    claims.remove(2, { source: 'generated' });
    claims.set(1, [[claim('k8s')]]);
    expect([claims.count, held(1), [...claims.slotsOf({ source: 'generated' }).keys()]]).toEqual([
      1,
      ['k8s/ 1'],
      [],
    ]);
  });
});

describe('the images of a batch', () => {
  const key = prefixRegister();
  parseKey('10.0.0.1', key);
  const image = (identity: number): KeyImage => {
    const effective = { ...entry({ identity }), source: 'k8s' as const, owner: '' };
    return { effective, overruled: [], contested: true };
  };
  const identities = (restored: readonly (KeyImage | undefined)[]): readonly unknown[] =>
    restored.map((each) => each?.effective.identity);

  it('include one of a contested key, not one for each change (regression: 470 MB for 8,000 nodes of one address)', () => {
    const journal = new ChangeJournal();
    const restored: (KeyImage | undefined)[] = [];
    const run = (write: () => void): unknown => journal.batch(write, (_key, each) => restored.push(each));
    const fail = (write: () => void): void =>
      expect(() =>
        run(() => {
          write();
          throw new Error('broken');
        }),
      ).toThrow('broken');
    fail(() => {
      for (const identity of [1, 2, 3]) journal.willChange(key, image(identity));
    });
    expect(identities(restored.splice(0))).toEqual([1]);
    fail(() => {
      journal.willChange(key, image(4));
      fail(() => {
        for (const identity of [5, 6]) journal.willChange(key, image(identity));
      });
      expect(identities(restored.splice(0))).toEqual([5]); // the inner batch is rolled back to its start
      run(() => journal.willChange(key, image(7)));
      journal.willChange(key, image(8));
    });
    expect(identities(restored).at(-1)).toBe(4);
    fail(() => journal.willChange(key, image(9)));
    expect(identities(restored).at(-1)).toBe(9);
  });
});
