import { describe, expect, it, vi } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { KvstoreError, type KvstoreErrorCode } from '../../../src/kvstore/session/errors.ts';
import type { KeyValue } from '../../../src/kvstore/session/transport.ts';
import { Anchors } from '../../../src/kvstore/watch/anchors.ts';
import { ClientWrites } from '../../../src/kvstore/watch/client-writes.ts';

type Store = Readonly<Record<string, readonly [modRevision: number, value: string]>>;

/** The content at any earlier revision, or the code of the error of a read there. */
type History = Store | KvstoreErrorCode;

/**
 * Returns true if a store shows a client's writes: `a=1@5` or `-a@6`. By default its history has nothing
 * else.
 */
function areShown(
  writes: readonly string[],
  store: Store,
  { meanwhile, history = {} }: { meanwhile?: (own: ClientWrites) => void; history?: History } = {},
): Promise<boolean> {
  const own = new ClientWrites();
  for (const write of writes) {
    const [, removed, key = '', value, revision] = /^(-?)(\w+)(?:=(\w+))?@(\d+)$/.exec(write) ?? [];
    if (removed === '-') own.recordDelete(key, Number(revision));
    else own.put(key, bytesOfText(value ?? ''), Number(revision));
  }
  return own.areInHistory(async (key, revision): Promise<KeyValue | undefined> => {
    meanwhile?.(own);
    const content = revision === undefined ? store : history;
    if (typeof content === 'string') throw new KvstoreError(content, `revision ${revision}`);
    const kv = content[key];
    return kv && { key, value: bytesOfText(kv[1]), modRevision: kv[0], createRevision: 1 };
  });
}

describe('the writes of a client are in its store', () => {
  it.each<readonly [string, readonly string[], Store]>([
    ['as it was put last', ['a=1@5', 'b=1@6'], { b: [6, '1'] }],
    ['where another client has overwritten it', ['a=1@5'], { a: [9, '2'] }],
    ['where what was deleted last is gone', ['a=1@5', 'b=1@6', '-b@7'], { a: [5, '1'] }],
    ['where another client has put it since', ['-b@7'], { b: [8, '2'] }],
    ['in the write of the delete itself', ['-b@7'], { b: [7, '2'] }],
    ['where it was nothing', [], {}],
  ])('%s', async (_, writes, store) => {
    expect(await areShown(writes, store)).toBe(true);
  });

  it.each<readonly [string, readonly string[], Store]>([
    ['where the last put is missing', ['a=1@5', 'b=1@6'], { a: [5, '1'] }],
    ['where it is of an earlier revision', ['a=1@5'], { a: [4, '1'] }],
    ['where it has another value at its revision', ['a=1@5'], { a: [5, '2'] }],
    ['where the last put before a delete is missing', ['a=1@5', 'b=1@6', '-b@7'], {}],
    ['where what was deleted is back', ['a=1@5', 'b=1@6', '-b@7'], { a: [5, '1'], b: [6, '1'] }],
  ])('but not %s', async (_, writes, store) => {
    expect(await areShown(writes, store)).toBe(false);
  });

  it('if another client has deleted the last put (regression: all leases were given up as after a restore)', async () => {
    expect(await areShown(['a=1@5'], {}, { history: { a: [5, '1'] } })).toBe(true);
    expect(await areShown(['a=1@5'], {}, { history: { a: [5, '2'] } })).toBe(false);
    expect(await areShown(['a=1@5'], {}, { history: {} })).toBe(false);
  });

  it('if the last put was deleted and its history is compacted (regression: counted as a restore, which costs every lease and lock)', async () => {
    const history = 'compacted';
    expect(await areShown(['a=1@5'], {}, { history })).toBe(true);
    expect(await areShown(['a=1@5', 'b=1@6'], { a: [5, '1'] }, { history })).toBe(true);
    expect(await areShown(['a=1@5', 'b=1@6'], { a: [8, '2'] }, { history })).toBe(true);
  });

  it('but not if the put before that one contradicts the store', async () => {
    const history = 'compacted';
    expect(await areShown(['a=1@5', 'b=1@6'], { a: [4, '1'] }, { history })).toBe(false);
    expect(await areShown(['a=1@5', 'b=1@6'], { a: [5, '2'] }, { history })).toBe(false);
  });

  it('but not if the store has not reached the revision of the last put', async () => {
    expect(await areShown(['a=1@5'], {}, { history: 'future-revision' })).toBe(false);
    await expect(areShown(['a=1@5'], {}, { history: 'unavailable' })).rejects.toMatchObject({
      code: 'unavailable',
    });
  });

  it('or if it is being deleted: then the put before it is checked the next time', async () => {
    expect(await areShown(['a=1@5', 'b=1@6'], {}, { meanwhile: (own) => own.forget('b') })).toBe(true);
    expect(await areShown(['a=1@5', 'b=1@6'], {}, { meanwhile: (own) => own.forget('a') })).toBe(false);
  });

  it('once they were forgotten, whatever the store contains', async () => {
    const own = new ClientWrites();
    own.put('a', bytesOfText('1'), 5);
    own.recordDelete('b', 6);
    own.clear();
    expect(await own.areInHistory(() => Promise.reject(new Error('nothing is to be read')))).toBe(true);
  });
});

it('of one transaction is one put, so that a batch of 100 keys copies one value (regression: 100)', async () => {
  const copies = vi.spyOn(Anchors.prototype, 'copyValues');
  try {
    const batch = Array.from({ length: 100 }, (_, i) => `key${i}=1@6`);
    expect(await areShown(['a=1@5', ...batch], { key0: [6, '1'] })).toBe(true);
    expect(await areShown(['a=1@5', ...batch], { key0: [6, '2'] })).toBe(false);
    expect(copies).toHaveBeenCalledTimes(4);
    expect(await areShown(['a=1@5', 'b=1@6', 'a=2@6'], { a: [5, '1'], b: [6, '1'] })).toBe(true);
  } finally {
    copies.mockRestore();
  }
});
