import { describe, expect, it, onTestFinished } from 'vitest';
import { parse } from 'yaml';
import type { Ask } from '../../src/api/api-client.ts';
import { deferred } from '../../src/base/sleep.ts';
import { withInputErrors } from '../../src/client/ask-agent.ts';
import { type ListFormat, printedList } from '../../src/client/list.ts';
import { listPrefixes } from '../../src/client/prefix-answers.ts';
import { FakeClock, settle } from '../agent/support/fake-clock.ts';

interface Item {
  readonly id: number;
  readonly name: string;
}

/** Returns an API with a list of `size` items, and the requested paths. */
function apiWith(size: number): { readonly ask: Ask; readonly asked: string[] } {
  const asked: string[] = [];
  const ask: Ask = async (path) => {
    asked.push(path);
    const query = new URL(path, 'http://localhost').searchParams;
    const from = Number(query.get('continue') ?? 0);
    const to = Math.min(size, from + Number(query.get('limit')));
    const items = Array.from({ length: to - from }, (_, at) => ({
      id: from + at,
      name: `item-${from + at}`,
    }));
    return { items, ...(to < size && { continue: String(to) }) };
  };
  return { ask, asked };
}

const ITEMS = printedList<Item>({
  path: '/v1/items',
  filters: { cluster: 'a b', label: undefined },
  columns: [
    { title: 'ID', cell: ({ id }) => String(id) },
    { title: 'NAME', cell: ({ name }) => name },
  ],
  nameOf: ({ name }) => name,
  hint: 'No items.',
  sort: (items) => [...items].sort((a, b) => b.id - a.id),
});

/** The same, not sorted. */
const ITEMS_BY_NAME = printedList<Item>({
  path: '/v1/items',
  filters: {},
  columns: [],
  hint: '',
  nameOf: ({ name }) => name,
});

async function printed(size: number, format: ListFormat, limit?: number): Promise<string> {
  let text = '';
  await ITEMS.print(apiWith(size).ask, { format, limit, view: { wide: false } }, async (part) => {
    text += part;
  });
  return text;
}

describe('a list of an earlier moment', () => {
  const past = {
    at: new Date(0).toISOString(),
    certain: false,
    reason: 'lost',
    retained: { from: '', to: '' },
  };
  it.each([0, 2])('states its certainty below %i items', async (size) => {
    const { ask } = apiWith(size);
    let text = '';
    await listPrefixes({ at: '-10m' }).print(
      async (path) => ({ ...((await ask(path)) as object), past }),
      { format: 'text', view: { wide: false } },
      async (part) => {
        text += part;
      },
    );
    const [doubt, moment, hint] = text.trimEnd().split('\n').reverse();
    expect([moment?.slice(0, 5), doubt]).toEqual(['as of', expect.stringMatching(/^not certain: changes/)]);
    if (size === 0) expect(hint).toBe('No matching prefixes.');
  });

  it.each(['json', 'yaml', 'name'] as const)(
    'fails as %s if it is empty and this is not certain',
    async (format) => {
      let text = '';
      const empty = (certain: boolean): Promise<void> =>
        listPrefixes({ at: '-10m' }).print(
          async () => ({ items: [], past: { ...past, certain } }),
          { format, view: { wide: false } },
          async (part) => {
            text += part;
          },
        );
      await empty(true);
      await expect(empty(false)).rejects.toThrow(/^No matching prefixes\. as of .* not certain: changes/);
      expect(text).toBe(format === 'name' ? '' : '[]\n[]\n');
      // Regression: with the advice to start an agent, although one had answered.
      const asked = withInputErrors(
        () => empty(false),
        () => 'start one',
      );
      await expect(asked).rejects.toThrow(/not certain: changes (?!.*start one)/);
    },
  );
});

