import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Supervisor } from '../../../src/base/supervisor.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import type { KvstoreLock } from '../../../src/kvstore/session/backend.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { leaseHex } from '../../../src/kvstore/session/lease-keeper.ts';
import { LockKeeper } from '../../../src/kvstore/session/lock-keeper.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { giveUpDelete, giveUpPut } from '../support/given-up-write.ts';
import { advance, settle } from '../support/settle.ts';

const PATH = 'locks/a';

describe('the locks of one client', () => {
  let clock: ManualClock;
  let backend: FaultyMemoryBackend;
  beforeEach(() => {
    clock = new ManualClock();
    backend = new FaultyMemoryBackend({ clock, random: () => 0.5 });
  });
  afterEach(() => backend.close());

  const failNextDelete = (): void => {
    const { link } = backend;
    const txn = link.txn.bind(link);
    link.txn = (request, options) => {
      if (!request.writes.some(({ op }) => op === 'delete')) return txn(request, options);
      link.txn = txn;
      return Promise.reject(new KvstoreError('unavailable', 'connection reset'));
    };
  };

  it('a caller that aborts does not admit a later one (regression: two held one lock)', async () => {
    const first = await backend.lock(PATH);
    const controller = new AbortController();
    const second = backend.lock(PATH, { signal: controller.signal });
    controller.abort();
    await expect(second).rejects.toMatchObject({ code: 'aborted' });
    let isHeld = false;
    const third = backend.lock(PATH).then((lock) => {
      isHeld = true;
      return lock;
    });
    await settle(4);
    expect(isHeld).toBe(false);
    await first.release();
    await (await third).release();
    expect(backend.server.range(keyRange(first.key)).count).toBe(0);
  });

  it('a caller that aborts leaves nothing behind it (regression: later callers waited for each of them)', async () => {
    const microtasksUntilNext = async (aborted: number): Promise<number> => {
      const first = await backend.lock(PATH);
      for (let i = 0; i < aborted; i++) {
        const controller = new AbortController();
        const waiting = backend.lock(PATH, { signal: controller.signal });
        controller.abort();
        await expect(waiting).rejects.toMatchObject({ code: 'aborted' });
      }
      let next: KvstoreLock | undefined;
      void backend.lock(PATH).then((lock) => {
        next = lock;
      });
      await first.release();
      let microtasks = 0;
      for (; next === undefined && microtasks < 10_000; microtasks++) await Promise.resolve();
      await settle(4);
      await next?.release();
      return microtasks;
    };
    const usual = await microtasksUntilNext(0);
    expect(usual).toBeLessThan(1000);
    expect(await microtasksUntilNext(2000)).toBe(usual);
  });

  it('a key that could not be deleted is not deleted under the next holder (regression: another client got in)', async () => {
    failNextDelete();
    await (await backend.lock(PATH)).release();
    const next = await backend.lock(PATH);
    await advance(clock, 10_000);
    expect(backend.server.range(keyRange(next.key)).count).toBe(1);
    await next.release();
    expect(backend.server.range(keyRange(next.key)).count).toBe(0);
  });

  it('close ends callers that wait behind a holder (regression: they waited for ever)', async () => {
    await backend.lock(PATH);
    const waiting = backend.lock(PATH);
    await settle();
    await backend.close();
    await expect(waiting).rejects.toMatchObject({ code: 'aborted' });
  });

  it('a place that lands after it was given up blocks no other client (regression: 90 s, while its process lived)', async () => {
    const other = new FaultyMemoryBackend({ clock, server: backend.server });
    const { key, release } = await backend.lock(PATH);
    await release();
    const land = giveUpPut(backend.link, key);
    await expect(backend.lock(PATH)).rejects.toMatchObject({ code: 'deadline' });
    await advance(clock, 1000);
    await land();
    expect(await backend.get(key)).toBeUndefined();
    await (await other.lock(PATH)).release();
    await other.close();
  });

  it('a release that lands late does not delete the place of the next holder (regression: two held one lock)', async () => {
    const first = await backend.lock(PATH);
    const land = giveUpDelete(backend.link, first.key);
    await first.release();
    const next = await backend.lock(PATH);
    await land();
    expect(await backend.get(next.key)).toBeDefined();
    expect(next.lost.aborted).toBe(false);
    await next.release();
    expect(await backend.get(next.key)).toBeUndefined();
  });

  it('a release that is retried and lands late does not delete the place of a caller that came after another aborted (regression: two held one lock)', async () => {
    const first = await backend.lock(PATH);
    failNextDelete();
    await first.release();
    const { link } = backend;
    const txn = link.txn.bind(link);
    let land = (): Promise<unknown> => Promise.reject(new Error('nothing was deleted'));
    link.txn = (request, options) => {
      if (!request.writes.some(({ op }) => op === 'delete')) return txn(request, options);
      link.txn = txn;
      return new Promise((resolve, reject) => {
        land = () => txn(request, options).then(resolve, reject);
      });
    };
    await advance(clock, 1000); // retried, and delayed
    const controller = new AbortController();
    const second = backend.lock(PATH, { signal: controller.signal });
    await settle(4);
    controller.abort();
    await expect(second).rejects.toMatchObject({ code: 'aborted' });
    const third = backend.lock(PATH);
    await settle(4);
    await land();
    const lock = await third;
    expect(await backend.get(lock.key)).toBeDefined();
    await lock.release();
    expect(await backend.get(lock.key)).toBeUndefined();
  });

  it('a place that another client deletes while it waits is created again (regression: the call failed)', async () => {
    const other = new FaultyMemoryBackend({ clock, server: backend.server });
    const held = await other.lock(PATH);
    const waiting = backend.lock(PATH);
    await settle(4);
    const places = await other.listPrefix(`${PATH}/`);
    for (const { key } of places) if (key !== held.key) await other.delete(key);
    await advance(clock, 6000);
    expect(await other.listPrefix(`${PATH}/`)).toHaveLength(2);
    await held.release();
    await (await waiting).release();
    await other.close();
  });

  it('a contender that waits reads only its own key and the one before it (regression: the whole queue every 5 s)', async () => {
    const held = await backend.lock(PATH);
    const others = Array.from(
      { length: 8 },
      () => new FaultyMemoryBackend({ clock, server: backend.server }),
    );
    const waiting = others.map((other) => other.lock(PATH));
    await settle(8);
    let keys = 0;
    for (const { link } of others) {
      const range = link.range.bind(link);
      vi.spyOn(link, 'range').mockImplementation(async (...given) => {
        const answer = await range(...given);
        keys += answer.kvs.length;
        return answer;
      });
    }
    await advance(clock, 5000);
    expect(keys).toBe(2 * others.length);
    await held.release();
    for (const lock of waiting) await (await lock).release();
    await Promise.all(others.map((other) => other.close()));
  });

  it('a queue of too many keys rejects (regression: a server could send any number, with values)', async () => {
    const { link } = backend;
    const range = link.range.bind(link);
    const read = vi
      .spyOn(link, 'range')
      .mockImplementation(async (...given) => ({ ...(await range(...given)), more: true }));
    await expect(backend.lock(PATH)).rejects.toMatchObject({
      code: 'too-large',
      message: `${PATH} has more than 65536 keys`,
    });
    expect(read.mock.calls[0]?.[0]).toMatchObject({ limit: 65_536, keysOnly: true });
  });

  it('a caller that asks while the second in line holds the lock waits for that one', async () => {
    const first = await backend.lock(PATH);
    const second = backend.lock(PATH);
    await first.release();
    await second;
    const third = vi.fn();
    void backend.lock(PATH).then(third);
    await settle(6);
    expect(third).not.toHaveBeenCalled();
    await (await second).release();
    await settle(6);
    expect(third).toHaveBeenCalledOnce();
  });

  it('a failure during the wait rejects, and leaves no place', async () => {
    const refused = new KvstoreError('unavailable', 'connection reset');
    vi.spyOn(backend.link, 'range').mockRejectedValueOnce(refused);
    await expect(backend.lock(PATH)).rejects.toBe(refused);
    await settle(4);
    expect(backend.server.range(prefixRange(`${PATH}/`)).count).toBe(0);
    await (await backend.lock(PATH)).release();
  });

  it('a place is an empty key, as that of a Go program', async () => {
    const lock = await backend.lock(PATH);
    expect(backend.server.range(keyRange(lock.key)).kvs.map(({ value }) => value.length)).toEqual([0]);
    await lock.release();
  });

  it('close releases held locks immediately', async () => {
    const other = new FaultyMemoryBackend({ clock, server: backend.server });
    const lock = await backend.lock(PATH);
    await backend.close();
    expect([lock.lost.aborted, backend.server.leases]).toEqual([true, []]);
    await (await other.lock(PATH)).release();
    await other.close();
  });

  it('a caller that has aborted before its call does not wait for those ahead', async () => {
    const lock = await backend.lock(PATH);
    const signal = AbortSignal.abort();
    await expect(backend.lock(PATH, { signal })).rejects.toMatchObject({ code: 'aborted' });
    await lock.release();
  });

  it('a caller that aborts when it learns its predecessor does not wait for it (regression: 5 s)', async () => {
    const other = new FaultyMemoryBackend({ clock, server: backend.server });
    await other.lock(PATH);
    const { link } = backend;
    const controller = new AbortController();
    const range = link.range.bind(link);
    vi.spyOn(link, 'range').mockImplementation(async (...given) => {
      const answer = await range(...given);
      controller.abort();
      return answer;
    });
    const failure = backend.lock(PATH, { signal: controller.signal }).catch((error: unknown) => error);
    expect(await Promise.race([failure, settle(8)])).toMatchObject({ code: 'aborted' });
    await other.close();
  });

  it.each(['grantLease', 'txn', 'range'] as const)(
    'who gives up while the server does not answer waits for no deadline: %s (regression: it did for its lease)',
    async (call) => {
      if (call !== 'grantLease') await (await backend.lock(PATH)).release();
      const { link } = backend;
      const made = link[call].bind(link) as (...given: readonly unknown[]) => Promise<never>;
      const controller = new AbortController();
      vi.spyOn(link, call).mockImplementationOnce((...given: readonly unknown[]) => {
        link.blackHole();
        return made(...given);
      });
      const failure = backend.lock(PATH, { signal: controller.signal }).catch((error: unknown) => error);
      await settle(4);
      controller.abort();
      await settle(4);
      link.up();
      expect(await Promise.race([failure, settle(4)])).toMatchObject({ code: 'aborted' });
      await advance(clock, 20_000);
      expect(backend.server.range(prefixRange(`${PATH}/`)).count).toBe(0);
    },
  );

  it('an earlier place that is deleted while it is read is created again', async () => {
    const held = await backend.lock(PATH);
    const { link, server } = backend;
    failNextDelete();
    await held.release(); // its key is left
    let isLooked = false;
    link.onRead = ({ start }) => {
      if (isLooked || start !== held.key) return;
      isLooked = true;
      server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(held.key) }] });
    };
    const lock = await backend.lock(PATH);
    expect([isLooked, lock.revision > held.revision, lock.lost.aborted]).toEqual([true, true, false]);
    expect(server.range(keyRange(lock.key)).kvs).toMatchObject([{ createRevision: lock.revision }]);
    await lock.release();
  });

  it('a place that cannot be given up is retried, and reported, until its lease has expired', async () => {
    const tasks = (): readonly string[] =>
      backend
        .status()
        .background.tasks.map(({ name }) => name)
        .filter((name) => name.includes('delete of'));
    const held = await backend.lock(PATH);
    expect(backend.status().background.tasks.map(({ name }) => name)).toContain('locks');
    backend.link.down();
    await held.release();
    await advance(clock, 10_000);
    expect(tasks()).toEqual([`locks: delete of the key below ${PATH}`]);
    await advance(clock, 60_000);
    expect([tasks(), backend.server.leases]).toEqual([[], []]);
    backend.link.up();
    await (await backend.lock(PATH)).release();
  });

  it('a place whose answer was lost is given up, too', async () => {
    await (await backend.lock(PATH)).release();
    backend.link.loseAnswers(1);
    await expect(backend.lock(PATH)).rejects.toMatchObject({ code: 'unavailable' });
    await settle(6);
    expect(backend.server.range(prefixRange(`${PATH}/`)).count).toBe(0);
  });

  it('a place that still exists is given up if it cannot be read (regression: it blocked all clients while its process lived)', async () => {
    await (await backend.lock(PATH)).release();
    failNextDelete();
    backend.link.loseAnswers(1);
    await expect(backend.lock(PATH)).rejects.toMatchObject({ code: 'unavailable' });
    await settle(6);
    expect(backend.server.range(prefixRange(`${PATH}/`)).count).toBe(1);
    const reset = new KvstoreError('unavailable', 'connection reset');
    vi.spyOn(backend.link, 'range').mockRejectedValueOnce(reset);
    await expect(backend.lock(PATH)).rejects.toBe(reset);
    await advance(clock, 60_000);
    expect(backend.server.range(prefixRange(`${PATH}/`)).count).toBe(0);
  });

  describe('with those of another client', () => {
    let other: FaultyMemoryBackend;
    beforeEach(() => {
      other = new FaultyMemoryBackend({ clock, server: backend.server });
    });
    afterEach(() => other.close());

    it('a place that still exists keeps its turn before later ones', async () => {
      const held = await other.lock(PATH);
      const controller = new AbortController();
      const givenUp = backend.lock(PATH, { signal: controller.signal });
      await settle(4);
      const later = new FaultyMemoryBackend({ clock, server: backend.server });
      const last = vi.fn();
      const waiting = later.lock(PATH).then((lock) => {
        last();
        return lock;
      });
      await settle(4);
      failNextDelete();
      controller.abort();
      await expect(givenUp).rejects.toMatchObject({ code: 'aborted' });
      const again = backend.lock(PATH);
      await settle(4);
      await held.release();
      await settle(6);
      expect(last).not.toHaveBeenCalled();
      const lock = await again;
      expect(lock.revision).toBe(backend.server.range(keyRange(lock.key)).kvs[0]?.createRevision);
      await lock.release();
      await (await waiting).release();
      await later.close();
    });

    it('its wait leaves no stream, whether it ends or is aborted', async () => {
      const held = await other.lock(PATH);
      const controller = new AbortController();
      const aborted = backend.lock(PATH, { signal: controller.signal });
      await settle(4);
      expect(backend.link.streams).toBe(1);
      controller.abort();
      await expect(aborted).rejects.toMatchObject({ code: 'aborted' });
      expect(backend.link.streams).toBe(0);
      const waiting = backend.lock(PATH);
      await settle(6);
      await held.release();
      await (await waiting).release();
      expect(backend.link.streams).toBe(0);
    });

    it('one of a path below it is another lock', async () => {
      const below = await other.lock(`${PATH}/below`);
      await (await backend.lock(PATH)).release();
      await below.release();
    });

    it('it is notified if the place before its own is deleted together with others', async () => {
      const held = await other.lock(PATH);
      const waiting = backend.lock(PATH);
      await settle(4);
      await other.update(`${held.key}/x`, bytesOfText('1'));
      await other.deletePrefix(held.key);
      await settle(6);
      expect(await Promise.race([waiting, settle(4)])).toBeDefined(); // and not when it checks again by itself
      await (await waiting).release();
    });

    it('it waits for the place right before its own, and for no other', async () => {
      const third = new FaultyMemoryBackend({ clock, server: backend.server });
      // Has the first lease: the order of keys is not that of the queue.
      await (await third.lock('elsewhere')).release();
      const first = await other.lock(PATH);
      const second = third.lock(PATH);
      await settle(4);
      const waiting = backend.lock(PATH);
      await settle(4);
      let reads = 0;
      backend.link.onRead = () => void reads++;
      await other.update(`${first.key}/x`, bytesOfText('1'));
      await other.delete(`${first.key}/x`);
      await other.update(first.key, bytesOfText('1'));
      await first.release();
      await settle(6);
      expect(reads).toBe(0);
      const ahead = await second;
      await other.update(ahead.key, bytesOfText('1'));
      await other.update(`${ahead.key}x`, bytesOfText('1'));
      await other.delete(`${ahead.key}x`);
      await settle(6);
      expect(reads).toBe(0);
      await ahead.release();
      await (await waiting).release();
      expect(reads).toBe(1);
      await third.close();
    });
  });

  it('a lease that expired unnoticed costs a retry, not the lock (regression: lease-not-found)', async () => {
    await (await backend.lock(PATH)).release();
    for (const lease of backend.server.leases) backend.server.expireLease(lease);
    const lock = await backend.lock(PATH);
    expect(lock.lost.aborted).toBe(false);
    expect(await backend.get(lock.key)).toBeDefined();
    await lock.release();
  });

  it.each([
    ['a lock', PATH, () => backend.lock(PATH)],
    ['the fence of a lock', '', () => backend.lock(PATH)],
    ['a fenced write', '', () => backend.update('k', bytesOfText(''), { fenced: true })],
  ])(
    'a server that has none of its leases fails %s (regression: endless requests)',
    async (_, path, write) => {
      const grant = vi.spyOn(backend.link, 'grantLease');
      const txn = backend.link.txn.bind(backend.link);
      vi.spyOn(backend.link, 'txn').mockImplementation(async (request) => {
        const isLeased = request.writes.some((each) => each.op === 'put' && each.key.startsWith(path));
        if (!isLeased) return txn(request);
        if (grant.mock.calls.length > 20) throw new Error('endless requests');
        throw new KvstoreError('lease-not-found', 'requested lease not found');
      });
      await expect(write()).rejects.toMatchObject({
        code: 'unavailable',
        message: expect.stringMatching(/^lease \d+/),
      });
      expect(grant.mock.calls.length).toBeLessThan(5);
    },
  );

  it('a lock is not granted under a lease that was lost during the wait', async () => {
    const server = new ManualClock();
    const own = new FaultyMemoryBackend({ clock, server: new MemoryServer({ clock: server }) });
    const range = own.link.range.bind(own.link);
    vi.spyOn(own.link, 'range').mockImplementationOnce(async (...call) => {
      const answer = await range(...call);
      clock.setWallTimeBy(3_600_000); // the machine was suspended before the answer was read
      clock.advance(2000);
      await settle();
      return answer;
    });
    const lock = await own.lock(PATH);
    const [, second = '0'] = own.server.leases;
    expect(lock.key).toBe(`${PATH}/${leaseHex(second)}`);
    expect(lock.lost.aborted).toBe(false);
    await own.close();
  });
});

