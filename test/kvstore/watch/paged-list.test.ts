import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compareKeys, keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyLink } from '../../../src/kvstore/memory/faulty-link.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import {
  NO_LEASE,
  type RangeRequest,
  type RangeResponse,
  type Transport,
} from '../../../src/kvstore/session/transport.ts';
import { PageBounds } from '../../../src/kvstore/watch/page-bounds.ts';
import { PageSize } from '../../../src/kvstore/watch/page-size.ts';
import { type KeyPage, type ListRequest, listPages } from '../../../src/kvstore/watch/paged-list.ts';
import { WATCH_LIMITS } from '../../../src/kvstore/watch/watch-limits.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

const value = new Uint8Array(4);
const { pageKeys: PAGE_KEYS } = WATCH_LIMITS;

function pagesOf(
  transport: Transport,
  prefix: string,
  more: Partial<ListRequest> = {},
): AsyncGenerator<KeyPage> {
  const [size, clock] = [new PageSize(WATCH_LIMITS), new ManualClock()];
  const read = (request: RangeRequest) => transport.range(request);
  return listPages({ range: prefixRange(prefix), prefix, revision: 0, read, pageSize: size, clock, ...more });
}

function loaded(keys: Iterable<string>): { transport: FaultyLink; server: MemoryServer } {
  const clock = new ManualClock();
  const server = new MemoryServer({ clock });
  for (const key of keys) {
    server.txn({ compare: [], writes: [{ op: 'put', key, value, lease: NO_LEASE }] });
  }
  return { server, transport: new FaultyLink(new MemoryTransport(server), clock) };
}

async function listed(transport: Transport, prefix: string): Promise<string[]> {
  const keys: string[] = [];
  for await (const { kvs } of pagesOf(transport, prefix)) {
    expect(kvs.length).toBeLessThanOrEqual(PAGE_KEYS);
    keys.push(...kvs.map(({ key }) => key));
  }
  return keys;
}

/** Returns how many keys the server walks over for a list: every key in the range of every page. */
async function walked(
  keys: readonly string[],
  prefix: string,
): Promise<{ walked: number; requests: number }> {
  const { transport } = loaded(keys);
  const range = transport.range.bind(transport);
  let sum = 0;
  let requests = 0;
  transport.range = async (request: RangeRequest) => {
    const answer = await range(request);
    sum += answer.count;
    requests++;
    return answer;
  };
  expect(await listed(transport, prefix)).toHaveLength(keys.length);
  return { walked: sum, requests };
}

describe('consecutive ranges', () => {
  it('cover a prefix without gap and overlap, for any state', () => {
    const part = fc.stringMatching(/^[0-2./:é]{0,6}$/u);
    fc.assert(
      fc.property(
        fc.uniqueArray(part, { maxLength: 200 }),
        fc.integer({ min: 1, max: 12 }),
        (parts, limit) => {
          const keys = parts.map((text) => `p/${text}`).sort(compareKeys);
          const bounds = new PageBounds('p/', 'p0');
          const header = { clusterID: '', revision: 1, raftTerm: 1 };
          const shown: string[] = [];
          let from = 'p/';
          for (let requests = 0; from !== 'p0'; requests++) {
            expect(requests).toBeLessThan(20 * keys.length + 40);
            const end = bounds.endFor(from);
            expect(compareKeys(end, from)).toBeGreaterThan(0);
            const inside = keys.filter((key) => compareKeys(key, from) >= 0 && compareKeys(key, end) < 0);
            const page = inside.slice(0, limit);
            const kvs = page.map((key) => ({ key, value, createRevision: 1, modRevision: 1 }));
            const more = inside.length > limit;
            bounds.observe({ header, kvs, more, count: inside.length }, limit);
            shown.push(...page);
            from = more ? `${page.at(-1)}\0` : end;
          }
          expect(shown).toEqual(keys);
        },
      ),
    );
  });
});

