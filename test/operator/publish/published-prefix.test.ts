import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { VALUE_LIMITS } from '../../../src/kvstore/codec/value.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import {
  PublishedPrefix,
  type PublishedPrefixOptions,
} from '../../../src/operator/publish/published-prefix.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const CANARY = 'synced/p';

describe('published keys below a prefix', () => {
  let clock: ManualClock;
  let server: MemoryServer;
  let backend: FaultyMemoryBackend;
  let other: FaultyMemoryBackend;
  let ended: AbortController;
  let running: Promise<void>[];
  beforeEach(() => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
    backend = new FaultyMemoryBackend({ server, clock });
    other = new FaultyMemoryBackend({ server, clock });
    ended = new AbortController();
    running = [];
  });
  afterEach(async () => {
    ended.abort();
    await settle();
    await Promise.all(running);
    await Promise.all([backend.close(), other.close()]);
  });

  const there = (): Record<string, string> =>
    Object.fromEntries(
      server
        .range(prefixRange(''))
        .kvs.filter(({ key }) => !key.startsWith('cilium/.initlock/'))
        .map(({ key, value }) => [key, textOfBytes(value) ?? '']),
    );
  const below = (): Record<string, string> =>
    Object.fromEntries(
      Object.entries(there()).flatMap(([key, value]) =>
        key.startsWith('p/') ? [[key.slice(2), value]] : [],
      ),
    );
  const put = (name: string, value: string): Promise<number> => other.update(`p/${name}`, bytesOfText(value));

  function publish(more: Partial<PublishedPrefixOptions> = {}): PublishedPrefix {
    const prefix = new PublishedPrefix({
      backend,
      prefix: 'p/',
      clock,
      random: () => 0.5,
      rejections: new RejectionLog(),
      isOwned: (name) => name.startsWith('own'),
      ...more,
    });
    running.push(prefix.run(ended.signal));
    return prefix;
  }
  const say = (prefix: PublishedPrefix, said: Readonly<Record<string, string>>): void => {
    for (const [name, value] of Object.entries(said)) prefix.upsert(name, bytesOfText(value));
  };

  it('have their desired values, and are deleted when they are not desired any more', async () => {
    const prefix = publish();
    say(prefix, { a: '1', b: '1', own: '1' });
    expect(prefix.status()).toMatchObject({
      synced: false,
      keys: 3,
      pending: 3,
      writes: 0,
      rejected: 0,
      failures: 0,
    });
    await settle(6);
    say(prefix, { a: '2', own: '1' });
    prefix.delete('b');
    prefix.delete('never said');
    await settle(6);
    expect(below()).toEqual({ a: '2', own: '1' });
    expect(prefix.status()).toMatchObject({ keys: 2, pending: 0, writes: 5, lastFailure: undefined });
  });

  it('are written again if they are lost with their lease, or another client deletes or overwrites them', async () => {
    const prefix = publish();
    say(prefix, { a: '1', b: '1' });
    await settle(6);
    for (const lease of server.leases) server.expireLease(lease);
    await advance(clock, 60_000);
    expect(below()).toEqual({ a: '1', b: '1' });
    await other.delete('p/a');
    await advance(clock, 1000);
    expect(below()).toEqual({ a: '1', b: '1' });
    await put('b', 'overwritten');
    await advance(clock, 400_000);
    expect(below()).toEqual({ a: '1', b: '1' });
  });

  it.each([undefined, true, false])('have a lease unless it is not wanted: leased %s', async (leased) => {
    const prefix = publish({ leased, canary: CANARY });
    say(prefix, { a: '1' });
    void prefix.markSynced();
    await settle(10);
    for (const lease of server.leases) server.expireLease(lease);
    expect(there()).toEqual(leased === false ? { 'p/a': '1' } : {}); // the canary is always deleted with its publisher
  });

  it('are listed and swept over many turns (regression: 130 ms in one turn at a restart with 150,000 keys)', async () => {
    const names = Array.from({ length: 30_000 }, (_, i) => `own-${i}`);
    const value = bytesOfText('1');
    const puts = names.map((name) => ({ op: 'put', key: `p/${name}`, value, lease: '0' }) as const);
    server.txn({ compare: [], writes: puts });
    const most = { listed: 0, swept: 0 };
    const turn = { listed: 0, pending: 0 };
    const gate = new TurnGate({
      clock,
      nextTurn: (callback) =>
        setImmediate(() => {
          const { pending } = prefix.status();
          most.listed = Math.max(most.listed, turn.listed);
          most.swept = Math.max(most.swept, pending - turn.pending);
          Object.assign(turn, { listed: 0, pending });
          callback();
        }),
    });
    const isOwned = (): boolean => ++turn.listed > 0;
    const prefix = publish({ gate, isOwned, canary: CANARY });
    const desired = names.slice(0, 1000);
    for (const name of desired) prefix.upsert(name, value);
    turn.pending = desired.length;
    let synced = false;
    void prefix.markSynced().then(() => {
      synced = true;
    });
    for (let i = 0; i < 5000 && !synced; i++) await settle(1);
    expect(synced).toBe(true);
    expect(most.listed).toBeGreaterThan(0);
    expect(most.listed).toBeLessThanOrEqual(4096);
    expect(most.swept).toBeGreaterThan(0);
    expect(most.swept).toBeLessThanOrEqual(4096);
    expect(below()).toEqual(Object.fromEntries(desired.map((name) => [name, '1'])));
  });

  it('replace leftovers of an earlier run after all values are known, no others and not before; then the canary is written', async () => {
    await put('own-old', '1');
    await put('own-again', '1');
    await put('others', '1');
    const prefix = publish({ canary: CANARY });
    await settle(6);
    say(prefix, { 'own-again': '2', fresh: '1' });
    await settle(6);
    prefix.delete('own-old'); // which was not announced in this life
    say(prefix, { fresh: '1' });
    await settle(6);
    expect(there()).toEqual({ 'p/own-old': '1', 'p/own-again': '2', 'p/others': '1', 'p/fresh': '1' });
    expect(prefix.status()).toMatchObject({ synced: false, pending: 0 });
    await prefix.markSynced();
    expect(Object.keys(there()).sort()).toEqual(['p/fresh', 'p/others', 'p/own-again', CANARY]);
    expect(prefix.status()).toMatchObject({ synced: true, pending: 0 });
    await put('own-late', '1'); // another client writes a key that this life has not written: it is the other client's
    await settle(6);
    expect(below()).toHaveProperty('own-late');
  });

  it('are not written if they have the desired values, and require no lease', async () => {
    const revision = await put('own', '1');
    const prefix = publish({ leased: false });
    say(prefix, { own: '1' });
    await prefix.markSynced();
    expect(server.range(prefixRange('p/')).kvs).toMatchObject([{ modRevision: revision }]);
  });

  it('replace leftovers of an earlier run even if none is desired now', async () => {
    await put('own-old', '1');
    await publish().markSynced();
    await settle(6);
    expect(below()).toEqual({});
  });

  it('are batched if many are set at the same time', async () => {
    const txn = vi.spyOn(server, 'txn');
    say(publish(), Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`n${i}`, '1'])));
    await settle(6);
    const puts = txn.mock.calls.filter(([{ writes }]) =>
      writes.some((one) => one.op === 'put' && one.key.startsWith('p/')),
    );
    expect(puts.length).toBeLessThan(5);
    expect(Object.keys(below())).toHaveLength(50);
  });

  it('are all written before the canary: a reader that sees it misses no desired key, and has no other', async () => {
    await put('own-old', '1');
    const prefix = publish({ canary: CANARY });
    say(prefix, { a: '1', b: '1' });
    const atCanary: unknown[] = [];
    const txn = server.txn.bind(server);
    server.txn = (request) => {
      const before = CANARY in there();
      const answer = txn(request);
      if (!before && CANARY in there()) atCanary.push(below());
      return answer;
    };
    void prefix.markSynced();
    await settle(10);
    expect(atCanary).toEqual([{ a: '1', b: '1' }]);
  });

  it('are synced without a canary when all desired values are written', async () => {
    const prefix = publish();
    say(prefix, { a: '1' });
    await settle(6);
    expect(prefix.status().synced).toBe(false);
    await prefix.markSynced();
    expect(prefix.status().synced).toBe(true);
    say(prefix, { a: '2' });
    expect(prefix.status()).toMatchObject({ synced: false, pending: 1 });
    await settle(6);
    expect(prefix.status()).toMatchObject({ synced: true, pending: 0 });
  });

  it('stay synced while a later value is not written (regression: the operator was not ready during each write)', async () => {
    const prefix = publish({ canary: CANARY });
    say(prefix, { a: '1' });
    await prefix.markSynced();
    say(prefix, { a: '2' });
    expect(prefix.status()).toMatchObject({ synced: true, pending: 1 });
  });

  it('keep leftovers of an earlier run while none is desired, if configured', async () => {
    await put('own-old', '1');
    const prefix = publish({ keepWhenEmpty: true });
    await prefix.markSynced();
    await settle(6);
    expect(below()).toEqual({ 'own-old': '1' });
    say(prefix, { a: '1' });
    await settle(6);
    expect(below()).toEqual({ a: '1' });
    const next = publish({ keepWhenEmpty: true, prefix: 'q/' });
    say(next, { a: '1' });
    await other.update('q/own-old', bytesOfText('1'));
    await settle(6);
    await next.markSynced();
    expect(Object.keys(there())).toEqual(['p/a', 'q/a']);
  });

  it('are limited to the size that a reader accepts: a larger one is deleted, counted, and reported with its size', async () => {
    const rejections = new RejectionLog();
    const prefix = publish({ rejections });
    const most = VALUE_LIMITS.bytes - 512 - 'p/a'.length;
    say(prefix, { a: 'x'.repeat(most), b: '1' });
    await settle(6);
    expect(below()['a']).toHaveLength(most);
    expect(prefix.status()).toMatchObject({ rejected: 0 });
    say(prefix, { a: 'x'.repeat(most + 1) });
    await settle(6);
    expect(below()).toEqual({ b: '1' });
    expect(prefix.status()).toMatchObject({ keys: 1, rejected: 1 });
    expect(rejections.status().recent[0]).toMatchObject({
      reason: 'too-large',
      at: 'p/a',
      message: expect.stringMatching(
        new RegExp(
          `value.*${most + 1} bytes.*must have at most ${VALUE_LIMITS.bytes - 512} bytes with its key`,
        ),
      ),
    });
  });

  it('report and count the last failure', async () => {
    const failed: string[] = [];
    const prefix = publish({ onFailure: (_error, task) => failed.push(task) });
    await settle(6);
    backend.link.down();
    await settle(6);
    expect(prefix.status()).toMatchObject({ failures: 1, lastFailure: { message: 'connection reset' } }); // the watch
    say(prefix, { a: '1' });
    await advance(clock, 1000);
    const { failures, lastFailure, pending, isFailing } = prefix.status();
    expect(failures).toBeGreaterThan(1); // the write, and the watch
    expect([lastFailure?.message, pending, isFailing]).toEqual(['connection refused', 1, true]);
    expect(lastFailure?.at).toBeGreaterThan(500);
    expect(failed).toEqual(['writes of p/']); // once, not for each attempt
    backend.link.up();
    await advance(clock, 60_000);
    expect(below()).toEqual({ a: '1' });
    expect(prefix.status()).toMatchObject({ pending: 0, isFailing: false });
  });

  describe('keys with other writers of the same values', () => {
    const isEquivalent = (found: Uint8Array, wanted: Uint8Array): boolean =>
      textOfBytes(found)?.toLowerCase() === textOfBytes(wanted)?.toLowerCase();
    const revisions = (): Record<string, number> =>
      Object.fromEntries(
        server.range(prefixRange('p/')).kvs.map(({ key, modRevision }) => [key, modRevision]),
      );

    it('are not written before the existing ones are known, and then only if those are not sufficient', async () => {
      await put('a', 'ONE');
      await put('b', 'two');
      const before = revisions();
      backend.link.stallWatch('p/');
      const prefix = publish({ isEquivalent, canary: CANARY });
      say(prefix, { a: 'one', b: 'one', c: 'one' });
      await advance(clock, 10_000);
      expect(prefix.status()).toMatchObject({ keys: 3, pending: 3, synced: false });
      expect(revisions()).toEqual(before);
      backend.link.unstallWatch('p/');
      await advance(clock, 10_000);
      expect(below()).toEqual({ a: 'ONE', b: 'one', c: 'one' });
      expect(revisions()['p/a']).toBe(before['p/a']);
      await prefix.markSynced();
      expect(prefix.status()).toMatchObject({ pending: 0, synced: true });
    });

    it('are written when a sufficient one is deleted or becomes insufficient, and kept when another becomes sufficient', async () => {
      await put('a', 'ONE');
      const failed: unknown[] = [];
      const prefix = publish({ isEquivalent, onFailure: (error) => failed.push(error) });
      say(prefix, { a: 'one' });
      await settle(10);
      expect(below()).toEqual({ a: 'ONE' });
      await put('a', 'other');
      await settle(10);
      expect(below()).toEqual({ a: 'one' });
      await put('a', 'One');
      await advance(clock, 400_000);
      expect(below()).toEqual({ a: 'One' });
      await other.delete('p/a');
      await settle(10);
      expect(below()).toEqual({ a: 'one' });
      say(prefix, { a: 'two' });
      await settle(10);
      expect(below()).toEqual({ a: 'two' });
      prefix.delete('a');
      await settle(10);
      expect(below()).toEqual({});
      await put('a', 'TWO');
      await settle(10);
      say(prefix, { a: 'two' });
      await settle(10);
      expect(below()).toEqual({ a: 'TWO' });
      await put('b', 'another’s');
      await other.delete('p/b');
      await settle(10);
      expect([below(), failed]).toEqual([{ a: 'TWO' }, []]);
    });

    it('are written again if they were deleted before', async () => {
      const prefix = publish({ isEquivalent });
      say(prefix, { a: 'one' });
      await settle(10);
      prefix.delete('a');
      await settle(10);
      expect(below()).toEqual({});
      say(prefix, { a: 'one' });
      await settle(10);
      expect(below()).toEqual({ a: 'one' });
    });
  });
});
