import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deferred } from '../../../src/base/sleep.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import type {
  KeyWrite,
  KvstoreBackend,
  LeaseLostListener,
  WatchEvent,
  WatchOptions,
  WriteOptions,
  WrittenAll,
} from '../../../src/kvstore/session/backend.ts';
import { SyncStore, type SyncStoreOptions } from '../../../src/kvstore/stores/sync-store.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../support/settle.ts';

const CANARY = 'synced/own';

/** A kvstore that records its calls. Calls for a held key wait until they are aborted. */
class NotedBackend {
  readonly calls: string[] = [];
  readonly held = new Map<string, Promise<void>>();
  lose: (keys: readonly string[]) => void = () => {};

  onLeaseLost({ onLeaseLost }: LeaseLostListener): () => void {
    this.lose = onLeaseLost;
    return () => {
      this.lose = () => {};
    };
  }

  update(key: string, _value: Uint8Array, options?: WriteOptions): Promise<number> {
    return this.#note('put', key, options, 1);
  }

  async writeAll([write]: readonly KeyWrite[], options: WriteOptions = {}): Promise<WrittenAll> {
    const { key = '', value, mayBeEqual } = write ?? {};
    const { leased, ...ofDelete } = options; // a delete does not depend on it
    if (value === undefined) await this.#note('delete', key, ofDelete, undefined);
    else await this.#note(mayBeEqual ? 'compare' : 'put', key, { ...ofDelete, leased }, undefined);
    return { revision: 1, isComplete: true };
  }

  delete(key: string, options?: { fenced?: boolean | undefined }): Promise<boolean> {
    return this.#note('delete', key, { fenced: options?.fenced }, true); // the other options of a delete do not matter
  }

  /** Yields nothing, and ends with its signal. */
  async *watch(_prefix: string, { signal }: WatchOptions = {}): AsyncGenerator<readonly WatchEvent[]> {
    await new Promise((resolve) => signal?.addEventListener('abort', resolve));
    yield [];
  }

  /** Returns the recorded calls, and clears them. */
  take(): readonly string[] {
    return this.calls.splice(0);
  }

  async #note<T>(call: string, key: string, options: WriteOptions = {}, answer: T): Promise<T> {
    const how = [options.fenced ? 'fenced' : '', options.leased ? 'leased' : ''].filter(Boolean);
    this.calls.push([call, key, ...how].join(' '));
    const held = this.held.get(key);
    if (held !== undefined) await Promise.race([held, aborted(options.signal)]);
    return answer;
  }
}

/** Rejects when the signal fires. */
function aborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) =>
    signal?.addEventListener('abort', () => reject(new Error('aborted')), { once: true }),
  );
}

