import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type { RangeRequest, RangeResponse } from '../../../src/kvstore/session/transport.ts';
import { Cursor, DivergedError } from '../../../src/kvstore/watch/cursor.ts';
import { EventQueue } from '../../../src/kvstore/watch/event-queue.ts';
import { ListedRows } from '../../../src/kvstore/watch/known-keys.ts';
import { PageSize } from '../../../src/kvstore/watch/page-size.ts';
import { type Comparison, sync } from '../../../src/kvstore/watch/sync.ts';
import { WATCH_LIMITS, type WatchLimits } from '../../../src/kvstore/watch/watch-limits.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { answer, eventAt, type History, keysAt, P } from '../support/histories.ts';

/** Limits so small that a few keys fill several pages. */
const SMALL: WatchLimits = { ...WATCH_LIMITS, sliceKeys: 1, firstPageKeys: 1, pageKeys: 2, deltaPages: 2 };

type Content = Readonly<Record<string, string>>;

/** The state of a watch, and the events that its reader received. */
class Known {
  readonly queue = new EventQueue(WATCH_LIMITS);
  readonly cursor = new Cursor(P, this.queue);
  readonly reads: RangeRequest[] = [];
  turns = 0;
  readonly #given = new Map<string, string>();
  /** Keys in the order of their events, since {@link events} was last read. */
  #events: string[] = [];

  follow(history: History, from = 0): void {
    for (const [i, write] of history.entries()) {
      if (i >= from && write !== '') this.cursor.receive([eventAt(write, i + 1)]);
      this.cursor.knownKeys.anchors.copyValues();
    }
    this.#take();
  }

  /** @param fails number of the failing read, counted from 1 */
  async sync(
    server: History,
    comparison: Comparison,
    { limits = SMALL, fails = 0, tooLarge = Number.POSITIVE_INFINITY, pageSize = new PageSize(limits) } = {},
  ): Promise<number> {
    let reads = 0;
    const read = async (request: RangeRequest): Promise<RangeResponse> => {
      if (++reads === fails) throw new KvstoreError('unavailable', 'the stream ended');
      this.reads.push(request);
      const found = answer(server, request);
      if (found.kvs.length > tooLarge) throw new KvstoreError('too-large', 'larger than max');
      return found;
    };
    const yieldTurn = async (): Promise<void> => {
      this.turns++;
      this.#take();
    };
    const clock = new ManualClock();
    const options = {
      cursor: this.cursor,
      prefix: P,
      read,
      pageSize,
      limits,
      clock,
      admit: async () => {},
      yieldTurn,
    };
    try {
      return await sync({ ...options, onListing: () => {} }, comparison);
    } finally {
      this.#take();
    }
  }

  diverge(): void {
    this.cursor.diverge();
  }

