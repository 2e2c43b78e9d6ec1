import { inspect } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ChangeBatch, ChangeReader } from '../../src/ipcache/change-reader.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { IPCacheSnapshot } from '../../src/ipcache/snapshot.ts';
import type { IPCacheChange } from '../../src/ipcache/types.ts';
import { FoldingListener, plain } from './support/invariants.ts';
import { apply, history } from './support/operations.ts';

/** Returns the next batch, which must exist. */
async function next(reader: AsyncIterator<ChangeBatch, undefined>): Promise<ChangeBatch> {
  const { value } = await reader.next();
  if (value === undefined) throw new Error('the reader has ended');
  return value;
}

/** Folds the changes of a reader. */
class Folded {
  readonly listener: FoldingListener = new FoldingListener();
  revision = 0;

  take(batch: ChangeBatch): void {
    this.revision = batch.revision;
    if (batch.kind === 'changes') {
      this.listener.onChanges(batch.changes);
      return;
    }
    this.listener.view.clear();
    for (const entry of batch.snapshot.entries()) {
      const prefix = entry.key.includes('/')
        ? entry.key
        : `${entry.key}/${entry.key.includes(':') ? 128 : 32}`;
      this.listener.view.set(prefix, entry);
    }
  }
}

/** Reads all changes. An extra write ensures that there is one. */
async function catchUp(
  reader: AsyncIterator<ChangeBatch, undefined>,
  folded: Folded,
  cache: IPCache,
): Promise<void> {
  const marks = cache.status().outcomes.applied;
  cache.upsert('203.0.113.1', { identity: 1000 + marks, source: 'kube-apiserver' });
  folded.take(await next(reader));
}

function dump(cache: IPCache): Record<string, unknown> {
  const fresh = new FoldingListener();
  cache.subscribe(fresh)();
  return plain(fresh.view);
}

it('a reader that is asked within a batch begins with its resync later (regression: never)', async () => {
  const cache = new IPCache();
  cache.upsert('10.0.0.1', { identity: 1, source: 'k8s' });
  const reader = cache.changes();
  const early = cache.batch(() => ({ batch: next(reader) }));
  await expect(early.batch).rejects.toThrow('must not be called inside a batch');
  cache.upsert('10.0.0.2', { identity: 2, source: 'k8s' });
  expect(await next(reader)).toMatchObject({ kind: 'resync', revision: 2 });
});

describe('a cache without listeners', () => {
  it.each([3, 100])(
    'counts the same revisions as one with a listener, with room for %d keys',
    (maxEntries) => {
      fc.assert(
        fc.property(history, (operations) => {
          const [silent, heard] = [new IPCache({ maxEntries }), new IPCache({ maxEntries })];
          heard.subscribe({ onChanges: () => {} });
          for (const operation of operations) {
            apply(silent, operation);
            apply(heard, operation);
            expect(silent.revision).toBe(heard.revision);
          }
          expect([...silent.entries()]).toEqual([...heard.entries()]);
        }),
      );
    },
  );

  it('counts nothing if a waiting claim replaces a deleted one', () => {
    const cache = new IPCache({ maxEntries: 1 });
    const claim = { identity: 300, source: 'k8s' } as const;
    const outcomes = ['10.0.0.1', '10.0.0.1/32'].map((key) => cache.upsert(key, claim));
    expect(outcomes).toEqual(['applied', 'capacity']);
    cache.delete('10.0.0.1', claim);
    expect([cache.get('10.0.0.1/32')?.identity, cache.revision]).toEqual([300, 1]);
  });

  it('delivers later changes to the first listener', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 300, source: 'k8s' });
    const told: string[] = [];
    cache.subscribe({
      onChanges: (changes) => told.push(...changes.map(({ kind, prefix }) => `${kind} ${prefix}`)),
    });
    cache.upsert('10.0.0.2', { identity: 300, source: 'k8s' });
    cache.delete('10.0.0.1', { source: 'k8s' });
    expect(told).toEqual(['upsert 10.0.0.1/32', 'upsert 10.0.0.2/32', 'delete 10.0.0.1/32']);
    expect(cache.revision).toBe(3);
  });
});

