import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { UsageError } from '../../../src/base/arguments.ts';
import { RateLimit } from '../../../src/base/rate-limit.ts';
import { deferred } from '../../../src/base/sleep.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { KvstoreClient } from '../../../src/kvstore/kvstore-client.ts';
import { FaultyLink } from '../../../src/kvstore/memory/faulty-link.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import { MAX_WRITES } from '../../../src/kvstore/session/backend.ts';
import { abortedError, KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { KeyTable } from '../../../src/kvstore/session/key-table.ts';
import { SyncStore, type SyncStoreOptions } from '../../../src/kvstore/stores/sync-store.ts';
import { WriteWaits } from '../../../src/kvstore/stores/write-waits.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { giveUpDelete, giveUpPut, type Land } from '../support/given-up-write.ts';
import { advance, settle } from '../support/settle.ts';

const P = 'own/';
const CANARY = 'synced/own';

class World {
  readonly clock = new ManualClock();
  readonly server = new MemoryServer({ clock: this.clock });
  readonly link = new FaultyLink(new MemoryTransport(this.server), this.clock);
  readonly backend: KvstoreClient;
  readonly store: SyncStore;
  /** Receives the existing names whenever the canary is written. */
  onCanary: (names: readonly string[]) => void = () => {};
  readonly #ended = new AbortController();
  #running: Promise<void> | undefined;

  constructor(options: Partial<SyncStoreOptions> = {}, qps?: number, gate?: TurnGate) {
    const { clock, link } = this;
    const random = (): number => 0.5;
    const rateLimit = qps === undefined ? undefined : new RateLimit({ qps }, clock, abortedError);
    const client = { kind: 'memory', transport: link, clock, random, leaseSeconds: 30, rateLimit, gate };
    this.backend = new KvstoreClient(client);
    this.server.watch(
      { prefix: CANARY, startRevision: 2 },
      {
        onCreated: () => {},
        onEvents: (events) => {
          for (const { value, modRevision } of events)
            if (value !== undefined) this.onCanary(Object.keys(this.content(P, modRevision)));
        },
        onProgress: () => {},
        onEnd: () => {},
      },
    );
    this.store = new SyncStore({
      backend: this.backend,
      clock,
      random,
      prefix: P,
      canary: CANARY,
      ...options,
    });
  }

  run(): this {
    this.#running ??= this.store.run(this.#ended.signal);
    return this;
  }

  want(name: string, value: string): void {
    this.store.upsert(name, bytesOfText(value));
  }

  /** Called before each transaction of the store, with the keys that it puts. */
  set onPut(onPut: (key: string) => void) {
    const { link } = this;
    const txn = link.txn.bind(link);
    link.txn = (request, options) => {
      for (const write of [...request.writes, ...(request.otherwise ?? [])]) {
        if (write.op === 'put') onPut(write.key);
      }
      return txn(request, options);
    };
  }

  /** @param revision of the content; 0: now */
  content(prefix = P, revision = 0): Record<string, string> {
    const { kvs } = this.server.range({ ...prefixRange(prefix), revision });
    return Object.fromEntries(
      kvs.map(({ key, value }) => [key.slice(prefix.length), textOfBytes(value) ?? '']),
    );
  }

  /**
   * Holds the next write of this key, before it reaches the server or on the way back, until the returned
   * function is called.
   */
  hold(key: string, where: 'before' | 'after'): () => void {
    const { link } = this;
    const txn = link.txn.bind(link);
    const { promise: released, resolve: release } = deferred();
    link.txn = async (request, options) => {
      const { writes, otherwise = [] } = request;
      if (![...writes, ...otherwise].some((write) => write.op === 'put' && write.key === key))
        return txn(request, options);
      link.txn = txn;
      if (where === 'before') await released;
      const answer = await txn(request, options);
      if (where === 'after') await released;
      return answer;
    };
    return release;
  }

  /** Counts the maximum number of concurrent writes. */
  countCalls(): { readonly most: number } {
    const { link } = this;
    const txn = link.txn.bind(link);
    const calls = { now: 0, most: 0 };
    link.txn = async (request, options) => {
      calls.most = Math.max(calls.most, ++calls.now);
      return txn(request, options).finally(() => calls.now--);
    };
    return calls;
  }

  /**
   * Refuses writes of these keys, like a server for a value that is too large, until the returned function is
   * called.
   */
  refuse(isRefused: (key: string) => boolean): () => void {
    const { link } = this;
    const txn = link.txn.bind(link);
    link.txn = (request, options) => {
      const { writes, otherwise = [] } = request;
      const refused = [...writes, ...otherwise].some((write) => write.op === 'put' && isRefused(write.key));
      if (!refused) return txn(request, options);
      return Promise.reject(new KvstoreError('invalid-request', 'etcdserver: request is too large'));
    };
    return () => {
      link.txn = txn;
    };
  }

  get canary(): boolean {
    return this.server.range(prefixRange(CANARY)).count === 1;
  }

  async stop(): Promise<void> {
    this.#ended.abort();
    await this.#running;
    await this.backend.close();
  }
}

describe('a sync store', () => {
  let world: World;
  /** The existing names whenever the canary was written. */
  let canaries: string[];
  beforeEach(() => {
    world = new World().run();
    canaries = [];
    world.onCanary = (names) => canaries.push(names.join());
  });
  afterEach(() => world.stop());

  it('writes desired keys, and deletes the others', async () => {
    world.want('a', '1');
    world.want('b', '2');
    await settle();
    expect(world.content()).toEqual({ a: '1', b: '2' });
    world.want('a', '3');
    world.store.delete('b');
    await settle();
    expect(world.content()).toEqual({ a: '3' });
  });

  it('writes only the last of several values', async () => {
    for (let i = 0; i < 100; i++) world.want('a', String(i));
    await settle();
    expect(world.content()).toEqual({ a: '99' });
    expect(world.store.status().writes).toBeLessThanOrEqual(2);
  });

  it('stores each key once, for itself and for its watch', async () => {
    const keys = new KeyTable();
    const shared = new World({ keys }).run();
    shared.want('a', '1');
    shared.want('b', '2');
    await settle();
    expect([keys.limit, keys.isKnown(0), keys.isKnown(1)]).toEqual([2, true, true]);
    await shared.stop();
    expect(keys.isKnown(0)).toBe(false);
  });

  it('does not write bytes that have landed already (trap: event storms)', async () => {
    world.want('a', '1');
    await settle();
    const { revision } = world.server.header;
    world.want('a', '1');
    await settle();
    expect(world.server.header.revision).toBe(revision);
    expect(world.store.status().writes).toBe(1);
  });

  it.each([
    ['invalidated', () => world.store.invalidate('a')],
    ['wanted otherwise, and back', () => ['2', '1'].forEach((value) => void world.want('a', value))],
  ])(
    'does not write them if their key is %s while the kvstore is unreachable (regression: it did)',
    async (_, act) => {
      world.want('a', '1');
      await settle();
      const modRevision = (): number | undefined => world.server.range(keyRange(`${P}a`)).kvs[0]?.modRevision;
      const before = modRevision();
      world.link.down();
      act();
      await advance(world.clock, 5000);
      world.link.up();
      await advance(world.clock, 20_000);
      expect([world.store.status().pending, modRevision()]).toEqual([0, before]);
    },
  );

  it('deletes a key of an earlier process', async () => {
    await world.backend.update(`${P}old`, bytesOfText('x'));
    world.store.delete('old');
    await settle();
    expect(world.content()).toEqual({});
  });

  it('retries with growing delays, until the write has landed', async () => {
    world.link.down();
    world.want('a', '1');
    await advance(world.clock, 5000);
    const { failures, lastFailure, pending } = world.store.status();
    expect({ code: lastFailure?.code, pending }).toEqual({ code: 'unavailable', pending: 1 });
    expect(failures).toBeGreaterThan(3);
    expect(failures).toBeLessThan(12);
    world.link.up();
    await advance(world.clock, 10_000);
    expect(world.content()).toEqual({ a: '1' });
  });

  it('writes everything immediately when the kvstore is back (regression: every name waited for its own next attempt)', async () => {
    world.link.down();
    for (let i = 0; i < 100; i++) world.want(`n${i}`, String(i));
    await advance(world.clock, 60_000);
    world.link.up();
    await advance(world.clock, 5000);
    await settle(20);
    expect(Object.keys(world.content())).toHaveLength(100);
  });

  it('sends one call at a time to an unreachable kvstore', async () => {
    world.link.down();
    for (let i = 0; i < 100; i++) world.want(`n${i}`, String(i));
    await advance(world.clock, 60_000);
    expect(world.store.status().failures).toBeLessThan(8 + 30);
    const begun = world.store.status().failures;
    await advance(world.clock, 60_000);
    expect(world.store.status().failures - begun).toBeLessThanOrEqual(60_000 / 2500);
  });

  it('writes at the same rate when the kvstore is back', async () => {
    const calls = world.countCalls();
    world.link.down();
    for (let i = 0; i < 100; i++) world.want(`n${i}`, String(i));
    await advance(world.clock, 60_000);
    world.link.up();
    await advance(world.clock, 10_000);
    expect(Object.keys(world.content())).toHaveLength(100);
    expect(calls.most).toBe(8);
  });

  it('a value that the kvstore refuses delays no other, and is retried', async () => {
    const allow = world.refuse((key) => key.startsWith(`${P}bad`));
    for (let i = 0; i < 20; i++) world.want(`bad${i}`, 'x');
    world.want('good', '1');
    await settle(10);
    expect(world.content()).toEqual({ good: '1' });
    world.want('good', '2');
    world.want('bad0', 'y');
    await settle(10);
    expect(world.content()).toEqual({ good: '2' });
    expect(world.store.status()).toMatchObject({ pending: 20, failures: 21 });
    allow();
    world.want('bad1', 'z');
    await settle();
    expect(world.content()).toEqual({ good: '2', bad1: 'z' });
    await advance(world.clock, 90_000);
    expect(Object.keys(world.content())).toHaveLength(21);
  });

  it('a value that is refused repeatedly is retried once a minute (regression: once for each of them)', async () => {
    world.refuse((key) => key === `${P}bad`);
    for (let i = 0; i < 50; i++) {
      world.want('bad', String(i));
      await advance(world.clock, 1000);
    }
    const { failures } = world.store.status();
    await advance(world.clock, 10 * 60_000);
    expect(world.store.status().failures - failures).toBe(10);
  });

  it('an abandoned put does not land after the delete of its name (regression: it stayed as a ghost)', async () => {
    const land = giveUpPut(world.link, `${P}a`);
    world.want('a', 'late');
    await settle();
    world.store.delete('a');
    await advance(world.clock, 1000);
    expect(world.store.status().pending).toBe(0);
    await land();
    expect(world.content()).toEqual({});
  });

  it('an abandoned put does not land over a later one (regression: v1 stayed over v2)', async () => {
    const land = giveUpPut(world.link, `${P}a`);
    world.want('a', 'v1');
    await settle();
    world.want('a', 'v2');
    await advance(world.clock, 1000);
    expect(world.store.status().pending).toBe(0);
    await land();
    expect(world.content()).toEqual({ a: 'v2' });
  });

  it('an abandoned delete does not land after a later put (regression: the key was gone)', async () => {
    world.want('a', 'v1');
    await settle();
    const land = giveUpDelete(world.link, `${P}a`);
    world.store.delete('a');
    await settle();
    world.want('a', 'v2');
    await advance(world.clock, 1000);
    expect(world.store.status().pending).toBe(0);
    await land();
    expect(world.content()).toEqual({ a: 'v2' });
  });

  it('writes everything again when the lease is lost, including the canary (trap: agent stuck after lease loss)', async () => {
    world.want('a', '1');
    world.want('b', '2');
    await world.store.markSynced();
    for (const lease of world.server.leases) world.server.expireLease(lease);
    expect([world.content(), world.canary]).toEqual([{}, false]);
    await advance(world.clock, 12_000); // the keepalive notices the loss
    expect([world.content(), world.canary]).toEqual([{ a: '1', b: '2' }, true]);
  });

  it('reports when all queued keys have landed, without a canary, and again after a loss', async () => {
    await world.stop();
    world = new World();
    world.store.upsert('a', bytesOfText('1'));
    let landings = 0;
    const ask = (): void => void world.store.whenFlushed().then(() => landings++);
    ask();
    await settle();
    expect(landings).toBe(0);
    world.run();
    await settle();
    expect([landings, world.canary]).toEqual([1, false]);
    ask();
    await settle();
    expect(landings).toBe(2);
    world.store.invalidate('a');
    ask();
    await settle();
    expect(landings).toBe(3);
  });

  it('the loss of many leases costs each key once (regression: all keys for each lease)', async () => {
    for (let i = 0; i < 4500; i++) world.want(`n${i}`, '1');
    await world.store.markSynced();
    const touch = vi.spyOn(WriteWaits.prototype, 'forgetQueued');
    const mark = vi.spyOn(world.store, 'markSynced');
    expect(world.server.leases).toHaveLength(5);
    for (const lease of world.server.leases) world.server.expireLease(lease);
    await advance(world.clock, 12_000); // the keepalive notices the loss
    await settle(20);
    expect([Object.keys(world.content()).length, world.canary]).toEqual([4500, true]);
    const kinds = 2; // kinds of waits: for the canary, and for the keys
    expect(touch.mock.calls.length, 'by the watch, by the lease, and when written').toBeLessThanOrEqual(
      3 * kinds * 4500,
    );
    expect(mark.mock.calls).toHaveLength(1);
    vi.restoreAllMocks();
  });

  it('many leases that are lost together delay the canary until all their keys are written again (regression: in one turn)', async () => {
    await world.stop();
    const gate = new TurnGate({ clock: world.clock, nextTurn: setImmediate, weightPerTurn: 1 }); // one lease per turn
    world = new World({ batched: true, follow: false }, undefined, gate).run();
    const backup = world.server.snapshot();
    for (let i = 0; i < 12_000; i++) world.want(`n${i}`, '1');
    await world.store.markSynced();
    const atCanary: number[] = [];
    world.onPut = (key) => {
      if (key === CANARY) atCanary.push(Object.keys(world.content()).length);
    };
    world.server.restore(backup);
    for (let i = 0; i < 100 && atCanary.length === 0; i++) await advance(world.clock, 100);
    expect([atCanary, world.store.status().writes]).toEqual([[12_000], 24_000]);
  });

  it('a canary that waits for the report of lost leases is written when the report ends, also without a lost key', async () => {
    await world.stop();
    world = new World();
    const listen = vi.spyOn(world.backend, 'onLeaseLost');
    world.run();
    const { promise: reported, resolve: end } = deferred();
    listen.mock.calls[0]?.[0].onLeasesLost?.(reported);
    world.want('a', '1');
    const done: string[] = [];
    void world.store.whenFlushed().then(() => done.push('flushed'));
    void world.store.markSynced().then(() => done.push('synced'));
    await settle();
    expect([world.content(), world.canary, done]).toEqual([{ a: '1' }, false, []]);
    end();
    await settle();
    expect([world.canary, done]).toEqual([true, ['flushed', 'synced']]);
  });

  it('batches wait for their turn at the gate: 2,000 keys are written in several turns', async () => {
    await world.stop();
    const turns: (() => void)[] = [];
    const gate = new TurnGate({ clock: world.clock, nextTurn: (turn) => turns.push(turn) });
    world = new World({ batched: true, follow: false, followCanary: false, gate });
    for (let i = 0; i < 2000; i++) world.want(`n${i}`, '1');
    world.run();
    const written = (): number => Object.keys(world.content()).length;
    const perTurn: number[] = [];
    for (let before = 0; perTurn.length < 20 && before < 2000; before = written()) {
      await settle(20);
      perTurn.push(written() - before);
      turns.shift()?.();
    }
    expect(written()).toBe(2000);
    expect(Math.max(...perTurn)).toBeLessThanOrEqual(2 * MAX_WRITES);
  });

  it('a canary whose own lease is lost before its existence is known is written again', async () => {
    for (let i = 0; i < 1000; i++) world.want(`n${i}`, '1'); // no room for the canary in addition
    await settle(20);
    const answer = world.hold(CANARY, 'after');
    const marked = world.store.markSynced();
    await settle();
    const [, ofCanary = ''] = world.server.leases;
    world.server.expireLease(ofCanary);
    await advance(world.clock, 12_000); // the keepalive notices the loss
    answer();
    await marked;
    expect(world.canary).toBe(true);
  });

  it('writes the canary when all keys queued before it have landed, and not earlier', async () => {
    world.link.down();
    world.want('a', '1');
    let marked = false;
    void world.store.markSynced().then(() => {
      marked = true;
    });
    await advance(world.clock, 1000);
    expect([marked, world.canary]).toEqual([false, false]);
    world.link.up();
    await advance(world.clock, 10_000);
    expect([marked, world.canary, world.content()]).toEqual([true, true, { a: '1' }]);
    expect(textOfBytes(world.server.range(prefixRange(CANARY)).kvs[0]?.value ?? bytesOfText(''))).toMatch(
      /^2026-11-20T12:00:\d\dZ$/,
    );
  });

  it('a canary waits for a key that was changed while it was being written (regression: it was written before)', async () => {
    const answer = world.hold(`${P}a`, 'after');
    world.want('a', '1');
    void world.store.markSynced();
    await settle();
    for (const lease of world.server.leases) world.server.expireLease(lease);
    await advance(world.clock, 12_000); // the keepalive notices the loss
    const put = world.hold(`${P}a`, 'before');
    answer();
    await settle();
    put();
    await settle();
    expect([...new Set(canaries)]).toEqual(['a']);
  });

  it('a canary whose lease has expired waits for the keys of that lease (regression: it went ahead)', async () => {
    world.want('a', '1');
    await settle();
    const canary = world.hold(CANARY, 'before');
    const marked = world.store.markSynced();
    await settle();
    for (const lease of world.server.leases) world.server.expireLease(lease);
    canary();
    const put = world.hold(`${P}a`, 'before');
    await settle();
    put();
    await advance(world.clock, 1000);
    await marked;
    expect([...new Set(canaries)]).toEqual(['a']);
  });

  it('a canary under another lease is deleted before lost keys are written again (regression: it stayed in the meantime)', async () => {
    for (let i = 0; i < 1000; i++) world.want(`n${i}`, '1'); // no room for the canary in addition
    await world.store.markSynced();
    const [ofKeys = ''] = world.server.leases;
    expect(world.server.leases).toHaveLength(2);
    world.server.expireLease(ofKeys);
    expect([Object.keys(world.content()).length, world.canary]).toEqual([0, true]);
    const before: boolean[] = [];
    world.onPut = (key) => {
      if (key.startsWith(P)) before.push(world.canary);
    };
    await advance(world.clock, 12_000); // the keepalive notices the loss
    await settle(20);
    expect(before.length).toBeGreaterThanOrEqual(1000);
    // Writes in progress fail because their lease is lost, and are repeated, twice for the fence.
    expect(before.lastIndexOf(true)).toBeLessThan(3 * 8);
    expect([Object.keys(world.content()).length, world.canary]).toEqual([1000, true]);
    expect(world.store.status().canaryWritten).toBe(true);
  });

  it('a canary whose write was abandoned because it was invalid, and that exists nevertheless, is deleted', async () => {
    world.want('a', '1');
    await settle();
    const answer = world.hold(CANARY, 'after');
    void world.store.markSynced();
    await settle();
    expect(world.canary).toBe(true);
    world.link.down();
    world.server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(`${P}a`) }] });
    world.store.invalidate('a');
    answer();
    await settle();
    world.refuse((key) => key === `${P}a`);
    world.link.up();
    await advance(world.clock, 20_000);
    expect(world.canary).toBe(false);
    expect(world.store.status().canaryWritten).toBe(false);
  });

  it.each(['', 'value'])('puts back the value %j that another client deletes', async (value) => {
    world.want('a', value);
    await settle();
    await world.backend.delete(`${P}a`);
    await advance(world.clock, 1000);
    expect([world.content(), world.store.status().putBacks]).toEqual([{ a: value }, 1]);
  });

  it('restores within a second a key that another client overwrites (regression: never)', async () => {
    world.want('a', '1');
    await settle();
    await world.backend.update(`${P}a`, bytesOfText('other'));
    await advance(world.clock, 1000);
    expect(world.content()).toEqual({ a: '1' });
    expect(world.store.status()).toMatchObject({ putBacks: 1, pending: 0 });
  });

  it('restores immediately a key that another client deletes, including the canary (regression: never)', async () => {
    for (let i = 0; i < 300; i++) world.want(`n${i}`, '1');
    await world.store.markSynced();
    await settle();
    await world.backend.deletePrefix(P);
    await world.backend.delete(CANARY);
    await settle(20);
    expect([Object.keys(world.content()).length, world.canary]).toEqual([300, true]);
    expect(world.store.status()).toMatchObject({ putBacks: 301, pending: 0, canaryWritten: true });
  });

  it('restores a key with growing delays if another client changes it repeatedly', async () => {
    world.want('a', '1');
    await settle();
    let last = '1';
    for (let i = 0; i < 7200; i++) {
      const { a } = world.content();
      if (a === '1' && last === '1') await world.backend.delete(`${P}a`);
      last = a ?? '';
      await advance(world.clock, 1000);
    }
    const { putBacks } = world.store.status();
    expect(putBacks).toBeGreaterThan(15); // at the maximum delay, every five minutes: 24 in two hours
    expect(putBacks).toBeLessThan(70);
    await advance(world.clock, 11 * 60_000);
    await world.backend.delete(`${P}a`);
    await settle();
    expect(world.content(), 'at once after it was left alone').toEqual({ a: '1' });
  });

  it('keeps the changes of another client to a name that is not desired any more', async () => {
    world.want('a', '1');
    await settle();
    await world.backend.update(`${P}a`, bytesOfText('other'));
    await settle();
    world.store.delete('a');
    await settle();
    await world.backend.update(`${P}a`, bytesOfText('another'));
    await advance(world.clock, 60_000);
    expect(world.content()).toEqual({ a: 'another' });
    expect(world.store.status().putBacks).toBe(0);
  });

  it.each([true, false])(
    'does not take its own delete for that of another client, leased: %s (regression: it wrote the next value twice)',
    async (leased) => {
      const other = new World({ leased }).run();
      const puts: string[] = [];
      other.want('a', '1');
      await settle();
      other.store.delete('a');
      await other.store.whenFlushed();
      other.onPut = (key) => puts.push(key);
      other.want('a', '2');
      await other.store.whenFlushed();
      const byItself = puts.length; // an unleased put is a comparison and a write
      await advance(other.clock, 60_000);
      expect([other.content(), puts.length, other.store.status().putBacks]).toEqual([
        { a: '2' },
        byItself,
        0,
      ]);
    },
  );

  it('waits again for a key that is lost while others are written (landed)', async () => {
    const answerB = world.hold(`${P}b`, 'after');
    world.want('a', '1');
    world.want('b', '1');
    let isLanded = false;
    void world.store.whenFlushed().then(() => {
      isLanded = true;
    });
    await settle();
    const answerA = world.hold(`${P}a`, 'after');
    world.store.invalidate('a');
    world.server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(`${P}a`) }] });
    await settle();
    answerB();
    await settle();
    expect(isLanded).toBe(false);
    answerA();
    await settle();
    expect(isLanded).toBe(true);
  });

  it('keeps the write of another client once it is adopted', async () => {
    world.want('a', '1');
    await settle();
    await world.backend.update(`${P}a`, bytesOfText('as good'));
    await settle();
    world.store.adoptValue('a', bytesOfText('as good'));
    const { modRevision } = (await world.backend.get(`${P}a`)) ?? {};
    await advance(world.clock, 60_000);
    expect(await world.backend.get(`${P}a`)).toMatchObject({ modRevision });
    expect(world.store.status().putBacks).toBe(0);
  });

  it('compares nothing after a disconnect that the watch has shown', async () => {
    world.link.cut();
    world.want('a', '1');
    await world.store.whenFlushed();
    const txn = vi.spyOn(world.server, 'txn');
    await advance(world.clock, 60_000);
    expect(txn.mock.calls.filter(([{ compare }]) => compare.some(({ key }) => key === `${P}a`))).toEqual([]);
    vi.restoreAllMocks();
  });

  it('compares unleased keys of an earlier process once more, and not at each reconnect (regression: 5,000 transactions each)', async () => {
    await world.stop();
    world = new World({ leased: false, canary: undefined, batched: true });
    for (let i = 0; i < 5000; i++) await world.backend.update(`${P}n${i}`, bytesOfText('1'));
    for (let i = 0; i < 5000; i++) world.want(`n${i}`, '1');
    let compared = 0;
    const txn = world.link.txn.bind(world.link);
    world.link.txn = (request, options) => {
      compared += request.compare.filter(({ key }) => key.startsWith(P)).length;
      return txn(request, options);
    };
    world.run();
    await world.store.whenFlushed();
    const watching = async (): Promise<void> => {
      while (world.backend.status().watches[0]?.state !== 'watching') await advance(world.clock, 1000);
    };
    await watching();
    await advance(world.clock, 20_000); // the watch may have listed the prefix before the comparison
    await world.store.whenFlushed();
    expect(compared).toBeLessThanOrEqual(2 * 5000);
    compared = 0;
    for (let i = 0; i < 4; i++) {
      world.link.cut();
      await watching();
      await advance(world.clock, 60_000);
    }
    expect(compared).toBe(0);
    await world.backend.delete(`${P}n7`);
    for (let i = 0; i < 60 && !('n7' in world.content()); i++) await advance(world.clock, 1000);
    expect(world.content()).toHaveProperty('n7', '1');
  });

  it('compares keys again after a failed write, because the watch may not have shown that write', async () => {
    await world.stop();
    world = new World({ leased: false, canary: undefined }).run();
    await advance(world.clock, 1000);
    world.link.stallWatch(P);
    const txn = world.link.txn.bind(world.link);
    world.link.txn = async (request, options) => {
      const answer = await txn(request, options);
      if (!request.writes.some((write) => write.op === 'put' && write.key === `${P}a`)) return answer;
      throw new KvstoreError('unavailable', 'the answer was lost');
    };
    world.store.upsert('a', bytesOfText('1'), true);
    await advance(world.clock, 1000);
    const { failures, writes } = world.store.status();
    expect([world.content(), failures, writes]).toEqual([{ a: '1' }, 1, 1]);
    await world.backend.delete(`${P}a`);
    world.server.compact();
    world.link.cut();
    world.link.unstallWatch(P);
    await advance(world.clock, 20_000);
    expect(world.content()).toEqual({ a: '1' });
  });

  it('does not put the keys of a batch again whose answer was lost', async () => {
    await world.stop();
    world = new World({ batched: true }).run();
    await settle();
    const txn = world.link.txn.bind(world.link);
    world.link.txn = async (request, options) => {
      const answer = await txn(request, options);
      if (!request.writes.some((write) => write.op === 'put' && write.key === `${P}a`)) return answer;
      world.link.txn = txn;
      throw new KvstoreError('unavailable', 'the answer was lost');
    };
    for (const name of ['a', 'b']) world.want(name, '1');
    await settle();
    const revisions = (): readonly number[] =>
      world.server.range(prefixRange(P)).kvs.map(({ modRevision }) => modRevision);
    const before = revisions();
    await advance(world.clock, 1000);
    expect(world.store.status().pending).toBe(0);
    expect([before.length, revisions(), world.store.status().failures]).toEqual([2, before, 1]);
  });

  it('restores a key that was deleted before the watch could show it', async () => {
    world.link.cut();
    world.want('a', '1');
    await world.store.whenFlushed();
    await world.backend.delete(`${P}a`);
    await advance(world.clock, 15_000);
    expect(world.content()).toEqual({ a: '1' });
  });

  it('restores a key that another client writes during its own write', async () => {
    const answer = world.hold(`${P}a`, 'after');
    world.want('a', '1');
    await settle();
    await world.backend.update(`${P}a`, bytesOfText('other'));
    await settle();
    answer();
    await advance(world.clock, 1000);
    expect(world.content()).toEqual({ a: '1' });
  });

  it('rejects a prefix without a trailing slash (trap: cluster `a` sees `ab`)', () => {
    const { backend, clock } = world;
    const create = (prefix: string): SyncStore =>
      new SyncStore({ backend, clock, random: Math.random, prefix });
    expect(() => create('own')).toThrow(UsageError);
    expect(() => create('own')).toThrow('options.prefix must end in "/", not "own"');
    expect(() => create('')).toThrow(UsageError);
  });

  it('iterates over the wanted names and values, written or not', async () => {
    world.want('a', '1');
    world.want('b', '1');
    await settle();
    world.want('b', '2');
    world.store.delete('a');
    const entries = [...world.store.entries()].map(([name, value]) => [name, textOfBytes(value)]);
    expect(entries).toEqual([['b', '2']]);
  });

  it('a name that must not exist is not deleted twice, because it may belong to another client by now', async () => {
    world.want('a', '1');
    await settle();
    world.store.delete('a');
    await settle();
    await world.backend.update(`${P}a`, bytesOfText('another'));
    world.store.invalidate('a');
    await settle();
    expect(world.content()).toEqual({ a: 'another' });
  });

  it('a canary that could not be written waits for keys changed since (regression: it did not)', async () => {
    world.want('a', '1');
    await settle();
    const canary = world.hold(CANARY, 'before');
    const marked = world.store.markSynced();
    await settle();
    world.link.down();
    canary();
    await settle();
    await world.server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(`${P}a`) }] });
    world.store.invalidate('a');
    const put = world.hold(`${P}a`, 'before');
    world.link.up();
    await advance(world.clock, 12_000);
    put();
    await advance(world.clock, 12_000);
    await marked;
    expect([...new Set(canaries)]).toEqual(['a']);
  });

  it('does not compare if the kvstore is known to have another value: one request instead of two', async () => {
    await world.stop();
    const sent: string[] = [];
    for (const isOther of [false, true]) {
      const other = new World({ leased: false }).run();
      const txn = other.link.txn.bind(other.link);
      other.link.txn = (request, options) => {
        if (!request.writes.some((write) => write.op === 'put' && !write.key.startsWith(P)))
          sent.push(`${isOther}`);
        return txn(request, options);
      };
      other.store.upsert('a', bytesOfText('1'), isOther);
      await settle();
      expect(other.content()).toEqual({ a: '1' });
      await other.stop();
    }
    expect(sent).toEqual(['false', 'false', 'true']);
  });

  it('counts a key once whose desired value changes during its write (regression: twice)', async () => {
    const answer = world.hold(`${P}a`, 'after');
    world.want('a', '1');
    await settle();
    world.want('a', '2');
    const status = world.store.status();
    answer();
    expect(status).toMatchObject({ keys: 1, pending: 1 });
  });

  it('writes in its next run the keys that were lost between two runs (regression: it assumed that they existed)', async () => {
    const first = new AbortController();
    const store = new SyncStore({
      backend: world.backend,
      clock: world.clock,
      random: () => 0.5,
      prefix: 'twice/',
      canary: 'synced/twice',
    });
    const running = store.run(first.signal);
    store.upsert('a', bytesOfText('1'));
    await store.markSynced();
    first.abort();
    await running;
    for (const lease of world.server.leases) world.server.expireLease(lease);
    await advance(world.clock, 12_000); // the keepalive notices the loss
    const second = new AbortController();
    const again = store.run(second.signal);
    await settle();
    expect([world.content('twice/'), world.content('synced/')]).toEqual([
      { a: '1' },
      { twice: expect.any(String) },
    ]);
    second.abort();
    await again;
  });

  it('compares its keys over several turns in its next run, and writes the canary after all of them (regression: in one turn)', async () => {
    let turns = 0;
    const nextTurn = (callback: () => void): void => {
      setImmediate(() => {
        turns++;
        callback();
      });
    };
    const gate = new TurnGate({ clock: world.clock, nextTurn, weightPerTurn: 80 }); // ten keys per slice
    const store = new SyncStore({
      backend: world.backend,
      clock: world.clock,
      random: () => 0.5,
      gate,
      prefix: 'twice/',
      canary: 'synced/twice',
      batched: true,
    });
    const first = new AbortController();
    const running = store.run(first.signal);
    for (let i = 0; i < 1000; i++) store.upsert(`${i}`, bytesOfText('1'));
    await store.markSynced();
    first.abort();
    await running;
    turns = 0;
    const second = new AbortController();
    const again = store.run(second.signal);
    while (!store.status().canaryWritten) await settle();
    expect(turns).toBeGreaterThanOrEqual(10);
    expect(store.status()).toMatchObject({ keys: 1000, pending: 0, writes: 2000 });
    second.abort();
    await again;
  });

  it('leaves its keys when it ends, until their lease expires', async () => {
    world.want('a', '1');
    await settle();
    await world.stop();
    expect(world.content()).toEqual({});
    expect(world.server.leases).toEqual([]);
  });
});

