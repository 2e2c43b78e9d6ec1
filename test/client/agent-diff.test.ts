import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { AgentError, type Ask, parseAnswer } from '../../src/api/api-client.ts';
import type { GroupDigestDocument } from '../../src/api/digest-documents.ts';
import { type ProblemDocument, problem } from '../../src/api/problem.ts';
import { type AgentDiff, diffAgents } from '../../src/client/diff/agent-diff.ts';
import { diffLines } from '../../src/client/diff/diff-lines.ts';
import { ClaimDigest } from '../../src/compare/claim-digest.ts';
import { totalText } from '../../src/compare/digest-sums.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { K8sMetadata, NamedPorts } from '../../src/ipcache/types.ts';
import { HashPrefixTable } from '../../src/lpm/hash-prefix-table.ts';
import { LOCAL_IDENTITY_SCOPE } from '../../src/model/numeric-identity.ts';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { testApp } from '../api/support/test-app.ts';
import { fewerRuns } from '../base/support/fewer-runs.ts';
import { apply, type Operation, history as operations } from '../ipcache/support/operations.ts';

type TestApp = ReturnType<typeof testApp>;

/** Returns requests to an app, and counts the characters of their answers. */
function asking({ app }: TestApp, sent: { characters: number } = { characters: 0 }): Ask {
  return async (path) => {
    const answer = await app.request(path);
    const text = await answer.text();
    sent.characters += text.length;
    const document = parseAnswer(answer.headers.get('content-type') ?? undefined, text);
    if (answer.ok) return document;
    const problem = document as ProblemDocument;
    throw new AgentError(problem.detail, problem);
  };
}

const LOCAL = new Set(['local', 'generated', 'api', 'unspec']);

/** All claims as text, from `explain`. */
function dump({ model }: TestApp): ReadonlySet<string> {
  const claims = [...model.ipcache.entries({ includeShadowed: true })].flatMap(({ key }) =>
    model.ipcache.claimsOf(key).map(({ source, owner, identity, hostIP, encryptKey, k8s }) => ({
      key,
      source,
      owner,
      identity,
      hostIP,
      encryptKey,
      namespace: k8s?.namespace ?? '',
      pod: k8s?.podName ?? '',
      account: k8s?.serviceAccount ?? '',
      ports: [...(k8s?.namedPorts ?? [])].sort(),
    })),
  );
  return new Set(claims.filter(({ source }) => !LOCAL.has(source)).map((claim) => JSON.stringify(claim)));
}

/** The keys and writers at which two dumps differ. */
function dumpDiff(a: TestApp, b: TestApp): readonly string[] {
  const [inA, inB] = [dump(a), dump(b)];
  const only = [...[...inA].filter((text) => !inB.has(text)), ...[...inB].filter((text) => !inA.has(text))];
  const names = only.map((text) => {
    const { key, source, owner } = JSON.parse(text) as Record<string, string>;
    return `${source} ${owner} ${key}`;
  });
  return [...new Set(names)].sort();
}

function named({ differences }: AgentDiff): readonly string[] {
  return differences
    .map(({ writer, key, a, b }) => `${writer.split(' ')[0]} ${(a ?? b)?.owner ?? ''} ${key}`)
    .sort();
}

function write({ model }: TestApp, list: readonly Operation[]): void {
  for (const operation of list) apply(model.ipcache, operation);
}

describe('D1: the difference of two agents is that of their full dumps', () => {
  it('for random divergences', async () => {
    await fc.assert(
      fc.asyncProperty(operations, operations, operations, async (common, onlyA, onlyB) => {
        const [a, b] = [testApp(), testApp()];
        write(a, common);
        write(b, common);
        // Started before the divergence: the sums are maintained from then on.
        await diffAgents(asking(a), asking(b));
        write(a, onlyA);
        write(b, onlyB);
        const diff = await diffAgents(asking(a), asking(b));
        expect(named(diff)).toEqual(dumpDiff(a, b));
        expect(diff.digestsOnly).toEqual([]);
      }),
      fewerRuns(20),
    );
  });
});

it('D1 holds for the claims that do not change while both agents change', async () => {
  /** The claims as text, by key and writer. */
  const named = (texts: ReadonlySet<string>): ReadonlyMap<string, string> =>
    new Map(
      Array.from(texts, (text) => {
        const { key, source, owner } = JSON.parse(text) as Record<string, string>;
        return [`${source} ${owner} ${key}`, text];
      }),
    );
  await fc.assert(
    fc.asyncProperty(operations, operations, operations, async (common, onlyA, changes) => {
      const [a, b] = [testApp(), testApp()];
      write(a, common);
      write(b, common);
      write(a, onlyA);
      const seen = new Map<TestApp, ReadonlyMap<string, string>[]>();
      const note = (test: TestApp): unknown => seen.set(test, [...(seen.get(test) ?? []), named(dump(test))]);
      const rest = [...changes];
      const whileChanging = (test: TestApp): Ask => {
        const ask = asking(test);
        return async (path) => {
          write(test, rest.splice(0, 1));
          note(test);
          return ask(path);
        };
      };
      note(a);
      note(b);
      const { differences } = await diffAgents(whileChanging(a), whileChanging(b));
      const names = [...(seen.get(a) ?? []), ...(seen.get(b) ?? [])].flatMap((dumps) => [...dumps.keys()]);
      const isStable = (name: string): boolean =>
        [a, b].every((test) => new Set(seen.get(test)?.map((dumps) => dumps.get(name))).size === 1);
      const textIn = (test: TestApp, name: string): string | undefined => seen.get(test)?.[0]?.get(name);
      const expected = [...new Set(names)].filter(
        (name) => isStable(name) && textIn(a, name) !== textIn(b, name),
      );
      const found = differences
        .map(
          ({ writer, key, a: inA, b: inB }) => `${writer.split(' ')[0]} ${(inA ?? inB)?.owner ?? ''} ${key}`,
        )
        .filter(isStable);
      expect(found.sort()).toEqual(expected.sort());
    }),
    fewerRuns(20),
  );
});