  get content(): Content {
    return Object.fromEntries([...this.#given].sort());
  }

  get events(): readonly string[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  #take(): void {
    for (let batch = this.queue.take(); batch.length > 0; batch = this.queue.take()) {
      for (const { type, key, value } of batch) {
        if ((type === 'create') === this.#given.has(key)) throw new Error(`${type} of ${key}`);
        if (type === 'delete') this.#given.delete(key);
        else this.#given.set(key, textOfBytes(value) ?? '');
        this.#events.push(`${type} ${key.slice(P.length)}`);
      }
    }
  }
}

function contentOf(history: History): Content {
  return Object.fromEntries(keysAt(history).map(({ key, value }) => [key, textOfBytes(value) ?? '']));
}

/** Returns the state of a watch that has received all events of a history. */
function followed(history: History): Known {
  const known = new Known();
  known.cursor.cover(known.cursor.range.end, 0);
  known.follow(history);
  return known;
}

const key = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f');
const writeWith = (value: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.oneof(
    { weight: 5, arbitrary: fc.tuple(key, value).map(([name, text]) => `${name}=${text}`) },
    { weight: 2, arbitrary: key.map((name) => `-${name}`) },
    { weight: 1, arbitrary: fc.constant('') },
  );

/** Returns the history without deletes of absent keys. */
function written(history: History): History {
  const made: string[] = [];
  for (const write of history) {
    const isGone = write.startsWith('-') && !keysAt(made).some((kv) => kv.key === `${P}${write.slice(1)}`);
    made.push(isGone ? '' : write);
  }
  return made;
}

/** Two histories with a common past. If `unique`, no value is written in both after it. */
function forked(unique: boolean): fc.Arbitrary<readonly [History, History]> {
  const write = writeWith(fc.constantFrom('1', '2'));
  const writes = (maxLength: number): fc.Arbitrary<string[]> => fc.array(write, { maxLength, size: 'max' });
  return fc.tuple(writes(10), writes(8), writes(12)).map(([past, one, other]) => {
    const marked = (history: readonly string[], mark: string, from: number): readonly string[] =>
      history.map((text, at) => (unique && text.includes('=') ? `${text}${mark}${from + at}` : text));
    const common = marked(past, 'p', 0);
    return [
      written([...common, ...marked(one, 'o', past.length)]),
      written([...common, ...marked(other, 'x', past.length)]),
    ] as const;
  });
}

describe('the sync of a watch', () => {
  const law = (unique: boolean, comparison: fc.Arbitrary<Comparison>): Promise<void> =>
    fc.assert(
      fc.asyncProperty(
        forked(unique),
        comparison,
        fc.array(fc.tuple(fc.integer({ min: 1, max: 16 }), fc.boolean()), { maxLength: 5, size: 'max' }),
        fc.boolean(),
        async ([before, now], how, failures, isListed) => {
          const known = new Known();
          if (!isListed) {
            known.cursor.cover(known.cursor.range.end, 0);
            known.follow(before);
          }
          const attempt = async (server: History, fails = 0): Promise<boolean> => {
            try {
              await known.sync(server, how, { fails });
              return true;
            } catch (error) {
              if (error instanceof DivergedError) known.diverge();
              else if (fails === 0) throw error;
              return false;
            }
          };
          // The server is restored back and forth, and each attempt fails at some read.
          for (const [fails, isRestored] of failures) await attempt(isRestored ? now : before, fails);
          while (!(await attempt(now)));
          expect(known.content).toEqual(contentOf(now));
          const { size, confirmed } = known.cursor.knownKeys;
          expect([size, confirmed, known.cursor.nextRevision]).toEqual([
            ...[keysAt(now).length, keysAt(now).length],
            now.length + 1,
          ]);
          for (const kv of keysAt(now))
            expect(known.cursor.knownKeys.revisionOf(kv.key)).toBe(kv.modRevision);
        },
      ),
    );

  it('delivers the state of the store, whatever the earlier state and however often it fails', () =>
    law(true, fc.constantFrom('count', 'revisions', 'values')));

  it('delivers it with all values, too, if two histories have written the same', () =>
    law(false, fc.constant('values')));

  const history = ['a=1', 'b=1', 'c=1', 'd=1', 'e=1', '-b'];
  const pages = ({ reads }: Known): readonly boolean[] =>
    reads
      .filter(({ start, limit = 0, minModRevision }) => start === P && limit <= 2 && minModRevision === 0)
      .map(({ keysOnly }) => keysOnly === true);

  it('reads the writes since, and no keys, if the last puts are unchanged and the number of keys is equal', async () => {
    const known = followed(history.slice(0, 5));
    known.events;
    await known.sync([...history.slice(0, 5), 'a=2', 'b=2'], 'count');
    expect([known.events, pages(known)]).toEqual([['modify a', 'modify b'], []]);
  });

  it.each<readonly [why: string, followed: History, server: History, comparison: Comparison]>([
    ['there are fewer', history.slice(0, 5), [...history, 'a=2'], 'count'],
    ['the last put is not shown any more', history.slice(0, 5), [...history.slice(0, 5), 'e=2'], 'count'],
    ['one of the last three is not', history.slice(0, 5), [...history.slice(0, 5), 'd=2'], 'count'],
    ['something was deleted after the last put', history, [...history, 'a=2'], 'count'],
    ['it is told to', history.slice(0, 5), [...history.slice(0, 5), 'a=2'], 'revisions'],
  ])('compares the keys, without values, if %s', async (_why, before, server, comparison) => {
    const known = followed(before);
    known.events;
    await known.sync(server, comparison);
    expect(new Set(pages(known))).toEqual(new Set([true]));
    expect(known.events.filter((event) => event.startsWith('modify'))).toHaveLength(1);
    expect(known.content).toEqual(contentOf(server));
  });

  it('delivers differences only if values are compared (regression: every key again), and lists nothing again', async () => {
    const known = followed(history);
    known.events;
    await known.sync([...history, 'f=1'], 'values');
    expect([known.events, new Set(pages(known))]).toEqual([['create f'], new Set([false])]);
  });

  it('keeps the size of pages with values when it compares revisions, because more keys fit into a page', async () => {
    const history = ['a=1', 'b=1', 'c=1', 'd=1'];
    const known = followed(history);
    const pageSize = new PageSize(SMALL);
    await known.sync(history, 'revisions', { pageSize });
    expect(known.reads.filter(({ keysOnly }) => keysOnly).length).toBeGreaterThan(1);
    expect(pageSize.keys).toBe(SMALL.firstPageKeys);
  });

  it('finds another value at an equal revision if values are compared, and delivers only that key', async () => {
    const names = Array.from({ length: 30 }, (_, i) => `${i + 10}`);
    const known = followed(names.map((name) => `${name}=1`));
    const anchors = new Set(known.cursor.knownKeys.anchors.newestFirst.map((anchor) => anchor.key));
    const other = names.find((name) => !anchors.has(P + name));
    const server = names.map((name) => `${name}=${name === other ? 2 : 1}`);
    known.events;
    await known.sync(server, 'revisions');
    expect(known.content).not.toEqual(contentOf(server));
    await expect(known.sync(server, 'values')).rejects.toThrow(/with another value/);
    known.diverge();
    await known.sync(server, 'values');
    expect([known.events, known.content]).toEqual([[`modify ${other}`], contentOf(server)]);
  });

  it.each([
    ['too much was written since', {}],
    ['what was is too large for one answer', { limits: { ...SMALL, deltaPages: 9 }, tooLarge: 2 }],
  ])('lists everything again if %s, and delivers the changes', async (_why, options) => {
    const known = followed(['a=1', 'b=1', 'c=1', 'd=1', 'e=1']);
    known.events;
    const server = ['a=1', 'b=1', 'c=1', 'd=1', 'e=1', 'a=2', 'b=2', 'c=2', '-d'];
    await known.sync(server, 'count', options);
    expect(known.events).toEqual(['modify a', 'modify b', 'modify c', 'delete d']);
    expect(known.content).toEqual(contentOf(server));
  });

  it('does not treat another failure as an answer that is too large', async () => {
    const known = followed(history);
    await expect(known.sync(history, 'count', { fails: 5 })).rejects.toMatchObject({
      code: 'unavailable',
    });
  });

  it('yields after each slice that it applies or drops', async () => {
    const keys = Array.from({ length: 40 }, (_, i) => `${i + 10}`);
    const known = new Known();
    const limits = { ...WATCH_LIMITS, firstPageKeys: 100, sliceKeys: 10 };
    await known.sync(
      keys.map((name) => `${name}=1`),
      'count',
      { limits },
    );
    expect(known.turns).toBe(4);
    known.turns = 0;
    await known.sync([...keys.map(() => ''), 'x=1'], 'count', { limits });
    expect([known.turns, known.content]).toEqual([5, { 'p/x': '1' }]);
  });

  it('drops deleted keys even if many events wait for the reader', async () => {
    const queue = new EventQueue({ ...WATCH_LIMITS, highWaterBytes: 1 });
    const { knownKeys: known } = new Cursor(P, queue);
    known.apply(eventAt('a=1', 1));
    known.apply(eventAt('b=1', 2));
    queue.take();
    known.apply(eventAt('-a', 3));
    queue.shorten();
    expect(queue.take().map(({ type, key: gone }) => `${type} ${gone}`)).toEqual([`delete ${P}a`]);
  });

  it('reads everything at one revision', async () => {
    const known = followed(history);
    await known.sync([...history, 'f=1', 'g=1', 'h=1'], 'revisions');
    expect(new Set(known.reads.slice(1).map(({ revision }) => revision))).toEqual(new Set([9]));
  });

  it('finds each listed row again, also the first one beyond the memory for rows', () => {
    const listed = new ListedRows();
    const rows = Array.from({ length: 40_000 }, (_, row) => row);
    for (const row of rows) listed.add(row);
    expect(rows.filter((row) => !listed.has(row))).toEqual([]);
    expect([listed.count, listed.has(40_000)]).toEqual([40_000, false]);
  });
});
