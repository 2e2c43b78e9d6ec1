import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import type { EntryDocument } from '../../../src/api/documents.ts';
import { MAX_SORTED, ORDERS, selectSorted } from '../../../src/api/routes/ip-order.ts';
import type { KeyedEntry } from '../../../src/ipcache/types.ts';
import { SOURCES } from '../../../src/model/source.ts';
import { comparePrefixes, Prefix } from '../../../src/net/prefix.ts';
import { TestModel } from '../support/model.ts';
import { testApp } from '../support/test-app.ts';

type App = ReturnType<typeof testApp>['app'];

interface Page {
  readonly items: readonly EntryDocument[];
  readonly continue?: string;
}

async function pageOf(app: App, query: string): Promise<Page> {
  const answer = await app.request(`/v1/ipcache?${query}`);
  expect(answer.status).toBe(200);
  return (await answer.json()) as Page;
}

/** Returns all prefixes of a list. */
async function listOf(app: App, query: string): Promise<readonly EntryDocument[]> {
  const items: EntryDocument[] = [];
  let page = await pageOf(app, query);
  for (items.push(...page.items); page.continue !== undefined; items.push(...page.items))
    page = await pageOf(app, `limit=1000&continue=${page.continue}`);
  return items;
}

const ENTRY = fc.record({
  prefix: fc.constantFrom(
    ...['10.0.0.1', '10.0.0.2', '10.0.0.10', '10.0.0.0/8', '9.0.0.0/24', '0.0.0.0/0', '200.0.0.1'],
    ...['fd00::1', 'fd00::/64', '::/0', '10.0.0.1@5', 'fd00::1@7'],
  ),
  identity: fc.integer({ min: 1, max: 3 }),
  source: fc.constantFrom(...SOURCES),
  owner: fc.constantFrom('', 'baltic', 'caspian'),
  hostIP: fc.constantFrom(undefined, '192.168.0.2', '192.168.0.10', 'fd00::9'),
  pod: fc.constantFrom(undefined, 'shop/checkout-1', 'bank/ledger-1'),
});

/** The value that the order compares, and how; undefined if it is missing. */
const COMPARE: Readonly<Record<string, (a: EntryDocument, b: EntryDocument) => number | undefined>> = {
  prefix: (a, b) => comparePrefixes(prefixOf(a.prefix), prefixOf(b.prefix)),
  identity: (a, b) => a.identity - b.identity,
  pod: (a, b) => byText(podOf(a), podOf(b)),
  node: (a, b) =>
    a.hostIP && b.hostIP ? comparePrefixes(prefixOf(a.hostIP), prefixOf(b.hostIP)) : undefined,
  source: (a, b) => byText(`${a.source} ${a.owner ?? ''}`, `${b.source} ${b.owner ?? ''}`),
};

const MISSING: Readonly<Record<string, (entry: EntryDocument) => boolean>> = {
  pod: ({ podName }) => podName === undefined,
  node: ({ hostIP }) => hostIP === undefined,
};

function prefixOf(text: string): Prefix {
  const prefix = Prefix.parseAnnotated(text);
  if (prefix === undefined) throw new Error(text);
  return prefix;
}

function podOf({ namespace, podName }: EntryDocument): string | undefined {
  return podName === undefined ? undefined : `${namespace}/${podName}`;
}

function byText(a: string | undefined, b: string | undefined): number | undefined {
  if (a === undefined || b === undefined) return undefined;
  return a < b ? -1 : Number(a > b);
}