describe('claims that differ only in their pod', () => {
  const ports = (...list: readonly (readonly [string, number])[]): NamedPorts =>
    new Map(list.map(([name, port]) => [name, { port, protocol: 6 }]));
  const claim = (pod: Partial<K8sMetadata>): TestApp => {
    const test = testApp();
    const k8s = { namespace: 'shop', podName: 'cart-0', ...pod };
    test.model.ipcache.upsert('10.2.0.5', { identity: 300, source: 'clustermesh', owner: 'baltic', k8s });
    return test;
  };

  it.each([
    [
      'service account',
      { serviceAccount: 'cart' },
      { serviceAccount: 'default' },
      '300 shop/cart-0 account cart',
    ],
    ['absent service account', { serviceAccount: 'cart' }, {}, '300 shop/cart-0 account cart'],
    [
      'named port',
      { namedPorts: ports(['web', 80]) },
      { namedPorts: ports(['web', 81]) },
      'ports web:80/TCP',
    ],
    ['absent named port', { namedPorts: ports(['web', 80]) }, {}, '300 shop/cart-0 ports web:80/TCP'],
  ])('are different for the %s (regression: such agents were equal)', async (_, inA, inB, text) => {
    const diff = await diffAgents(asking(claim(inA)), asking(claim(inB)));
    expect(named(diff)).toEqual(['clustermesh baltic 10.2.0.5']);
    expect(diffLines(diff).join('\n')).toContain(text);
  });

  it('are shown with the ports only if these differ (regression: equal ports made the lines wide)', async () => {
    const pod = { namedPorts: ports(['web', 80]), serviceAccount: 'cart' };
    const [a, b] = [claim(pod), claim(pod)];
    b.model.ipcache.upsert('10.2.0.5', {
      identity: 301,
      source: 'clustermesh',
      owner: 'baltic',
      k8s: { namespace: 'shop', podName: 'cart-0', ...pod },
    });
    const lines = diffLines(await diffAgents(asking(a), asking(b))).join('\n');
    expect(lines).toContain('a: 300 shop/cart-0  b: 301 shop/cart-0');
  });

  it('are equal, whatever the order of named ports', async () => {
    const [a, b] = [ports(['web', 80], ['api', 81]), ports(['api', 81], ['web', 80])];
    const diff = await diffAgents(asking(claim({ namedPorts: a })), asking(claim({ namedPorts: b })));
    expect(diffLines(diff)[0]).toBe('No differences.');
  });
});

/** Returns a new digest of a cache. */
function digestOf(ipcache: IPCache, labelsOf?: (identity: number) => string): ClaimDigest {
  const digest = new ClaimDigest({ ipcache, labelsOf });
  for (const _ of digest.read());
  return digest;
}

/** Runs all steps and returns their result. */
function resultOf<T>(steps: Generator<void, T, void>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

function expectSame(a: ClaimDigest, b: ClaimDigest): void {
  expect(a.groups()).toEqual(b.groups());
  for (const { writer } of a.groups()) expect(a.buckets(writer)?.join()).toBe(b.buckets(writer)?.join());
  const [{ writer, sum } = { writer: '', sum: '0'.repeat(16) }] = a.groups();
  const [inA, inB] = [a, b].map((digest) => resultOf(digest.placeSums(writer, () => true)));
  expect(inA).toEqual(inB);
  const sums = Int32Array.from([...(inA?.values() ?? [])].flatMap(lanesOf));
  expect(totalText(sums)).toBe(sum);
}

/** Returns the two lanes of a sum. */
function lanesOf(sum: string): readonly number[] {
  return [sum.slice(0, 8), sum.slice(8)].map((lane) => Number.parseInt(lane, 16));
}

describe('D2: equal states give no bucket', () => {
  it('for any order of writes, and whenever the digest was read', async () => {
    await fc.assert(
      fc.property(fc.array(fc.tuple(operations, fc.nat(4)), { maxLength: 6 }), (rounds) => {
        const [early, late] = [new IPCache(), new IPCache()];
        let edition = 0;
        // The labels of local identities change without a change of a claim.
        const labelsOf = (identity: number): string => `${identity} ${edition}`;
        const digest = new ClaimDigest({ ipcache: early, labelsOf });
        let steps = digest.read();
        for (const [list, turns] of rounds) {
          edition++;
          for (const operation of list) {
            apply(early, operation);
            apply(late, operation);
          }
          for (let i = 0; i < turns; i++) if (steps.next().done === true) steps = digest.read();
        }
        for (const _ of digest.read());
        expectSame(digest, digestOf(early, labelsOf));
        expectSame(digest, digestOf(late, labelsOf));
      }),
      fewerRuns(50),
    );
  });

  it('after batches that throw, and batches within them', () => {
    const ipcache = new IPCache();
    const put = (i: number, identity: number): unknown =>
      ipcache.upsert(`10.0.0.${i}`, { identity, source: i % 2 === 0 ? 'kvstore' : 'k8s' });
    for (let i = 0; i < 20; i++) put(i, 300);
    const digest = digestOf(ipcache);
    const before = digest.groups();
    expect(() =>
      ipcache.batch(() => {
        for (let i = 0; i < 30; i++) put(i, 301);
        for (let i = 0; i < 10; i++)
          ipcache.delete(`10.0.0.${i}`, { source: i % 2 === 0 ? 'kvstore' : 'k8s' });
        for (const _ of digest.read()); // as of now, within the batch
        expect(digest.groups()).not.toEqual(before);
        throw new Error('undone');
      }),
    ).toThrow('undone');
    for (const _ of digest.read());
    expect(digest.groups()).toEqual(before);
  });

  it('reads at most 256 keys in one turn', () => {
    const ipcache = new IPCache();
    let hashed = 0;
    const digest = digestOf(ipcache, () => String(hashed++));
    for (let at = 0; at < 5_000; at++)
      ipcache.upsert(`10.0.${at >> 8}.${at & 255}/32`, { source: 'generated', identity: (1 << 24) + at });
    const turnsOf = (steps: Iterable<unknown>): readonly number[] => {
      const turns: number[] = [];
      for (const _ of steps) {
        turns.push(hashed);
        hashed = 0;
      }
      turns.push(hashed);
      hashed = 0;
      return turns;
    };
    const claims = digest.claimsIn(
      'generated',
      () => true,
      () => hashed++,
    );
    for (const steps of [digest.read(), digest.read(), claims]) {
      const turns = turnsOf(steps);
      expect(turns.reduce((a, b) => a + b)).toBe(5_000);
      expect(Math.max(...turns)).toBeLessThanOrEqual(256);
    }
  });

  it('reads a key once that changed repeatedly, and none that did not change', () => {
    const ipcache = new IPCache();
    const put = (i: number, identity: number): unknown =>
      ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity, source: 'kvstore' });
    for (let i = 0; i < 3_000; i++) put(i, 300);
    const tracker = ipcache.trackClaims();
    const rows: number[] = [];
    const read = (limit: number): number =>
      tracker.read(limit, (row, _key, effective) => {
        if (effective !== undefined) rows.push(row);
      });
    while (read(256) === 256);
    expect(new Set(rows).size).toBe(3_000);
    expect(rows.length).toBe(3_000);
    for (let identity = 301; identity < 400; identity++) for (const i of [7, 2_900]) put(i, identity);
    put(8, 300);
    rows.length = 0;
    expect(read(256)).toBe(2);
    expect(read(256)).toBe(0);
    tracker.stop();
    put(7, 300);
    expect(read(256)).toBe(0);
  });

  it('reads the state at the start and the changes during its steps once each', () => {
    const ipcache = new IPCache();
    const put = (i: number, identity: number): unknown =>
      ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity, source: 'kvstore' });
    for (let i = 0; i < 3_000; i++) put(i, 1);
    const digest = new ClaimDigest({ ipcache });
    const steps = digest.read();
    let at = 0;
    while (steps.next().done !== true) {
      put(at, 2);
      ipcache.delete(`10.0.${(2_999 - at) >> 8}.${(2_999 - at) & 255}`, { source: 'kvstore' });
      put(5_000 + at++, 3);
    }
    expect(at).toBeGreaterThan(3);
    expectSame(digest, digestOf(ipcache));
  });

  it('marks no row again whose claim of a local identity was deleted (regression: at each read)', () => {
    const ipcache = new IPCache();
    const tracker = ipcache.trackClaims();
    using mark = vi.spyOn(tracker, 'mark');
    using _track = vi.spyOn(ipcache, 'trackClaims').mockReturnValue(tracker);
    const digest = new ClaimDigest({ ipcache });
    const read = (): void => {
      for (const _ of digest.read());
    };
    ipcache.upsert('192.0.2.0/24', { identity: LOCAL_IDENTITY_SCOPE + 1, source: 'generated' });
    read();
    ipcache.delete('192.0.2.0/24', { source: 'generated' });
    read();
    mark.mockClear();
    read();
    expect(mark).not.toHaveBeenCalled();
  });

  it('reads keys with several claims in steps, while their claims change', () => {
    const ipcache = new IPCache();
    const key = (i: number): string => `10.0.${i >> 8}.${i & 255}`;
    for (let i = 0; i < 1_000; i++)
      for (const source of ['kvstore', 'k8s'] as const) ipcache.upsert(key(i), { identity: 1 + i, source });
    const digest = new ClaimDigest({ ipcache });
    const steps = digest.read();
    for (let at = 0; steps.next().done !== true; at += 3) {
      // Changes before and after the position of the scan.
      for (const i of [at, 999 - at]) ipcache.delete(key(i), { source: 'kvstore' });
      for (const i of [at + 1, 998 - at]) ipcache.upsert(key(i), { identity: 7, source: 'generated' });
      for (const i of [at + 2, 997 - at])
        for (const identity of [8, 9]) ipcache.upsert(key(i), { identity, source: 'k8s' });
      ipcache.upsert(key(2_000 + at), { identity: 5, source: 'k8s' });
      ipcache.upsert(key(2_000 + at), { identity: 6, source: 'kvstore' });
    }
    expectSame(digest, digestOf(ipcache));
  });
});