type Step =
  | { readonly do: 'want'; readonly name: string; readonly value: string }
  | { readonly do: 'delete' | 'invalidate' | 'give-up'; readonly name: string }
  | { readonly do: 'down' | 'up' | 'cut' | 'lose-answers' | 'expire' | 'mark' | 'run' | 'settle' | 'land' }
  | { readonly do: 'pass'; readonly ms: number };

const name = fc.constantFrom('a', 'b', 'c');
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('want' as const), name, value: fc.constantFrom('1', '2', '3') }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constantFrom(...(['delete', 'invalidate', 'give-up'] as const)), name }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom(
        ...(['down', 'up', 'cut', 'lose-answers', 'expire', 'mark', 'run', 'settle', 'land'] as const),
      ),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(10, 500, 15_000) }),
  },
);

/** Aborts the next put and the next delete of a key. */
function giveUpAny(link: FaultyLink, key: string): readonly Land[] {
  return [giveUpPut(link, key), giveUpDelete(link, key)];
}

describe('a sync store with a rate', () => {
  it('keeps to it when the kvstore is back', async () => {
    const world = new World({}, 10).run();
    world.link.down();
    for (let i = 0; i < 100; i++) world.want(`n${i}`, String(i));
    await advance(world.clock, 60_000);
    world.link.up();
    await advance(world.clock, 5000);
    const before = Object.keys(world.content()).length;
    await advance(world.clock, 3000);
    expect(Object.keys(world.content()).length - before).toBeLessThanOrEqual(30);
    await advance(world.clock, 10_000);
    expect(Object.keys(world.content())).toHaveLength(100);
    await world.stop();
  });
});