describe('a change', () => {
  it('is plain data: it survives spread, structuredClone, JSON and console.log', () => {
    const cache = new IPCache();
    const changes: IPCacheChange[] = [];
    cache.upsert('fd00::1', { identity: 300, source: 'k8s' });
    cache.subscribe({ onChanges: (told) => void changes.push(...told) });
    cache.upsert('10.1.2.3', { identity: 1234, source: 'kvstore', hostIP: '192.168.0.7' });
    cache.batch(() => cache.delete('10.1.2.3', { source: 'kvstore' }));
    changes.push(...IPCacheSnapshot.diff(cache.snapshot(), IPCacheSnapshot.EMPTY));
    const entry = { identity: 1234, hostIP: '192.168.0.7', encryptKey: 0, k8s: undefined };
    const v6 = { identity: 300, hostIP: undefined, encryptKey: 0, k8s: undefined };
    const expected = [
      { kind: 'upsert', prefix: 'fd00::1/128', old: undefined, new: v6 },
      { kind: 'upsert', prefix: '10.1.2.3/32', old: undefined, new: entry },
      { kind: 'delete', prefix: '10.1.2.3/32', old: entry, new: undefined },
      { kind: 'delete', prefix: 'fd00::1/128', old: v6, new: undefined },
    ];
    expect(changes.map((change) => ({ ...change }))).toEqual(expected);
    expect(structuredClone(changes)).toEqual(expected);
    expect(JSON.parse(JSON.stringify(changes))).toEqual(JSON.parse(JSON.stringify(expected)));
    expect(inspect(changes)).toBe(inspect(expected));
  });
});

describe('the prefix of a change', () => {
  it('is canonical, however the key is written, for each key that a call writes', () => {
    const cache = new IPCache({ maxEntries: 2 });
    const told: string[] = [];
    cache.subscribe({
      onChanges: (changes) => told.push(...changes.map(({ kind, prefix }) => `${kind} ${prefix}`)),
    });
    const [a, b] = [
      { identity: 1, source: 'kvstore', owner: 'a' },
      { identity: 2, source: 'kvstore', owner: 'b' },
    ] as const;
    cache.upsert('::FFFF:10.0.0.1', a);
    cache.upsert('0::ffff:10.0.0.1/128', b); // shadowed: no change
    cache.upsert('FD00:0::1', a); // waits for room
    cache.delete('10.0.0.1', a); // the CIDR becomes visible, then the waiting entry
    cache.batch(() => {
      cache.upsert('FD00:0::1', { ...a, identity: 3 });
      cache.withdraw(b);
    });
    cache.upsert('10.0.0.9/24', a);
    expect(told).toEqual([
      'upsert 10.0.0.1/32',
      'upsert 10.0.0.1/32',
      'upsert fd00::1/128',
      'upsert fd00::1/128',
      'delete 10.0.0.1/32',
      'upsert 10.0.0.0/24',
    ]);
  });

  it('is not that of the previous call if a writer is withdrawn in the same batch, or waits for room', () => {
    const cache = new IPCache({ maxEntries: 2 });
    const told: string[] = [];
    const claim = (owner: string) => ({ identity: 1, source: 'kvstore', owner }) as const;
    cache.upsert('10.0.0.1', claim('a'));
    cache.upsert('10.0.0.2', claim('b'));
    cache.upsert('10.0.0.3', claim('c'));
    cache.subscribe({
      onChanges: (changes) => told.push(...changes.map(({ kind, prefix }) => `${kind} ${prefix}`)),
    });
    told.length = 0;
    cache.batch(() => {
      cache.upsert('10.0.0.2', { ...claim('b'), identity: 2 });
      cache.withdraw(claim('a'));
    });
    expect(told).toEqual(['upsert 10.0.0.2/32', 'delete 10.0.0.1/32', 'upsert 10.0.0.3/32']);
  });
});

