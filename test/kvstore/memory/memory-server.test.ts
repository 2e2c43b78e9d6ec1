import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryServer } from '../../../src/kvstore/memory/faulty-memory-server.ts';
import { MemoryServer, type ServerSnapshot } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import {
  type LeaseID,
  NO_LEASE,
  type TransportEvent,
  type WatchObserver,
  type WriteOperation,
} from '../../../src/kvstore/session/transport.ts';
import { growthPerItem } from '../../base/support/cpu-time.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../support/settle.ts';

/** Each run reads the server after each step, so there are fewer runs. */
const RUNS: number = Math.ceil(Math.max(fc.readConfigureGlobal().numRuns ?? 300, 16) / 2);

function put(key: string, value = '', lease: LeaseID = NO_LEASE): WriteOperation {
  return { op: 'put', key, value: bytesOfText(value), lease };
}

function remove(key: string): WriteOperation {
  return { op: 'delete', range: keyRange(key) };
}

function write(server: MemoryServer, ...writes: readonly WriteOperation[]): void {
  server.txn({ compare: [], writes });
}

/** Returns the code of the error; undefined if none. */
function codeOf(call: () => unknown): string | undefined {
  try {
    call();
    return undefined;
  } catch (error) {
    if (error instanceof KvstoreError) return error.code;
    throw error;
  }
}

it('living leases do not keep the process alive (regression: for 15 minutes after a close with keepLeases)', () => {
  const activeTimers = (): number =>
    process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const before = activeTimers();
  const server = new MemoryServer();
  const lease = server.grantLease(900);
  server.keepLeaseAlive(lease);
  expect(activeTimers()).toBe(before);
  server.revokeLease(lease);
});

it('expires each of 32,000 leases at a constant cost (regression: each copied the list of the others)', async () => {
  const growth = await growthPerItem(2000, async (count) => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const leases = Array.from({ length: count }, () => server.grantLease(900));
    for (let at = 0; at < 2000; at++) write(server, put(`${at}`, '', leases[0]));
    for (const lease of leases) server.expireLease(lease);
    await server.idle;
    expect([server.leases, server.header.revision]).toEqual([[], 2002]);
  });
  expect(growth).toBeLessThan(6);
});

