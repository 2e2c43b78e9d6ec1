import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ApiError, type Ask, parseAnswer } from '../../src/api/api-client.ts';
import type { ProblemDocument } from '../../src/api/problem.ts';
import { type AgentDiff, diffAgents, diffLines } from '../../src/client/agent-diff.ts';
import { ClaimDigest } from '../../src/compare/claim-digest.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { testApp } from '../api/support/test-app.ts';
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
    throw new ApiError(problem.detail, problem);
  };
}

const LOCAL = new Set(['local', 'generated', 'api', 'unspec']);

/** All claims as text, from `explain`. */
function dump({ model }: TestApp): ReadonlySet<string> {
  const claims = [...model.ipcache.entries({ includeShadowed: true })].flatMap(({ key }) =>
    model.ipcache.claimsOf(key).map(({ source, owner, identity, hostIP, encryptKey, k8s }) => ({
      ...{ key, source, owner, identity, hostIP, encryptKey },
      ...{ namespace: k8s?.namespace ?? '', pod: k8s?.podName ?? '' },
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
        expect(named(await diffAgents(asking(a), asking(b)))).toEqual(dumpDiff(a, b));
      }),
      { numRuns: Number(process.env['PROPERTY_RUNS'] ?? 20) },
    );
  });
});

describe('D2: equal states give no bucket', () => {
  it('for any order of writes, whenever the digest was started', async () => {
    await fc.assert(
      fc.asyncProperty(operations, operations, fc.nat(4), async (first, then, turn) => {
        const early = new IPCache();
        const late = new IPCache();
        const digest = new ClaimDigest({ ipcache: early });
        for (const operation of first) apply(early, operation);
        const steps = digest.start();
        for (let i = 0; i < turn; i++) steps.next();
        for (const operation of then) apply(early, operation);
        for (const _ of steps);
        for (const operation of [...first, ...then]) apply(late, operation);
        const other = new ClaimDigest({ ipcache: late });
        for (const _ of other.start());
        expect(digest.groups()).toEqual(other.groups());
        for (const { writer } of other.groups())
          expect(digest.buckets(writer)).toEqual(other.buckets(writer));
      }),
      { numRuns: 200 },
    );
  });

  it('adds the parts of buckets in turns: at most 256 claims in one', () => {
    const ipcache = new IPCache();
    let hashed = 0;
    const digest = new ClaimDigest({ ipcache, labelsOf: () => String(hashed++) });
    for (const _ of digest.start());
    for (let at = 0; at < 5_000; at++)
      ipcache.upsert(`10.0.${at >> 8}.${at & 255}/32`, { source: 'generated', identity: (1 << 24) + at });
    const sums = new Map<number, string>();
    const turns: number[] = [];
    for (const _ of digest.partSums('generated', () => true, sums)) {
      turns.push(hashed);
      hashed = 0;
    }
    expect([hashed, turns.reduce((a, b) => a + b), sums.size > 4_000]).toEqual([0, 5_000, true]);
    expect(Math.max(...turns)).toBeLessThanOrEqual(256);
  });

  it('reads the state at the start and the changes during its steps once each', () => {
    const ipcache = new IPCache();
    const put = (i: number, identity: number): unknown =>
      ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity, source: 'kvstore' });
    for (let i = 0; i < 3_000; i++) put(i, 1);
    const digest = new ClaimDigest({ ipcache });
    const steps = digest.start();
    let at = 0;
    while (steps.next().done !== true) {
      put(at, 2);
      ipcache.delete(`10.0.${(2_999 - at) >> 8}.${(2_999 - at) & 255}`, { source: 'kvstore' });
      put(5_000 + at++, 3);
    }
    const settled = new ClaimDigest({ ipcache });
    for (const _ of settled.start());
    expect(at).toBeGreaterThan(3);
    expect(digest.groups()).toEqual(settled.groups());
  });
});

describe('the reasons of a difference', () => {
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
    expect(differences).toMatchObject([{ key: '10.7.0.2', reason: 'recent' }]);
  });

  it('counts the addresses of the own node apart', async () => {
    const [a, b] = [testApp(), testApp()];
    const claim = { source: 'kvstore' as const, owner: 'own/n1' };
    a.model.ipcache.upsert('10.7.0.3', { identity: 1, ...claim });
    b.model.ipcache.upsert('10.7.0.3', { identity: 6, ...claim });
    const diff = await diffAgents(asking(a), asking(b));
    expect(diff).toMatchObject({ differences: [], expected: { ownNode: 1 } });
    expect(diffLines(diff)).toEqual([
      'No differences.',
      'Expected differences: 1 (addresses of the own node: 1, sources of one node: 0)',
    ]);
  });

  it('blames no forbidden endpoints for a node, and expects the own node to be absent (regression: demo:diagnose)', async () => {
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
      expect(expected.ownNode).toBe(2);
      return differences.map(({ key, reason, why }) => [key, reason, why]);
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
        ...{ cluster: 'own', name: 'n9', source: 'kvstore', encryptionKey: 3 },
        addresses: [{ type: 'InternalIP', ip: '192.168.9.9' }],
      });
    b.model.nodes.configure({ encryption: true, nodeEncryption: true });
    const { differences } = await diffAgents(asking(a), asking(b));
    expect(differences.find(({ key }) => key === '192.168.9.9')).toMatchObject({
      reason: 'setting',
      why: expect.stringContaining('nodeEncryption is false at a, true at b'),
    });
  });
});
