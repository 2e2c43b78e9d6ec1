import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { RateLimit } from '../../src/base/rate-limit.ts';
import { deferred } from '../../src/base/sleep.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { bytesOfText, textOfBytes } from '../../src/kvstore/codec/bytes.ts';
import { KvstoreClient, type KvstoreClientOptions } from '../../src/kvstore/kvstore-client.ts';
import { FaultyLink } from '../../src/kvstore/memory/faulty-link.ts';
import { FaultyMemoryBackend } from '../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../src/kvstore/memory/memory-transport.ts';
import type { WriteOptions } from '../../src/kvstore/session/backend.ts';
import { abortedError, KvstoreError } from '../../src/kvstore/session/errors.ts';
import { WATCH_LIMITS } from '../../src/kvstore/watch/watch-limits.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { giveUpDelete, giveUpPut } from './support/given-up-write.ts';
import { advance, settle } from './support/settle.ts';
import { WatchRecorder } from './support/watch-recorder.ts';

/** Returns the keys whose lease is lost, as they are reported. */
function lostKeys(backend: MemoryBackend): readonly string[] {
  const lost: string[] = [];
  backend.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
  return lost;
}

it('a key that was never written leaves nothing when it is deleted (regression: it kept its place on a lease)', async () => {
  const backend = new FaultyMemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
  const lost = lostKeys(backend);
  for (let i = 0; i < 1500; i++) {
    giveUpPut(backend.link, `gone/${i}`);
    const put = backend.update(`gone/${i}`, bytesOfText('1'), { leased: true });
    await expect(put).rejects.toMatchObject({ code: 'deadline' });
    expect(await backend.delete(`gone/${i}`)).toBe(false);
  }
  await backend.update('there', bytesOfText('1'), { leased: true });
  expect(backend.status().leases).toBe(1);
  for (const lease of backend.server.leases) backend.server.expireLease(lease);
  await backend.update('there', bytesOfText('2'), { leased: true });
  expect(lost).toEqual(['there']);
  await backend.close();
});

it('an equal value that a transaction without a lease omits keeps its lease (regression: its loss was not reported)', async () => {
  const backend = new MemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
  const lost = lostKeys(backend);
  const value = bytesOfText('1');
  await backend.update('k', value, { leased: true });
  expect(await backend.writeAll([{ key: 'k', value, mayBeEqual: true }])).toMatchObject({
    isComplete: false,
  });
  for (const lease of backend.server.leases) backend.server.expireLease(lease);
  await backend.update('other', value, { leased: true });
  expect(lost).toContain('k');
  await backend.close();
});

it('a key that a transaction deletes beside an omitted put leaves its lease (regression: its loss was reported)', async () => {
  const backend = new MemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
  const lost = lostKeys(backend);
  const value = bytesOfText('1');
  for (const key of ['deleted', 'equal']) await backend.update(key, value, { leased: true });
  const writes = [
    { key: 'deleted', mayBeEqual: true },
    { key: 'equal', value, mayBeEqual: true },
  ];
  expect(await backend.writeAll(writes, { leased: true })).toMatchObject({ isComplete: false });
  for (const lease of backend.server.leases) backend.server.expireLease(lease);
  await backend.update('other', value, { leased: true });
  expect(lost).toEqual(expect.arrayContaining(['equal']));
  expect(lost).not.toContain('deleted');
  await backend.close();
});

it('a transaction whose lease has ended is repeated under a new lease (regression: only a single write was)', async () => {
  const backend = new MemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
  const value = bytesOfText('1');
  await backend.update('a', value, { leased: true });
  for (const lease of backend.server.leases) backend.server.expireLease(lease);
  const { isComplete } = await backend.writeAll(
    [
      { key: 'a', value },
      { key: 'b', value },
    ],
    { leased: true },
  );
  expect([isComplete, (await backend.listPrefix('')).length, backend.status().leasesLost]).toEqual([
    true,
    2,
    1,
  ]);
  await backend.close();
});

it('keys deleted by their prefix leave nothing (regression: they kept their places on leases)', async () => {
  const backend = new FaultyMemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
  for (let i = 0; i < 1500; i++) {
    await backend.update(`gone/${i}`, bytesOfText('1'), { leased: true });
    await backend.deletePrefix('gone/');
  }
  expect(backend.status().leases).toBe(1);
  await backend.close();
});