describe('the leases of a server in this process', () => {
  interface NaiveLease {
    readonly id: LeaseID;
    readonly ttl: number;
    readonly endsAt: number;
  }
  interface Naive {
    readonly leases: readonly NaiveLease[];
    /** Key → its lease. */
    readonly keys: ReadonlyMap<string, LeaseID>;
    readonly revision: number;
  }
  type Step =
    | { readonly do: 'grant'; readonly ttl: number }
    | { readonly do: 'keep' | 'revoke'; readonly at: number }
    | { readonly do: 'put'; readonly key: string; readonly at: number }
    | { readonly do: 'remove'; readonly key: string }
    | { readonly do: 'pass'; readonly ms: number }
    | { readonly do: 'backup' | 'restore' };

  /** Removes a lease, and its keys in one revision. */
  function without({ leases, keys, revision }: Naive, id: LeaseID): Naive {
    const left = new Map([...keys].filter(([, lease]) => lease !== id));
    return {
      leases: leases.filter((lease) => lease.id !== id),
      keys: left,
      revision: left.size < keys.size ? revision + 1 : revision,
    };
  }

  const key = fc.constantFrom('a', 'b', 'c');
  /** Index of the granted lease; 0 is none. */
  const at = fc.nat(4);
  const step: fc.Arbitrary<Step> = fc.oneof(
    fc.record({ do: fc.constant('grant' as const), ttl: fc.integer({ min: 1, max: 4 }) }),
    fc.record({ do: fc.constantFrom('keep' as const, 'revoke' as const), at }),
    { weight: 3, arbitrary: fc.record({ do: fc.constant('put' as const), key, at }) },
    fc.record({ do: fc.constant('remove' as const), key }),
    { weight: 2, arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.nat(2500) }) },
    fc.record({ do: fc.constantFrom('backup' as const, 'restore' as const) }),
  );

  it('expire if they are not kept alive, with their keys, as in the naive model', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30, size: 'max' }), (script) => {
        const clock = new ManualClock();
        const server = new MemoryServer({ clock });
        const granted: LeaseID[] = [];
        let model: Naive = { leases: [], keys: new Map(), revision: 1 };
        let backup: readonly [ServerSnapshot, Naive] = [server.snapshot(), model];
        const renewed = (lease: NaiveLease): NaiveLease => ({
          ...lease,
          endsAt: clock.now() + lease.ttl * 1000,
        });
        for (const todo of script) {
          const id = 'at' in todo ? (granted[todo.at - 1] ?? NO_LEASE) : NO_LEASE;
          const known = model.leases.find((lease) => lease.id === id);
          const lost = known === undefined ? 'lease-not-found' : undefined;
          if (todo.do === 'grant') {
            const lease = server.grantLease(todo.ttl);
            expect([...granted, NO_LEASE]).not.toContain(lease);
            granted.push(lease);
            const added = renewed({ id: lease, ttl: todo.ttl, endsAt: 0 });
            model = { ...model, leases: [...model.leases, added] };
          } else if (todo.do === 'keep') {
            let ttl: number | undefined;
            const keep = (): void => {
              ttl = server.keepLeaseAlive(id);
            };
            expect(codeOf(keep)).toBe(lost);
            expect(ttl).toBe(known?.ttl);
            model = {
              ...model,
              leases: model.leases.map((lease) => (lease === known ? renewed(lease) : lease)),
            };
          } else if (todo.do === 'revoke') {
            expect(codeOf(() => server.revokeLease(id))).toBe(lost);
            model = without(model, id === NO_LEASE ? 'none' : id);
          } else if (todo.do === 'put') {
            const failure = id === NO_LEASE ? undefined : lost;
            expect(codeOf(() => write(server, put(todo.key, '', id)))).toBe(failure);
            if (failure !== undefined) continue;
            const keys = new Map(model.keys).set(todo.key, id);
            model = { ...model, keys, revision: model.revision + 1 };
          } else if (todo.do === 'remove') {
            write(server, remove(todo.key));
            const keys = new Map(model.keys);
            if (keys.delete(todo.key)) model = { ...model, keys, revision: model.revision + 1 };
          } else if (todo.do === 'pass') {
            clock.advance(todo.ms);
            for (const lease of model.leases)
              if (lease.endsAt <= clock.now()) model = without(model, lease.id);
          } else if (todo.do === 'backup') {
            backup = [server.snapshot(), model];
          } else {
            server.restore(backup[0]);
            model = { ...backup[1], leases: backup[1].leases.map(renewed) };
          }
          expect(server.leases).toEqual(model.leases.map((lease) => lease.id));
          const { kvs, header } = server.range({ start: 'a', end: 'z' });
          expect(kvs.map((kv) => kv.key)).toEqual([...model.keys.keys()].sort());
          expect([header.revision, clock.pending]).toEqual([model.revision, model.leases.length]);
        }
      }),
      { numRuns: RUNS },
    );
  });

  it('that have expired make a transaction fail completely, whichever of its writes uses them', () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const gone = server.grantLease(5);
    server.expireLease(gone);
    server.expireLease(gone);
    expect(codeOf(() => write(server, put('a'), put('b', '', gone)))).toBe('lease-not-found');
    const either = {
      compare: [{ key: 'x', target: 'mod-revision', equals: 1 } as const],
      writes: [],
      otherwise: [put('b', '', gone)],
    };
    expect(codeOf(() => server.txn(either))).toBe('lease-not-found');
    const unused = { ...either, writes: [put('c', '', gone)], otherwise: [] };
    expect(server.txn(unused).succeeded).toBe(false); // etcd checks only the leases of the applied branch
    expect(server.range(prefixRange('')).count).toBe(0);
  });
});

/** Collects the events of a stream, and one line for each. */
class Told implements WatchObserver {
  readonly lines: string[] = [];
  readonly events: TransportEvent[] = [];
  /** Called for each event. */
  onTold: () => void = () => {};

