import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { sleep } from '../../../src/base/sleep.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { INIT_LOCKS_PREFIX } from '../../../src/kvstore/codec/keys.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { leaseHex } from '../../../src/kvstore/session/lease-keeper.ts';
import type { KeyValue } from '../../../src/kvstore/session/transport.ts';
import { PublishedPrefix } from '../../../src/operator/publish/published-prefix.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const HOUR_MS = 3_600_000;

type Content = Readonly<Record<string, string>>;

/** A publisher of `p/` with its own session, like a process. */
class Session {
  readonly backend: FaultyMemoryBackend;
  readonly prefix: PublishedPrefix;
  /** The names for which `isOwned` was called. */
  readonly examined: string[] = [];
  readonly #ended = new AbortController();
  readonly #running: Promise<void>;

  constructor(
    server: MemoryServer,
    clock: ManualClock,
    leaseSeconds?: number,
    leased = true,
    weightPerTurn?: number,
  ) {
    this.backend = new FaultyMemoryBackend({ server, clock, leaseSeconds });
    this.prefix = new PublishedPrefix({
      backend: this.backend,
      prefix: 'p/',
      leased,
      clock,
      random: () => 0.5,
      rejections: new RejectionLog(),
      isOwned: (name) => this.examined.push(name) > 0,
      canary: 'synced/p',
      gate:
        weightPerTurn === undefined
          ? undefined
          : new TurnGate({ clock, nextTurn: setImmediate, weightPerTurn }),
    });
    this.#running = this.prefix.run(this.#ended.signal);
  }

  set(content: Content): void {
    for (const [name, value] of Object.entries(content)) this.prefix.upsert(name, bytesOfText(value));
  }

  async end(keepLeases: boolean): Promise<void> {
    this.#ended.abort();
    await settle();
    await this.#running;
    await this.backend.close({ keepLeases });
  }
}