it('deletes of prefixes examine only their own keys, and forget them over several turns (regression: every bound key, in one turn)', async () => {
  const clock = new ManualClock();
  let turns = 0;
  const nextTurn = (callback: () => void): void => {
    setImmediate(() => {
      turns++;
      callback();
    });
  };
  const gate = new TurnGate({ clock, nextTurn, weightPerTurn: 1 });
  const backend = new MemoryBackend({ clock, random: () => 0.5, gate });
  const put = (key: string): Promise<number> => backend.update(key, bytesOfText('1'), { leased: true });
  const keys = (prefix: string, count: number): readonly string[] =>
    Array.from({ length: count }, (_, i) => `${prefix}${i}`);
  await Promise.all([...keys('other/', 2000), ...keys('few/', 10), ...keys('many/', 1500)].map(put));
  const startsWith = vi.spyOn(String.prototype, 'startsWith');
  try {
    expect(await backend.deletePrefix('few/')).toBe(10);
    expect(startsWith.mock.calls.length).toBeLessThan(100);
  } finally {
    startsWith.mockRestore();
  }
  turns = 0;
  expect(await backend.deletePrefix('many/')).toBe(1500);
  expect(turns).toBeGreaterThanOrEqual(5);
  await backend.close();
});

it('counts its requests by outcome, once each', async () => {
  const backend = new FaultyMemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
  expect(backend.status().requests).toEqual({ ok: 0 });
  await backend.update('k', bytesOfText('1'));
  await backend.get('k');
  for (const key of ['k', 'l']) {
    giveUpPut(backend.link, key);
    await expect(backend.update(key, bytesOfText('2'))).rejects.toMatchObject({ code: 'deadline' });
  }
  const { requests } = backend.status();
  expect(requests).toEqual({ ok: 2, deadline: 2 });
  await backend.update('leased', bytesOfText('1'), { leased: true }); // the request for the lease counts, too
  expect([requests.ok, backend.status().requests.ok]).toEqual([2, 4]);
  await backend.close();
});

/** Returns a client that may make one call per second, its clock, and its link to a kvstore. */
function oneCallPerSecond(options: Pick<KvstoreClientOptions, 'mayWrite' | 'writeTimeoutMs'> = {}): {
  readonly clock: ManualClock;
  readonly link: FaultyLink;
  readonly client: KvstoreClient;
} {
  const clock = new ManualClock();
  const link = new FaultyLink(new MemoryTransport(new MemoryServer({ clock })), clock);
  const rateLimit = new RateLimit({ qps: 1 }, clock, abortedError);
  const parts = { kind: 'memory', transport: link, clock, random: () => 0.5, rateLimit } as const;
  return { clock, link, client: new KvstoreClient({ ...parts, ...options }) };
}

it('a caller that waits for a turn when the client is closed gets that error (regression: that it had aborted itself)', async () => {
  const { client } = oneCallPerSecond();
  await client.get('a');
  const waiting = client.get('a');
  await settle();
  await client.close();
  await expect(waiting).rejects.toMatchObject({ code: 'closed' });
  await expect(client.get('a')).rejects.toMatchObject({ code: 'closed' });
});

it.each([
  ['a read', (client: KvstoreClient, deadlineMs: number) => client.get('k', { deadlineMs })],
  ['a listing', (client: KvstoreClient, deadlineMs: number) => client.listPrefix('k/', { deadlineMs })],
  [
    'a write',
    (client: KvstoreClient, deadlineMs: number) => client.update('k', bytesOfText('1'), { deadlineMs }),
  ],
])(
  '%s waits for its turn within its deadline (regression: only the call itself did)',
  async (_name, call) => {
    const { clock, link, client } = oneCallPerSecond();
    await client.get('a');
    const late = call(client, 500).catch((error: unknown) => error);
    await advance(clock, 500);
    expect(await Promise.race([late, settle()])).toMatchObject({
      code: 'deadline',
      message: 'the call had to wait until its deadline',
    });
    const sent = [vi.spyOn(link, 'range'), vi.spyOn(link, 'txn')];
    await advance(clock, 200);
    const inTime = call(client, 500);
    await advance(clock, 300);
    await inTime;
    const limits = sent.flatMap(({ mock }) => mock.calls.map(([, options]) => options?.deadlineMs));
    expect(limits).toEqual([200]);
    await client.close();
  },
);