  #tell(line: string): void {
    this.lines.push(line);
    this.onTold();
  }

  onCreated({ revision }: { readonly revision: number }): void {
    this.#tell(`created ${revision}`);
  }

  onEvents(events: readonly TransportEvent[], _header: unknown, partial: boolean): void {
    this.events.push(...events);
    this.#tell(`${partial ? 'some ' : ''}events ${events.map(({ modRevision }) => modRevision).join(' ')}`);
  }

  onProgress({ revision }: { readonly revision: number }, requested: boolean): void {
    this.#tell(`progress ${revision} ${requested ? 'requested' : 'unasked'}`);
  }

  onEnd(reason: unknown): void {
    this.#tell(`end ${reason instanceof KvstoreError ? reason.code : reason}`);
  }
}

describe('the watch streams of a server in this process', () => {
  type Step =
    | { readonly do: 'write'; readonly keys: readonly string[]; readonly puts: boolean }
    | { readonly do: 'pause' | 'resume' | 'ask' | 'turn' | 'compact' | 'end' };
  const keys = fc.uniqueArray(fc.constantFrom('p/a', 'p/b', 'p', 'px', 'q/a'), {
    minLength: 1,
    maxLength: 3,
  });
  const step: fc.Arbitrary<Step> = fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('write' as const), keys, puts: fc.boolean() }) },
    {
      weight: 5,
      arbitrary: fc.record({
        do: fc.constantFrom('pause' as const, 'resume' as const, 'ask' as const, 'turn' as const),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('compact' as const, 'end' as const) }) },
  );

  it('send the writes below their prefix since their start, revision by revision, unless a compaction overtakes them', async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(6), fc.array(step, { maxLength: 30, size: 'max' }), async (start, script) => {
        const server = new MemoryServer({ clock: new ManualClock() });
        const written: string[] = [];
        const line = (at: number, name: string, value: string | undefined): string =>
          `${at} ${name} ${value}`;
        const apply = (names: readonly string[], puts: boolean): void => {
          const there = new Set(server.range(prefixRange('')).kvs.map(({ key }) => key));
          const done = names.filter((name) => puts || there.has(name));
          const at = server.header.revision + 1;
          write(server, ...names.map((name) => (puts ? put(name, `${name} at ${at}`) : remove(name))));
          for (const name of done)
            if (name.startsWith('p/')) written.push(line(at, name, puts ? `${name} at ${at}` : undefined));
        };
        for (let i = 0; i < 4; i++) apply(['p/a', 'q/a'], true);
        const told = new Told();
        const stream = server.watch({ prefix: 'p/', startRevision: start }, told);
        let compacted = 1;
        let asked = 0;
        let isPaused = false;
        told.onTold = () => {
          const last = told.lines.at(-1) ?? '';
          if (isPaused && !last.startsWith('end ')) told.lines.push('told while it is paused');
        };
        for (const todo of script) {
          if (todo.do === 'write') apply(todo.keys, todo.puts);
          else if (todo.do === 'turn') await Promise.resolve();
          else if (todo.do === 'compact') {
            compacted = server.header.revision;
            server.compact();
          } else if (todo.do === 'end') server.restore(server.snapshot());
          else if (todo.do === 'ask') {
            asked++;
            stream.requestProgress();
          } else {
            isPaused = todo.do === 'pause';
            if (isPaused) stream.pause();
            else stream.resume();
          }
        }
        isPaused = false;
        stream.resume();
        await settle(1);
        const { lines, events } = told;
        const [first = '', ...later] = lines;
        const end = later.findIndex((one) => one.startsWith('end '));
        const reason = first.startsWith('end ') ? first : later[end];
        expect(lines.filter((one) => one.startsWith('end '))).toHaveLength(reason === undefined ? 0 : 1);
        expect(lines.at(-1)?.startsWith('end ')).toBe(reason !== undefined);
        expect(lines).not.toContain('told while it is paused');
        expect(server.streams).toBe(reason === undefined ? 1 : 0);
        if (reason !== first) expect(first).toMatch(/^created /);
        const from = start === 0 ? Number(first.replace(/\D/g, '')) + 1 : start;
        const got = events.map(({ key, value, modRevision }) =>
          line(modRevision, key, value === undefined ? undefined : textOfBytes(value)),
        );
        const wanted = written.filter((one) => Number.parseInt(one, 10) >= from);
        expect(got).toEqual(reason === undefined ? wanted : wanted.slice(0, got.length));
        const progress = lines.filter((one) => one.startsWith('progress '));
        expect(progress.every((one) => one.endsWith(' requested'))).toBe(true);
        if (reason === undefined) expect(progress).toHaveLength(asked);
        if (reason === 'end compacted') expect(got.length < wanted.length || from <= compacted).toBe(true);
        const batches = lines
          .filter((one) => one.startsWith('events '))
          .map((one) => one.match(/\d+/g) ?? []);
        for (const [i, batch] of batches.entries())
          expect(Number(batch[0])).toBeGreaterThan(Number(batches[i - 1]?.at(-1) ?? 0));
      }),
      { numRuns: RUNS },
    );
  });

  it('catch up in slices, which may split a revision, and report progress when they have caught up', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    for (let i = 0; i < 1100; i++) write(server, put('p/a'));
    write(server, ...Array.from({ length: 1400 }, (_, i) => put(`p/${i}`)), put('q/a'));
    const told = new Told();
    server.watch({ prefix: 'p/', startRevision: 2 }, told).requestProgress();
    await settle(1);
    expect(
      told.lines.map((line) => line.replace(/( \d+)+/, (all) => ` ${all.split(' ').length - 1}`)),
    ).toEqual([
      ...['created 1', 'events 512', 'events 488'],
      ...['some events 512', 'some events 512', 'events 476', 'progress 1 requested'],
    ]);
    expect(told.lines.at(-1)).toBe('progress 1102 requested');
  });

  it('send the deletes of an expired lease', async () => {
    const clock = new ManualClock();
    const server = new MemoryServer({ clock });
    const told = new Told();
    write(server, put('p/a', '', server.grantLease(5)));
    server.watch({ prefix: 'p/', startRevision: 0 }, told);
    await settle(1);
    clock.advance(5000);
    await settle(1);
    expect(told.lines).toEqual(['created 2', 'events 3']);
    expect(told.events).toEqual([{ key: 'p/a', value: undefined, modRevision: 3 }]);
  });

  it('that are paused keep nothing: they end if their revisions are compacted', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const told = new Told();
    const stream = server.watch({ prefix: 'p/', startRevision: 0 }, told);
    await settle(1);
    stream.pause();
    write(server, put('p/a'));
    write(server, put('p/b'));
    server.compact();
    await settle(1);
    expect(told.lines).toEqual(['created 1']);
    stream.resume();
    await settle(1);
    expect(told.lines).toEqual(['created 1', 'end compacted']);
  });

  it('send nothing after they are cancelled, not even their end', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const told = new Told();
    let gone = 0;
    const stream = server.watch({ prefix: 'p/', startRevision: 0 }, told, () => gone++);
    await settle(1);
    write(server, put('p/a'));
    stream.cancel();
    stream.cancel();
    stream.end('too late');
    server.restore(server.snapshot());
    await settle(1);
    expect([told.lines, gone, server.streams, stream.isOpen]).toEqual([['created 1'], 1, 0, false]);
  });

  it('end with the exception of their observer, and with the first reason', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const told = new Told();
    told.onTold = () => {
      if (told.lines.at(-1)?.startsWith('events')) throw new KvstoreError('overloaded', 'a fault');
    };
    server.watch({ prefix: 'p/', startRevision: 0 }, told);
    const other = new Told();
    const stream = server.watch({ prefix: 'p/', startRevision: 0 }, other);
    await settle(1);
    stream.pause();
    write(server, put('p/a'));
    stream.end('first');
    stream.end('second');
    expect(stream.isOpen).toBe(false);
    await settle(1);
    expect([told.lines, other.lines]).toEqual([
      ['created 1', 'events 2', 'end overloaded'],
      ['created 1', 'end first'],
    ]);
    expect(server.streams).toBe(0);
  });
});