describe('the calls of a sync store', () => {
  let backend: NotedBackend;
  let store: SyncStore;
  let ended: AbortController;

  function start(options: Partial<SyncStoreOptions> = {}): void {
    ended = new AbortController();
    store = new SyncStore({
      prefix: 'own/',
      clock: new ManualClock(),
      random: () => 0.5,
      canary: CANARY,
      backend: backend as unknown as KvstoreBackend,
      ...options,
    });
    void store.run(ended.signal);
  }

  const want = (name: string, value = '1'): void => store.upsert(name, bytesOfText(value));

  beforeEach(() => {
    backend = new NotedBackend();
    start();
  });
  afterEach(() => ended.abort());

  it('write fenced, bound to its lease', async () => {
    want('a');
    await settle();
    store.invalidate('a');
    await settle();
    store.delete('a');
    await store.markSynced();
    expect(backend.take()).toEqual([
      ...['put own/a fenced leased', 'compare own/a fenced leased'],
      ...['delete own/a fenced', `put ${CANARY} fenced leased`],
    ]);
  });

  it('compare first, without a lease, keys of an earlier process', async () => {
    ended.abort();
    start({ leased: false });
    want('a');
    await settle();
    want('a', '2');
    await settle();
    store.delete('a');
    await settle();
    want('a', '3');
    await store.markSynced();
    expect(backend.take()).toEqual([
      ...['compare own/a fenced', 'put own/a fenced', 'delete own/a fenced', 'compare own/a fenced'],
      `put ${CANARY} fenced`,
    ]);
    backend.lose(['own/a', CANARY]);
    await settle();
    expect(backend.take()).toEqual([]);
  });

  it('adopt the lease of a key whose value was another one for a moment (regression: wrote the key again)', async () => {
    ended.abort();
    const adoptLease = (_lease: string, keys: readonly string[]): Promise<boolean> => {
      backend.calls.push(`adopt ${keys}`);
      return Promise.resolve(true);
    };
    Object.assign(backend, { adoptLease });
    start({ adoptLeases: true, follow: false });
    const show = (name: string): void =>
      store.receiveEvent(name, {
        type: 'create',
        key: `own/${name}`,
        value: bytesOfText('1'),
        modRevision: 5,
        lease: '7',
      });
    show('a');
    want('a', '2');
    want('b', '2');
    show('b');
    want('a');
    want('b');
    store.recordListed();
    await settle();
    expect(backend.take()).toEqual(['adopt own/a,own/b']);
  });

  it('put back a deleted key immediately, whatever happened to the name that had its row before', async () => {
    ended.abort();
    start({ follow: false });
    const type = 'delete';
    for (const name of ['a', 'b']) {
      want(name);
      await settle();
      store.receiveEvent(name, { type, key: `own/${name}`, value: bytesOfText(''), modRevision: 9 });
      await settle();
      store.delete(name);
      await settle();
    }
    const calls = ['put own/a', 'put own/a', 'delete own/a', 'put own/b', 'put own/b', 'delete own/b'];
    expect(backend.take().map((call) => call.split(' ', 2).join(' '))).toEqual(calls);
  });

  it('write a lost key again if it is its own and desired', async () => {
    for (const name of ['a', 'b', 'gone']) want(name);
    await settle();
    store.delete('gone');
    await store.markSynced();
    backend.take();
    backend.lose(['own/gone', 'not/a', 'other']);
    await settle();
    expect(backend.take()).toEqual([]);
    backend.lose(['own/a', 'not/b']);
    await settle();
    expect(backend.take()).toEqual([
      ...[`delete ${CANARY} fenced`, 'put own/a fenced leased', `put ${CANARY} fenced leased`],
    ]);
  });

  it('write a lost canary again, and do not delete it first', async () => {
    want('a');
    await store.markSynced();
    backend.take();
    backend.lose([CANARY]);
    await settle();
    expect([backend.take(), store.status().canaryWritten]).toEqual([[`put ${CANARY} fenced leased`], true]);
  });

  it('write the canary again if a key was lost and written during its write', async () => {
    want('a');
    await settle();
    backend.take();
    const release = deferred();
    backend.held.set(CANARY, release.promise);
    const written = store.markSynced();
    await settle();
    backend.lose(['own/a']);
    await settle();
    expect(store.status()).toMatchObject({ pending: 0, canaryWritten: false });
    backend.held.clear();
    release.resolve();
    await written;
    const calls = backend.take();
    expect(calls.filter((call) => call === `put ${CANARY} fenced leased`)).toHaveLength(2);
    expect(calls.at(-1)).toBe(`put ${CANARY} fenced leased`);
    expect(store.status()).toMatchObject({ canaryWritten: true, failures: 0 });
  });

  it('keep a valid canary if another key is written with it', async () => {
    want('a');
    await settle();
    const release = deferred();
    backend.held.set(CANARY, release.promise);
    const written = store.markSynced();
    await settle();
    want('b');
    await settle();
    release.resolve();
    await written;
    await settle();
    expect(backend.take()).toEqual([
      ...['put own/a fenced leased', `put ${CANARY} fenced leased`, 'put own/b fenced leased'],
    ]);
    expect(store.status()).toMatchObject({ keys: 2, pending: 0, writes: 2, canaryWritten: true });
  });

  it('write a true canary once, however often the keys are complete (regression: each time)', async () => {
    want('a');
    await store.markSynced();
    want('b');
    await store.markSynced();
    await store.markSynced();
    expect(backend.take()).toEqual([
      ...['put own/a fenced leased', `put ${CANARY} fenced leased`, 'put own/b fenced leased'],
    ]);
  });

  it('include no canary if it has none, and still report completion', async () => {
    ended.abort();
    start({ canary: undefined });
    want('a');
    await store.markSynced();
    expect([backend.take(), store.status().pending]).toEqual([['put own/a fenced leased'], 0]);
  });

  it('are not made for invalid arguments', async () => {
    const wrong = store as unknown as Record<
      'upsert' | 'delete' | 'invalidate' | 'run',
      (...given: unknown[]) => void
    >;
    expect(() => wrong.upsert(1, bytesOfText('x'))).toThrow(/name/);
    expect(() => wrong.upsert('a', 'x')).toThrow(/value/);
    expect(() => wrong.delete(1)).toThrow(/name/);
    expect(() => wrong.invalidate(1)).toThrow(/name/);
    expect(() => wrong.run('now')).toThrow(/signal/);
    want('a', 'x');
    expect([textOfBytes(store.get('a') ?? new Uint8Array(0)), store.get('b')]).toEqual(['x', undefined]);
  });
});