it('lists all pages within one deadline (regression: each page had the whole time)', async () => {
  const clock = new ManualClock();
  const link = new FaultyLink(new MemoryTransport(new MemoryServer({ clock })), clock);
  const client = new KvstoreClient({ kind: 'memory', transport: link, clock, random: () => 0.5 });
  for (let i = 0; i < 300; i++) await client.update(`k/${i}`, bytesOfText('1'));
  const range = link.range.bind(link);
  const slow = vi.spyOn(link, 'range').mockImplementation(async (...read) => {
    await new Promise<void>((resolve) => clock.after(300, resolve));
    return range(...read);
  });
  const watch = link.watch.bind(link);
  const pages = vi.fn();
  vi.spyOn(link, 'watch').mockImplementation((...request) => {
    const stream = watch(...request);
    const page = stream.range.bind(stream);
    vi.spyOn(stream, 'range').mockImplementation((read, options) => {
      pages(options?.deadlineMs);
      return page(read, options);
    });
    return stream;
  });
  const listed = client.listPrefix('k/', { deadlineMs: 1000 });
  await advance(clock, 300);
  await listed;
  expect(slow.mock.lastCall?.[1]).toMatchObject({ deadlineMs: 1000 });
  expect(pages.mock.calls.length).toBeGreaterThan(1);
  expect(new Set(pages.mock.calls.flat())).toEqual(new Set([700]));
  await client.close();
});

it('sends no write that its owner may not make at its turn, and gives an admitted write its own deadline', async () => {
  let leads = true;
  const { clock, link, client } = oneCallPerSecond({ mayWrite: () => leads, writeTimeoutMs: 700 });
  await client.update('k', bytesOfText('1'));
  const writes = [client.update('k', bytesOfText('2')), client.delete('k'), client.deletePrefix('k')];
  const outcomes = Promise.allSettled(writes);
  leads = false;
  await advance(clock, 5000);
  for (const outcome of await outcomes)
    expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'not-leader' } });
  expect(textOfBytes((await client.get('k'))?.value ?? bytesOfText(''))).toBe('1');
  leads = true;
  link.blackHole();
  const late = client.update('k', bytesOfText('3'));
  const failed = expect(late).rejects.toMatchObject({ code: 'deadline' });
  await advance(clock, 1000 + 700);
  await failed;
  await client.close();
});

it('many watches without a signal cause no leak warning of Node (regression: one on the console)', async () => {
  const backend = new FaultyMemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
  const warnings: Error[] = [];
  const onWarning = (warning: Error): unknown => warnings.push(warning);
  process.on('warning', onWarning);
  const watches = Array.from({ length: 20 }, (_, i) => new WatchRecorder(backend.watch(`p${i}/`)));
  await settle(4);
  await backend.close();
  await Promise.all(watches.map(({ done }) => done));
  await settle();
  process.off('warning', onWarning);
  expect(warnings).toEqual([]);
});