describe('a publisher that takes over the leases of an earlier session', () => {
  let clock: ManualClock;
  let server: MemoryServer;
  let sessions: Session[];
  beforeEach(() => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
    sessions = [];
  });
  afterEach(async () => {
    for (const session of sessions) await session.end(false);
  });

  const begin = (leaseSeconds?: number, leased?: boolean): Session => {
    const session = new Session(server, clock, leaseSeconds, leased);
    sessions.push(session);
    return session;
  };
  const below = (prefix: string): readonly KeyValue[] => server.range(prefixRange(prefix)).kvs;
  const content = (): Content =>
    Object.fromEntries(below('p/').map(({ key, value }) => [key.slice(2), textOfBytes(value) ?? '']));
  const many = (count: number): Content =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`key-${i}`, `value-${i}`]));
  /** Publishes a content in a session that ends without its leases. */
  const leave = async (said: Content, leaseSeconds?: number): Promise<void> => {
    const session = new Session(server, clock, leaseSeconds);
    session.set(said);
    void session.prefix.markSynced();
    await settle(40);
    expect(content()).toEqual(said);
    await session.end(true);
  };

  it('writes no key whose value is the same, and keeps it', async () => {
    const said = many(2500);
    await leave(said);
    const before = below('p/').map(({ key, modRevision }) => [key, modRevision]);
    const session = begin();
    const names = Object.keys(said).reverse();
    session.set(Object.fromEntries(names.slice(0, 1000).map((name) => [name, said[name] ?? ''])));
    await settle(20);
    session.set(said); // most of them only after the list
    await session.prefix.markSynced();
    expect(session.prefix.status()).toMatchObject({ synced: true, keys: 2500, pending: 0, writes: 0 });
    await advance(clock, HOUR_MS);
    expect(below('p/').map(({ key, modRevision }) => [key, modRevision])).toEqual(before);
    await sessions.pop()?.end(false);
    expect(content()).toEqual({}); // the keys belong to the session
  });

  it('examines only the existing keys that are not published (regression: all that were listed before they were published)', async () => {
    await leave({ a: '1', b: '1', c: '1' });
    const session = begin();
    await settle(20);
    session.set({ a: '1', b: '2' });
    await session.prefix.markSynced();
    expect(new Set(session.examined)).toEqual(new Set(['c']));
    expect(content()).toEqual({ a: '1', b: '2' });
  });

  it('has the new content, whatever an earlier session has left, in any order', async () => {
    const values = fc.dictionary(fc.constantFrom(...'abcdefgh'), fc.constantFrom('1', '2'), {
      noNullPrototype: true,
    });
    await fc.assert(
      fc.asyncProperty(values, values, fc.nat(8), fc.boolean(), async (left, said, early, isLate) => {
        clock = new ManualClock();
        server = new MemoryServer({ clock });
        await leave(left);
        const equal = below('p/').filter(({ key, value }) => said[key.slice(2)] === textOfBytes(value));
        const session = new Session(server, clock);
        const entries = Object.entries(said);
        session.set(Object.fromEntries(entries.slice(0, early)));
        if (isLate) await settle(20);
        session.set(said);
        await session.prefix.markSynced();
        expect(content()).toEqual(said);
        await advance(clock, HOUR_MS);
        expect(content()).toEqual(said);
        for (const { key, modRevision } of equal)
          expect(server.range({ ...prefixRange(key) }).kvs[0]?.modRevision).toBe(modRevision);
        await session.end(false);
        expect(content()).toEqual({});
      }),
      { numRuns: Math.ceil((fc.readConfigureGlobal().numRuns ?? 1000) / 25) },
    );
  });

  it('has the wanted content, whatever happens to keys, leases, history and link while it adopts them', async () => {
    const name = fc.constantFrom(...'abcdefgh');
    const value = fc.constantFrom('1', '2');
    const change = fc.oneof(
      fc.record({ type: fc.constant('set' as const), name, value }),
      fc.record({ type: fc.constant('delete' as const), name }),
      fc.record({ type: fc.constant('put of another client' as const), name }),
      fc.record({ type: fc.constant('delete of another client' as const), name }),
      fc.record({ type: fc.constantFrom('lease ended', 'compacted', 'link down', 'link up') }),
      fc.record({ type: fc.constant('turns' as const), turns: fc.nat(3) }),
      fc.record({ type: fc.constant('time' as const), ms: fc.nat(2000) }),
    );
    const values = fc.dictionary(name, value, { noNullPrototype: true });
    const changes = fc.array(change, { maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(values, values, values, changes, async (left, leftLater, said, steps) => {
        clock = new ManualClock();
        server = new MemoryServer({ clock });
        await leave(left);
        await leave({ ...left, ...leftLater }); // the new keys have another lease
        const session = new Session(server, clock, undefined, true, 16); // a slice has two keys
        const other = new FaultyMemoryBackend({ server, clock });
        const wanted = new Map(Object.entries(said));
        session.set(said);
        for (const step of steps) {
          if ('value' in step) {
            wanted.set(step.name, step.value);
            session.set({ [step.name]: step.value });
          } else if (step.type === 'delete') {
            wanted.delete(step.name);
            session.prefix.delete(step.name);
          } else if (step.type === 'put of another client') {
            // An unwanted key of another client is kept if it is put after the content is complete.
            if (wanted.has(step.name)) await other.update(`p/${step.name}`, bytesOfText('3'));
          } else if (step.type === 'delete of another client') await other.delete(`p/${step.name}`);
          else if (step.type === 'lease ended') server.expireLease(server.leases[0] ?? '');
          else if (step.type === 'compacted') server.compact();
          else if (step.type === 'link down') session.backend.link.down();
          else if (step.type === 'link up') session.backend.link.up();
          else if ('turns' in step) await settle(step.turns);
          else if ('ms' in step) await advance(clock, step.ms);
        }
        session.backend.link.up();
        void session.prefix.markSynced();
        await advance(clock, 120_000);
        expect(session.prefix.status()).toMatchObject({ synced: true, pending: 0, keys: wanted.size });
        expect(content()).toEqual(Object.fromEntries(wanted));
        await advance(clock, HOUR_MS);
        expect(content()).toEqual(Object.fromEntries(wanted));
        await session.end(false);
        await other.close();
        expect(content()).toEqual({}); // all keys belong to the session
      }),
      { numRuns: Math.ceil((fc.readConfigureGlobal().numRuns ?? 1000) / 10) },
    );
  });

  it('ends the fence of the earlier session, so that its delayed writes fail', async () => {
    await leave({ a: '1' });
    const fences = below(INIT_LOCKS_PREFIX).map(({ key }) => key);
    const lease = below('p/')[0]?.lease ?? '';
    expect(fences).toContain(`${INIT_LOCKS_PREFIX}${leaseHex(lease)}`);
    const session = begin();
    session.set({ a: '1', b: '1' });
    await session.prefix.markSynced();
    expect(below('p/')[0]?.lease).toBe(lease);
    for (const fence of fences) expect(below(fence)).toEqual([]);
    expect(below(INIT_LOCKS_PREFIX)).toHaveLength(1); // the init lock of this session has another key
  });

  it('writes keys of a lease that has ended, or that has another time to live', async () => {
    await leave({ a: '1' }, 100);
    const session = begin();
    session.set({ a: '1' });
    await session.prefix.markSynced();
    expect(session.prefix.status()).toMatchObject({ writes: 1 });
    await sessions.pop()?.end(true);
    const next = begin();
    await settle(20); // listed
    for (const lease of server.leases) server.expireLease(lease);
    next.set({ a: '1' });
    await next.prefix.markSynced();
    expect(content()).toEqual({ a: '1' });
    await advance(clock, HOUR_MS);
    expect(content()).toEqual({ a: '1' });
  });

  it('puts back an adopted key that another client overwrites or deletes, also while it is adopted', async () => {
    await leave({ a: '1', b: '1', c: '1' });
    const other = new FaultyMemoryBackend({ server, clock });
    const session = begin();
    await settle(20);
    const { link } = session.backend;
    const keepLeaseAlive = link.keepLeaseAlive.bind(link);
    link.keepLeaseAlive = async (...call) => {
      await other.update('p/c', bytesOfText('2'));
      return keepLeaseAlive(...call);
    };
    session.set({ a: '1', b: '1', c: '1' });
    await session.prefix.markSynced();
    expect(session.prefix.status()).toMatchObject({ writes: 1 });
    await other.update('p/a', bytesOfText('2'));
    await other.delete('p/b');
    await advance(clock, 60_000);
    expect(content()).toEqual({ a: '1', b: '1', c: '1' });
    await other.close();
  });

  it('does not adopt a lease again that it has given up, because its store was restored', async () => {
    await leave({ a: '1', c: '1' });
    const lease = below('p/')[0]?.lease;
    const backup = server.snapshot();
    const session = begin();
    session.set({ a: '1', b: '1' });
    await settle(20);
    expect(below('p/').map((kv) => kv.lease)).toContain(lease);
    await session.backend.delete('p/c');
    await settle();
    server.restore(backup);
    await advance(clock, 60_000);
    session.set({ c: '1' }); // written again, under the lease
    await advance(clock, 60_000);
    expect(content()).toEqual({ a: '1', b: '1', c: '1' });
    expect(below('p/').map((kv) => kv.lease)).not.toContain(lease);
    await advance(clock, HOUR_MS);
    expect(content()).toEqual({ a: '1', b: '1', c: '1' });
  });

  it.each([true, false])('deletes keys that a restored backup brings back (leased: %s)', async (leased) => {
    const session = begin(undefined, leased);
    session.set({ a: '1', b: '1', c: '1' });
    await session.prefix.markSynced();
    const backup = server.snapshot();
    session.prefix.delete('b');
    session.set({ d: '1' });
    await advance(clock, 60_000);
    expect(content()).toEqual({ a: '1', c: '1', d: '1' });
    server.restore(backup);
    await advance(clock, 120_000);
    expect(content()).toEqual({ a: '1', c: '1', d: '1' });
  });

  it('deletes no key of a backup after its run', async () => {
    const session = begin();
    session.set({ a: '1', b: '1' });
    await session.prefix.markSynced();
    const backup = server.snapshot();
    session.prefix.delete('b');
    await settle(20);
    server.restore(backup);
    await advance(clock, 30_000); // the key is known, and would be deleted after a minute
    await session.end(true);
    const before = session.prefix.status();
    await advance(clock, 60_000);
    expect(session.prefix.status()).toEqual(before);
  });

  it('keeps a key that another client writes during an interruption', async () => {
    const session = begin();
    session.set({ a: '1' });
    await session.prefix.markSynced();
    session.backend.link.down();
    const other = new FaultyMemoryBackend({ server, clock });
    await other.update('p/b', bytesOfText('2'));
    await advance(clock, 5000);
    session.backend.link.up();
    await advance(clock, 120_000);
    expect(content()).toEqual({ a: '1', b: '2' });
    await other.close();
  });

  it('writes the keys before they expire if the server answers writes but no keepalive (regression: they expired)', async () => {
    await leave(many(300));
    const session = begin();
    const { link } = session.backend;
    Reflect.set(link, 'keepLeaseAlive', async () => {
      await sleep(clock, 10_000);
      throw new KvstoreError('deadline', 'no answer in time');
    });
    session.set({ ...many(300), new: '1' });
    void session.prefix.markSynced();
    await advance(clock, 14 * 60_000);
    expect(server.leases).toContain(below('p/key-299')[0]?.lease);
    expect(below('p/').filter(({ lease }) => lease !== below('p/new')[0]?.lease)).toEqual([]);
    expect(session.prefix.status()).toMatchObject({ synced: true, pending: 0 });
    Reflect.deleteProperty(link, 'keepLeaseAlive');
    await advance(clock, HOUR_MS);
    expect(content()).toEqual({ ...many(300), new: '1' });
  });

  it('retries while the server is unreachable, and writes what it cannot adopt', async () => {
    await leave(many(300));
    const session = begin();
    await settle(20);
    session.backend.link.down();
    session.set(many(300));
    void session.prefix.markSynced();
    await advance(clock, 20_000);
    expect(session.prefix.status().pending).toBe(300);
    session.backend.link.up();
    await advance(clock, 60_000);
    expect(session.prefix.status()).toMatchObject({ synced: true, pending: 0 });
    expect(content()).toEqual(many(300));
    await advance(clock, HOUR_MS);
    expect(content()).toEqual(many(300));
  });
});