it('a server in this process identifies itself', () => {
  const clock = new ManualClock();
  expect(new MemoryServer({ clock }).header).toMatchObject({ clusterID: 'memory', revision: 1 });
  expect(new MemoryServer({ clock, clusterID: 'b' }).header.clusterID).toBe('b');
});

it('a server in this process keeps at least the configured number of revisions, and at most twice as many', () => {
  const server = new MemoryServer({ clock: new ManualClock(), keepRevisions: 10 });
  const kept: number[] = [];
  for (let i = 0; i < 100; i++) {
    write(server, put('a'));
    const { revision } = server.header;
    let oldest = revision;
    const isKept = (at: number): boolean =>
      codeOf(() => server.range({ ...keyRange('a'), revision: at })) === undefined;
    while (oldest > 1 && isKept(oldest - 1)) oldest--;
    kept.push(revision - oldest);
  }
  expect(Math.max(...kept)).toBe(20);
  expect(Math.min(...kept.slice(10))).toBe(10);
});

it('a watch skips revisions whose keys are all below other prefixes (regression: each of 20 watches visited 100,000 deletes in one turn, 0.2 s)', async () => {
  const server = new MemoryServer({ clock: new ManualClock() });
  const told = ['p/', 'p/a/', 'p/b', 'q/'].map((prefix) => {
    const observer = new Told();
    server.watch({ prefix, startRevision: 0 }, observer);
    return observer;
  });
  await Promise.resolve();
  const puts = Array.from({ length: 500 }, (_, i) => put(`p/a/${i}`));
  const startsWith = vi.spyOn(String.prototype, 'startsWith');
  try {
    write(server, ...puts);
    await settle(10);
    expect(
      startsWith.mock.calls.filter(([prefix]) => prefix === 'q/' || prefix === 'p/b').length,
    ).toBeLessThan(10);
  } finally {
    startsWith.mockRestore();
  }
  write(server, put('p/a/x'), put('p/b'), put('q/1'));
  write(server, { op: 'delete', range: prefixRange('p/') });
  await settle(10);
  expect(told.map(({ events }) => events.length)).toEqual([1004, 1002, 2, 1]);
});