const HOUR_MS = 3_600_000;

it('a lock whose lease is lost at the moment of the grant is reported as lost (regression: never)', async () => {
  const clock = new ManualClock();
  const supervisor = new Supervisor({ clock, random: () => 0.5 });
  const transport = new MemoryTransport(new MemoryServer({ clock }));
  for (let moments = 0; moments < 100; moments++) {
    const keeper = new LockKeeper({ transport, clock, random: () => 0.5, supervisor });
    const locking = keeper.lock(`${PATH}/${moments}`);
    for (let i = 0; i < moments; i++) await Promise.resolve();
    keeper.loseAll();
    const { lost } = await locking;
    keeper.loseAll(); // a lock that is acquired after a loss has another lease
    expect(lost.aborted).toBe(true);
    await keeper.close();
  }
  await supervisor.stop();
});

describe('a holder that is disconnected from the kvstore', () => {
  let clock: ManualClock;
  let holder: FaultyMemoryBackend;
  let other: FaultyMemoryBackend;
  beforeEach(() => {
    clock = new ManualClock();
    holder = new FaultyMemoryBackend({ clock });
    other = new FaultyMemoryBackend({ clock, server: holder.server });
  });
  afterEach(() => Promise.all([holder.close(), other.close()]));

  it.each([
    ['down', 0],
    ['down', -HOUR_MS],
    ['down', HOUR_MS],
    ['blackHole', 0],
    ['blackHole', -HOUR_MS],
    ['blackHole', HOUR_MS],
  ] as const)(
    'is notified before another holds the lock: %s, its clock set by %i ms (regression: afterwards, or never)',
    async (fault, ms) => {
      const lock = await holder.lock(PATH);
      await advance(clock, 60_000); // keepalives continue
      expect(lock.lost.aborted).toBe(false);
      const story: string[] = [];
      lock.lost.addEventListener('abort', () => story.push('lost'));
      const next = other.lock(PATH).then(() => story.push('held by another'));
      await settle(4);
      holder.link[fault]();
      clock.setWallTimeBy(ms);
      await advance(clock, 40_000);
      await next;
      expect(story).toEqual(['lost', 'held by another']);
    },
  );

  it('keeps the lock for most of the time of its lease', async () => {
    const lock = await holder.lock(PATH);
    holder.link.down();
    await advance(clock, 22_000);
    expect(lock.lost.aborted).toBe(false);
    holder.link.up();
    await advance(clock, 60_000);
    expect(lock.lost.aborted).toBe(false);
    await lock.release();
  });
});

it('a holder that was suspended detects within two seconds that it may have lost its lock (regression: 8 s, or more without a network)', async () => {
  const [clock, serverClock] = [new ManualClock(), new ManualClock()];
  const server = new MemoryServer({ clock: serverClock });
  const holder = new FaultyMemoryBackend({ clock, server });
  const other = new FaultyMemoryBackend({ clock: serverClock, server });
  const lock = await holder.lock(PATH);
  const next = other.lock(PATH);
  await settle(4);
  holder.link.down();
  clock.setWallTimeBy(60_000); // the monotonic clock does not advance
  await advance(serverClock, 60_000);
  await next;
  await advance(clock, 1500);
  expect(lock.lost.aborted).toBe(true);
  await Promise.all([holder.close(), other.close()]);
});
