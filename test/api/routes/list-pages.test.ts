import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ProblemError } from '../../../src/api/problem.ts';
import { type ListPage, ListPages, type PagedSource } from '../../../src/api/routes/list-pages.ts';
import { FakeClock } from '../../agent/support/fake-clock.ts';

function listing(items: readonly (number | undefined)[], name = 'list', view?: object): PagedSource<number> {
  return { name, revision: 7, ...(view && { view }), items: items[Symbol.iterator]() };
}

/** Returns a signal that never fires. Each list has its own, because it listens to it for as long as it lives. */
const never = (): AbortSignal => new AbortController().signal;

function problemOf(use: () => unknown): unknown {
  try {
    use();
  } catch (error) {
    return error instanceof ProblemError ? error.document : error;
  }
  return undefined;
}

describe('a list in pages', () => {
  it('is the whole list, even if every page is requested twice', () => {
    fc.assert(
      fc.property(
        fc.array(fc.option(fc.nat(), { nil: undefined })),
        fc.integer({ min: 1, max: 4 }),
        fc.boolean(),
        (items, limit, twice) => {
          const pages = new ListPages<number>(new FakeClock(), never());
          let page: ListPage<number> = pages.begin(listing(items), limit);
          const read = [...page.items];
          while (page.continue !== undefined) {
            const token = page.continue;
            page = pages.next(token, limit);
            if (twice) expect(pages.next(token, limit)).toEqual(page);
            expect(page.items.length).toBeLessThanOrEqual(limit);
            expect(page.revision).toBe(7);
            read.push(...page.items);
          }
          expect(read).toEqual(items.filter((item) => item !== undefined));
        },
      ),
    );
  });

  it('is kept while its last page is requested again, because a client waits for its reader', async () => {
    const clock = new FakeClock();
    const pages = new ListPages<number>(clock, never());
    const { continue: second = '' } = pages.begin(listing([1, 2, 3]), 1);
    const page = pages.next(second, 1);
    for (let minute = 0; minute < 5; minute++) {
      await clock.advance(40_000);
      expect(pages.next(second, 1)).toEqual(page);
    }
    expect(pages.next(page.continue ?? '', 1).items).toEqual([3]);
  });

  it('whose page is requested again is not the one that is dropped if too many are kept', () => {
    const pages = new ListPages<number>(new FakeClock(), never());
    const { continue: second = '' } = pages.begin(listing([1, 2, 3], 'first'), 1);
    const page = pages.next(second, 1);
    for (let other = 0; other < 31; other++)
      pages.next(pages.begin(listing([1, 2, 3], `other ${other}`), 1).continue ?? '', 1);
    expect(pages.next(second, 1)).toEqual(page);
    pages.begin(listing([1, 2], 'one more'), 1);
    expect(pages.next(page.continue ?? '', 1).items).toEqual([3]);
  });

  it('whose reader is slow is kept while first pages are polled (regression: 32 polls released it)', () => {
    const pages = new ListPages<number>(new FakeClock(), never());
    const { continue: second = '' } = pages.begin(listing([1, 2, 3], 'slow'), 1);
    const { continue: third = '' } = pages.next(second, 1);
    for (let poll = 0; poll < 100; poll++) pages.begin(listing([1, 2, 3], `poll ${poll}`), 1);
    for (let read = 0; read < 100; read++)
      pages.next(pages.begin(listing([1, 2], `read ${read}`), 1).continue ?? '', 2);
    const { continue: polled = '' } = pages.begin(listing([1, 2, 3], 'polled'), 1);
    pages.begin(listing([1, 2, 3], 'another'), 1);
    expect(pages.size).toBe(32);
    expect(pages.next(third, 1).items).toEqual([3]);
    expect(pages.next(polled, 1).items).toEqual([2]);
  });

  it('whose reader is slow is kept while first pages of a changing list are polled (regression: 8 polls released it)', () => {
    const pages = new ListPages<number>(new FakeClock(), never());
    const { continue: second = '' } = pages.begin(listing([1, 2, 3], 'slow', {}), 1);
    const { continue: third = '' } = pages.next(second, 1);
    let polled = '';
    for (let poll = 0; poll < 10; poll++)
      ({ continue: polled = '' } = pages.begin(listing([1, 2, 3], `poll ${poll}`, {}), 1));
    expect(pages.size).toBe(8);
    expect(pages.next(third, 1).items).toEqual([3]);
    expect(pages.next(polled, 1).items).toEqual([2]);
  });

  it('that has not changed starts with the same page, and serves each of several readers to its end', () => {
    fc.assert(
      fc.property(
        fc.array(fc.option(fc.nat(), { nil: undefined })),
        fc.array(fc.nat({ max: 3 }), { maxLength: 60, size: 'max' }),
        fc.integer({ min: 1, max: 3 }),
        (items, turns, limit) => {
          const pages = new ListPages<number>(new FakeClock(), never());
          const readers = Array.from({ length: 4 }, () => ({ read: [] as number[], token: '' }));
          const firsts: ListPage<number>[] = [];
          const turn = (reader: { read: number[]; token: string | undefined }): void => {
            if (reader.token === undefined) return;
            const page =
              reader.token === '' ? pages.begin(listing(items), limit) : pages.next(reader.token, limit);
            if (reader.token === '') firsts.push(page);
            reader.read.push(...page.items);
            reader.token = page.continue;
          };
          for (const at of turns) for (const reader of readers.slice(at, at + 1)) turn(reader);
          for (const reader of readers) while (reader.token !== undefined) turn(reader);
          for (const { read } of readers) expect(read).toEqual(items.filter((item) => item !== undefined));
          for (const first of firsts) expect(first).toEqual(firsts[0]);
        },
      ),
    );
  });

  it('is kept together with seven other views', () => {
    const pages = new ListPages<number>(new FakeClock(), never());
    const begin = (name: string, view: object): string =>
      pages.begin(listing([1, 2, 3], name, view), 1).continue ?? '';
    const shared = {};
    const [first, second] = [begin('a', shared), begin('b', shared)];
    const others = Array.from({ length: 7 }, (_, at) => begin(`other-${at}`, {}));
    expect([pages.size, pages.isFull]).toEqual([9, true]);
    pages.next(first, 1); // what `second` needs is in use
    begin('another', {});
    expect(pages.next(second, 1).items).toEqual([2]);
    const [gone = '', ...kept] = others;
    expect(problemOf(() => pages.next(gone, 1))).toMatchObject({ status: 410 });
    for (const token of kept) expect(pages.next(token, 1).items).toEqual([2]);
    expect(pages.isFull).toBe(true);
  });

  it('examines at most 10,000 items for a page, and continues from there', () => {
    const pages = new ListPages<number>(new FakeClock(), never());
    const page = pages.begin(listing([...new Array<undefined>(10_000).fill(undefined), 5]), 10);
    expect(page.items).toEqual([]);
    expect(pages.next(page.continue ?? '', 10)).toEqual({ items: [5], revision: 7 });
  });

  it('is kept for a minute, at most 32 at a time', async () => {
    const clock = new FakeClock();
    const pages = new ListPages<number>(clock, never());
    const first = pages.begin(listing([1, 2]), 1).continue ?? '';
    const rest = Array.from(
      { length: 32 },
      (_, at) => pages.begin(listing([1, 2], `list-${at}`), 1).continue ?? '',
    );
    expect(problemOf(() => pages.next(first, 1))).toMatchObject({
      status: 410,
      field: 'continue',
      value: first,
    });
    expect(pages.next(rest[0] ?? '', 1).items).toEqual([2]);
    await clock.advance(60_000);
    expect(problemOf(() => pages.next(rest[1] ?? '', 1))).toMatchObject({ status: 410 });
  });

  it('is dropped after a minute without a request, and when the agent ends', async () => {
    const clock = new FakeClock();
    const ended = new AbortController();
    const pages = new ListPages<number>(clock, ended.signal);
    pages.begin(listing([1, 2]), 1);
    await clock.advance(30_000);
    const later = pages.begin(listing([1, 2, 3], 'later'), 1).continue ?? '';
    await clock.advance(30_000);
    expect(pages.size).toBe(1);
    expect(pages.next(later, 1).items).toEqual([2]);
    await clock.advance(59_999);
    expect(pages.size).toBe(1);
    await clock.advance(1);
    expect([pages.size, clock.pending]).toEqual([0, 0]);
    pages.begin(listing([1, 2]), 1);
    ended.abort();
    expect([pages.size, clock.pending]).toEqual([0, 0]);
  });

  it('has shorter pages of large items', () => {
    const pages = new ListPages<number>(new FakeClock(), never(), (item) => item);
    const page = pages.begin(listing([6_000, 6_000, 1, 20_000, 1]), 10);
    expect(page.items).toEqual([6_000, 6_000]);
    const second = pages.next(page.continue ?? '', 10);
    expect(second.items).toEqual([1, 20_000]);
    expect(pages.next(second.continue ?? '', 10)).toEqual({ items: [1], revision: 7 });
  });

  it('that fails does not become a shorter list', () => {
    const pages = new ListPages<number>(new FakeClock(), never());
    const items = (function* (): Generator<number> {
      yield 1;
      throw new Error('bug');
    })();
    const token = pages.begin({ name: 'list', revision: 7, items }, 1).continue ?? '';
    expect(() => pages.next(token, 1)).toThrow('bug');
    expect(problemOf(() => pages.next(token, 1))).toMatchObject({ status: 410 });
  });

  it.each(['', 'x', '1', '1.x', '99.1'])('has no page %j: 410', (token) => {
    const pages = new ListPages<number>(new FakeClock(), never());
    pages.begin(listing([1, 2, 3]), 1);
    expect(problemOf(() => pages.next(token, 1))).toMatchObject({ status: 410 });
  });
});
