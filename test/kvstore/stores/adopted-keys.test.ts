import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deferred } from '../../../src/base/sleep.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import type {
  KeyWrite,
  KvstoreBackend,
  LeaseLostListener,
  WatchEvent,
  WatchOptions,
  WrittenAll,
} from '../../../src/kvstore/session/backend.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { KeyTable } from '../../../src/kvstore/session/key-table.ts';
import { SyncStore } from '../../../src/kvstore/stores/sync-store.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';

/** A kvstore that records adoptions and writes. Adoptions wait until {@link ManualBackend.answer} is called. */
class ManualBackend {
  readonly calls: string[] = [];
  readonly #adoptions: { readonly resolve: (isAdopted: boolean) => void; reject(error: Error): void }[] = [];
  #listener: LeaseLostListener | undefined;

  onLeaseLost(listener: LeaseLostListener): () => void {
    this.#listener = listener;
    return () => {};
  }

  adoptLease(lease: string, keys: readonly string[]): Promise<boolean> {
    this.calls.push(`adopt ${lease}: ${keys.map((key) => key.slice('own/'.length))}`);
    return new Promise((resolve, reject) => this.#adoptions.push({ resolve, reject }));
  }

  /** Answers the oldest adoption, then reports the names in `lost` as lost with their lease. */
  async answer(result: boolean | KvstoreError, lost = ''): Promise<void> {
    const adoption = this.#adoptions.shift();
    if (typeof result === 'boolean') adoption?.resolve(result);
    else adoption?.reject(result);
    if (lost !== '') this.#listener?.onLeaseLost(Array.from(lost, (name) => `own/${name}`));
    await settle(4);
  }

  async writeAll(writes: readonly KeyWrite[]): Promise<WrittenAll> {
    for (const { key, value, mayBeEqual } of writes) {
      const call = value === undefined ? 'delete' : `put${mayBeEqual ? ' if different' : ''}`;
      this.calls.push(`${call} ${key.slice('own/'.length)} ${textOfBytes(value ?? bytesOfText(''))}`.trim());
    }
    return { revision: 100, isComplete: true };
  }

  /** Yields nothing, and ends with its signal. */
  async *watch(_prefix: string, { signal }: WatchOptions = {}): AsyncGenerator<readonly WatchEvent[]> {
    await new Promise((resolve) => signal?.addEventListener('abort', resolve));
    yield [];
  }

  take(): readonly string[] {
    return this.calls.splice(0);
  }
}

describe('keys that an earlier session has left under its leases', () => {
  let clock: ManualClock;
  let backend: ManualBackend;
  let keys: KeyTable;
  let store: SyncStore;
  let ended: AbortController;

  beforeEach(() => {
    clock = new ManualClock();
    backend = new ManualBackend();
    keys = new KeyTable();
    ended = new AbortController();
    store = new SyncStore({
      prefix: 'own/',
      keys,
      clock,
      random: () => 0.5,
      backend: backend as unknown as KvstoreBackend,
      batched: true,
      follow: false,
      adoptLeases: true,
      gate: new TurnGate({ clock, nextTurn: setImmediate, weightPerTurn: 16 }), // a slice has two keys
    });
    void store.run(ended.signal);
  });
  afterEach(() => ended.abort());

  const want = (names: string, value = '1'): void => {
    for (const name of names) store.upsert(name, bytesOfText(value));
  };
  const show = (names: string, value = '1', lease = '7', modRevision = 5): void => {
    for (const name of names)
      store.receiveEvent(name, {
        type: 'create',
        key: `own/${name}`,
        value: bytesOfText(value),
        modRevision,
        lease,
      });
  };
  const hide = (name: string): void =>
    store.receiveEvent(name, { type: 'delete', key: `own/${name}`, value: bytesOfText(''), modRevision: 8 });
  const list = async (): Promise<void> => {
    store.recordListed();
    void store.receiveWatchState('watching', ended.signal);
    await settle(4);
  };
  const pending = (): number => store.status().pending;

  it('are adopted with each lease, whether they are listed before or after they are wanted', async () => {
    want('ab');
    show('abcd');
    show('e', '1', '8');
    want('cde');
    expect([backend.take(), pending()]).toEqual([[], 5]);
    await list();
    expect(backend.take()).toEqual(['adopt 7: a,b', 'adopt 8: e']);
    await backend.answer(true);
    await backend.answer(true);
    expect([backend.take(), pending()]).toEqual([['adopt 7: c,d'], 2]);
    await backend.answer(true);
    expect([backend.take(), pending()]).toEqual([[], 0]);
    show('f');
    want('f');
    await settle(4);
    expect(backend.take()).toEqual(['adopt 7: f']);
    await backend.answer(true);
    want('abcdef');
    await advance(clock, 60_000);
    expect([backend.take(), store.status()]).toMatchObject([[], { keys: 6, pending: 0, writes: 0 }]);
  });

  it('are written if their values differ or they are missing, after all existing keys are known', async () => {
    want('ab', '2');
    show('a');
    await settle(4);
    expect([backend.take(), pending()]).toEqual([[], 2]);
    await list();
    expect([backend.take(), pending()]).toEqual([['put a 2', 'put b 2'], 0]);
  });

  it('are written if they change while their lease is adopted', async () => {
    want('abcd');
    show('abcd');
    await list();
    expect(backend.take()).toEqual(['adopt 7: a,b']);
    want('a', '2');
    show('b', '3', '7', 6); // by another client
    store.delete('c');
    hide('d');
    want('b', '2');
    want('b');
    await backend.answer(true);
    expect([backend.take(), pending()]).toEqual([['put a 2', 'put b 1', 'delete c', 'put d 1'], 0]);
  });

  it('are adopted if they have changed and have changed back while their lease is adopted', async () => {
    want('ab');
    show('ab');
    await list();
    want('a', '2');
    want('a');
    store.delete('b');
    want('b');
    await backend.answer(true);
    await advance(clock, 60_000);
    expect([backend.take(), pending()]).toEqual([['adopt 7: a,b'], 0]);
  });

  it('are adopted only if they had the wanted value when the lease was', async () => {
    want('ab');
    show('ab');
    want('a', '2');
    await list();
    expect(backend.take()).toEqual(['adopt 7: b']);
    want('a');
    await backend.answer(true);
    expect([backend.take(), pending()]).toEqual([['adopt 7: a'], 1]);
  });

  it('are compared if they were adopted while the watch was broken', async () => {
    want('a');
    show('a');
    void store.receiveWatchState('waiting', ended.signal);
    await settle(4);
    await backend.answer(true);
    expect([backend.take(), pending()]).toEqual([['adopt 7: a'], 0]);
    void store.receiveWatchState('watching', ended.signal);
    await advance(clock, 10_000);
    expect(backend.take()).toEqual(['put if different a 1']);
  });

  it('are not adopted under a lease that they do not have any more', async () => {
    want('ab');
    show('ab');
    await list();
    show('a', '1', '8', 6);
    await backend.answer(true);
    expect([backend.take(), pending()]).toEqual([['adopt 7: a,b', 'adopt 8: a'], 1]);
    await backend.answer(true);
    expect([backend.take(), pending()]).toEqual([[], 0]);
  });

  it('are written if the lease has ended, which is not adopted again', async () => {
    want('abc');
    show('abc');
    await list();
    await backend.answer(false);
    show('d');
    want('d');
    await settle(4);
    const puts = ['put a 1', 'put b 1', 'put c 1', 'put d 1'];
    expect([backend.take(), pending()]).toEqual([['adopt 7: a,b', ...puts], 0]);
  });

  it('are written if the lease ends during its adoption', async () => {
    want('abc');
    show('abc');
    await list();
    await backend.answer(true);
    await backend.answer(false);
    expect([backend.take(), pending()]).toEqual([['adopt 7: a,b', 'adopt 7: c', 'put c 1'], 0]);
  });

  it('are written if the lease is lost immediately after its adoption (regression: they expired)', async () => {
    want('ab');
    show('ab');
    await list();
    await backend.answer(true, 'b');
    expect([backend.take(), pending()]).toEqual([['adopt 7: a,b', 'put b 1'], 0]);
  });

  it('wait until the kvstore has answered (regression: one failure wrote them all again)', async () => {
    want('ab');
    show('ab');
    await list();
    await backend.answer(new KvstoreError('unavailable', 'no connection'));
    expect([pending(), store.status().isFailing]).toEqual([2, true]);
    await advance(clock, 10_000);
    await backend.answer(true);
    expect(backend.take()).toEqual(['adopt 7: a,b', 'adopt 7: a,b']);
    expect(store.status()).toMatchObject({ pending: 0, writes: 0, isFailing: false });
  });

  it('are written if the user may not adopt the lease', async () => {
    want('a');
    show('a');
    await list();
    await backend.answer(new KvstoreError('forbidden', 'permission denied'));
    expect([backend.take(), pending()]).toEqual([['adopt 7: a', 'put a 1'], 0]);
  });

  it('are written, not adopted, after the adoption has ended', async () => {
    want('ab');
    show('abc');
    await list();
    await store.endAdoption();
    want('c');
    await backend.answer(true);
    expect([backend.take(), pending()]).toEqual([['adopt 7: a,b', 'put c 1', 'put a 1', 'put b 1'], 0]);
  });

  it('are adopted before the writes of the owner count as done', async () => {
    want('abc');
    show('abc');
    await list();
    let isFlushed = false;
    void store.whenFlushed().then(() => {
      isFlushed = true;
    });
    await backend.answer(true);
    expect(isFlushed).toBe(false);
    await backend.answer(true);
    expect(isFlushed).toBe(true);
  });

  it('are adopted if they are listed after the writes have begun because the watch was broken', async () => {
    want('ab');
    backend.writeAll = () => Promise.reject(new KvstoreError('unavailable', 'no connection'));
    void store.receiveWatchState('waiting', ended.signal);
    await settle(4);
    want('c');
    show('c');
    expect(pending()).toBe(3);
    Reflect.deleteProperty(backend, 'writeAll');
    show('ab');
    await list();
    await advance(clock, 1000);
    await backend.answer(true);
    await backend.answer(true);
    await advance(clock, 1000);
    expect(pending()).toBe(0);
    expect(backend.take()).toEqual(['put if different a 1', 'put if different b 1', 'adopt 7: c']);
  });

  it('are written if another client has overwritten them after their adoption and the owner has changed them back', async () => {
    want('a');
    show('a');
    await list();
    await backend.answer(true);
    show('a', '3', '8', 6); // would be put back later
    want('a', '2');
    want('a');
    await settle(4);
    expect([backend.take(), pending()]).toEqual([['adopt 7: a', 'put a 1'], 0]);
  });

  it('are not adopted with a value that is listed during a write of another one', async () => {
    want('a', '2');
    const { promise, resolve } = deferred();
    const writeAll = backend.writeAll.bind(backend);
    backend.writeAll = (writes) => promise.then(() => writeAll(writes));
    await list();
    show('a', '1', '7', 6);
    want('a');
    resolve();
    await settle(4);
    expect([backend.take(), pending()]).toEqual([['put a 2', 'put a 1'], 0]);
  });

  it('are adopted once if they have changed and have changed back in a running batch', async () => {
    const { promise, resolve } = deferred();
    const writeAll = backend.writeAll.bind(backend);
    backend.writeAll = (writes) => promise.then(() => writeAll(writes));
    void store.receiveWatchState('waiting', ended.signal); // writes may begin
    want('ab');
    show('a');
    await settle(4);
    want('a', '2');
    want('a');
    await backend.answer(true);
    expect(pending()).toBe(2);
    resolve();
    await settle(4);
    await backend.answer(true);
    expect([backend.take(), pending()]).toEqual([['adopt 7: a', 'put b 1', 'adopt 7: a'], 0]);
  });

  it('are not found any more after another client has deleted them', async () => {
    show('abc');
    want('b');
    await list();
    hide('a');
    hide('z');
    const found: string[] = [];
    for (const _ of store.visitInherited(1, (name) => found.push(name)));
    expect(found).toEqual(['c']);
    await store.endAdoption();
    for (const _ of store.visitInherited(1, (name) => found.push(name)));
    expect(found).toEqual(['c']);
    // The rows of the others are free again.
    const names = Array.from({ length: keys.limit }, (_, row) => keys.nameAt(row));
    expect(names.filter((name) => name !== undefined)).toEqual(['b']);
  });

  it('become wanted if they exist before the list is complete, for an owner that asks for them', async () => {
    ended.abort();
    ended = new AbortController();
    const inherited: string[] = [];
    store = new SyncStore({
      prefix: 'own/',
      clock,
      backend: backend as unknown as KvstoreBackend,
      follow: false,
      adoptLeases: true,
      onInherited: (name) => inherited.push(name),
    });
    void store.run(ended.signal);
    want('b', '2');
    show('ab');
    await list();
    show('c');
    await settle(4);
    expect([inherited, backend.take(), pending()]).toEqual([['a'], ['adopt 7: a', 'put b 2'], 1]);
    await backend.answer(true);
    expect([pending(), [...store.entries()].map(([name]) => name)]).toEqual([0, ['b', 'a']]);
  });

  it('are written if they are not bound to the session', async () => {
    ended.abort();
    ended = new AbortController();
    store = new SyncStore({
      prefix: 'own/',
      clock,
      backend: backend as unknown as KvstoreBackend,
      leased: false,
      follow: false,
      adoptLeases: true,
    });
    void store.run(ended.signal);
    want('a');
    show('a');
    await list();
    expect([backend.take(), pending()]).toEqual([['put if different a 1'], 0]);
  });

  it('are adopted by the next run if a run ends in between', async () => {
    want('abcd', '1');
    show('abc');
    await list();
    await backend.answer(true);
    ended.abort();
    await backend.answer(new KvstoreError('aborted', 'the call was aborted'));
    expect([backend.take(), pending()]).toEqual([['adopt 7: a,b', 'put d 1', 'adopt 7: c'], 1]);
    ended = new AbortController();
    void store.run(ended.signal);
    await settle(4);
    await backend.answer(true);
    await settle(4);
    expect(pending()).toBe(0);
    expect(backend.take()).toContain('adopt 7: c');
    expect(backend.calls).not.toContain('put c 1');
  });
});