describe('a sorted list of prefixes', () => {
  it('is one of 16 that are sorted at a time (regression: any number, of 5 MB each)', async () => {
    const model = new TestModel();
    for (let i = 0; i < 5_000; i++)
      model.ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity: i, source: 'k8s' });
    const { app } = testApp(model);
    const statusesOf = async (count: number): Promise<readonly number[]> => {
      const asked = Array.from({ length: count }, () => app.request('/v1/ipcache?sort=-identity&limit=1'));
      return (await Promise.all(asked)).map(({ status }) => status).sort();
    };
    for (let round = 1; round <= 2; round++)
      expect(await statusesOf(17)).toEqual([...new Array<number>(16).fill(200), 429]);
  });

  it('has the order of a sort of all, missing values last', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(ENTRY, { maxLength: 20 }),
        fc.constantFrom(...ORDERS),
        async (entries, order) => {
          const model = new TestModel();
          for (const { prefix, pod, ...entry } of entries) {
            const [namespace = '', podName = ''] = pod?.split('/') ?? [];
            model.ipcache.upsert(prefix, { ...entry, ...(pod && { k8s: { namespace, podName } }) });
          }
          const { app } = testApp(model);
          const all = await listOf(app, 'limit=1000');
          const column = order.replace('-', '');
          const isMissing = MISSING[column] ?? (() => false);
          const expected = [...all].sort(
            (a, b) =>
              Number(isMissing(a)) - Number(isMissing(b)) ||
              (order.startsWith('-') ? -1 : 1) * (COMPARE[column]?.(a, b) ?? 0) ||
              comparePrefixes(prefixOf(a.prefix), prefixOf(b.prefix)),
          );
          expect(await listOf(app, `limit=3&sort=${order}`)).toEqual(expected);
          if (column !== 'prefix') return;
          for (const [at, { prefix }] of expected.entries())
            expect(await listOf(app, `sort=${order}&after=${encodeURIComponent(prefix)}`)).toEqual(
              expected.slice(at + 1),
            );
        },
      ),
      { numRuns: 40 },
    ));

  it('has the first 10,000 of 25,000, which `after` continues, and obeys the filters', async () => {
    const model = new TestModel();
    const count = 25_000;
    for (let i = 0; i < count; i++) {
      const place = (i * 7_919) % count;
      model.ipcache.upsert(`10.0.${place >> 8}.${place & 255}`, { identity: 1_000 + place, source: 'k8s' });
    }
    const { app } = testApp(model);
    const ipOf = (place: number): string => `10.0.${place >> 8}.${place & 255}/32`;
    const first = await listOf(app, 'limit=1000&sort=prefix');
    expect(first.length).toBe(MAX_SORTED);
    expect(first.at(-1)?.prefix).toBe(ipOf(MAX_SORTED - 1));
    const next = await listOf(app, `limit=1000&sort=prefix&after=${first.at(-1)?.prefix}`);
    expect([next.length, next[0]?.prefix]).toEqual([MAX_SORTED, ipOf(MAX_SORTED)]);
    const last = await pageOf(app, 'limit=1&sort=-identity');
    expect(last.items[0]?.identity).toBe(1_000 + count - 1);
    const within = await listOf(app, 'sort=-prefix&within=10.0.3.0/30');
    expect(within.map(({ prefix }) => prefix)).toEqual([3, 2, 1, 0].map((low) => `10.0.3.${low}/32`));
  });

  it('is sorted in steps of 1,024 entries (regression: one sort of 20,000, 30 ms)', () => {
    const { ipcache } = new TestModel();
    for (let i = 0; i < 25_000; i++)
      ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity: 25_000 - i, source: 'k8s' });
    const sort = vi.spyOn(Array.prototype, 'sort');
    const sorted: KeyedEntry[] = [];
    const sizes: number[] = [];
    for (const _ of selectSorted(ipcache.entries(), 'identity', undefined, sorted)) {
      const lists: unknown[] = sort.mock.contexts.splice(0);
      sizes.push(lists.flat().length);
    }
    sort.mockRestore();
    expect(Math.max(...sizes)).toBe(1_024);
    expect(sorted.map(({ identity }) => identity)).toEqual(Array.from({ length: 10_000 }, (_, i) => i + 1));
  });
});

describe('a page at an offset', () => {
  it('has the prefixes of the list from there on, and no next page', async () => {
    const model = new TestModel();
    for (let i = 0; i < 3_000; i++)
      model.ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity: 9, source: 'k8s' });
    model.ipcache.upsert('10.0.0.1/32', { identity: 9, source: 'k8s' }); // shadowed, so it takes no place in the list
    model.ipcache.delete('10.0.0.7', { source: 'k8s' });
    const { app } = testApp(model);
    const all = await listOf(app, 'limit=1000');
    expect(all).toHaveLength(2_999);
    for (const offset of [0, 1, 1_200, 2_998, 2_999, 50_000]) {
      const page = await pageOf(app, `offset=${offset}&limit=1000`);
      expect(page).not.toHaveProperty('continue');
      expect(page.items).toEqual(all.slice(offset, offset + 1_000));
    }
  });

  it.each([
    ['offset=1&identity=9', 'offset'],
    ['offset=1&sort=prefix', 'offset'],
    ['sort=identity&after=10.0.0.0/8', 'after'],
    ['after=10.0.0.0/8', 'after'],
    ['sort=prefix&after=nonsense', 'after'],
    ['sort=prefix&at=-1m', 'sort'],
    ['sort=colour', 'sort'],
    ['offset=-1', 'offset'],
  ])('rejects %s', async (query, field) => {
    const answer = await testApp().app.request(`/v1/ipcache?${query}`);
    expect([answer.status, ((await answer.json()) as { field?: string }).field]).toEqual([400, field]);
  });
});