describe('a list that is printed', () => {
  it.each([0, 1, 1_000, 2_500, 12_500])('has each of %i items once, in every format', async (size) => {
    const ids = Array.from({ length: size }, (_, id) => id);
    if (size <= 10_000) ids.reverse(); // sorted
    const items = ids.map((id) => ({ id, name: `item-${id}` }));
    expect(JSON.parse(await printed(size, 'json'))).toEqual(items);
    expect(parse(await printed(Math.min(size, 2_500), 'yaml'))).toHaveLength(Math.min(size, 2_500));
    expect(await printed(size, 'name')).toBe(items.map(({ name }) => `${name}\n`).join(''));
    const [header, ...rows] = (await printed(size, 'text')).trimEnd().split('\n');
    expect(header).toMatch(size === 0 ? /^No items\.$/ : /^ID +NAME$/);
    expect(rows.map((row) => Number(row.split(' ')[0]))).toEqual(ids);
  });

  it('is the JSON of the whole array', async () => {
    for (const size of [0, 1, 1_001])
      expect(await printed(size, 'json')).toBe(
        `${JSON.stringify(JSON.parse(await printed(size, 'json')), null, 1)}\n`,
      );
  });

  it('ends at its limit, and requests no more', async () => {
    for (const limit of [1, 1_000, 1_500]) {
      const { ask, asked } = apiWith(5_000);
      let text = '';
      await ITEMS.print(ask, { format: 'name', limit, view: { wide: false } }, async (part) => {
        text += part;
      });
      expect(text.trimEnd().split('\n')).toHaveLength(limit);
      expect(asked).toHaveLength(Math.ceil(limit / 1_000));
      expect(asked[0]).toBe(`/v1/items?cluster=a+b&limit=${Math.min(limit, 1_000)}`);
    }
  });

  it('is not read faster than the reader takes it (regression: all of it was held)', async () => {
    const { ask, asked } = apiWith(1_000_000);
    let parts = 0;
    const closed = new Error('closed');
    const printing = ITEMS.print(ask, { format: 'text', view: { wide: false } }, async () => {
      expect(asked.length).toBeLessThanOrEqual(12 + parts);
      if (++parts === 5) throw closed;
    });
    await expect(printing).rejects.toBe(closed);
    await settle();
    expect(asked.length).toBeLessThanOrEqual(17);
  });

  it('is held by the agent while its reader waits', async () => {
    const clock = new FakeClock();
    const { ask, asked } = apiWith(2_000);
    const { promise: waiting, resolve: goOn } = deferred();
    let parts = 0;
    const printing = ITEMS_BY_NAME.print(ask, { format: 'name', view: { wide: false }, clock }, async () => {
      if (++parts === 1) await waiting;
    });
    await settle();
    expect(asked).toEqual(['/v1/items?limit=1000', '/v1/items?continue=1000&limit=1000']);
    await clock.advance(60_000);
    expect(asked.slice(2)).toEqual(new Array(3).fill('/v1/items?continue=1000&limit=1000'));
    goOn();
    await printing;
    expect([parts, clock.pending]).toEqual([2, 0]);
  });

  it('is printed completely if a request that only holds it fails', async () => {
    const clock = new FakeClock();
    const { ask, asked } = apiWith(2_000);
    const failing: Ask = async (path) => {
      if (asked.length < 2) return ask(path);
      asked.push(path);
      throw new Error('too many requests');
    };
    const unhandled: unknown[] = [];
    const note = (error: unknown): void => void unhandled.push(error);
    process.on('unhandledRejection', note);
    onTestFinished(() => void process.off('unhandledRejection', note));
    let text = '';
    await ITEMS_BY_NAME.print(failing, { format: 'name', view: { wide: false }, clock }, async (part) => {
      text += part;
      await clock.advance(40_000);
    });
    expect([text.trimEnd().split('\n').length, asked.length, unhandled]).toEqual([2_000, 4, []]);
  });

  it('throws the error of a later page', async () => {
    const { ask } = apiWith(3_000);
    const failing: Ask = (path) =>
      path.includes('continue=2000') ? Promise.reject(new Error('the agent has stopped')) : ask(path);
    await expect(
      ITEMS.print(failing, { format: 'name', view: { wide: false } }, async () => {}),
    ).rejects.toThrow('the agent has stopped');
  });

  it('ignores the failure of a page that was requested ahead if its reader has ended', async () => {
    const unhandled: unknown[] = [];
    const note = (error: unknown): void => void unhandled.push(error);
    process.on('unhandledRejection', note);
    onTestFinished(() => void process.off('unhandledRejection', note));
    const { ask } = apiWith(20_000);
    const failing: Ask = (path) =>
      path.includes('continue=11000') ? Promise.reject(new Error('the agent has stopped')) : ask(path);
    const closed = new Error('closed');
    const printing = ITEMS.print(failing, { format: 'name', view: { wide: false } }, () =>
      Promise.reject(closed),
    );
    await expect(printing).rejects.toBe(closed);
    await settle();
    expect(unhandled).toEqual([]);
  });
});