describe('a key that is deleted and written under a lease at the same time', () => {
  let backend: FaultyMemoryBackend;
  let lost: string[];
  beforeEach(() => {
    backend = new FaultyMemoryBackend({ clock: new ManualClock() });
    lost = [];
    backend.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
  });
  afterEach(() => backend.close());

  const put = (key: string, options: WriteOptions = { leased: true }): Promise<number> =>
    backend.update(key, bytesOfText('v'), options);
  const putAll = (key: string): Promise<unknown> =>
    backend.writeAll([{ key, value: bytesOfText('v') }], { leased: true });
  const expire = async (): Promise<void> => {
    for (const lease of backend.server.leases) backend.server.expireLease(lease);
    await put('other'); // the client notices the loss
  };

  it('is reported as lost if the write was last (regression: the delete removed it from its lease)', async () => {
    await put('other');
    await Promise.all([backend.delete('k'), put('k')]);
    await Promise.all([backend.deletePrefix('p/'), put('p/k')]);
    await put('again');
    await Promise.all([backend.delete('again'), put('again')]);
    expect(await backend.get('again')).toBeDefined();
    await expire();
    expect(lost).toEqual(expect.arrayContaining(['k', 'p/k', 'again']));
  });

  it('is reported as lost if the server applied the write last, though the delete was called after it', async () => {
    await put('other');
    const txn = backend.link.txn.bind(backend.link);
    const deleted = deferred();
    vi.spyOn(backend.link, 'txn').mockImplementationOnce(async (...call) => {
      await deleted.promise;
      return txn(...call);
    });
    const written = put('k');
    await settle();
    await backend.delete('k');
    deleted.resolve();
    await written;
    await expire();
    expect(lost).toContain('k');
  });

  it.each([
    ['a write', (): Promise<unknown> => put('k'), false],
    ['a write', (): Promise<unknown> => put('k'), true],
    ['several writes', (): Promise<unknown> => putAll('k'), false],
    ['several writes', (): Promise<unknown> => putAll('k'), true],
  ])(
    'is reported as lost if %s of it was applied after a delete, even if no answer arrived',
    async (_, write, isAnswerLost) => {
      await put('other');
      const txn = backend.link.txn.bind(backend.link);
      const deleted = deferred();
      vi.spyOn(backend.link, 'txn').mockImplementationOnce(async (...call) => {
        await deleted.promise;
        const answer = await txn(...call);
        if (isAnswerLost) throw new KvstoreError('deadline', 'no answer in time');
        return answer;
      });
      const outcome = write().then(
        () => 'written',
        (error: KvstoreError) => error.code,
      );
      await settle();
      await backend.delete('k');
      deleted.resolve();
      expect(await outcome).toBe(isAnswerLost ? 'deadline' : 'written');
      await expire();
      expect(lost).toContain('k');
    },
  );

  it.each([
    ['delete', () => backend.delete('k')],
    ['deletePrefix', () => backend.deletePrefix('k')],
    ['update without a lease', () => put('k', {})],
  ])(
    'is reported as lost if the server applied the write last, and the answer to %s arrived last (regression: that counted)',
    async (_, act) => {
      await put('other');
      const txn = backend.link.txn.bind(backend.link);
      const [taken, answered] = [deferred(), deferred()];
      vi.spyOn(backend.link, 'txn')
        .mockImplementationOnce(async (...call) => {
          await taken.promise;
          return txn(...call);
        })
        .mockImplementationOnce(async (...call) => {
          const answer = await txn(...call);
          taken.resolve();
          await answered.promise;
          return answer;
        });
      const written = put('k');
      await settle();
      const acted = act();
      await written;
      answered.resolve();
      await acted;
      await expire();
      expect(lost).toContain('k');
    },
  );

  it('is not reported as lost if the delete was last', async () => {
    await Promise.all([put('k'), put('p/k'), put('other')]);
    await backend.delete('k');
    await backend.deletePrefix('p/');
    await expire();
    expect(lost).toEqual(['other']);
  });

  it('stays on its lease if the delete fails, or has a condition that does not hold', async () => {
    await Promise.all([put('k'), put('p/k'), put('other')]);
    expect(await backend.delete('k', { ifModRevision: 1 })).toBe(false);
    backend.link.down();
    await expect(backend.delete('k')).rejects.toMatchObject({ code: 'unavailable' });
    await expect(backend.deletePrefix('p/')).rejects.toMatchObject({ code: 'unavailable' });
    await expect(put('k', {})).rejects.toMatchObject({ code: 'unavailable' });
    backend.link.up();
    await expire();
    expect(lost).toEqual(['k', 'p/k', 'other']);
  });

  it('leaves its lease if it is written without one, and not if nothing is written', async () => {
    await Promise.all([put('k'), put('same'), put('other')]);
    await put('k', {});
    expect(await backend.updateIfDifferent('same', bytesOfText('v'))).toBe(false);
    expect(await backend.createOnly('same', bytesOfText('w'))).toBe(false);
    await expire();
    expect(lost).toEqual(['same', 'other']);
  });

  it('uses no place if it belongs to another client and was not written', async () => {
    await put('foreign', {});
    expect(await backend.createOnly('foreign', bytesOfText('w'), { leased: true })).toBe(false);
    await put('other');
    await expire();
    expect(lost).toEqual(['other']);
  });

  it('uses no place if its write was refused, unless an earlier one was not (regression: its loss was reported)', async () => {
    await put('k');
    forbidWrites(backend.link, 'k');
    for (const refused of [put('k'), put('k2'), putAll('k3')])
      await expect(refused).rejects.toMatchObject({ code: 'forbidden' });
    vi.restoreAllMocks();
    await put('other');
    await expire();
    expect(lost).toEqual(['k', 'other']);
  });

  it('uses no place if two concurrent first writes were refused (regression: its loss was reported)', async () => {
    await put('other');
    forbidWrites(backend.link, 'k');
    for (const refused of await Promise.allSettled([put('k'), put('k'), put('k')]))
      expect(refused).toMatchObject({ status: 'rejected', reason: { code: 'forbidden' } });
    vi.restoreAllMocks();
    await put('other');
    await expire();
    expect(lost).toEqual(['other']);
  });

  it.each([true, false])(
    'stays on its lease if the first of concurrent writes takes effect (there is a lease: %s) (regression: its loss was not reported)',
    async (hasLease) => {
      if (hasLease) await put('first');
      const create = (): Promise<boolean> => backend.createOnly('k', bytesOfText('v'), { leased: true });
      expect(await Promise.all([create(), create(), create()])).toEqual([true, false, false]);
      await expire();
      expect(lost).toContain('k');
    },
  );
});

