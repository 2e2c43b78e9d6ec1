import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import {
  type Compare,
  NO_LEASE,
  type TxnRequest,
  type TxnResponse,
} from '../../../src/kvstore/session/transport.ts';
import { WriteBatches } from '../../../src/kvstore/session/write-batches.ts';

const FENCE: Compare = { key: 'fence', target: 'exists' };

function put(key: string, value: string | number, compare: readonly Compare[] = []): TxnRequest {
  const bytes = typeof value === 'number' ? new Uint8Array(value) : bytesOfText(value);
  return { compare, writes: [{ op: 'put', key, value: bytes, lease: NO_LEASE }] };
}

function remove(key: string, end: string = keyRange(key).end): TxnRequest {
  return { compare: [], writes: [{ op: 'delete', range: { start: key, end } }] };
}

function keysOf({ writes }: TxnRequest): string {
  return writes.map((write) => (write.op === 'put' ? write.key : `-${write.range.start}`)).join('');
}

/** A store that answers when it is asked to, and refuses a transaction that has a refused key. */
class Store {
  readonly sent: string[] = [];
  readonly content = new Map<string, string>();
  readonly refused = new Set<string>();
  readonly #answers: (() => void)[] = [];
  readonly batches = new WriteBatches((request) => this.#txn(request));

  /** Answers what was sent, and what is sent then, until nothing more comes. */
  async answerAll(): Promise<void> {
    for (let quiet = 0; quiet < 20; quiet++) {
      await Promise.resolve();
      for (const answer of this.#answers.splice(0)) {
        answer();
        quiet = 0;
      }
    }
  }

  async #txn(request: TxnRequest): Promise<TxnResponse> {
    this.sent.push(keysOf(request));
    await new Promise<void>((resolve) => this.#answers.push(resolve));
    if (request.writes.some((write) => write.op === 'put' && this.refused.has(write.key)))
      throw new KvstoreError('forbidden', 'you may not');
    for (const write of request.writes)
      if (write.op === 'put') this.content.set(write.key, textOfBytes(write.value) ?? '');
      else this.content.delete(write.range.start);
    const header = { clusterID: 'c', revision: this.sent.length, raftTerm: 1 };
    return { header, succeeded: true, deleted: 0 };
  }
}

describe('puts that may be batched', () => {
  const made = async (store: Store, requests: readonly TxnRequest[]): Promise<readonly string[]> => {
    const answers = Promise.allSettled(requests.map((request) => store.batches.txn(request, undefined)));
    await store.answerAll();
    return (await answers).map(({ status }) => status);
  };

  it('wait while one is in progress, and are sent in one transaction', async () => {
    const store = new Store();
    await made(
      store,
      [...'abcd'].map((key) => put(key, '1')),
    );
    expect(store.sent).toEqual(['a', 'bcd']);
  });

  it('are separate if they have the same key, or other comparisons; operations other than a single put are sent immediately', async () => {
    const store = new Store();
    const others = [
      put('d', '1', [FENCE]),
      put('e', '1', [FENCE]),
      put('f', '1', [{ ...FENCE }]),
      remove('x', 'y'),
    ];
    await made(store, [...['a', 'b', 'c', 'b'].map((key, i) => put(key, String(i))), ...others]);
    expect(store.sent).toEqual(['a', '-x', 'bc', 'b', 'de', 'f']);
    expect(store.content.get('b')).toBe('3');
  });

  it('are batched with deletes of single keys (regression: each delete cost a transaction)', async () => {
    const store = new Store();
    await made(store, [put('a', '1'), put('b', '1'), remove('a'), remove('c'), remove('b')]);
    expect(store.sent).toEqual(['a', 'b-a-c', '-b']);
    expect(store.content.size).toBe(0);
  });

  it('use as many transactions as the limits of operations and bytes require', async () => {
    const store = new Store();
    const many = Array.from({ length: 150 }, (_, i) => put(`k${i},`, '1'));
    await made(store, [...many, put('large', 400_000), put('larger', 2_000_000), put('small', '1')]);
    expect(store.sent.map((keys) => keys.split(',').length - 1)).toEqual([1, 100, 49, 0, 0]);
    expect(store.sent.slice(3)).toEqual(['larger', 'small']);
  });

  it('are repeated one by one if their batch is refused: none fails because of another', async () => {
    const store = new Store();
    store.refused.add('c');
    const found = await made(
      store,
      [...'abcd'].map((key) => put(key, '1')),
    );
    expect(found).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
    expect(store.sent).toEqual(['a', 'bcd', 'b', 'c', 'd']);
  });

  it('are aborted one by one', async () => {
    const store = new Store();
    const ended = new AbortController();
    const others = made(store, [put('a', '1'), put('b', '1')]);
    const given = store.batches.txn(put('c', '1'), ended.signal);
    ended.abort();
    await expect(given).rejects.toMatchObject({ code: 'aborted' });
    expect(await others).toEqual(['fulfilled', 'fulfilled']);
    expect(store.sent).toEqual(['a', 'b']);
  });

  it('have the same result as if each was sent separately, in order', async () => {
    const key = fc.constantFrom<string>('a', 'b', 'c', 'd');
    const script = fc.array(fc.record({ key, pause: fc.boolean(), deletes: fc.boolean() }), {
      maxLength: 30,
    });
    await fc.assert(
      fc.asyncProperty(script, fc.subarray<string>(['a', 'b', 'c', 'd']), async (puts, refused) => {
        const store = new Store();
        for (const one of refused) store.refused.add(one);
        const answers: Promise<unknown>[] = [];
        for (const [i, { key: of, pause, deletes }] of puts.entries()) {
          answers.push(store.batches.txn(deletes ? remove(of) : put(of, String(i)), undefined));
          if (pause) await store.answerAll();
        }
        const settled = Promise.allSettled(answers);
        await store.answerAll();
        const isDone = (await settled).map(({ status }) => status === 'fulfilled');
        expect(isDone).toEqual(puts.map(({ key: of, deletes }) => deletes || !refused.includes(of)));
        const expected = new Map<string, string>();
        for (const [i, { key: of, deletes }] of puts.entries()) {
          if (deletes) expected.delete(of);
          else if (!refused.includes(of)) expected.set(of, String(i));
        }
        expect(store.content).toEqual(expected);
      }),
      { numRuns: 200 },
    );
  });
});