describe('the claims at places', () => {
  const WRITER = 'clustermesh baltic';
  const COUNT = 700;
  const keyOf = (i: number): string => `10.0.${i >> 8}.${i & 255}`;
  type Change = readonly [index: number, identity: number];

  it('are those of a naive selection, each once, also while claims change between the steps', () => {
    // Few keys, so that one is often deleted and set again, and gets the row of another one.
    const change: fc.Arbitrary<Change> = fc.tuple(fc.nat(14), fc.nat(2)).map(([i, to]) => [i * 48, to]);
    const steps = fc.array(fc.array(change, { maxLength: 30 }), { maxLength: 4 });
    fc.assert(
      fc.property(
        steps,
        fc.array(change, { maxLength: 30 }),
        fc.integer({ min: 1, max: 3 }),
        (turns, before, part) => {
          const ipcache = new IPCache();
          const put = ([i, identity]: Change): unknown =>
            identity === 0
              ? ipcache.delete(keyOf(i), { source: 'clustermesh', owner: 'baltic' })
              : ipcache.upsert(keyOf(i), { identity, source: 'clustermesh', owner: 'baltic' });
          for (let i = 0; i < COUNT; i++) {
            put([i, 1]);
            if (i % 9 === 0) ipcache.upsert(keyOf(i), { identity: 5, source: 'k8s' }); // overrules the claim
          }
          const digest = digestOf(ipcache);
          const all = new Map<string, number>();
          for (const _ of digest.claimsIn(
            WRITER,
            () => true,
            (_claim, key, place) => all.set(key, place),
          ));
          for (const one of before) put(one);
          for (const _ of digest.read());
          const isWanted = (place: number): boolean => place % part === 0;
          const read = (onStep: () => void = () => {}): readonly string[] => {
            const texts: string[] = [];
            for (const _ of digest.claimsIn(WRITER, isWanted, ({ identity }, key, place) => {
              if (!isWanted(place)) throw new Error(`${key} of place ${place}`);
              texts.push(`${key} ${identity}`);
            }))
              onStep();
            return texts;
          };
          const naive = (): readonly string[] =>
            [...ipcache.entries({ includeShadowed: true })].flatMap(({ key }) =>
              ipcache
                .claimsOf(key)
                .filter(({ source }) => source === 'clustermesh' && isWanted(all.get(key) ?? -1))
                .map(({ identity }) => `${key} ${identity}`),
            );
          expect([...read()].sort()).toEqual([...naive()].sort());
          const states = [new Set(naive())];
          const rest = [...turns];
          const texts = read(() => {
            for (const one of rest.shift() ?? []) put(one);
            states.push(new Set(naive()));
          });
          for (const text of new Set(states.flatMap((state) => [...state])))
            if (states.every((state) => state.has(text))) expect(texts).toContain(text);
          expect(texts.filter((text) => !states.some((state) => state.has(text)))).toEqual([]);
          const keys = texts.map((text) => text.split(' ', 1)[0]);
          expect(new Set(keys).size).toBe(keys.length);
        },
      ),
      { numRuns: 50 },
    );
  });

  it('have each key once, and no other one, if keys get the rows of deleted ones between the steps', () => {
    const ipcache = new IPCache();
    const writer = { source: 'clustermesh', owner: 'baltic' } as const;
    for (let i = 0; i < COUNT; i++) ipcache.upsert(keyOf(i), { ...writer, identity: 1 });
    const digest = digestOf(ipcache);
    const keysAt = (parity: number): string[] => {
      const keys: string[] = [];
      resultOf(
        digest.claimsIn(
          WRITER,
          (place) => place % 2 === parity,
          (_, key) => keys.push(key),
        ),
      );
      return keys;
    };
    const [even, odd] = [keysAt(0), keysAt(1)];
    const found: string[] = [];
    const steps = digest.claimsIn(
      WRITER,
      (place) => place % 2 === 0,
      (_, key) => found.push(key),
    );
    steps.next();
    expect(found.length).toBe(256);
    // Each gets the row of one that the scan has not reached: one that was found, and one that is not wanted.
    for (const [key = '', later = ''] of [
      [found[0], even.at(-1)],
      [odd[0], even.at(-2)],
    ]) {
      for (const gone of [key, later]) ipcache.delete(gone, writer);
      ipcache.upsert(key, { ...writer, identity: 2 });
    }
    resultOf(steps);
    expect(found.toSorted()).toEqual(even.slice(0, -2).sort());
  });

  it('are the only keys that are read, and none for sums (regression: each request read all keys)', () => {
    const ipcache = new IPCache();
    for (let i = 0; i < 20_000; i++)
      ipcache.upsert(keyOf(i), { identity: 1, source: 'clustermesh', owner: 'baltic' });
    const digest = digestOf(ipcache);
    const keyReads = vi.spyOn(HashPrefixTable.prototype, 'keyOf');
    expect(resultOf(digest.placeSums(WRITER, (place) => place < 16_384)).size).toBeGreaterThan(3_000);
    expect(keyReads).not.toHaveBeenCalled();
    const found: string[] = [];
    const isWanted = (place: number): boolean => place < 100;
    resultOf(digest.claimsIn(WRITER, isWanted, (_, key) => found.push(key)));
    expect(found.length).toBeGreaterThan(10);
    expect(keyReads).toHaveBeenCalledTimes(found.length);
  });
});