describe('a key that expires first', () => {
  const KEYS = Array.from({ length: 1100 }, (_, i) => `data/${i}`);
  let clock: ManualClock;
  let server: MemoryServer;
  beforeEach(() => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
  });

  it('expires before any other key of a client that has died, whenever that was', async () => {
    for (const livedMs of [0, 179_000, 299_000, 301_000]) {
      const backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
      for (const key of KEYS) await backend.update(key, bytesOfText('v'), { leased: true });
      await backend.update('config', bytesOfText('v'), { leased: 'expires-first' });
      await advance(clock, livedMs);
      backend.link.blackHole();
      const left: (readonly [boolean, number])[] = [];
      const watcher = new MemoryBackend({ server, clock });
      for (let keys = KEYS.length; keys > 0; ) {
        await advance(clock, 10_000);
        keys = (await watcher.listPrefix('data/')).length;
        left.push([(await watcher.get('config')) !== undefined, keys]);
      }
      expect(left.filter(([isThere, keys]) => isThere && keys < KEYS.length)).toEqual([]);
      expect(left.filter(([isThere, keys]) => !isThere && keys === KEYS.length).length).toBeGreaterThan(3);
      await Promise.all([watcher.close(), backend.close({ keepLeases: true })]);
    }
  });

  it('is deleted before any other when the client is closed', async () => {
    const backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
    for (const key of ['p/1', 'p/2']) await backend.update(key, bytesOfText('v'), { leased: true });
    await backend.update('p/config', bytesOfText('v'), { leased: 'expires-first' });
    const watcher = new MemoryBackend({ server, clock });
    const { events } = new WatchRecorder(watcher.watch('p/'));
    await settle(4);
    await backend.close();
    await settle(4);
    const deleted = events.filter(({ type }) => type === 'delete').map(({ key }) => key);
    expect(deleted).toEqual(['p/config', 'p/1', 'p/2']);
    await watcher.close();
  });

  it('delays the close by at most 5 s if the server does not answer (regression: 20 s)', async () => {
    const backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
    await backend.update('data', bytesOfText('v'), { leased: true });
    await backend.update('config', bytesOfText('v'), { leased: 'expires-first' });
    await backend.lock('path');
    backend.link.blackHole();
    const begun = clock.now();
    let closedAfterMs: number | undefined;
    const closing = backend.close().then(() => {
      closedAfterMs = clock.now() - begun;
    });
    await advance(clock, 30_000);
    await closing;
    expect(closedAfterMs).toBeLessThanOrEqual(5000);
  });

  it('leaves its earlier lease, and is reported as lost alone', async () => {
    const backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
    const lost: string[] = [];
    backend.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
    await backend.update('a', bytesOfText('v'), { leased: true });
    await backend.update('config', bytesOfText('v'), { leased: true });
    await backend.update('config', bytesOfText('v'), { leased: 'expires-first' });
    const [, first] = server.leases;
    if (first !== undefined) server.expireLease(first);
    await advance(clock, 200_000);
    expect(lost).toEqual(['config']);
    expect(await backend.get('a')).toBeDefined();
    await backend.close();
  });
});