describe('a sync store under faults', () => {
  it('ends with exactly the desired keys, and a canary is never wrong', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 30, size: 'max' }),
        fc.boolean(),
        async (script, batched) => {
          const world = new World({ batched });
          const wanted = new Map<string, string>();
          // The promise of each mark: the names that have been wanted since.
          const promises: { readonly names: Set<string>; kept: boolean }[] = [];
          const lies: string[] = [];
          /** Aborted writes, which may arrive at any time. */
          const late: Land[] = [];
          world.onCanary = (there) => {
            const given = promises.filter(({ kept }, i) => kept || i === 0);
            for (const { names } of given) lies.push(...[...names].filter((n) => !there.includes(n)));
          };
          for (const what of script) {
            if (what.do === 'want') world.want(what.name, what.value);
            if (what.do === 'want') wanted.set(what.name, what.value);
            if (what.do === 'delete') world.store.delete(what.name);
            if (what.do === 'delete') wanted.delete(what.name);
            if (what.do === 'delete') for (const { names } of promises) names.delete(what.name);
            if (what.do === 'invalidate') world.store.invalidate(what.name);
            if (what.do === 'give-up') late.push(...giveUpAny(world.link, P + what.name));
            if (what.do === 'land') for (const land of late.splice(0)) await land().catch(() => {});
            if (what.do === 'down') world.link.down();
            if (what.do === 'up') world.link.up();
            if (what.do === 'cut') world.link.cut();
            if (what.do === 'lose-answers') world.link.loseAnswers(2);
            if (what.do === 'expire')
              world.server.leases.forEach((lease) => void world.server.expireLease(lease));
            if (what.do === 'run') world.run();
            if (what.do === 'settle') await settle();
            if (what.do === 'pass') await advance(world.clock, what.ms);
            if (what.do === 'mark') {
              const promise = { names: new Set(wanted.keys()), kept: false };
              promises.push(promise);
              void world.store.markSynced().then(() => {
                promise.kept = true;
              });
            }
          }
          world.run();
          world.link.up();
          await advance(world.clock, 60_000);
          for (const land of late) await land().catch(() => {});
          expect(world.store.status().pending).toBe(0);
          expect(world.content()).toEqual(Object.fromEntries(wanted));
          expect(lies).toEqual([]);
          await world.stop();
        },
      ),
    );
  });
});