it('a server in this process rejects an invalid compaction at once, also during a large change (regression: unhandled rejection)', async () => {
  const server = new MemoryServer({ clock: new ManualClock() });
  const many = Array.from({ length: 5000 }, (_, i) => put(`p/${i}`));
  const change = server.txnInTurns({ compare: [], writes: many });
  expect(server.idle).toBeDefined();
  expect(codeOf(() => server.compact(99))).toBe('future-revision');
  expect(codeOf(() => server.compact(0))).toBe('compacted');
  server.compact(2);
  expect(codeOf(() => server.compact(1))).toBe('compacted');
  await change;
  await server.idle;
  write(server, put('a'));
  expect(codeOf(() => server.range({ ...keyRange('a'), revision: 1 }))).toBe('compacted');
  expect(server.range({ ...keyRange('a'), revision: 2 }).count).toBe(0);
});

describe('a transport to a server in this process', () => {
  const request = { compare: [], writes: [put('a')] };

  it('calls it later, as a network would, and not at all if the caller has aborted in the meantime', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const transport = new MemoryTransport(server);
    const written = transport.txn(request);
    expect(server.range(keyRange('a')).count).toBe(0);
    await written;
    expect(server.range(keyRange('a')).count).toBe(1);
    const controller = new AbortController();
    await transport.txn(request, { deadlineMs: 5 });
    const given = transport.txn({ compare: [], writes: [remove('a')] }, { signal: controller.signal });
    controller.abort();
    await expect(given).rejects.toMatchObject({ code: 'aborted' });
    expect(server.range(keyRange('a')).count).toBe(1);
  });

  it('that is closed fails every call and ends every stream, including later ones; the server continues', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const [transport, other] = [new MemoryTransport(server), new MemoryTransport(server)];
    const lease = await transport.grantLease(5);
    const [early, late, others] = [new Told(), new Told(), new Told()];
    const stream = transport.watch({ prefix: '', startRevision: 0 }, early);
    other.watch({ prefix: '', startRevision: 0 }, others);
    await settle(1);
    expect(await transport.endpoints()).toEqual([{ endpoint: 'memory', healthy: true, isLeader: true }]);
    await transport.close();
    transport.watch({ prefix: '', startRevision: 0 }, late);
    const calls = [
      transport.range(keyRange('a')),
      transport.txn(request),
      transport.grantLease(5),
      transport.keepLeaseAlive(lease),
      transport.revokeLease(lease),
      stream.range(keyRange('a')),
    ];
    for (const call of calls) await expect(call).rejects.toMatchObject({ code: 'closed' });
    await settle(1);
    expect([early.lines, late.lines]).toEqual([['created 1', 'end closed'], ['end closed']]);
    expect(await transport.endpoints()).toMatchObject([{ healthy: false }]);
    await other.txn(request);
    await settle(1);
    expect([others.lines, server.leases, server.streams]).toEqual([['created 1', 'events 2'], [lease], 1]);
  });

  it('reads values in turns of at most 8 expanded blocks, in any order (regression: the buffers of 4,096 keys caused 0.1 s of marking in one turn)', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const transport = new MemoryTransport(server);
    const order = Array.from({ length: 4096 }, (_, i) => (i * 1543) % 4096);
    const value = 'v'.repeat(1024);
    const keyOf = (i: number): string => `p/${1000 + i}`;
    write(server, ...order.map((i) => put(keyOf(i), `${value.slice(4)}${1000 + i}`)));
    const range = vi.spyOn(server, 'range');
    const { kvs, more, count } = await transport.range(prefixRange('p/'));
    expect([kvs.length, more, count]).toEqual([4096, false, 4096]);
    expect(kvs.every(({ key, value: read }, i) => key === keyOf(i) && read.length === 1024)).toBe(true);
    expect(kvs.every(({ value: read }, i) => textOfBytes(read.slice(-4)) === String(1000 + i))).toBe(true);
    expect(range.mock.calls.length).toBeGreaterThan(10);
    expect(range.mock.results.every(({ value: page }) => page.kvs.length < 64)).toBe(true);
  });

  it('reads on the server of a stream only while that is open', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const transport = new MemoryTransport(server);
    const told = new Told();
    const stream = transport.watch({ prefix: '', startRevision: 0 }, told);
    await transport.txn(request);
    expect(await stream.range(keyRange('a'))).toMatchObject({ count: 1 });
    const during = stream.range(keyRange('a'));
    server.restore(server.snapshot());
    await expect(during).rejects.toMatchObject({ code: 'unavailable' });
    await expect(stream.range(keyRange('a'))).rejects.toMatchObject({ code: 'unavailable' });
    await settle(1);
    expect(told.lines.at(-1)).toBe('end unavailable');
    const next = transport.watch({ prefix: '', startRevision: 0 }, told);
    next.cancel();
    await expect(next.range(keyRange('a'))).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('passes on that a stream pauses, resumes and is probed', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const told = new Told();
    const stream = new MemoryTransport(server).watch({ prefix: '', startRevision: 0 }, told);
    await settle(1);
    stream.pause();
    stream.requestProgress();
    await settle(1);
    expect(told.lines).toEqual(['created 1']);
    stream.resume();
    await settle(1);
    expect(told.lines).toEqual(['created 1', 'progress 1 requested']);
  });

  it('grants, keeps alive and revokes leases, and rejects with errors of a kvstore in every case', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const transport = new MemoryTransport(server);
    const lease = await transport.grantLease(5);
    expect(await transport.keepLeaseAlive(lease)).toBe(5);
    await transport.revokeLease(lease);
    expect(server.leases).toEqual([]);
    await expect(transport.keepLeaseAlive(lease)).rejects.toMatchObject({ code: 'lease-not-found' });
    server.range = () => {
      throw new TypeError('a fault');
    };
    await expect(transport.range(keyRange('a'))).rejects.toBeInstanceOf(KvstoreError);
  });
});

describe('a server without a leader', () => {
  it('rejects every call (regression: revoked leases)', () => {
    const server = new FaultyMemoryServer({ clock: new ManualClock() });
    const lease = server.grantLease(60);
    server.loseLeader();
    const calls = [
      () => server.range(keyRange('a')),
      () => write(server, put('a')),
      () => server.grantLease(60),
      () => server.keepLeaseAlive(lease),
      () => server.revokeLease(lease),
    ];
    expect(calls.map(codeOf)).toEqual(calls.map(() => 'no-leader'));
    server.electLeader();
    expect(server.leases).toEqual([lease]);
  });
});