describe('a failure in the background', () => {
  it('of a listener is counted, reported and in the status (regression: it was silent)', async () => {
    const clock = new ManualClock();
    const onFailure = vi.fn();
    const backend = new MemoryBackend({ clock, onFailure });
    const fault = new Error('a broken listener');
    const told: string[][] = [];
    backend.onLeaseLost({
      onLeaseLost: () => {
        throw fault;
      },
    });
    backend.onLeaseLost({ onLeaseLost: (keys) => told.push([...keys]) });
    await backend.update('k', bytesOfText('v'), { leased: true });
    for (const lease of backend.server.leases) backend.server.expireLease(lease);
    await backend.update('k', bytesOfText('w'), { leased: true });
    expect(told).toEqual([['k']]);
    expect(backend.status().listenerFaults).toBe(1);
    expect(onFailure.mock.calls).toEqual([[fault, 'lease listener']]);
    await backend.close();
  });

  it('of a keepalive is in the status, with its time, and reported', async () => {
    const clock = new ManualClock();
    const onFailure = vi.fn();
    const backend = new FaultyMemoryBackend({ clock, onFailure });
    await backend.update('k', bytesOfText('v'), { leased: true });
    backend.link.down();
    await advance(clock, 305_000);
    const { failures, tasks, lastFailure } = backend.status().background;
    expect(tasks.map(({ name }) => name)).toEqual(['leases']);
    expect(failures).toBeGreaterThan(0);
    expect(lastFailure).toMatchObject({ message: 'connection refused', at: expect.any(Number) });
    expect(onFailure).toHaveBeenCalledWith(expect.any(KvstoreError), 'leases: keepalive');
    await backend.close();
    expect(backend.status().background.tasks).toEqual([]);
  });
});