describe('services and nodes', () => {
  const id = { namespace: 'shop', name: 'cart' };
  const PORTS = [['http', { port: 8080, protocol: 6 }]] as const;
  const offer = (model: TestApp['model'], ...addresses: readonly string[]): unknown =>
    model.services.mergeExternalServiceUpdate({
      cluster: 'baltic',
      ...id,
      clusterID: 3,
      includeExternal: true,
      shared: true,
      backends: new Map(addresses.map((address) => [address, new Map(PORTS)])),
      frontends: new Map(),
      hostnames: new Map(),
      zones: new Map(),
      labels: new Map(),
      selector: new Map(),
    });

  it('are compared by cluster: the backends that one agent has alone, and the fields of nodes', async () => {
    const [a, b] = [testApp(), testApp()];
    offer(a.model, '10.2.0.1', '10.2.0.2');
    offer(b.model, '10.2.0.2', '10.2.0.3');
    const node = { cluster: 'baltic', name: 'node-1', source: 'clustermesh' } as const;
    const addresses = [{ type: 'InternalIP', ip: '192.168.7.1' }] as const;
    b.model.nodes.nodeUpdated({ ...node, addresses: [...addresses], encryptionKey: 4 });
    b.model.nodes.nodeUpdated({ cluster: 'own', name: 'here', source: 'k8s' });
    const diff = await diffAgents(asking(a), asking(b));
    expect(diff).toMatchObject({ differences: [], expected: { localNode: 1 }, notListed: 0, notCompared: 0 });
    expect(diff.documents.map(({ writer, key, reason, detail }) => [writer, key, reason, detail])).toEqual([
      ['nodes baltic', 'baltic/node-1', 'incomplete', 'a: cluster baltic is not followed'],
      ['services baltic', 'shop/cart', 'incomplete', 'a: cluster baltic is not followed'],
    ]);
    expect(diffLines(diff).map((line) => line.replaceAll(/ {2,}/g, '  '))).toEqual([
      'nodes baltic: 1 of 1 differs',
      'services baltic: 1 of 1 differs',
      '  nodes baltic baltic/node-1  labels: only at a: zone=a; encryptionKey: none at a, 4 at b  a: cluster baltic is not followed',
      '  services baltic shop/cart  backends: only at a: 10.2.0.1 http 8080/TCP active; backends: only at b: 10.2.0.3 http 8080/TCP active  a: cluster baltic is not followed',
      'Reasons: source incomplete, unreachable or not followed 2',
      'Expected differences: 1 (local nodes and their addresses: 1, other claims of one node or cluster: 0)',
    ]);
  });

  it('name the service that one agent lacks, and the forbidden kind', async () => {
    const [a, b] = [testApp(), testApp()];
    b.model.services.deleteService({ namespace: 'shop', name: 'checkout' });
    b.model.services.deleteEndpoints({ namespace: 'shop', name: 'checkout' }, 'slice-1');
    const ofB: Ask = async (path) => {
      const document = (await asking(b)(path)) as object;
      const kinds = [{ name: 'services', state: 'forbidden', complete: false }];
      return path === '/v1/status' ? { ...document, kubernetes: { kinds } } : document;
    };
    const diff = await diffAgents(asking(a), ofB);
    expect(diff.documents).toMatchObject([
      { writer: 'services', key: 'shop/checkout', b: undefined, reason: 'incomplete' },
    ]);
    expect(diff.documents[0]?.detail).toBe('b: kind services is forbidden, incomplete');
    expect(diffLines(diff).join('\n')).toContain('b: none');
  });

  it('are equal, whatever the order of writes, slices and formats', async () => {
    const [a, b] = [testApp(), testApp()];
    const backends = (...addresses: readonly string[]): ReturnType<typeof createBackend>[] =>
      addresses.map((address) => createBackend({ address, nodeName: 'n', ports: PORTS }));
    const slice = (model: TestApp['model'], name: string, ...addresses: readonly string[]): unknown =>
      model.services.updateEndpoints(
        createEndpointSlice({ service: id, name, backends: backends(...addresses) }),
      );
    slice(a.model, 'x', '10.0.0.1', '10.0.0.2');
    slice(b.model, 'y', '10.0.0.2');
    slice(b.model, 'z', '10.0.0.1');
    offer(a.model, '10.2.0.1', '10.2.0.2');
    offer(b.model, '10.2.0.2');
    offer(b.model, '10.2.0.2', '10.2.0.1');
    expect(diffLines(await diffAgents(asking(a), asking(b)))[0]).toBe('No differences.');
  });
});

