import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RangeRequest, RangeResponse } from '../../../src/kvstore/session/transport.ts';
import { Cursor } from '../../../src/kvstore/watch/cursor.ts';
import { EventQueue } from '../../../src/kvstore/watch/event-queue.ts';
import { PageSize } from '../../../src/kvstore/watch/page-size.ts';
import { proveHistory } from '../../../src/kvstore/watch/sync.ts';
import { WATCH_LIMITS } from '../../../src/kvstore/watch/watch-limits.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { answer, eventAt, type History, keysAt, P } from '../support/histories.ts';

interface Proof {
  /** `proven`, or the code of the error. */
  readonly outcome: string;
  readonly reads: readonly RangeRequest[];
}

/** Follows the first history to its end, and then proves it to a server with the second one. */
async function prove(followed: History, server: History, backlogRevisions = 1_000): Promise<Proof> {
  const cursor = new Cursor(P, new EventQueue(WATCH_LIMITS));
  cursor.cover(cursor.range.end, 0);
  for (const [i, write] of followed.entries()) {
    if (write !== '') cursor.receive([eventAt(write, i + 1)]);
    cursor.knownKeys.anchors.copyValues();
  }
  const reads: RangeRequest[] = [];
  const read = async (request: RangeRequest): Promise<RangeResponse> => {
    reads.push(request);
    return answer(server, request);
  };
  const limits = { ...WATCH_LIMITS, backlogRevisions };
  const clock = new ManualClock();
  const size = new PageSize(limits);
  const options = {
    cursor,
    prefix: P,
    read,
    pageSize: size,
    limits,
    clock,
    admit: async () => {},
    yieldTurn: async () => {},
    onListing: () => {},
  };
  const outcome = await proveHistory(options).then(
    () => 'proven',
    ({ code }: { code: string }) => code,
  );
  return { outcome, reads };
}

const DIVERGED = 'future-revision';
const CANNOT = 'compacted';

describe('a followed history is proven', () => {
  it.each<readonly [string, History, History]>([
    ['by its last put', ['a=1'], ['a=1']],
    ['by its last put, whatever came after it', ['a=1'], ['a=1', 'a=2', '-a', 'b=1']],
    ['by what its last delete has left', ['a=1', 'b=1', '-b'], ['a=1', 'b=1', '-b']],
    ['by what it has left, whatever came after it', ['a=1', 'b=1', '-b'], ['a=1', 'b=1', '-b', 'b=2', 'c=1']],
    ['by nothing that is left', ['a=1', '-a'], ['a=1', '-a', 'a=2']],
    [
      'beside deleted keys that are back',
      ['b=1', '-b', 'b=2', 'c=1', '-c'],
      ['b=1', '-b', 'b=2', 'c=1', '-c'],
    ],
    [
      'after eight deletes in a row',
      [
        'a=1',
        ...'bcdefghi'.split('').map((key) => `${key}=1`),
        'z=1',
        ...'bcdefghi'.split('').map((key) => `-${key}`),
      ],
      [
        'a=1',
        ...'bcdefghi'.split('').map((key) => `${key}=1`),
        'z=1',
        ...'bcdefghi'.split('').map((key) => `-${key}`),
      ],
    ],
  ])('%s', async (_, followed, server) => {
    expect((await prove(followed, server)).outcome).toBe('proven');
  });

  it.each<readonly [string, History, History]>([
    ['a put of another value', ['a=1'], ['a=2']],
    ['the same put at another revision', ['', 'a=1'], ['a=1', '']],
    ['a put that is not there', ['a=1'], ['']],
    ['the third last put of another value', ['a=1', 'b=1', 'c=1'], ['a=2', 'b=1', 'c=1']],
  ])('not by %s', async (_, followed, server) => {
    expect((await prove(followed, server)).outcome).toBe(DIVERGED);
  });

  it.each<readonly [string, History, History]>([
    [
      'was a put of another key instead',
      ['w=1', 'x=1', 'y=1', 'z=1', 'b=1', '-b'],
      ['w=1', 'x=1', 'y=1', 'z=1', '-w', 'c=1'],
    ],
    [
      'took another key',
      ['w=1', 'b=1', 'x=1', 'y=1', 'z=1', '-b'],
      ['w=1', 'b=1', 'x=1', 'y=1', 'z=1', '-w'],
    ],
    ['was one of several', ['w=1', 'x=1', 'y=1', 'z=1', 'b=1', '-b'], ['w=1', 'x=1', 'y=1', 'z=1', '-w', '']],
    ['was a put of it', ['a=1', 'b=1', '-b'], ['a=1', 'b=1', 'b=2']],
    ['left nothing, and there is something', ['a=1', '-a'], ['a=1', 'b=1']],
    ['left nothing, and nothing was deleted', ['a=1', '-a'], ['a=1', '']],
  ])('not by the last delete if that %s', async (_, followed, server) => {
    expect((await prove(followed, server)).outcome).toBe(CANNOT);
  });

  it('not after nine deletes in a row', async () => {
    const keys = 'bcdefghij'.split('');
    const history = [...keys.map((key) => `${key}=1`), 'z=1', ...keys.map((key) => `-${key}`)];
    expect((await prove(history, history)).outcome).toBe(CANNOT);
  });

  it('not if the server is too far ahead', async () => {
    const ahead = (revisions: number): Promise<Proof> =>
      prove(['a=1'], ['a=1', ...Array(revisions).fill('')], 10);
    expect([(await ahead(11)).outcome, (await ahead(12)).outcome]).toEqual(['proven', CANNOT]);
  });

  it('at its last revision, by the last three puts, and by the deletes since', async () => {
    const history = ['a=1', 'b=1', 'c=1', 'd=1', 'e=1', '-e'];
    const { reads } = await prove(history, [...history, 'f=1']);
    expect(reads.every(({ revision, limit }) => revision === 6 && limit === 1)).toBe(true);
    expect(reads.map(({ start, minModRevision }) => `${start} ${minModRevision}`).sort()).toEqual([
      ...['p/ 5', 'p/b 0', 'p/c 0', 'p/d 0', 'p/e 0'],
    ]);
    const afterPut = await prove(history.slice(0, -1), history);
    expect(afterPut.reads.map(({ start }) => start).sort()).toEqual(['p/c', 'p/d', 'p/e']);
  });

  it('whenever it is that of the server', async () => {
    const key = fc.constantFrom('a', 'b', 'c', 'd', 'e');
    const write = fc.oneof(
      { weight: 4, arbitrary: fc.tuple(key, fc.nat(3)).map(([name, value]) => `${name}=${value}`) },
      { weight: 3, arbitrary: key.map((name) => `-${name}`) },
      { weight: 1, arbitrary: fc.constant('') },
    );
    const wrote = (history: History, at: number): boolean => {
      const deleted = `${P}${history[at]?.slice(1)}`;
      return history[at]?.startsWith('-') !== true || keysAt(history, at).some((kv) => kv.key === deleted);
    };
    await fc.assert(
      fc.asyncProperty(
        fc.array(write, { minLength: 1, maxLength: 8 }),
        fc.array(write, { maxLength: 3 }),
        async (writes, more) => {
          // A delete of an absent key writes nothing, and a stream resumes only from the revision of an
          // event.
          const history = writes.map((text, at) => (wrote(writes, at) ? text : ''));
          fc.pre(history.at(-1) !== '');
          expect((await prove(history, [...history, ...more])).outcome).toBe('proven');
        },
      ),
    );
  });
});