describe('a fenced write', () => {
  let backend: FaultyMemoryBackend;
  beforeEach(() => {
    backend = new FaultyMemoryBackend({ clock: new ManualClock() });
  });
  afterEach(() => backend.close());

  const text = async (key: string): Promise<string | undefined> => {
    const found = await backend.get(key);
    return found && textOfBytes(found.value);
  };
  const put = (value: string): Promise<number> => backend.update('k', bytesOfText(value), { fenced: true });

  it('that was abandoned may take effect, until a later one was answered', async () => {
    const land = giveUpPut(backend.link, 'k');
    await expect(put('late')).rejects.toMatchObject({ code: 'deadline' });
    await land();
    expect(await text('k')).toBe('late');
    await put('now');
    await land();
    expect(await text('k')).toBe('now');
  });

  it.each([
    ['update', () => backend.update('k', bytesOfText('late'), { fenced: true })],
    ['updateIfDifferent', () => backend.updateIfDifferent('k', bytesOfText('late'), { fenced: true })],
    ['createOnly', () => backend.createOnly('k', bytesOfText('late'), { fenced: true })],
  ] as const)('that was given up does not take effect later: %s', async (_name, write) => {
    const land = giveUpPut(backend.link, 'k');
    await expect(write()).rejects.toMatchObject({ code: 'deadline' });
    await backend.delete('k', { fenced: true });
    await land();
    expect(await text('k')).toBeUndefined();
  });

  it('that deletes a prefix and was abandoned deletes no key that was written later (regression: it was not fenced)', async () => {
    await backend.update('p/k', bytesOfText('old'));
    const land = giveUpDelete(backend.link, 'p/');
    await expect(backend.deletePrefix('p/', { fenced: true })).rejects.toMatchObject({ code: 'deadline' });
    expect(await backend.deletePrefix('p/', { fenced: true })).toBe(1);
    await backend.update('p/k', bytesOfText('new'));
    await land();
    expect(await text('p/k')).toBe('new');
  });

  it('is repeated if others of the client have moved the fence in the meantime', async () => {
    const txn = backend.link.txn.bind(backend.link);
    const moved = deferred();
    await put('first');
    vi.spyOn(backend.link, 'txn').mockImplementationOnce(async (...call) => {
      await moved.promise;
      return txn(...call);
    });
    const slow = backend.update('slow', bytesOfText('1'), { fenced: true });
    await settle();
    giveUpPut(backend.link, 'k');
    await expect(put('late')).rejects.toMatchObject({ code: 'deadline' });
    await put('now');
    moved.resolve();
    await slow;
    expect(await text('slow')).toBe('1');
  });

  it('returns the result of a conditional write in every case', async () => {
    const fenced = { fenced: true } as const;
    expect(await backend.updateIfDifferent('a', bytesOfText('1'), fenced)).toBe(true);
    expect(await backend.updateIfDifferent('a', bytesOfText('1'), fenced)).toBe(false);
    expect(await backend.createOnly('a', bytesOfText('2'), fenced)).toBe(false);
    expect(await backend.createOnly('b', bytesOfText('2'), fenced)).toBe(true);
    expect(await backend.delete('none', fenced)).toBe(false);
    expect(await backend.delete('a', { ...fenced, ifModRevision: 1 })).toBe(false);
    expect(await backend.delete('a', fenced)).toBe(true);
  });

  it('works under a lock, too, and distinguishes a lost lock from a fence that has moved', async () => {
    const lock = await backend.lock('locks/a');
    const locked = { fenced: true, ifLocked: lock } as const;
    const land = giveUpPut(backend.link, 'k');
    await expect(backend.update('k', bytesOfText('late'), locked)).rejects.toMatchObject({
      code: 'deadline',
    });
    await backend.update('k', bytesOfText('now'), locked);
    await land();
    expect(await text('k')).toBe('now');
    await backend.deletePrefix('cilium/.initlock/');
    await backend.update('k', bytesOfText('again'), locked);
    expect(await text('k')).toBe('again');
    for (const lease of backend.server.leases) backend.server.expireLease(lease);
    await expect(backend.update('k', bytesOfText('x'), locked)).rejects.toMatchObject({ code: 'lock-lost' });
  });

  it('continues if the fence is deleted, by a lease or by another client', async () => {
    await put('1');
    for (const lease of backend.server.leases) backend.server.expireLease(lease);
    await put('2');
    await backend.deletePrefix('cilium/.initlock/');
    await put('3');
    expect(await text('k')).toBe('3');
    const lost = vi.fn();
    backend.onLeaseLost({ onLeaseLost: lost });
    for (const lease of backend.server.leases) backend.server.expireLease(lease);
    await backend.update('leased', bytesOfText('1'), { leased: true });
    expect(lost).not.toHaveBeenCalled(); // the fence is not a key of the owner
  });

  it('is unguarded if the user may not write the fence, and the status reports it', async () => {
    forbidWrites(backend.link, 'cilium/.initlock/');
    await put('1');
    expect(await text('k')).toBe('1');
    expect(backend.status().isFenced).toBe(false);
    vi.restoreAllMocks();
    giveUpPut(backend.link, 'k');
    await expect(put('2')).rejects.toMatchObject({ code: 'deadline' });
    await put('3');
    expect(backend.status().isFenced).toBe(true);
  });

  it('keeps its fence if etcd refuses it, so that keys can be deleted while etcd has no space (regression: the delete put a new fence)', async () => {
    await put('1');
    const full = new KvstoreError('overloaded', 'etcdserver: mvcc: database space exceeded');
    refusePuts(backend.link, '', full);
    await expect(put('2')).rejects.toBe(full);
    expect(await backend.delete('k', { fenced: true })).toBe(true);
  });

  it.each([
    ['keepLeaseAlive', 'unavailable', 'unavailable'],
    ['txn', 'unavailable', 'unavailable'],
    ['txn', 'forbidden', true], // without the right to write a fence there is none
  ] as const)(
    'of the earlier holder of a lease is cut off when the lease is adopted: if %s fails as %s, the outcome is %s',
    async (call, code, outcome) => {
      const earlier = new MemoryBackend({
        clock: new ManualClock(),
        random: () => 0.5,
        server: backend.server,
      });
      await earlier.update('leased', bytesOfText('1'), { leased: true });
      await earlier.close({ keepLeases: true });
      const [lease = ''] = backend.server.leases;
      vi.spyOn(backend.link, call).mockRejectedValueOnce(new KvstoreError(code, 'refused'));
      const adoption = backend.adoptLease(lease, ['leased']).catch((error: KvstoreError) => error.code);
      expect(await adoption).toBe(outcome);
      expect(await backend.adoptLease(lease, ['leased'])).toBe(true);
    },
  );

  it('whose caller aborts ends immediately, even while the fence is being written', async () => {
    backend.link.blackHole();
    const controller = new AbortController();
    const write = backend.update('k', bytesOfText('1'), { fenced: true, signal: controller.signal });
    await settle();
    controller.abort();
    await expect(write).rejects.toMatchObject({ code: 'aborted' });
  });

  it('whose caller aborts while its lease is granted ends immediately (regression: with the deadline of the grant)', async () => {
    backend.link.blackHole();
    const controller = new AbortController();
    const write = backend.update('k', bytesOfText('1'), { leased: true, signal: controller.signal });
    await settle();
    controller.abort();
    let failure: unknown;
    const told = write.catch((error: unknown) => {
      failure = error;
    });
    await Promise.race([told, settle()]);
    expect(failure).toMatchObject({ code: 'aborted' });
  });

  it.each([
    ['leased', { leased: true }, 'grantLease', 'update'],
    ['leased to expire first', { leased: 'expires-first' }, 'grantLease', 'writeAll'],
    ['fenced', { fenced: true }, 'txn', 'update'],
    ['a fenced delete of a prefix', { fenced: true }, 'txn', 'deletePrefix'],
  ] as const)(
    'waits for its lease and its fence within its deadline (regression: only the write itself did): %s',
    async (_name, options, waiting, method) => {
      const clock = new ManualClock();
      const client = new FaultyMemoryBackend({ clock });
      const limits = { ...options, deadlineMs: 500 };
      const write = (): Promise<unknown> => {
        if (method === 'deletePrefix') return client.deletePrefix('k', limits);
        if (method === 'writeAll') return client.writeAll([{ key: 'k', value: bytesOfText('1') }], limits);
        return client.update('k', bytesOfText('1'), limits);
      };
      client.link.blackHole();
      const outcome = write().then(
        () => 'written',
        ({ code }: KvstoreError) => code,
      );
      await advance(clock, 499);
      expect(await Promise.race([outcome, settle().then(() => 'waits')])).toBe('waits');
      await advance(clock, 1);
      expect(await Promise.race([outcome, settle().then(() => 'waits')])).toBe('deadline');
      client.link.up();
      await advance(clock, 60_000);
      const calls = vi.spyOn(client.link, 'txn');
      const send = client.link[waiting].bind(client.link) as (...args: unknown[]) => Promise<never>;
      vi.spyOn(client.link, waiting).mockImplementationOnce(async (...args: unknown[]) => {
        await new Promise<void>((resolve) => clock.after(300, resolve));
        return send(...args);
      });
      const slow = write();
      await advance(clock, 300);
      await slow;
      expect(calls.mock.lastCall?.[1]).toMatchObject({ deadlineMs: 200 });
      await client.close();
    },
  );

  it('many at the same time share one fence, which costs one key', async () => {
    const revision = backend.server.header.revision;
    const writes = Array.from({ length: 50 }, (_, i) =>
      backend.update(`k${i}`, bytesOfText('1'), { fenced: true }),
    );
    await Promise.all(writes);
    expect(backend.server.header.revision - revision).toBe(51);
    expect(await backend.listPrefix('cilium/.initlock/')).toHaveLength(1);
  });

  it('of two clients do not affect each other', async () => {
    const other = new FaultyMemoryBackend({ clock: new ManualClock(), server: backend.server });
    await put('1');
    await other.update('k', bytesOfText('2'), { fenced: true });
    const { revision } = backend.server.header;
    await put('3');
    expect(backend.server.header.revision).toBe(revision + 1);
    expect(await backend.listPrefix('cilium/.initlock/')).toHaveLength(2);
    await other.close();
    expect(await backend.listPrefix('cilium/.initlock/')).toHaveLength(1);
  });
});