/** Returns an app whose claims of a cluster have this identity. */
const filled = (count: number, identity: number): TestApp => {
  const test = testApp();
  for (let i = 0; i < count; i++)
    test.model.ipcache.upsert(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`, {
      identity,
      source: 'clustermesh',
      owner: 'baltic',
    });
  return test;
};

describe('many differences', () => {
  it('are all counted, listed up to 10,000, and the text says so', async () => {
    const [a, b] = [filled(21_000, 300), filled(21_000, 301)];
    b.model.ipcache.delete('10.0.7.7', { source: 'clustermesh', owner: 'baltic' });
    const diff = await diffAgents(asking(a), asking(b));
    expect(diff.writers).toEqual([
      { writer: 'clustermesh baltic', claimsA: 21_002, claimsB: 21_001, differ: 21_000, onlyA: 1, onlyB: 0 },
    ]);
    expect(diff.differences.length).toBe(10_000);
    expect(new Set(diff.differences.map(({ key }) => key)).size).toBe(10_000);
    expect(diff).toMatchObject({ notListed: 11_000, notCompared: 0 });
    const text = diffLines(diff).join('\n');
    expect(text).toContain('  and 20950 more');
    expect(text).toContain('Truncated: -o json lists all except 11000 differences.');
    // The reasons of all listed differences are known without a search (regression: `beyond the first 100 11000`).
    expect(text).toMatch(/^Reasons: [^;]+ 10000; reason not searched 11000$/m);
  });

  it('have answers of at most 10,000 claims, whole places in order, and the place to continue from', async () => {
    const ask = asking(filled(25_000, 300));
    await ask('/v1/digest');
    const seen = new Set<string>();
    let from = 0;
    for (let answers = 0; from < 65_536; answers++) {
      const { claims = [], next } = (await ask(
        `/v1/digest/clustermesh%20baltic?place=${from}-65535`,
      )) as GroupDigestDocument;
      expect(claims.length).toBeLessThanOrEqual(10_000);
      const end = next ?? 65_536;
      expect(claims.filter(({ place }) => place < from || place >= end)).toEqual([]);
      const before = seen.size;
      for (const { key } of claims) seen.add(key);
      expect(seen.size).toBe(before + claims.length);
      expect(answers).toBeLessThan(4);
      from = next ?? 65_536;
    }
    expect(seen.size).toBe(25_002); // and two of the model
  });

  it('have answers that are written in pieces (regression: the text of 10,000 claims took 50 ms in one turn)', async () => {
    const ask = asking(filled(10_000, 300));
    await ask('/v1/digest');
    const stringify = vi.spyOn(JSON, 'stringify');
    const { claims } = (await ask('/v1/digest/clustermesh%20baltic?place=0-65535')) as GroupDigestDocument;
    const lengths = stringify.mock.results.map(({ value }) => String(value).length);
    stringify.mockRestore();
    expect(claims?.length).toBeGreaterThan(9_990);
    expect(Math.max(...lengths)).toBeLessThan(32_768);
  });

  it('are not compared at a place with too many of them: no false difference', async () => {
    const [a, b] = [filled(3_000, 300), filled(3_000, 301)];
    let full = -1;
    const ofB: Ask = async (path) => {
      const document = (await asking(b)(path)) as GroupDigestDocument;
      if (!path.includes('place=')) return document;
      full = document.claims?.[0]?.place ?? -1;
      const claims = document.claims?.filter(({ place }) => place !== full);
      return { ...document, claims, tooMany: { place: full, claims: 12_000 } };
    };
    const diff = await diffAgents(asking(a), ofB);
    const compared = diff.differences.map(({ a: claim }) => claim?.place);
    expect(diff.notCompared).toBe(12_000);
    expect(compared).not.toContain(full);
    expect(diff.differences.every(({ b: claim }) => claim !== undefined)).toBe(true);
    expect(diffLines(diff).join('\n')).toContain('12000 entries not compared');
  });

  it('are compared only up to the place that both answers contain, then from there', async () => {
    const [a, b] = [filled(3_000, 300), filled(3_000, 301)];
    let cuts = 0;
    const cut =
      (app: TestApp, isCut: boolean): Ask =>
      async (path) => {
        const document = (await asking(app)(path)) as GroupDigestDocument;
        const { claims = [] } = document;
        const places = claims.map(({ place }) => place).sort((x, y) => x - y);
        const next = places[places.length >> 1];
        if (!isCut || next === undefined || next === places[0]) return document;
        cuts++;
        return { ...document, claims: claims.filter(({ place }) => place < next), next };
      };
    for (const isCut of [
      [true, false],
      [false, true],
    ] as const) {
      cuts = 0;
      const { differences } = await diffAgents(cut(a, isCut[0]), cut(b, isCut[1]));
      expect(cuts).toBeGreaterThan(1);
      expect(new Set(differences.map(({ key }) => key)).size).toBe(3_000);
      expect(differences.filter((pair) => pair.a === undefined || pair.b === undefined)).toEqual([]);
    }
  });

  it('are requested in as many ranges as agents accept, with few equal places in them', async () => {
    const [a, b] = [filled(3_000, 300), filled(3_000, 301)];
    let [most, places] = [0, 0];
    /** Reports 300 times as many claims, so that a request has fewer places. */
    const asLarge =
      (test: TestApp): Ask =>
      async (path) => {
        const ranges = path.split('?place=')[1]?.split(',') ?? [];
        most = Math.max(most, ranges.length);
        for (const [first = 0, last = first] of ranges.map((range) => range.split('-').map(Number)))
          places += last - first + 1;
        const document = (await asking(test)(path)) as { readonly writers?: readonly { claims: number }[] };
        const writers = document.writers?.map((one) => ({ ...one, claims: 300 * one.claims }));
        return { ...document, ...(writers && { writers }) };
      };
    const { differences } = await diffAgents(asLarge(a), asLarge(b));
    expect(differences.length).toBe(3_000);
    expect(most).toBe(256);
    expect(places).toBeLessThan(2 * 2 * 3_000);
  });

  it('refuse ranges that descend or end behind the last place', async () => {
    const { app } = testApp();
    for (const query of ['place=5-4', 'place=65536', 'bucket=3-256', 'place=1-', 'bucket=1,,2'])
      expect((await app.request(`/v1/digest/kvstore?${query}`)).status).toBe(400);
  });
});

describe('digests that differ although no entry does', () => {
  it('are reported if the group has become equal meanwhile (regression: the text was "No differences.")', async () => {
    const [a, b] = [filled(10, 300), filled(10, 301)];
    const ask = asking(b);
    let isFirst = true;
    const ofB: Ask = async (path) => {
      const document = await ask(path);
      if (isFirst)
        for (let i = 0; i < 10; i++)
          b.model.ipcache.upsert(`10.0.0.${i}`, { identity: 300, source: 'clustermesh', owner: 'baltic' });
      isFirst = false;
      return document;
    };
    const diff = await diffAgents(asking(a), ofB);
    expect(diff).toMatchObject({ writers: [], differences: [], digestsOnly: ['clustermesh baltic'] });
    expect(diffLines(diff)).toEqual([
      'clustermesh baltic: the digests differ, but no entry does: the group changed during the comparison, or the agents run different versions: repeat the command',
      'Expected differences: 0 (local nodes and their addresses: 0, other claims of one node or cluster: 0)',
    ]);
    expect(await diffAgents(asking(a), asking(b))).toMatchObject({ digestsOnly: [] });
  });

  it('are reported if the agents have other hashes', async () => {
    const [a, b] = [filled(10, 300), filled(10, 300)];
    const ask = asking(b);
    const swap = (sum: string): string => sum.slice(8) + sum.slice(0, 8);
    const ofB: Ask = async (path) => {
      const document = (await ask(path)) as GroupDigestDocument & {
        readonly writers?: readonly { readonly sum: string }[];
      };
      const { writers, buckets, places } = document;
      return {
        ...document,
        ...(writers && { writers: writers.map((one) => ({ ...one, sum: swap(one.sum) })) }),
        ...(buckets && { buckets: buckets.map(swap) }),
        ...(places && {
          places: Object.fromEntries(Object.entries(places).map(([place, sum]) => [place, swap(sum)])),
        }),
      };
    };
    const diff = await diffAgents(asking(a), ofB);
    expect(diff).toMatchObject({ writers: [], differences: [], documents: [] });
    expect(diff.digestsOnly).toContain('clustermesh baltic');
  });
});

describe('the claims that an agent has restored from its checkpoint', () => {
  const CLAIM = { identity: 300, encryptKey: 3 } as const;
  const put = (
    { model }: TestApp,
    key: string,
    source: 'clustermesh' | 'restored',
    identity = 300,
  ): unknown => model.ipcache.upsert(key, { ...CLAIM, identity, source, owner: 'baltic' });

  it('are compared with those of the kvstore, each once (regression: each was listed twice)', async () => {
    const [a, b] = [testApp(), testApp()];
    for (let i = 0; i < 20; i++) {
      put(a, `10.8.0.${i}`, 'clustermesh');
      put(b, `10.8.0.${i}`, 'restored');
    }
    const equal = await diffAgents(asking(a), asking(b));
    const group = { writer: 'clustermesh baltic', claimsA: 0, claimsB: 20 };
    expect(equal).toMatchObject({ writers: [], differences: [], digestsOnly: [], restored: [group] });
    expect(diffLines(equal).slice(0, 2)).toEqual([
      'No differences.',
      'clustermesh baltic: 20 not confirmed at b: restored from a checkpoint',
    ]);
    put(a, '10.8.0.7', 'clustermesh', 301);
    const { writers, differences } = await diffAgents(asking(a), asking(b));
    expect(writers).toMatchObject([{ writer: 'clustermesh baltic', differ: 1, onlyA: 0, onlyB: 0 }]);
    expect(differences).toMatchObject([
      { key: '10.8.0.7', a: { identity: 301 }, b: { identity: 300, restored: true }, reason: 'incomplete' },
    ]);
  });

  it('are not compared if the agent has the claim of the kvstore, too', async () => {
    const [a, b] = [testApp(), testApp()];
    for (const test of [a, b]) put(test, '10.8.0.1', 'clustermesh', 301);
    put(b, '10.8.0.1', 'restored', 300);
    expect(await diffAgents(asking(a), asking(b))).toMatchObject({ writers: [], digestsOnly: [] });
    put(a, '10.8.0.2', 'clustermesh');
    expect((await diffAgents(asking(b), asking(a))).differences).toMatchObject([
      { key: '10.8.0.2', a: undefined },
    ]);
  });

  it.each(['kvstore', 'custom-resource', 'k8s'] as const)(
    'of the local cluster, also of its nodes, are compared with those of %s (regression: those of nodes and Kubernetes were listed twice)',
    async (source) => {
      const [a, b] = [testApp(), testApp()];
      for (const { model } of [a, b])
        for (const local of ['kvstore', 'custom-resource', 'k8s'] as const)
          model.ipcache.withdraw({ source: local });
      for (const [key, owner] of [
        ['10.8.0.1', ''],
        ['10.8.0.2', 'own/node-7'],
      ] as const)
        b.model.ipcache.upsert(key, { ...CLAIM, source: 'restored', owner });
      expect((await diffAgents(asking(a), asking(b))).writers).toMatchObject([
        { writer: 'restored', onlyB: 1 },
        { writer: 'restored own', onlyB: 1 },
      ]);
      a.model.ipcache.upsert('10.8.0.1', { ...CLAIM, source });
      a.model.ipcache.upsert('10.8.0.2', { ...CLAIM, source, owner: 'own/node-7' });
      expect(await diffAgents(asking(a), asking(b))).toMatchObject({
        writers: [],
        restored: [
          { writer: source, claimsA: 0, claimsB: 1 },
          { writer: `${source} own`, claimsA: 0, claimsB: 1 },
        ],
      });
    },
  );
});

describe('the reasons of a difference', () => {
  it('are counted over all differences (regression: beyond the first 100, an unreachable cluster was no reason)', async () => {
    const [a, b] = [testApp(), testApp()];
    for (const { model } of [a, b]) await model.clock.advance(60_000);
    for (let i = 0; i < 150; i++) {
      a.model.ipcache.upsert(`10.8.0.${i}`, { identity: 300, source: 'clustermesh', owner: 'lost' });
      b.model.ipcache.upsert(`10.9.0.${i}`, { identity: 300, source: 'kvstore' });
    }
    for (const { model } of [a, b]) await model.clock.advance(60_000);
    const diff = await diffAgents(asking(a), asking(b));
    expect(diff.reasons).toEqual({ incomplete: 150, 'none-found': 100, 'not-searched': 50 });
    expect(diffLines(diff)).toContain(
      'Reasons: source incomplete, unreachable or not followed 150; no reason found 100; reason not searched 50',
    );
    expect(diffLines(diff)).toContain('clustermesh lost: 150 of 150 claims differ (150 only at a)');
  });

  it('names the other source, and none if there is none', async () => {
    const [a, b] = [testApp(), testApp()];
    for (const { model } of [a, b]) await model.clock.advance(60_000);
    a.model.ipcache.upsert('10.7.0.1', { identity: 900, source: 'kvstore' });
    b.model.ipcache.upsert('10.7.0.1', { identity: 900, source: 'k8s' });
    a.model.ipcache.upsert('10.7.0.2', { identity: 901, source: 'kvstore' });
    b.model.ipcache.upsert('10.7.0.2', { identity: 902, source: 'kvstore' });
    for (const { model } of [a, b]) await model.clock.advance(60_000);
    const diff = await diffAgents(asking(a), asking(b));
    expect(diff.differences.map(({ key, writer, reason }) => `${key} ${writer} ${reason}`).sort()).toEqual([
      '10.7.0.1 k8s other-source',
      '10.7.0.1 kvstore other-source',
      '10.7.0.2 kvstore none-found',
    ]);
    expect(diffLines(diff).join('\n')).toContain('no reason found');
  });

  it('does not compare revisions of larger prefixes, and does not blame Services for a pod', async () => {
    const [a, b] = [testApp(), testApp()];
    const pod = { namespace: 'shop', podName: 'cart' };
    a.model.ipcache.upsert('10.7.0.1', { identity: 900, source: 'k8s', k8s: pod });
    a.model.ipcache.upsert('10.7.0.2', { identity: 900, source: 'kvstore' });
    for (const { model } of [a, b]) await model.clock.advance(60_000);
    const changed = (app: TestApp, claim: object): Ask => {
      const ask = asking(app);
      return async (path) => {
        const document = (await ask(path)) as object;
        if (path === '/v1/status')
          return { ...document, kubernetes: { kinds: [{ name: 'services', state: 'forbidden' }] } };
        return path.startsWith('/v1/ipcache/explain/') ? { ...document, claims: [claim] } : document;
      };
    };
    const { differences } = await diffAgents(
      changed(a, { key: '10.7.0.2', source: 'kvstore', origin: { revision: 900 } }),
      changed(b, { key: '10.7.0.0/16', source: 'kvstore', origin: { revision: 7 } }),
    );
    expect(differences.map(({ key, reason }) => [key, reason])).toEqual([
      ['10.7.0.1', 'none-found'],
      ['10.7.0.2', 'none-found'],
    ]);
  });

  it('names a change of the last seconds', async () => {
    const [a, b] = [testApp(), testApp()];
    for (const { model } of [a, b]) await model.clock.advance(60_000);
    a.model.ipcache.upsert('10.7.0.2', { identity: 901, source: 'kvstore' });
    b.model.ipcache.upsert('10.7.0.2', { identity: 902, source: 'kvstore' });
    await a.model.clock.advance(1_000);
    await b.model.clock.advance(1_000);
    const { differences } = await diffAgents(asking(a), asking(b));
    expect(differences).toMatchObject([
      { key: '10.7.0.2', reason: 'recent', detail: 'a changed it less than 5 s ago' },
    ]);
  });

  it('names what is incomplete, behind, or rejected, in this order', async () => {
    const [a, b] = [testApp(), testApp()];
    const owner = 'atlantic';
    const writers = {
      '10.7.0.1': { source: 'k8s' },
      '10.7.0.2': { source: 'clustermesh', owner },
      '10.7.0.3': { source: 'clustermesh', owner: 'gulf' },
      '10.7.0.4': { source: 'restored' },
      '10.7.0.5': { source: 'kvstore' },
      '10.7.0.6': { source: 'kvstore' },
    } as const;
    for (const [key, writer] of Object.entries(writers)) {
      a.model.ipcache.upsert(key, { identity: 900, ...writer });
      b.model.ipcache.upsert(key, { identity: 901, ...writer });
    }
    for (const { model } of [a, b]) await model.clock.advance(60_000);
    const cluster = { name: owner, state: 'failed', ready: false, missing: ['ip'], knownAt: 'TIME' };
    const changed = (app: TestApp, revision: number): Ask => {
      const ask = asking(app);
      return async (path) => {
        const document = (await ask(path)) as { claims?: readonly { key: string }[] };
        if (path === '/v1/status' && app === b)
          return {
            ...document,
            clusters: [cluster],
            kubernetes: { kinds: [{ name: 'ciliumendpoints', state: 'forbidden', complete: false }] },
          };
        if (path === '/v1/rejections' && app === b)
          return { recent: [{ message: 'ip of 10.7.0.60: bad' }, { message: 'ip of 10.7.0.6: bad' }] };
        const claims = document.claims?.map((claim) =>
          claim.key === '10.7.0.5' ? { ...claim, origin: { revision } } : claim,
        );
        return path.startsWith('/v1/ipcache/explain/') ? { ...document, claims } : document;
      };
    };
    const { differences } = await diffAgents(changed(a, 70_211), changed(b, 70_198));
    expect(differences.map(({ key, reason, detail }) => [key, reason, detail]).sort()).toEqual([
      ['10.7.0.1', 'incomplete', 'b: kind ciliumendpoints is forbidden, incomplete'],
      ['10.7.0.2', 'incomplete', 'a: cluster atlantic is not followed'],
      ['10.7.0.3', 'incomplete', 'a: cluster gulf is not followed'],
      ['10.7.0.4', 'incomplete', 'a: the claim is restored and not confirmed'],
      ['10.7.0.5', 'revision-behind', 'b is behind: revision 70198 of 70211'],
      ['10.7.0.6', 'rejected', 'b rejected ip of 10.7.0.6: bad'],
    ]);
    const [ofA, ofB] = [changed(a, 1), changed(b, 1)];
    const following: Ask = async (path) => {
      const document = (await ofA(path)) as object;
      const clusters = [owner, 'gulf'].map((name) => ({ ...cluster, name, ready: true }));
      return path === '/v1/status' ? { ...document, clusters } : document;
    };
    const again = await diffAgents(following, ofB);
    expect(again.differences.find(({ key }) => key === '10.7.0.2')?.detail).toBe(
      'b: cluster atlantic is failed since TIME, incomplete: ip',
    );
    expect(again.differences.find(({ key }) => key === '10.7.0.5')?.reason).toBe('none-found');
  });

  it('counts the addresses of the local node apart', async () => {
    const [a, b] = [testApp(), testApp()];
    a.model.ipcache.upsert('10.7.0.3', { identity: 1, source: 'local', owner: 'own/n1' });
    b.model.ipcache.upsert('10.7.0.3', { identity: 6, source: 'kvstore', owner: 'own/n1' });
    const onNode: Ask = async (path) => {
      const document = (await asking(a)(path)) as object;
      return path === '/v1/digest' ? { ...document, node: 'own/n1' } : document;
    };
    const diff = await diffAgents(onNode, asking(b));
    expect(diff).toMatchObject({ differences: [], expected: { localNode: 1 } });
    expect(diffLines(diff)).toEqual([
      'No differences.',
      'Expected differences: 2 (local nodes and their addresses: 1, other claims of one node or cluster: 1)',
    ]);
  });

  it.each([
    ['ciliumendpoints', 'watching', 'following', 0],
    ['ciliumendpointslices', 'watching', 'following', 0],
    ['ciliumendpoints', 'missing', 'following', 2],
    ['ciliumendpoints', 'missing', 'resting', 0],
  ])(
    'expects that agents have the pods of their nodes only, with %s %s and the kvstore %s (regression: listed each pod)',
    async (name, state, ip, listed) => {
      const apps = ['n-a', 'n-b'].map((node, index) => {
        const app = testApp();
        const claim = { identity: 3, source: 'k8s' as const };
        app.model.ipcache.upsert(`10.7.${index}.1`, claim);
        app.model.ipcache.upsert(`192.168.0.${index}`, {
          identity: 1,
          source: 'local',
          owner: `own/${node}`,
        });
        const ask = asking(app);
        return async (path: string): Promise<unknown> => {
          const document = (await ask(path)) as object;
          if (path === '/v1/digest') return { ...document, node: `own/${node}` };
          if (path !== '/v1/status') return document;
          return { ...document, kubernetes: { kinds: [{ name, state }], handover: { ip } } };
        };
      });
      const { differences, expected } = await diffAgents(apps[0] as Ask, apps[1] as Ask);
      expect(differences.length).toBe(listed);
      expect(expected).toEqual({ localNode: 0, localSource: 3 - listed });
    },
  );

  it('does not compare the API servers of different clusters (regression: listed each as a difference)', async () => {
    const [a, b] = [testApp(), testApp()];
    const claim = { identity: 7, source: 'kube-apiserver' as const, owner: 'metadata' };
    a.model.ipcache.upsert('10.7.0.1', claim);
    b.model.ipcache.upsert('10.7.0.2', claim);
    expect((await diffAgents(asking(a), asking(b))).differences.length).toBe(2);
    const ofOther: Ask = async (path) => {
      const document = (await asking(b)(path)) as object;
      return path === '/v1/digest' ? { ...document, cluster: 'other' } : document;
    };
    expect((await diffAgents(asking(a), ofOther)).differences).toEqual([]);
  });

  it('expects no claim of an API server on its own node (regression: an agent on a control-plane node always differed)', async () => {
    const [a, b] = [testApp(), testApp()];
    const server = { identity: 7, source: 'kube-apiserver' as const, owner: 'metadata' };
    for (const ip of ['10.7.0.1', '10.7.0.2', '10.7.0.3']) b.model.ipcache.upsert(ip, server);
    a.model.ipcache.upsert('10.7.0.1', { identity: 1, source: 'local', owner: 'own/n-a' });
    a.model.ipcache.upsert('10.7.0.2', { identity: 6, source: 'custom-resource', owner: 'own/n-c' });
    for (const [left, right] of [
      [a, b],
      [b, a],
    ] as const) {
      const { differences, expected } = await diffAgents(asking(left), asking(right));
      expect(differences.map(({ key, writer }) => `${key} ${writer}`).sort()).toEqual([
        '10.7.0.2 custom-resource own',
        '10.7.0.2 kube-apiserver metadata',
        '10.7.0.3 kube-apiserver metadata',
      ]);
      expect(expected.localNode).toBe(1);
    }
  });

  it('blames no forbidden endpoints for a node, and expects the local node to be absent (regression: demo:diagnose)', async () => {
    const [a, b] = [testApp(), testApp()];
    const [onA, onB, other] = ['own/n-a', 'own/n-b', 'own/n-c'];
    for (const [{ model }, owners] of [
      [a, [onB, other]],
      [b, [onA]],
    ] as const)
      for (const owner of owners)
        model.ipcache.upsert(`10.7.1.${owner.charCodeAt(6)}`, {
          identity: 6,
          source: 'custom-resource',
          owner,
        });
    for (const { model } of [a, b]) await model.clock.advance(60_000);
    const running = (app: TestApp, node: string, state: string): Ask => {
      const ask = asking(app);
      const kinds = [
        { name: 'ciliumendpoints', state: 'forbidden', complete: false },
        { name: 'ciliumnodes', state, complete: state === 'watching' },
      ];
      return async (path) => {
        const document = (await ask(path)) as object;
        if (path === '/v1/status') return { ...document, kubernetes: { kinds } };
        return path === '/v1/digest' ? { ...document, node } : document;
      };
    };
    const reasons = async (state: string): Promise<unknown> => {
      const { differences, expected } = await diffAgents(running(a, onA, 'watching'), running(b, onB, state));
      expect(expected.localNode).toBe(2);
      return differences.map(({ key, reason, detail }) => [key, reason, detail]);
    };
    expect(await reasons('watching')).toEqual([['10.7.1.99', 'none-found', '']]);
    expect(await reasons('forbidden')).toEqual([
      ['10.7.1.99', 'incomplete', 'b: kind ciliumnodes is forbidden, incomplete'],
    ]);
  });

  it('names the setting that differs', async () => {
    const [a, b] = [testApp(), testApp()];
    for (const { model } of [a, b])
      model.nodes.nodeUpdated({
        cluster: 'own',
        name: 'n9',
        source: 'kvstore',
        encryptionKey: 3,
        addresses: [{ type: 'InternalIP', ip: '192.168.9.9' }],
      });
    b.model.nodes.configure({ encryption: true, nodeEncryption: true });
    const { differences } = await diffAgents(asking(a), asking(b));
    expect(differences.find(({ key }) => key === '192.168.9.9')).toMatchObject({
      reason: 'setting',
      detail: expect.stringContaining('nodeEncryption is false at a, true at b'),
    });
  });
});

describe('agents that cannot be compared', () => {
  const put = ({ model }: TestApp, owner: string, identity: number): unknown =>
    model.ipcache.upsert('10.7.0.1', { identity, source: 'clustermesh', owner });

  it('because one is restarted meanwhile (regression: everything that it had not yet was a difference)', async () => {
    const [a, b, again] = [testApp(), testApp(), testApp()];
    put(a, 'baltic', 70_000);
    put(b, 'baltic', 70_001);
    const restarted: Ask = async (path) => {
      const answer = await asking(again)(path);
      return path === '/v1/digest' ? { ...(answer as object), instance: 'other' } : answer;
    };
    let calls = 0;
    const askB: Ask = (path) => (calls++ === 0 ? asking(b) : restarted)(path);
    await expect(diffAgents(asking(a), askB)).rejects.toThrow(
      'agent b was restarted during the comparison: repeat it',
    );
  });

  it('because one fails meanwhile: its error, not the claims of the other as differences', async () => {
    const [a, b] = [testApp(), testApp()];
    put(a, 'baltic', 70_000);
    put(b, 'baltic', 70_001);
    const askB: Ask = async (path) => {
      if (path.startsWith('/v1/digest/')) throw new AgentError('overload', problem('internal', 'overload'));
      return asking(b)(path);
    };
    await expect(diffAgents(asking(a), askB)).rejects.toThrow('overload');
  });

  it('because they are of different clusters: only the claims of other clusters are compared', async () => {
    const [a, b] = [testApp(), testApp()];
    for (const [app, identity] of [
      [a, 70_000],
      [b, 70_001],
    ] as const) {
      put(app, 'baltic', identity);
      put(app, 'pacific', identity);
      app.model.ipcache.upsert('10.8.0.1', { identity, source: 'kvstore' });
    }
    const askB: Ask = async (path) => {
      const answer = await asking(b)(path);
      return path === '/v1/digest' ? { ...(answer as object), cluster: 'baltic' } : answer;
    };
    const diff = await diffAgents(asking(a), askB);
    expect(diff.clusters).toEqual({ a: 'own', b: 'baltic' });
    expect(diff.differences.map(({ writer }) => writer)).toEqual(['clustermesh pacific']);
    expect(diffLines(diff)[0]).toBe(
      'The agents are of clusters own and baltic: only other clusters are compared.',
    );
  });
});
