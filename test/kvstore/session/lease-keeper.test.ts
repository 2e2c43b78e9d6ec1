import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { sleep } from '../../../src/base/sleep.ts';
import { Supervisor } from '../../../src/base/supervisor.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { FaultyLink } from '../../../src/kvstore/memory/faulty-link.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { HeldLease } from '../../../src/kvstore/session/held-lease.ts';
import { isOrderAfter } from '../../../src/kvstore/session/lease-bindings.ts';
import { LeaseKeeper, leaseHex } from '../../../src/kvstore/session/lease-keeper.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';

const TTL_SECONDS = 100;
const HOUR_MS = 3_600_000;

describe('a lease keeper', () => {
  let clock: ManualClock;
  let server: MemoryServer;
  let link: FaultyLink;
  let supervisor: Supervisor;
  let lost: string[][];
  let keeper: LeaseKeeper;
  /** Times of the keepalives. */
  let asked: number[];

  const newKeeper = (exclusive?: boolean, ttlSeconds: number = TTL_SECONDS, gate?: TurnGate): LeaseKeeper =>
    new LeaseKeeper({
      transport: link,
      clock,
      random: () => 0.5,
      supervisor,
      name: 'leases',
      ttlSeconds,
      exclusive,
      gate,
      onLost: (keys) => lost.push([...keys]),
    });

  beforeEach(() => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
    link = new FaultyLink(new MemoryTransport(server), clock);
    supervisor = new Supervisor({ clock, random: () => 0.5 });
    lost = [];
    asked = [];
    const keepLeaseAlive = link.keepLeaseAlive.bind(link);
    link.keepLeaseAlive = (...call) => {
      asked.push(clock.now());
      return keepLeaseAlive(...call);
    };
    keeper = newKeeper();
  });
  afterEach(async () => {
    await keeper.close(true);
    await supervisor.stop();
    expect(clock.pending).toBe(server.leases.length); // only the timers of the server itself
  });

  it('examines one lease for each key, however many it holds (regression: all of them)', async () => {
    let looks = 0;
    const isOver = vi.spyOn(HeldLease.prototype, 'isExpired', 'get').mockImplementation(() => {
      looks++;
      return false;
    });
    try {
      for (let i = 0; i < 30_000; i++) await keeper.bind(`${i}`);
      expect(server.leases).toHaveLength(30);
      await settle();
      looks = 0;
      for (let i = 0; i < 30_000; i += 10) await keeper.bind(`${i}`);
      expect(looks).toBe(3000);
    } finally {
      isOver.mockRestore();
    }
  });

  it('a keepalive without an answer is repeated before its lease expires (regression: not if a lease had less than 15 s)', async () => {
    await keeper.close(true);
    keeper = newKeeper(false, 12);
    await keeper.bind('a');
    const deadlines: (number | undefined)[] = [];
    vi.spyOn(link, 'keepLeaseAlive').mockImplementationOnce((_lease, { deadlineMs } = {}) => {
      deadlines.push(deadlineMs);
      return new Promise((_resolve, reject) => {
        clock.after(deadlineMs ?? 10_000, () => reject(new KvstoreError('deadline', 'no answer')));
      });
    });
    await advance(clock, 30_000);
    expect([deadlines, lost]).toEqual([[4000], []]);
  });

  it('keeps a lock lease on a slow link whose answers take 10 s (regression: every keepalive ended after 8.3 s)', async () => {
    await keeper.close(true);
    keeper = newKeeper(true, 25);
    await keeper.bind('a');
    const answer = link.keepLeaseAlive.bind(link);
    // The default deadline of a transport is extended while bytes arrive.
    link.keepLeaseAlive = async (lease, { signal, deadlineMs = 60_000 } = {}) => {
      await sleep(clock, Math.min(10_000, deadlineMs), signal);
      if (deadlineMs < 10_000) throw new KvstoreError('deadline', 'no answer');
      return answer(lease, { signal });
    };
    await advance(clock, 100_000);
    expect(lost).toEqual([]);
  });

  it('keeps the lease of a restored binding alive, also if it had no other key (regression: it expired)', async () => {
    const binding = await keeper.bind('a');
    keeper.bindings.unbind(binding); // by a delete, while the write has no answer
    await advance(clock, 10_000);
    keeper.bindings.confirm(binding);
    await advance(clock, 3 * TTL_SECONDS * 1000);
    expect(lost).toEqual([]);
    expect(server.leases).toEqual([binding.held.id]);
  });

  it('puts at most a thousand keys on a lease, even if all are bound at the same time', async () => {
    await Promise.all(Array.from({ length: 2500 }, (_, i) => keeper.bind(`${i}`)));
    expect(server.leases).toHaveLength(3);
  });

  it('binds nothing after it is closed', async () => {
    await keeper.bind('a');
    await keeper.close(true);
    await expect(keeper.bind('b')).rejects.toMatchObject({ code: 'closed' });
    await expect(keeper.anyGranted()).rejects.toMatchObject({ code: 'closed' });
  });

  it('binds no key to an expired lease, even before it has checked the clock', async () => {
    await keeper.close(true);
    keeper = newKeeper(true);
    const lease = (await keeper.bind('a')).held.id;
    clock.setWallTimeBy(HOUR_MS); // the machine was suspended
    const next = await keeper.bind('b');
    expect(next.held.id).not.toBe(lease);
    expect([lost, keeper.lost, keeper.holds(lease)]).toEqual([[['a']], 1, false]);
  });

  it('binds no key to a lease that expires while a list of keys waits for another lease', async () => {
    await keeper.close(true);
    keeper = newKeeper(true);
    const full = Array.from({ length: 998 }, (_, at) => ({ key: `${at}` }));
    const [first] = await keeper.bindAll([...full, { key: 'a' }, { key: 'b' }]);
    const grant = link.grantLease.bind(link);
    vi.spyOn(link, 'grantLease').mockImplementationOnce((...call) => {
      clock.setWallTimeBy(HOUR_MS); // the machine is suspended during the request
      return grant(...call);
    });
    const [, other, again] = await keeper.bindAll([{ key: 'a' }, { key: 'c' }, { key: 'b' }]);
    expect(again?.held.id).toBe(other?.held.id);
    expect(keeper.holds(first?.held.id ?? '')).toBe(false);
  });

  it('binds none of several keys if a lease for the last ones is not granted (regression: the first ones were reported as lost later)', async () => {
    const full = Array.from({ length: 998 }, (_, at) => ({ key: `${at}` }));
    for (const binding of await keeper.bindAll(full)) keeper.bindings.confirm(binding);
    link.down();
    const keys = ['0', 'a', 'b', 'c'].map((key) => ({ key }));
    await expect(keeper.bindAll(keys)).rejects.toMatchObject({ code: 'unavailable' });
    expect(keys.map(({ key }) => keeper.bindings.bindingOf(key) !== undefined)).toEqual([
      true,
      false,
      false,
      false,
    ]);
    expect([...keeper.bindings.unbindBelow('c', 0, keeper.bindings.count)].flat()).toEqual([]); // 'c' left no row
    link.up();
    expect(await keeper.bindAll(keys)).toHaveLength(4);
  });

  it('sends a keepalive three times per lifetime of a lease, and not more often', async () => {
    await keeper.bind('a');
    await advance(clock, 1_000_000);
    expect(asked.length).toBeGreaterThanOrEqual(25);
    expect(asked.length).toBeLessThanOrEqual(30);
    expect(asked[0]).toBeGreaterThanOrEqual(33_000);
    expect(server.leases).toHaveLength(1);
    expect(lost).toEqual([]);
  });

  it('retries within five seconds after a failed keepalive, and keeps the lease', async () => {
    await keeper.bind('a');
    link.down();
    await advance(clock, 60_000);
    for (let i = 1; i < asked.length; i++) {
      expect((asked[i] ?? 0) - (asked[i - 1] ?? 0)).toBeLessThanOrEqual(5000);
    }
    expect(supervisor.status().failures).toBe(asked.length);
    link.up();
    await advance(clock, 500_000);
    expect(lost).toEqual([]);
    expect(server.leases).toHaveLength(1);
  });

  it('reports a lease that the server does not know, with its keys, once', async () => {
    for (const key of ['a', 'b', 'c']) await keeper.bind(key);
    keeper.bindings.unbind(keeper.bindings.bindingOf('b'));
    for (const lease of server.leases) server.expireLease(lease);
    await advance(clock, 40_000);
    expect(lost).toEqual([['a', 'c']]);
    expect([keeper.size, keeper.lost]).toEqual([0, 1]);
    await advance(clock, 500_000);
    expect(lost).toHaveLength(1);
  });

  it.each([0, HOUR_MS, -HOUR_MS])(
    'loses a lease that was not reached for its whole time, and not sooner: the clock set by %i ms',
    async (ms) => {
      await keeper.bind('a');
      await advance(clock, 10_000);
      link.blackHole();
      clock.setWallTimeBy(ms);
      await advance(clock, 89_000);
      expect(lost).toEqual([]);
      await advance(clock, 5000);
      expect(lost).toEqual([['a']]);
    },
  );

  it('counts the time of a lease from the last successful request', async () => {
    await keeper.bind('a');
    await advance(clock, 40_000);
    const [at = 0] = asked;
    link.down();
    await advance(clock, at + TTL_SECONDS * 1000 - 1000 - clock.now());
    expect(lost).toEqual([]);
    await advance(clock, 5000);
    expect(lost).toEqual([['a']]);
  });

  it('counts it from the request, not from the answer', async () => {
    const grant = link.grantLease.bind(link);
    vi.spyOn(link, 'grantLease').mockImplementationOnce(async (...call) => {
      const lease = await grant(...call);
      await advance(clock, 50_000);
      link.down();
      return lease;
    });
    await keeper.bind('a');
    await advance(clock, 49_000);
    expect(lost).toEqual([]);
    await advance(clock, 5000);
    expect(lost).toEqual([['a']]);
  });

  it('sends a keepalive immediately if the clock was set forward, because the machine may have been suspended', async () => {
    await keeper.bind('a');
    await advance(clock, 1000);
    clock.setWallTimeBy(HOUR_MS);
    await advance(clock, 5000);
    expect(asked).toHaveLength(1);
    expect(lost).toEqual([]); // the server still has it: no key is written again
    for (const lease of server.leases) server.expireLease(lease);
    clock.setWallTimeBy(HOUR_MS);
    await advance(clock, 5000);
    expect(lost).toEqual([['a']]);
  });

  it('considers an exclusive lease lost before it expires, and if only the clock indicates it', async () => {
    const exclusive = newKeeper(true);
    await exclusive.bind('a');
    link.down();
    await advance(clock, 89_000);
    expect(lost).toEqual([]);
    await advance(clock, 5000);
    expect(lost).toEqual([['a']]);
    link.up();
    await exclusive.bind('b');
    clock.setWallTimeBy(TTL_SECONDS * 1000);
    await advance(clock, 4000);
    expect(lost).toEqual([['a'], ['b']]);
    await exclusive.close(true);
  });

  it('puts a thousand keys on a lease, and reuses the places of deleted ones', async () => {
    for (let i = 0; i < 1000; i++) await keeper.bind(`k${i}`);
    expect(keeper.size).toBe(1);
    await keeper.bind('k5');
    expect(keeper.size).toBe(1);
    await keeper.bind('one more');
    expect(keeper.size).toBe(2);
    keeper.bindings.unbind(keeper.bindings.bindingOf('k7'));
    const lease = (await keeper.bind('in its place')).held.id;
    expect(lease).toBe(keeper.bindings.bindingOf('k5')?.held.id);
    for (let i = 0; i < 999; i++) await keeper.bind(`second ${i}`);
    expect(keeper.size).toBe(2);
    for (const key of ['one more', ...Array.from({ length: 999 }, (_, i) => `second ${i}`)])
      keeper.bindings.unbind(keeper.bindings.bindingOf(key));
    await advance(clock, 10);
    clock.setWallTimeBy(HOUR_MS);
    await advance(clock, 5000);
    expect(asked).toHaveLength(1); // the lease that is left to expire delays no check of the other
  });

  it.each([false, true])(
    'a lease to which nothing is bound is left to expire, and is no loss: exclusive %s',
    async (exclusive) => {
      const idle = newKeeper(exclusive);
      const { lease: first } = await idle.anyGranted();
      expect(await idle.anyGranted()).toEqual({ lease: first, isNew: false });
      expect([...idle.bindings.unbindBelow('', 1, idle.bindings.count)]).toEqual([]);
      idle.bindings.unbind(await idle.bind('a'));
      await advance(clock, 89_000);
      expect([asked, idle.size]).toEqual([[], 1]);
      await idle.bind('b'); // just in time
      await advance(clock, 100_000);
      expect([idle.size, idle.holds(first), lost]).toEqual([1, true, []]);
      idle.bindings.unbind(idle.bindings.bindingOf('b'));
      await advance(clock, 200_000);
      expect([idle.size, idle.lost, lost, server.leases]).toEqual([0, 0, [], []]);
      expect((await idle.bind('c')).held.id).not.toBe(first);
      await idle.close(true);
    },
  );

  it('many concurrent requests share one grant', async () => {
    await Promise.all(Array.from({ length: 20 }, (_, i) => keeper.bind(`k${i}`)));
    expect(server.leases).toHaveLength(1);
  });

  it('puts no more than a thousand keys on a lease that are bound at the same time (regression: all of them)', async () => {
    await Promise.all(Array.from({ length: 2500 }, (_, i) => keeper.bind(`k${i}`)));
    expect(keeper.size).toBe(3);
  });

  it('a key that is being bound while its lease is lost is reported with it (regression: never, and no lease was enough to bind it again)', async () => {
    await keeper.bind('a');
    const binding = keeper.bind('b');
    keeper.loseAll();
    const lease = (await binding).held.id;
    expect(lost.flat()).toEqual(keeper.holds(lease) ? ['a'] : ['a', 'b']);
    expect(keeper.bindings.bindingOf('b')?.held.id).toBe(keeper.holds(lease) ? lease : undefined);
  });

  it('a failed grant is retried by the next request', async () => {
    link.down();
    await expect(keeper.bind('a')).rejects.toMatchObject({ code: 'unavailable' });
    link.up();
    await keeper.bind('a');
    expect(keeper.size).toBe(1);
  });

  it('a key that was bound again is not unbound by an earlier call', async () => {
    const before = await keeper.bind('a');
    const again = await keeper.bind('a');
    keeper.bindings.unbind(before);
    expect(keeper.bindings.bindingOf('a')).toEqual(again);
    keeper.bindings.unbind(again);
    expect(keeper.bindings.bindingOf('a')).toBeUndefined();
    keeper.bindings.confirm(again, 1);
    expect(keeper.bindings.bindingOf('a')).toEqual({ ...again, writtenAt: 1 });
    keeper.bindings.unbind(undefined);
    keeper.markLost(again.held.id);
    expect(lost).toEqual([['a']]);
    keeper.bindings.confirm(again, 2); // its lease is lost
    expect(keeper.bindings.bindingOf('a')).toBeUndefined();
  });

  it('a delete unbinds no key that was written after it, whatever order the answers arrive in', async () => {
    const binding = await keeper.bind('a');
    keeper.bindings.confirm(binding, 7);
    keeper.bindings.confirm(binding, 5); // of an earlier put, whose answer is late
    keeper.bindings.unbind(binding, 6);
    expect(keeper.bindings.bindingOf('a')).toEqual({ ...binding, writtenAt: 7 });
    keeper.bindings.unbind(binding, 7);
    expect(keeper.bindings.bindingOf('a')).toBeUndefined();
    const [lease = ''] = server.leases;
    keeper.markLost(lease);
    keeper.bindings.unbind(binding);
    expect([lost, keeper.lost]).toEqual([[], 0]);
  });

  it('an older delete does not unbind a key whose put had an unknown outcome (regression: its loss was not reported)', async () => {
    const put = await keeper.bind('a');
    const deletedBinding = keeper.bindings.bindingOf('a');
    const previous = keeper.bindings.count;
    keeper.bindings.settle([put], true); // no answer: the put may follow the deletes
    keeper.bindings.unbind(deletedBinding, 5);
    for (const _ of keeper.bindings.unbindBelow('a', 5, previous));
    expect(keeper.bindings.bindingOf('a')).toBeDefined();
    keeper.bindings.unbind(keeper.bindings.bindingOf('a'), 6); // a delete after the failure
    expect(keeper.bindings.bindingOf('a')).toBeUndefined();
  });

  it('a put with an unknown outcome keeps the revision of an earlier put', async () => {
    keeper.bindings.confirm(await keeper.bind('a'), 7);
    const put = await keeper.bind('a');
    keeper.bindings.settle([put], true);
    expect(keeper.bindings.bindingOf('a')?.writtenAt).toBe(7);
    const deleted = await keeper.bind('a');
    keeper.bindings.unbind(deleted, 8);
    keeper.bindings.settle([deleted], true);
    expect(keeper.bindings.bindingOf('a')?.writtenAt).toBe(7);
  });

  it('a put with an unknown outcome binds a deleted key again, and deletes that began before do not unbind it', async () => {
    const put = await keeper.bind('a');
    const previous = keeper.bindings.count;
    keeper.bindings.unbind(put, 5);
    keeper.bindings.settle([put], true);
    for (const _ of keeper.bindings.unbindBelow('a', 6, previous));
    expect(keeper.bindings.bindingOf('a')).toBeDefined();
  });

  it('close ends a grant and a keepalive that are never answered', async () => {
    await keeper.bind('a');
    link.blackHole();
    await advance(clock, 40_000);
    expect(asked).toHaveLength(1);
    const other = newKeeper();
    const binding = other.bind('b').catch((error: unknown) => error);
    await settle();
    await Promise.all([keeper.close(false), other.close(false)]);
    expect(await binding).toMatchObject({ code: 'aborted' });
  });

  it('unbinds the keys below a prefix, except those that were bound later or written later', async () => {
    for (const key of ['a', 'a/1', 'a/2', 'a/3', 'ab', 'b/a/1']) await keeper.bind(key);
    const before = keeper.bindings.count;
    await keeper.bind('a/2');
    const written = keeper.bindings.bindingOf('a/3');
    if (written !== undefined) keeper.bindings.confirm(written, 8);
    const earlier = keeper.bindings.bindingOf('a/1');
    if (earlier !== undefined) keeper.bindings.confirm(earlier, 6);
    expect([...keeper.bindings.unbindBelow('a/', 7, before)]).toEqual([['a/1', 'a/2', 'a/3']]);
    expect(keeper.bindings.bindingOf('a/1')).toBeUndefined();
    for (const key of ['a', 'a/2', 'a/3', 'ab', 'b/a/1'])
      expect(keeper.bindings.bindingOf(key)).toBeDefined();
    keeper.loseAll();
    expect([...keeper.bindings.unbindBelow('', 9, keeper.bindings.count)]).toEqual([]);
  });

  it('releases 300,000 keys over many turns, and binds them again in between (regression: in one turn)', async () => {
    const turns: (() => void)[] = [];
    const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn) });
    await keeper.close(true);
    keeper = new LeaseKeeper({
      transport: link,
      clock,
      random: () => 0.5,
      supervisor,
      name: 'leases',
      gate,
      ttlSeconds: TTL_SECONDS,
      onLost: (keys) => lost.push([...keys]),
      onLeasesLost: (reported) => void reported.then(() => lost.push(['reported'])),
    });
    for (let i = 0; i < 300_000; i++) await keeper.bind(`k${i}`);
    const steps = [...keeper.bindings.unbindBelow('k', 0, 0)];
    expect([Math.max(...steps.map(({ length }) => length)), steps.flat().length]).toEqual([256, 300_000]);
    expect([...keeper.bindings.unbindBelow('x', 0, 0)]).toEqual([[], [], [], []]); // 65,536 rows in each step
    const before = keeper.bindings.bindingOf('k299999');
    const other = keeper.bindings.bindingOf('k150000');
    keeper.loseAll();
    expect([keeper.size, keeper.bindings.bindingOf('k299999')]).toEqual([0, undefined]);
    const again = await keeper.bind('k299999'); // while its old lease waits
    keeper.bindings.unbind(other);
    const sizes: number[] = [];
    let reported = lost.length;
    while (turns.length > 0) {
      turns.shift()?.();
      await settle();
      sizes.push(lost.length - reported);
      reported = lost.length;
    }
    const keys = lost.flat();
    expect(Math.max(...sizes)).toBeLessThanOrEqual(9); // leases per turn
    expect(sizes.length).toBeGreaterThan(30);
    expect([keys.length, keys.at(-1), keeper.lost]).toEqual([299_999, 'reported', 300]);
    expect(keys).not.toContain('k299999');
    expect([again.held.id === before?.held.id, keeper.bindings.bindingOf('k299999')]).toEqual([false, again]);
    expect([...keeper.bindings.unbindBelow('k', 1, keeper.bindings.count)].flat()).toEqual(['k299999']);
  });

  it('examines each lease a few times for its keepalive, however many there are (regression: all of them)', async () => {
    const leases = 200;
    for (let i = 0; i < leases * 1000; i++) await keeper.bind(`k${i}`);
    expect(keeper.size).toBe(leases);
    const looks = vi.spyOn(HeldLease.prototype, 'checkIn', 'get');
    try {
      await advance(clock, (TTL_SECONDS * 1000) / 3 - 5000);
      looks.mockClear();
      await advance(clock, 6000);
      expect(asked).toHaveLength(leases);
      expect(looks.mock.calls.length).toBeLessThan(5 * leases);
    } finally {
      looks.mockRestore();
    }
  });

  it('sends no keepalive for a lease that is lost while its keepalive waits for a turn', async () => {
    await keeper.close(true);
    const turns: (() => void)[] = [];
    const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn) });
    keeper = newKeeper(false, TTL_SECONDS, gate);
    const { held } = await keeper.bind('a');
    void gate.pass(10_000); // fills a turn
    await advance(clock, (TTL_SECONDS * 1000) / 2);
    expect([gate.waiting, asked]).toEqual([1, []]);
    keeper.markLost(held.id);
    for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
      turn();
      await settle();
    }
    expect([lost, asked]).toEqual([[['a']], []]);
  });

  it('does not remember a lease that expired without keys (regression: a lease for each pause between two locks)', async () => {
    const lease = (await keeper.bind('a')).held.id;
    keeper.bindings.unbind(keeper.bindings.bindingOf('a'));
    await advance(clock, 2 * TTL_SECONDS * 1000);
    expect(keeper.size).toBe(0);
    const asks = async (): Promise<number> => {
      const before = asked.length;
      expect(await keeper.adopt(lease, ['a'], async () => {})).toBe(false);
      return asked.length - before;
    };
    expect([await asks(), await asks()]).toEqual([1, 0]); // the server does not know it
  });

  it('remembers the last 10,000 leases that it must not adopt (regression: all of them)', async () => {
    const asks = async (lease: number): Promise<number> => {
      const before = asked.length;
      expect(await keeper.adopt(String(lease), ['a'], async () => {})).toBe(false);
      return asked.length - before;
    };
    for (let lease = 1; lease <= 10_001; lease++) await asks(lease);
    expect([await asks(2), await asks(10_001), await asks(1)]).toEqual([0, 0, 1]);
  });

  it('adopts no lease after adoptions have failed for a third of the TTL, because its keys would expire', async () => {
    // A new lease each time, so that a refusal is not due to its expiry.
    const adopt = (id = server.grantLease(TTL_SECONDS)): Promise<boolean | string> =>
      keeper.adopt(id, ['a'], async () => {}).catch(({ code }) => code);
    const fail = async (ms: number): Promise<boolean | string> => {
      link.down();
      const adopted = await adopt();
      await advance(clock, ms);
      link.up();
      return adopted;
    };
    // An answer of the server ends the failure, also if it does not have the lease.
    expect([await fail(33_000), await adopt()]).toEqual(['unavailable', true]);
    expect([await fail(33_000), await adopt('99')]).toEqual(['unavailable', false]);
    expect([await fail(33_000), await adopt()]).toEqual(['unavailable', true]);
    expect([await fail(17_000), await fail(17_000)]).toEqual(['unavailable', 'unavailable']);
    expect(await adopt()).toBe(false);
  });

  it('counts a failed preparation as a failed adoption', async () => {
    const adopt = (prepare: () => Promise<void>): Promise<boolean | string> =>
      keeper.adopt(server.grantLease(TTL_SECONDS), ['a'], prepare).catch(({ code }) => code);
    const fail = (): Promise<void> => Promise.reject(new KvstoreError('unavailable', 'no connection'));
    for (let times = 0; times < 2; times++) {
      expect(await adopt(fail)).toBe('unavailable');
      await advance(clock, 17_000);
    }
    expect(await adopt(async () => {})).toBe(false);
  });

  it('adopts a lease whose TTL the server has raised to its minimum (regression: all keys were written again)', async () => {
    const shorter = server.grantLease(TTL_SECONDS / 2);
    expect(await keeper.adopt(shorter, ['a'], async () => {})).toBe(false);
    expect(server.leases).toEqual([shorter]); // no own lease is needed
    const grant = link.grantLease.bind(link);
    link.grantLease = (ttl, options) => grant(Math.max(ttl, 2 * TTL_SECONDS), options);
    const adopt = async (ttlSeconds: number): Promise<boolean> => {
      const earlier = newKeeper(false, ttlSeconds);
      const { id } = (await earlier.bind('a')).held;
      await earlier.close(false);
      return keeper.adopt(id, ['a'], async () => {});
    };
    expect([await adopt(TTL_SECONDS), await adopt(3 * TTL_SECONDS)]).toEqual([true, false]);
  });

  it('adopts a lease although the own one whose TTL it compares has ended (regression: never)', async () => {
    const grant = link.grantLease.bind(link);
    link.grantLease = (ttl, options) => grant(2 * ttl, options);
    const earlier = newKeeper();
    const { id } = (await earlier.bind('a')).held;
    await earlier.close(false);
    const own = (await keeper.bind('b')).held.id;
    server.expireLease(own);
    expect(await keeper.adopt(id, ['a'], async () => {})).toBe(true);
    expect([lost, keeper.holds(own)]).toEqual([[['b']], false]);
  });

  it('does not adopt a lease, and keeps its own one, if the own TTL cannot be read for comparison', async () => {
    const grant = link.grantLease.bind(link);
    link.grantLease = (ttl, options) => grant(2 * ttl, options);
    const earlier = newKeeper();
    const { id } = (await earlier.bind('a')).held;
    await earlier.close(false);
    const own = (await keeper.bind('b')).held.id;
    const keepAlive = link.keepLeaseAlive.bind(link);
    link.keepLeaseAlive = (lease, options) =>
      lease === own
        ? Promise.reject(new KvstoreError('unavailable', 'no connection'))
        : keepAlive(lease, options);
    await expect(keeper.adopt(id, ['a'], async () => {})).rejects.toMatchObject({ code: 'unavailable' });
    expect([lost, keeper.holds(own), keeper.holds(id)]).toEqual([[], true, false]);
  });

  it('does not adopt a lease of a server that loses each lease which it grants (regression: an endless loop)', async () => {
    const grant = link.grantLease.bind(link);
    let grants = 0;
    link.grantLease = (ttl, options) => {
      if (++grants === 100) throw new Error('too many leases');
      return grant(2 * ttl, options);
    };
    const earlier = newKeeper();
    const { id } = (await earlier.bind('a')).held;
    await earlier.close(false);
    const keepAlive = link.keepLeaseAlive.bind(link);
    link.keepLeaseAlive = (lease, options) =>
      lease === id ? keepAlive(lease, options) : Promise.reject(new KvstoreError('lease-not-found', 'lost'));
    const adopt = (): Promise<boolean> => keeper.adopt(id, ['a'], async () => {});
    await expect(adopt()).rejects.toMatchObject({ code: 'unavailable' });
    expect(grants).toBe(2);
    link.keepLeaseAlive = keepAlive;
    expect(await adopt()).toBe(true); // regression: never, because the loss counted as the end of the adopted lease
  });

  it('refuses a lease that the server grants a second time (regression: an endless loop after its expiry)', async () => {
    for (let i = 0; i < 1000; i++) await keeper.bind(`${i}`);
    const { held } = await keeper.bind('0');
    link.grantLease = () => Promise.resolve(held.id);
    await expect(keeper.bind('more')).rejects.toMatchObject({
      code: 'internal',
      message: `the server granted lease ${held.id}, which this client already holds`,
    });
    expect([keeper.size, keeper.holds(held.id), lost]).toEqual([1, true, []]);
  });

  it('unbinds a restored key after each delete that began before (regression: not if its row was reused)', async () => {
    const binding = await keeper.bind('a');
    const first = keeper.bindings.bindingOf('a');
    const second = keeper.bindings.bindingOf('a');
    keeper.bindings.unbind(first, 2);
    await keeper.bind('b');
    keeper.bindings.confirm(binding, 1);
    keeper.bindings.unbind(second, 3);
    expect([keeper.bindings.bindingOf('a'), keeper.bindings.bindingOf('b')?.key]).toEqual([undefined, 'b']);
  });

  it('counts an adopted key that was bound to another lease only for the adopted one', async () => {
    const { held } = await keeper.bind('a');
    keeper.bindings.confirm(await keeper.bind('b'), 1);
    expect(await keeper.adopt(server.grantLease(TTL_SECONDS), ['a'], async () => {})).toBe(true);
    expect([held.size, keeper.bindings.bindingOf('a')]).toMatchObject([
      1,
      { held: { size: 1 }, writtenAt: 0 },
    ]);
  });

  it('does not consider a key written under a new lease because it was written under a lost one', async () => {
    await keeper.close(true);
    const gate = new TurnGate({ clock, nextTurn: () => {} });
    keeper = newKeeper(false, TTL_SECONDS, gate);
    const before = await keeper.bind('a');
    keeper.bindings.confirm(before, 7);
    void gate.pass(10_000); // the keys of the lost lease wait for a turn
    keeper.markLost(before.held.id);
    const again = await keeper.bind('a');
    expect([again.held === before.held, again.writtenAt]).toEqual([false, -1]);
    keeper.bindings.settle([again], false);
    expect(keeper.bindings.bindingOf('a')).toBeUndefined();
  });

  it('keeps few rows of keys that have left a lease', async () => {
    const { held } = await keeper.bind('a');
    for (let i = 0; i < 10_000; i++) keeper.bindings.unbind(keeper.bindings.bind(held, `${i}`));
    expect([held.size, held.rows.length <= 4000]).toEqual([1, true]);
    keeper.markLost(held.id);
    expect(lost).toEqual([['a']]);
  });

  it('knows a binding of two billion bindings ago as an earlier one (regression: a later one)', () => {
    const previous = 2 ** 31 - 1;
    const latest = (previous + 2) | 0;
    const orders = [1, previous, previous + 1, latest, latest + 1, -1].map((order) => order | 0);
    expect(orders.map((order) => isOrderAfter(order, previous, latest))).toEqual([
      false,
      false,
      true,
      true,
      false,
      false,
    ]);
    expect(isOrderAfter(1, -(2 ** 31) + 5, -(2 ** 31) + 5)).toBe(false);
  });

  it('keeps an adopted key bound if a write of it is refused', async () => {
    const earlier = newKeeper();
    const { id } = (await earlier.bind('a')).held;
    await earlier.close(false);
    expect(await keeper.adopt(id, ['a'], async () => {})).toBe(true);
    keeper.bindings.settle(await keeper.bindAll([{ key: 'a' }]), false);
    expect(keeper.bindings.bindingOf('a')?.held.id).toBe(id);
  });

  it('binds further keys to an adopted lease without a request, and does not count it as granted to this session', async () => {
    const id = server.grantLease(TTL_SECONDS);
    let prepared = 0;
    const adopt = (key: string): Promise<boolean> => keeper.adopt(id, [key], async () => void prepared++);
    expect(await Promise.all([adopt('a'), adopt('b')])).toEqual([true, true]);
    expect([await adopt('c'), asked.length, prepared, keeper.size]).toEqual([true, 1, 1, 1]);
    expect([...'abc'].map((key) => keeper.bindings.bindingOf(key)?.held.id)).toEqual([id, id, id]);
    expect((await keeper.anyGranted()).lease).not.toBe(id);
  });

  it('binds no further keys to an adopted lease that has expired, even before it has checked the clock', async () => {
    const id = server.grantLease(TTL_SECONDS);
    await keeper.close(true);
    keeper = newKeeper(true);
    expect(await keeper.adopt(id, ['a'], async () => {})).toBe(true);
    clock.setWallTimeBy(HOUR_MS); // the machine was suspended
    expect(await keeper.adopt(id, ['b'], async () => {})).toBe(false);
    expect(keeper.bindings.bindingOf('b')).toBeUndefined();
  });

  it('holds no lease whose adoption ends after the close', async () => {
    const id = server.grantLease(TTL_SECONDS);
    const close = async (): Promise<void> => void (await keeper.close(true));
    expect(await keeper.adopt(id, ['a'], close)).toBe(false);
    expect([keeper.size, keeper.bindings.bindingOf('a')]).toEqual([0, undefined]);
  });

  it('drops every lease if the store was restored; they expire', async () => {
    await keeper.bind('a');
    const [first = ''] = server.leases;
    keeper.loseAll();
    expect(lost).toEqual([['a']]);
    expect(keeper.holds(first)).toBe(false);
    const lease = (await keeper.bind('a')).held.id;
    expect(lease).not.toBe(first);
    await advance(clock, TTL_SECONDS * 1000);
    expect(server.leases).toEqual([lease]);
  });

  it('adopts no lease that it held without keys when the store was restored', async () => {
    const lease = server.grantLease(TTL_SECONDS);
    const prepare = async (): Promise<void> => {};
    expect(await keeper.adopt(lease, [], prepare)).toBe(true);
    keeper.loseAll();
    expect(await keeper.adopt(lease, ['a'], prepare)).toBe(false);
  });

  it.each(['keepalive', 'preparation'])(
    'does not adopt a lease if the store was restored during the %s (regression: keys that were deleted by the restore stayed absent)',
    async (when) => {
      const earlier = newKeeper();
      const lease = (await earlier.bind('a')).held.id;
      await earlier.close(false);
      const restore = (): Promise<void> => settle().then(() => keeper.loseAll());
      if (when === 'keepalive') {
        const keepLeaseAlive = link.keepLeaseAlive.bind(link);
        link.keepLeaseAlive = (...call) => restore().then(() => keepLeaseAlive(...call));
      }
      const prepare = when === 'keepalive' ? async () => {} : restore;
      expect(await keeper.adopt(lease, ['a'], prepare)).toBe(false);
      expect([keeper.size, keeper.bindings.bindingOf('a')]).toEqual([0, undefined]);
      expect(await keeper.adopt(lease, ['a'], prepare)).toBe(false);
    },
  );

  it('close revokes the leases or leaves them, and ends everything', async () => {
    const binding = await keeper.bind('a');
    expect(await keeper.close(false)).toBe(true);
    expect(server.leases).toHaveLength(1);
    keeper.bindings.confirm(binding, 1);
    expect([...keeper.bindings.unbindBelow('', 1, keeper.bindings.count)]).toEqual([]);
    await expect(keeper.bind('b')).rejects.toMatchObject({ code: 'closed' });
    await supervisor.stop();
    await advance(clock, TTL_SECONDS * 1000);
    expect([server.leases, asked, lost]).toEqual([[], [], []]);
    const other = newKeeper();
    await other.bind('a');
    await other.close(true);
    expect(server.leases).toEqual([]);
  });

  it('close reports that one of its revocations had no answer in time', async () => {
    await keeper.bind('a');
    vi.spyOn(link, 'revokeLease').mockRejectedValueOnce(new KvstoreError('deadline', 'no answer'));
    expect(await keeper.close(true)).toBe(false);
  });

  it('close revokes 16 leases at a time (regression: a thousand requests in one turn), and ends if the server is unreachable', async () => {
    for (let i = 0; i < 40_000; i += 1000)
      await keeper.bindAll(Array.from({ length: 1000 }, (_, k) => ({ key: `${i + k}` })));
    expect(server.leases).toHaveLength(40);
    let running = 0;
    let most = 0;
    let revoked = 0;
    const revokeLease = link.revokeLease.bind(link);
    link.revokeLease = async (...call) => {
      most = Math.max(most, ++running);
      revoked++;
      if (revoked > 30) link.down();
      await revokeLease(...call).finally(() => running--);
    };
    const closing = keeper.close(true);
    await advance(clock, HOUR_MS);
    await closing;
    expect(most).toBe(16);
    expect(revoked).toBeLessThan(40);
    link.up();
    await advance(clock, HOUR_MS);
    expect(server.leases).toEqual([]); // expired
  });

  it('close revokes all leases of a server that answers after 3 s (regression: 16 of them)', async () => {
    for (let i = 0; i < 20_000; i += 1000)
      await keeper.bindAll(Array.from({ length: 1000 }, (_, k) => ({ key: `${i + k}` })));
    const revokeLease = link.revokeLease.bind(link);
    vi.spyOn(link, 'revokeLease').mockImplementation(async (lease, { deadlineMs = 10_000 } = {}) => {
      await sleep(clock, Math.min(3000, deadlineMs));
      if (deadlineMs < 3000) throw new KvstoreError('deadline', 'no answer');
      await revokeLease(lease);
    });
    const closing = keeper.close(true);
    await advance(clock, 10_000);
    await closing;
    expect(server.leases).toEqual([]);
  });

  it('a written key stays bound if other writes of it were refused before and after its answer (regression: its loss was not reported)', async () => {
    const written = await keeper.bind('a');
    keeper.bindings.settle([await keeper.bind('a')], false);
    const refused = await keeper.bind('a');
    keeper.bindings.confirm(written, 3);
    keeper.bindings.settle([refused], false);
    expect(keeper.bindings.bindingOf('a')).toEqual({ ...refused, writtenAt: 3 });
    keeper.bindings.unbind(refused, 2); // by an earlier delete, whose answer is late
    expect(keeper.bindings.bindingOf('a')).toEqual({ ...refused, writtenAt: 3 });
  });

  it('a refused write does not bind a key again that a delete has removed (regression: it was reported as lost)', async () => {
    keeper.bindings.confirm(await keeper.bind('a'), 5);
    const refused = await keeper.bind('a');
    keeper.bindings.unbind(refused, 8);
    keeper.bindings.settle([refused], false);
    expect(keeper.bindings.bindingOf('a')).toBeUndefined();
  });

  it('a lease that is granted after the end is revoked', async () => {
    const grant = link.grantLease.bind(link);
    let answer = (): void => {};
    vi.spyOn(link, 'grantLease').mockImplementationOnce(async (ttl) => {
      const lease = await grant(ttl);
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
      return lease;
    });
    const binding = keeper.bind('a').catch((error: unknown) => error);
    await settle();
    await keeper.close(true);
    answer();
    expect(await binding).toMatchObject({ code: 'closed' });
    expect(server.leases).toEqual([]);
  });
});

it('a lease in a key is its 64 bits in hexadecimal, as the Go client writes it', () => {
  expect(leaseHex('7587862094800371457')).toBe('694d805f7d3a3f01');
  expect(leaseHex('-1')).toBe('ffffffffffffffff');
});