it('the writes since a revision are listed in pages, too (regression: in one answer of any size)', async () => {
  const backend = new FaultyMemoryBackend({ clock: new ManualClock() });
  const value = bytesOfText('x'.repeat(100));
  for (let i = 0; i < 3; i++) await backend.update(`p/old${i}`, value);
  const { revision } = backend.server.header;
  for (let i = 0; i < WATCH_LIMITS.pageKeys + 10; i++) await backend.update(`p/new${i}`, value);
  backend.link.limitResponses((WATCH_LIMITS.pageKeys / 2) * 100);
  const listed = await backend.listPrefix('p/', { minModRevision: revision + 1 });
  expect(listed).toHaveLength(WATCH_LIMITS.pageKeys + 10);
  expect(listed.every(({ key }) => key.startsWith('p/new'))).toBe(true);
  await backend.close();
});

/** Refuses transactions that put keys below the prefix, until mocks are restored. */
function refusePuts(link: FaultyLink, prefix: string, error: KvstoreError): void {
  const txn = link.txn.bind(link);
  vi.spyOn(link, 'txn').mockImplementation((request, options) => {
    const isRefused = request.writes.some((write) => write.op === 'put' && write.key.startsWith(prefix));
    return isRefused ? Promise.reject(error) : txn(request, options);
  });
}

/** Like {@link refusePuts}, as for a user without the permission. */
function forbidWrites(link: FaultyLink, prefix: string): void {
  refusePuts(link, prefix, new KvstoreError('forbidden', 'etcdserver: permission denied'));
}