describe('a reader of changes', () => {
  it('folds the changes to the current state, however slow it is and however often it resumes', async () => {
    await fc.assert(
      fc.asyncProperty(history, fc.infiniteStream(fc.nat(5)), async (operations, choices) => {
        const cache = new IPCache();
        const folded = new Folded();
        let reader = cache.changes();
        folded.take(await next(reader));
        for (const operation of operations) {
          apply(cache, operation);
          const choice = choices.next().value;
          if (choice === 0) {
            await reader.return?.();
            reader = cache.changes({ from: folded.revision });
          }
          if (choice <= 3) await catchUp(reader, folded, cache);
        }
        await catchUp(reader, folded, cache);
        await reader.return?.();
        expect(folded.listener.complaints).toEqual([]);
        expect(plain(folded.listener.view)).toEqual(dump(cache));
      }),
      { numRuns: Math.ceil(0.5 * (fc.readConfigureGlobal().numRuns ?? 300)) },
    );
  });

  it('receives each prefix once, with its latest state, and nothing for a prefix that is unchanged in the end', async () => {
    const cache = new IPCache();
    const reader = cache.changes();
    expect((await next(reader)).kind).toBe('resync');
    const waiting = next(reader);
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    cache.upsert('10.0.0.1', { identity: 200, source: 'kvstore' });
    cache.upsert('10.0.0.2', { identity: 100, source: 'kvstore' });
    cache.delete('10.0.0.2', { source: 'kvstore' });
    const batch = await waiting;
    expect(
      batch.kind === 'changes' && batch.changes.map((c) => [c.prefix, c.old?.identity, c.new?.identity]),
    ).toEqual([['10.0.0.1/32', undefined, 200]]);
  });

  it('resumes from its revision, and restarts from a revision that does not exist yet', async () => {
    const cache = new IPCache();
    const put = (host: number): unknown =>
      cache.upsert(`10.0.0.${host}`, { identity: 100, source: 'kvstore' });
    const told = async (from: number | undefined): Promise<unknown> => {
      const reader = cache.changes({ from });
      const first = next(reader);
      if (from === cache.revision) put(9);
      const batch = await first;
      await reader.return?.();
      return [batch.revision, batch.kind === 'changes' && batch.changes.map(({ prefix }) => prefix)];
    };
    expect(await told(undefined)).toEqual([0, false]); // from now on changes are recorded
    for (const host of [1, 2, 3]) put(host);
    expect(await told(1)).toEqual([3, ['10.0.0.2/32', '10.0.0.3/32']]);
    expect(await told(0)).toEqual([3, ['10.0.0.1/32', '10.0.0.2/32', '10.0.0.3/32']]);
    expect(await told(3)).toEqual([4, ['10.0.0.9/32']]);
    for (const from of [5, undefined]) expect(await told(from)).toEqual([4, false]);
  });

  it('restarts if recent changes are not kept any more', async () => {
    const cache = new IPCache();
    await next(cache.changes());
    for (let i = 0; i < 17_000; i++) cache.upsert('10.0.0.3', { identity: i, source: 'kvstore' });
    expect((await next(cache.changes({ from: 1 }))).kind).toBe('resync');
  });

  it('counts as a listener until it ends, and ends immediately if its signal has fired', async () => {
    const cache = new IPCache();
    const counts: number[] = [];
    const count = (): unknown => counts.push(cache.status().listeners);
    const unsubscribe = cache.subscribe({ onChanges: () => {} });
    const reader = cache.changes();
    cache.changes({ signal: AbortSignal.abort() });
    count();
    await reader.return?.();
    count();
    unsubscribe();
    count();
    expect(counts).toEqual([2, 1, 0]);
  });

  it('is resynced only if more prefixes are pending than its limit, and then continues with changes (I11)', async () => {
    const cache = new IPCache();
    const reader = new ChangeReader({
      revision: () => cache.revision,
      snapshot: () => cache.snapshot(),
      limit: 2,
      missed: [],
      signal: undefined,
      onEnd: () => {},
    });
    cache.subscribe({ onChanges: (changes) => reader.add(changes) });
    const kinds: unknown[] = [];
    const write = async (...hosts: number[]): Promise<void> => {
      for (const host of hosts)
        cache.upsert(`10.0.0.${host}`, { identity: 300 + cache.revision, source: 'k8s' });
      const batch = await next(reader.batches);
      kinds.push([
        batch.revision,
        batch.kind === 'resync' ? batch.snapshot.size : batch.changes.map(({ prefix }) => prefix),
      ]);
    };
    await write(1, 2, 1);
    await write(1, 2, 3, 4);
    await write(5);
    expect(kinds).toEqual([
      [3, ['10.0.0.1/32', '10.0.0.2/32']],
      [7, 4],
      [8, ['10.0.0.5/32']],
    ]);
  });

  it('ends when its signal aborts, even while it waits', async () => {
    const cache = new IPCache();
    const stop = new AbortController();
    const reader = cache.changes({ signal: stop.signal });
    await next(reader);
    const waiting = reader.next();
    stop.abort();
    expect(await waiting).toEqual({ value: undefined, done: true });
    expect(cache.status().listeners).toBe(0);
  });
});