describe('a paged listing', () => {
  it('returns every key once, in order', async () => {
    const keys = Array.from({ length: 3 * PAGE_KEYS + 7 }, (_, i) => `p/10.${i % 7}.${i % 251}.${i}`);
    const { transport } = loaded([...keys, 'o/x', 'p', 'p0', 'q/x']);
    expect(await listed(transport, 'p/')).toEqual([...keys].sort(compareKeys));
  });

  it('has hardly more requests than pages, but does not make the server walk over keys × pages', async () => {
    const ips = Array.from({ length: 60_000 }, (_, i) => `ip/10.${i >> 14}.${(i >> 6) & 255}.${i & 63}`);
    const byIP = await walked(ips, 'ip/');
    expect(byIP.walked / ips.length).toBeLessThan(6); // 8 if 15 pages covered all that remains
    expect(byIP.requests).toBeLessThan(23); // 3 of the first pages are smaller
    const names = Array.from({ length: 60_000 }, (_, i) => `n/cluster-${i % 9}/node-${(i * 7919) % 60_000}`);
    const byName = await walked(names, 'n/');
    expect(byName.walked / names.length).toBeLessThan(6);
    expect(byName.requests).toBeLessThan(45);
  });

  it('requests smaller pages if an answer would be too large', async () => {
    const keys = Array.from({ length: 900 }, (_, i) => `p/${1000 + i}`);
    const { transport } = loaded(keys);
    transport.limitResponses(100 * value.length);
    expect(await listed(transport, 'p/')).toEqual(keys);
  });

  it.each<readonly [what: string, answer: Partial<RangeResponse>, message: string]>([
    ['promises more keys and sends none', { kvs: [], more: true }, 'an empty page'],
    [
      'sends a key before the page',
      { kvs: [{ key: 'o/x', value, createRevision: 1, modRevision: 1 }], more: true },
      'o/x in a page from p/',
    ],
    [
      'sends a key behind the page',
      { kvs: [{ key: 'q/x', value, createRevision: 1, modRevision: 1 }], more: false },
      'q/x in a page from p/',
    ],
  ])('fails if a server %s (regression: treated as the end, or read for ever)', async (_, lie, message) => {
    const { transport } = loaded(['p/a', 'p/b']);
    const range = transport.range.bind(transport);
    transport.range = async (request) => ({ ...(await range(request)), ...lie });
    await expect(listed(transport, 'p/')).rejects.toMatchObject({
      code: 'internal',
      message: expect.stringContaining(message),
    });
  });

  it('whose reader leaves does not fail unhandled', async () => {
    const { transport } = loaded(Array.from({ length: 2 * PAGE_KEYS }, (_, i) => `p/${i}`));
    for await (const _page of pagesOf(transport, 'p/')) {
      transport.down();
      break;
    }
    await new Promise((resolve) => setImmediate(resolve));
  });

  /** A store whose keys are `p/0`, `p/1` and so on, and a link to it. */
  const numbered = (count: number): ReturnType<typeof loaded> =>
    loaded(Array.from({ length: count }, (_, i) => `p/${i}`));

  const put = (server: MemoryServer, key: string): void => {
    server.txn({ compare: [], writes: [{ op: 'put', key, value, lease: NO_LEASE }] });
  };

  /** Returns the result of a list while the store is written to before each read. */
  async function shownDuring(writes: readonly number[], revision: number): Promise<readonly string[]> {
    const { server, transport } = numbered(9);
    const left = [...writes];
    transport.onRead = () => {
      const n = left.shift();
      if (n === undefined) return;
      if (n < 9) server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(`p/${n}`) }] });
      else put(server, `p/${n}`);
    };
    const size = new PageSize({ firstPageKeys: 2, pageKeys: 3 });
    const shown: string[] = [];
    for await (const { kvs } of pagesOf(transport, 'p/', { pageSize: size, revision })) {
      shown.push(...kvs.map(({ key, modRevision }) => `${key} of ${modRevision}`));
    }
    return shown;
  }

  it('is of one revision, whatever is written between its pages', async () => {
    const write = fc.nat(17); // deletes one of the nine keys, or adds one behind or between them
    await fc.assert(
      fc.asyncProperty(fc.array(write, { maxLength: 8 }), fc.boolean(), async (writes, isGiven) => {
        const { server } = numbered(9);
        const { revision } = server.range(prefixRange('p/')).header;
        const [first] = isGiven ? [] : writes; // the first read includes earlier writes
        const whole = await shownDuring(first === undefined ? [] : [first], 0);
        expect(await shownDuring(writes, isGiven ? revision : 0)).toEqual(whole);
      }),
    );
  });

  it('omits keys written before a revision, and values if only keys are requested', async () => {
    const { server, transport } = numbered(9);
    put(server, 'p/3');
    const { revision } = server.range(prefixRange('p/')).header;
    const seen: unknown[] = [];
    for await (const { kvs } of pagesOf(transport, 'p/', { minModRevision: revision, keysOnly: true })) {
      seen.push(...kvs.map((kv) => [kv.key, kv.modRevision, kv.value.length]));
    }
    expect(seen).toEqual([['p/3', revision, 0]]);
  });

  it.each([
    ['another cluster answers', { clusterID: 'other' }],
    ['the store has gone back', { revision: 1 }],
  ])('fails if %s between two pages', async (_, header) => {
    const { transport } = numbered(9);
    let pages = 0;
    const pagesOfTwo = pagesOf(transport, 'p/', {
      pageSize: new PageSize({ firstPageKeys: 2, pageKeys: 2 }),
      read: async (request) => {
        const answer = await transport.range(request);
        return ++pages < 3 ? answer : { ...answer, header: { ...answer.header, ...header } };
      },
    });
    const read = async (): Promise<void> => {
      for await (const { kvs } of pagesOfTwo) expect(kvs.length).toBeLessThanOrEqual(2);
    };
    await expect(read()).rejects.toMatchObject({ code: 'unavailable' });
    expect(pages).toBe(3);
  });

  it('has smaller pages after one that failed or was slow, larger ones after one that was quick', async () => {
    const { transport } = numbered(9);
    const clock = new ManualClock();
    const size = new PageSize({ firstPageKeys: 4, pageKeys: 100 });
    const list = async (ms: number): Promise<number> => {
      const read = async (request: RangeRequest) => {
        clock.advance(ms);
        return transport.range(request);
      };
      for await (const _page of pagesOf(transport, 'p/', { pageSize: size, clock, read }));
      return size.keys;
    };
    transport.down();
    await expect(list(0)).rejects.toMatchObject({ code: 'unavailable' });
    expect(size.keys).toBe(1);
    transport.up();
    const quick = await list(1);
    expect(quick).toBeGreaterThan(4);
    expect(await list(60_000)).toBeLessThan(quick);
  });

  it('has smaller pages of large values (regression: one message of 60 MiB, copied in one turn)', async () => {
    const { transport } = numbered(9);
    const size = new PageSize({ firstPageKeys: 4, pageKeys: 100 });
    const value = new Uint8Array((8 << 20) - 64);
    const read = async (request: RangeRequest) => {
      const answer = await transport.range(request);
      return { ...answer, kvs: answer.kvs.map((kv) => ({ ...kv, value })) };
    };
    const pages: number[] = [];
    for await (const { kvs } of pagesOf(transport, 'p/', { pageSize: size, read })) pages.push(kvs.length);
    expect(pages).toEqual([4, 2, 2, 1]);
  });

  it('fails if even one key is too large', async () => {
    const { transport } = numbered(9);
    transport.limitResponses(1);
    await expect(listed(transport, 'p/')).rejects.toMatchObject({ code: 'too-large' });
  });
});
