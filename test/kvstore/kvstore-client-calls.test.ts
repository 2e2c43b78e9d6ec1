import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../src/kvstore/codec/key-range.ts';
import { LEASE_WITNESSES_PREFIX } from '../../src/kvstore/codec/keys.ts';
import { KvstoreClient, type KvstoreClientOptions } from '../../src/kvstore/kvstore-client.ts';
import { FaultyLink } from '../../src/kvstore/memory/faulty-link.ts';
import { FaultyMemoryBackend } from '../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../src/kvstore/memory/memory-transport.ts';
import { KvstoreError } from '../../src/kvstore/session/errors.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from './support/settle.ts';
import { WatchRecorder } from './support/watch-recorder.ts';

const ONE = bytesOfText('1');

describe('a client of a kvstore', () => {
  let clock: ManualClock;
  let server: MemoryServer;
  let link: FaultyLink;
  let client: KvstoreClient;

  const connect = (options: Partial<KvstoreClientOptions> = {}): void => {
    link = new FaultyLink(new MemoryTransport(server), clock);
    client = new KvstoreClient({ kind: 'memory', transport: link, clock, random: () => 0.5, ...options });
  };

  beforeEach(() => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
    connect();
  });
  afterEach(() => client.close());

  describe('whose user lacks a right', () => {
    it('names the missing right to read', async () => {
      link.forbid('p/');
      await expect(client.get('p/a')).rejects.toThrow('grant read on p/a to the user');
      await expect(client.listPrefix('p/')).rejects.toThrow('grant read on p/ to the user');
    });

    it.each<[string, () => Promise<unknown>]>([
      ['p/a', () => client.update('p/a', ONE)],
      ['p/b', () => client.updateIfDifferent('p/b', ONE)],
      ['p/c', () => client.createOnly('p/c', ONE)],
      ['p/d', () => client.delete('p/d')],
      ['p/', () => client.deletePrefix('p/')],
    ])('names the missing right to write: %s', async (key, write) => {
      const denied = new KvstoreError('forbidden', 'etcdserver: permission denied');
      vi.spyOn(link, 'txn').mockRejectedValue(denied);
      await expect(write()).rejects.toThrow(`grant readwrite on ${key} to the user`);
    });

    it('requests the rights of its watches after another call was refused', async () => {
      const recorder = new WatchRecorder(client.watch('p/'));
      await settle();
      link.forbid('p/');
      await client.get('p/a').catch(() => {});
      await settle(4);
      expect(recorder.status()).toMatchObject({ state: 'forbidden' });
      await client.close();
      await recorder.done;
    });
  });

  it('writes if its condition holds, and returns whether it did', async () => {
    expect(await client.createOnly('b', ONE)).toBe(true);
    expect(await client.createOnly('b', ONE)).toBe(false);
    const revision = await client.update('a', ONE);
    expect(await client.delete('a', { ifModRevision: revision + 1 })).toBe(false);
    expect(await client.delete('a', { ifModRevision: revision })).toBe(true);
    expect((await client.listPrefix('')).map(({ key }) => key)).toEqual(['b']);
  });

  it('writes a key with the same value again if it is not on its lease', async () => {
    await client.update('a', ONE);
    expect(await client.updateIfDifferent('a', ONE)).toBe(false);
    expect(await client.updateIfDifferent('a', ONE, { leased: true })).toBe(true);
    expect(await client.updateIfDifferent('a', ONE, { leased: true })).toBe(false);
  });

  it('reads a prefix in pages if it exceeds the limit of an answer, and fails with any other error of the read', async () => {
    for (let i = 0; i < 40; i++) await client.update(`p/${i}`, bytesOfText('x'.repeat(100)));
    await client.update('pp', ONE);
    link.limitResponses(1000);
    expect(await client.listPrefix('p/')).toHaveLength(40);
    link.down();
    await expect(client.listPrefix('p/')).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('ends a listing whose server always has further keys (regression: it read until the memory was full)', async () => {
    const value = new Uint8Array(64 << 20);
    const endless: MemoryTransport['range'] = async ({ start }) => {
      const header = { clusterID: '1', revision: 9, raftTerm: 1 };
      return {
        header,
        more: true,
        count: 2,
        kvs: [{ key: start, value, createRevision: 1, modRevision: 1 }],
      };
    };
    vi.spyOn(link, 'range').mockImplementation(endless);
    const watch = link.watch.bind(link);
    vi.spyOn(link, 'watch').mockImplementation((...given) =>
      Object.assign(watch(...given), { range: endless }),
    );
    await expect(client.listPrefix('p/')).rejects.toMatchObject({
      code: 'too-large',
      message: 'the keys of p/ exceed 2147483648 bytes',
    });
  });

  it('counts its leases of both kinds, and lost ones', async () => {
    await client.update('a', ONE, { leased: true });
    await client.update('b', ONE, { leased: 'expires-first' });
    expect(client.status()).toMatchObject({ kind: 'memory', leases: 2, leasesLost: 0 });
    for (const lease of server.leases) server.expireLease(lease);
    await client.update('a', ONE, { leased: true });
    await client.update('b', ONE, { leased: 'expires-first' });
    expect(client.status()).toMatchObject({ leases: 2, leasesLost: 2 });
  });

  it('reports the loss of a lease immediately if it has lease witnesses', async () => {
    await client.close();
    connect({ witnessLeases: true });
    const lost: string[] = [];
    client.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
    await client.update('a', ONE, { leased: true });
    await client.update('b', ONE, { leased: 'expires-first' });
    await settle(8);
    for (const lease of server.leases) server.expireLease(lease);
    await settle(8);
    expect(lost.toSorted()).toEqual(['a', 'b']);
  });

  it('keeps a lease whose witness another client deleted (regression: gave the lease up), and writes the witness again', async () => {
    await client.close();
    connect({ witnessLeases: true });
    const lost: string[] = [];
    client.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
    await client.update('a', ONE, { leased: true });
    await settle(8);
    const witnesses = prefixRange(LEASE_WITNESSES_PREFIX);
    server.txn({ compare: [], writes: [{ op: 'delete', range: witnesses }] });
    await settle(8);
    expect([lost, client.status().leasesLost, server.range(witnesses).count]).toEqual([[], 0, 1]);
    for (const lease of server.leases) server.expireLease(lease);
    await settle(8);
    expect(lost).toEqual(['a']);
  });

  it('does not retry a witness that it has no right to write', async () => {
    await client.close();
    connect({ witnessLeases: true });
    const txn = link.txn.bind(link);
    link.txn = (request, options) =>
      request.writes.some((one) => one.op === 'put' && one.key.startsWith(LEASE_WITNESSES_PREFIX))
        ? Promise.reject(new KvstoreError('forbidden', 'permission denied'))
        : txn(request, options);
    await client.update('a', ONE, { leased: true });
    await advance(clock, 60_000);
    const { failures, tasks } = client.status().background;
    expect([failures, tasks.map(({ name }) => name).toSorted()]).toEqual([0, ['lease witnesses', 'leases']]);
  });

  it('does not write the witness of a lease that is lost (regression: kept one entry for each granted lease)', async () => {
    await client.close();
    connect({ witnessLeases: true });
    const txn = link.txn.bind(link);
    let attempts = 0;
    link.txn = (request, options) => {
      if (!request.writes.some((one) => one.op === 'put' && one.key.startsWith(LEASE_WITNESSES_PREFIX)))
        return txn(request, options);
      attempts++;
      return Promise.reject(new KvstoreError('unavailable', 'no leader'));
    };
    await client.update('a', ONE, { leased: true });
    for (const lease of server.leases) server.expireLease(lease);
    await advance(clock, 3_600_000);
    expect([client.status().leases, attempts > 1]).toEqual([0, true]);
    attempts = 0;
    await advance(clock, 3_600_000);
    expect([
      attempts,
      client
        .status()
        .background.tasks.map(({ name }) => name)
        .toSorted(),
    ]).toEqual([0, ['lease witnesses', 'leases']]);
  });

  it('repeats a write once if the lease is gone, and not a third time', async () => {
    const txn = vi.spyOn(link, 'txn');
    txn.mockRejectedValue(new KvstoreError('lease-not-found', 'it is gone'));
    await expect(client.update('a', ONE, { leased: true })).rejects.toMatchObject({
      code: 'lease-not-found',
    });
    expect(txn).toHaveBeenCalledTimes(2);
    txn.mockRejectedValue(new KvstoreError('overloaded', 'too many requests'));
    await expect(client.update('a', ONE, { leased: true })).rejects.toMatchObject({ code: 'overloaded' });
    expect(txn).toHaveBeenCalledTimes(3);
  });

  it.each([false, true])('keeps its leases when it is closed: %s', async (keepLeases) => {
    await client.update('a', ONE, { leased: true });
    await client.close({ keepLeases });
    expect(server.leases).toHaveLength(keepLeases ? 1 : 0);
  });

  it('reports its watches while they are read', async () => {
    const ended = new AbortController();
    const recorder = new WatchRecorder(client.watch('p/', { signal: ended.signal }));
    await settle();
    expect(client.status().watches.map(({ prefix }) => prefix)).toEqual(['p/']);
    ended.abort();
    await recorder.done;
    expect(client.status().watches).toEqual([]);
  });

  it('makes its watches wait for their turn while the server is unreachable', async () => {
    let asked = 0;
    let succeeded = 0;
    client.retryInTurn({
      turn: async () => void asked++,
      succeeded: () => void succeeded++,
    });
    const recorder = new WatchRecorder(client.watch('p/'));
    await settle();
    link.down();
    await advance(clock, 120_000);
    link.up();
    await advance(clock, 120_000);
    expect([asked > 0, succeeded > 0]).toEqual([true, true]);
    await client.close();
    await recorder.done;
  });

  it('returns the endpoints of its transport', async () => {
    const endpoints = await client.endpoints();
    expect(endpoints).toEqual(await link.endpoints());
    expect(endpoints.length).toBeGreaterThan(0);
  });

  it.each([0, -1, 1.5, Number.NaN, 1e10])(
    'rejects leaseSeconds %d (regression: with 0, a leased write never ended)',
    async (leaseSeconds) => {
      expect(() => connect({ leaseSeconds })).toThrow(
        /options.leaseSeconds must be 1 to 9000000000 whole seconds/,
      );
    },
  );

  it.each([-5, 1.5])(
    'rejects revision %d with the name of the argument (regression: an internal error without it)',
    (revision) => {
      const fault = 'must be a whole number, 0 or more';
      const lock = { key: 'l', revision, lost: new AbortController().signal, release: async () => {} };
      expect(() => client.listPrefix('p/', { minModRevision: revision })).toThrow(
        `listPrefix: options.minModRevision ${fault}`,
      );
      expect(() => client.delete('a', { ifModRevision: revision })).toThrow(
        `delete: options.ifModRevision ${fault}`,
      );
      expect(() => client.update('a', ONE, { ifLocked: lock })).toThrow(
        `update: options.ifLocked.revision ${fault}`,
      );
    },
  );

  describe('whose owner may not always write', () => {
    let may: boolean;
    beforeEach(async () => {
      may = true;
      await client.close();
      connect({ mayWrite: () => may, writeTimeoutMs: 1234 });
    });

    const write: Record<string, () => Promise<unknown>> = {
      one: () => client.update('a', ONE),
      several: () => client.writeAll([{ key: 'a', value: ONE }, { key: 'b' }]),
    };

    it('adopts no lease while it may not', async () => {
      may = false;
      await expect(client.adoptLease('1', ['a'])).rejects.toMatchObject({ code: 'not-leader' });
    });

    it.each(Object.entries(write))('sends nothing while it may not (%s)', async (_, send) => {
      const txn = vi.spyOn(link, 'txn');
      may = false;
      await expect(send()).rejects.toMatchObject({
        code: 'not-leader',
        message:
          'the write was rejected, because this process has not renewed its Lease or lock, which another process may hold now',
      });
      expect(txn).not.toHaveBeenCalled();
    });

    it.each(Object.entries(write))('limits how long a write takes (%s)', async (_, send) => {
      const txn = vi.spyOn(link, 'txn');
      await send();
      expect(txn.mock.calls.map(([, options]) => options?.deadlineMs)).toEqual([1234]);
    });

    it.each([
      [60_000, 1234],
      [100, 100],
    ])('limits a write whose caller sets a deadline of %d ms to %d ms', async (deadlineMs, limit) => {
      const txn = vi.spyOn(link, 'txn');
      await client.update('a', ONE, { deadlineMs });
      expect(txn.mock.calls.map(([, options]) => options?.deadlineMs)).toEqual([limit]);
    });
  });

  const call: Record<string, () => unknown> = {
    'get: key': () => client.get(7 as never),
    'get: options': () => client.get('a', 7 as never),
    'options.signal': () => client.get('a', { signal: 7 } as never),
    'options.deadlineMs': () => client.get('a', { deadlineMs: '7' } as never),
    'read: key': () => client.read(7 as never),
    'listPrefix: prefix': () => client.listPrefix(7 as never),
    'update: value': () => client.update('a', 'text' as never),
    'options.ifLocked.key': () => client.update('a', ONE, { ifLocked: { revision: 1 } } as never),
    'options.ifLocked.revision': () => client.update('a', ONE, { ifLocked: { key: 'l' } } as never),
    'updateIfDifferent: value': () => client.updateIfDifferent('a', 'text' as never),
    'createOnly: value': () => client.createOnly('a', 'text' as never),
    'delete: key': () => client.delete(7 as never),
    'writeAll: writes': () => client.writeAll(7 as never),
    'writeAll: writes[0]': () => client.writeAll([{ key: 'a', value: 'text' } as never]),
    'deletePrefix: prefix': () => client.deletePrefix(7 as never),
    'lock: path': () => client.lock(7 as never),
    'watch: prefix': () => client.watch(7 as never),
    'onLeaseLost: listener': () => client.onLeaseLost({} as never),
    'endpoints: options': () => client.endpoints(7 as never),
    'close: options': () => client.close(7 as never),
  };
  it.each(Object.keys(call))('says what is wrong in its arguments: %s', async (where) => {
    await expect((async () => call[where]?.())()).rejects.toThrow(where);
  });
});

it('a client with injected faults uses the system clock by default, like other clients', async () => {
  vi.useFakeTimers();
  try {
    const client = new FaultyMemoryBackend({
      server: new MemoryServer({ clusterID: undefined, keepRevisions: undefined }),
    });
    client.link.blackHole();
    const failed = client.get('p/a').catch((error: unknown) => error);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(await failed).toMatchObject({ code: 'deadline' });
    await client.close();
  } finally {
    vi.useRealTimers();
  }
});
