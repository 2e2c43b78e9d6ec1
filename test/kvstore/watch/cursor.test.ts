import { describe, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { Cursor } from '../../../src/kvstore/watch/cursor.ts';
import { EventQueue } from '../../../src/kvstore/watch/event-queue.ts';
import { WATCH_LIMITS } from '../../../src/kvstore/watch/watch-limits.ts';

const kv = (key: string, modRevision: number) => ({
  key,
  value: bytesOfText(`${key} ${modRevision}`),
  createRevision: 1,
  modRevision,
});
const header = (revision: number, { clusterID = 'one', raftTerm = 3 } = {}) => ({
  clusterID,
  revision,
  raftTerm,
});

/** A cursor that has listed these keys at a revision. */
function listed(
  revision: number,
  ...kvs: readonly ReturnType<typeof kv>[]
): { cursor: Cursor; queue: EventQueue } {
  const queue = new EventQueue(WATCH_LIMITS);
  const cursor = new Cursor('p/', queue);
  cursor.check(header(revision));
  for (const each of kvs) cursor.applyListed(each, 'unlisted');
  cursor.cover(cursor.range.end, revision);
  queue.take();
  return { cursor, queue };
}

const told = (queue: EventQueue): readonly string[] =>
  queue.take().map(({ type, key, modRevision }) => `${type} ${key} ${modRevision}`);

it.each(['q/a', 'p', '', 'px'])(
  'a key that does not have the prefix is an error, %o (regression: had another name)',
  (key) => {
    const { cursor, queue } = listed(20);
    const error = expect.objectContaining({
      code: 'internal',
      message: `the server sent "${key}", which does not begin with p/`,
    });
    expect(() => cursor.applyListed(kv(key, 30), 'covered')).toThrow(error);
    expect(() => cursor.receive([kv(key, 30)])).toThrow(error);
    expect(() => cursor.receive([{ key, value: undefined, modRevision: 30 }])).toThrow(error);
    expect([queue.take(), cursor.knownKeys.size]).toEqual([[], 0]);
  },
);

it('a large key that does not have the prefix is cut in the message (regression: the status contained 64 MiB)', () => {
  const { cursor } = listed(20);
  expect(() => cursor.receive([kv('q'.repeat(1_000_000), 30)])).toThrow(/^the server sent .{1,160} p\/$/);
});

describe('a header of another history', () => {
  it.each([
    ['the id of the etcd cluster changed from one to two', header(90, { clusterID: 'two' })],
    ['the revision of the store decreased from 20 to 19', header(19)],
    ['the raft term decreased from 3 to 2', header(90, { raftTerm: 2 })], // regression: named the revision
  ])('is detected: %s', (message, of) => {
    const { cursor } = listed(20);
    expect(() => cursor.check(of)).toThrow(expect.objectContaining({ code: 'future-revision', message }));
    cursor.check(header(20)); // and the followed history has not changed by it
  });

  it('is accepted once the store is known to be replaced', () => {
    const { cursor } = listed(20, kv('p/a', 5));
    cursor.diverge();
    cursor.check(header(2, { clusterID: 'two', raftTerm: 1 }));
    expect([cursor.nextRevision, cursor.isEmpty, cursor.isComplete, cursor.canResume]).toEqual([
      0,
      true,
      false,
      false,
    ]);
    expect(cursor.knownKeys.size).toBe(1); // the reader must still be notified of the delete
  });

  it('is one with a lower revision than an earlier list', () => {
    const { cursor } = listed(20);
    cursor.beginListing();
    cursor.cover('p/m', 25);
    expect(() => cursor.check(header(24))).toThrow();
    cursor.beginListing();
    expect(() => cursor.check(header(19))).toThrow();
    cursor.check(header(25));
  });
});

describe('the anchors of a cursor', () => {
  it('include a key once if several lists contain it', () => {
    const { cursor } = listed(20, kv('p/a', 5), kv('p/b', 9), kv('p/c', 9));
    for (const each of [kv('p/b', 9), kv('p/c', 9)]) cursor.applyListed(each, 'covered');
    expect(cursor.knownKeys.anchors.newestFirst.map(({ key }) => key)).toEqual(['p/c', 'p/b', 'p/a']);
  });
});

describe('a key in a list that contradicts the followed history', () => {
  it('is detected: it was last written before the cursor, with another revision or value', () => {
    const { cursor, queue } = listed(20, kv('p/a', 5), kv('p/b', 9));
    cursor.applyListed(kv('p/a', 5), 'covered');
    for (const wrong of [kv('p/a', 6), kv('p/a', 20), kv('p/b', 5), kv('p/c', 20)]) {
      expect(() => cursor.applyListed(wrong, 'covered')).toThrow(
        expect.objectContaining({ code: 'future-revision' }),
      );
    }
    cursor.applyListed(kv('p/a', 21), 'covered');
    expect(told(queue)).toEqual(['modify p/a 21']);
  });

  it('is compared with the known keys of its part of the prefix during another list', () => {
    const { cursor } = listed(20, kv('p/a', 5), kv('p/x', 9));
    cursor.beginListing();
    cursor.applyListed(kv('p/a', 5), 'unlisted');
    cursor.cover('p/m', 30);
    expect([cursor.knownBefore('p/a'), cursor.knownBefore('p/x')]).toEqual([31, 21]);
    expect(() => cursor.applyListed(kv('p/b', 25), 'covered')).toThrow();
    expect(() => cursor.applyListed(kv('p/y', 15), 'unlisted')).toThrow();
    cursor.applyListed(kv('p/y', 25), 'unlisted'); // written after the known revision
    expect([cursor.covered, cursor.unlisted]).toEqual([
      { start: 'p/', end: 'p/m' },
      { start: 'p/m', end: 'p0' },
    ]);
    expect([cursor.isEmpty, cursor.isComplete]).toEqual([false, false]);
  });
});

describe('a stream', () => {
  it('that repeats events of a list delivers nothing twice', () => {
    const { cursor, queue } = listed(20, kv('p/a', 5));
    cursor.receive([kv('p/a', 5), kv('p/gone', 12), kv('p/b', 21)]);
    expect(told(queue)).toEqual(['create p/b 21']);
    cursor.receive([{ key: 'p/a', value: undefined, modRevision: 22 }, kv('p/b', 23)]);
    expect(told(queue)).toEqual(['delete p/a 22', 'modify p/b 23']);
    cursor.receive([kv('p/b', 23)]);
    expect([told(queue), cursor.nextRevision]).toEqual([[], 24]);
  });

  it('that broke within a revision is not resumed, because only a part of its events is known', () => {
    const { cursor } = listed(20, kv('p/a', 5), kv('p/b', 6));
    cursor.receive([{ key: 'p/a', value: undefined, modRevision: 21 }]);
    expect([cursor.nextRevision, cursor.canResume]).toEqual([22, true]);
    const put = (key: string) => ({ key, value: new Uint8Array(0), modRevision: 22 });
    cursor.receive([put('p/c')], true);
    expect([cursor.nextRevision, cursor.canResume]).toEqual([22, false]);
    cursor.receive([put('p/d')]);
    expect([cursor.nextRevision, cursor.canResume]).toEqual([23, true]);
    cursor.receive([{ ...put('p/e'), modRevision: 23 }], true);
    cursor.cover(cursor.range.end, 23);
    expect([cursor.nextRevision, cursor.canResume]).toEqual([24, true]);
  });

  it('may be resumed after an event, and not after a list that ended with another failure', () => {
    expect(listed(20, kv('p/a', 5)).cursor.canResume).toBe(false);
    const { cursor } = listed(20, kv('p/a', 5), kv('p/b', 20));
    expect(cursor.canResume).toBe(true);
    cursor.receive([{ key: 'p/a', value: undefined, modRevision: 22 }]);
    expect(cursor.canResume).toBe(true);
    cursor.receive([kv('p/c', 30)]);
    expect(cursor.canResume).toBe(true);
    cursor.beginListing();
    expect(cursor.canResume).toBe(false);
  });
});
