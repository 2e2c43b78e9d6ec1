import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { IdentityAllocator } from '../../../src/kvstore/allocator/identity-allocator.ts';
import { MASTER_PREFIX } from '../../../src/kvstore/allocator/identity-keys.ts';
import { IdentityPool } from '../../../src/kvstore/allocator/identity-pool.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { encodeIdentity } from '../../../src/kvstore/codec/identity.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import {
  IDENTITIES_PREFIX,
  IDENTITY_LOCKS_PREFIX,
  identityKey,
  identityValueKey,
} from '../../../src/kvstore/codec/keys.ts';
import { identityCollection } from '../../../src/kvstore/gc/collections.ts';
import { GarbageCollector } from '../../../src/kvstore/gc/garbage-collector.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { formatLabels, type Labels, parseLabels } from '../../../src/model/labels.ts';
import {
  clusterIdentityRange,
  type IdentityRange,
  type NumericIdentity,
} from '../../../src/model/numeric-identity.ts';
import { fewerRuns } from '../../base/support/fewer-runs.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { giveUpDelete, giveUpPut } from '../support/given-up-write.ts';
import { advance, settle } from '../support/settle.ts';

const IDENTITY_VALUES = `${IDENTITIES_PREFIX}value/`;
/** A little longer than an allocator needs to check all of its keys. */
const SYNC_INTERVAL_MS = 6 * 60_000;
const RANGE: IdentityRange = clusterIdentityRange(3);

function labels(text: string): Labels {
  const parsed = parseLabels(text);
  if (parsed === undefined) throw new Error(text);
  return parsed;
}

const WEB = labels('k8s:app=web;k8s:io.kubernetes.pod.namespace=shop;');
const DB = labels('k8s:app=db;k8s:zone=a/b;');

class Node {
  readonly backend: FaultyMemoryBackend;
  readonly allocator: IdentityAllocator;
  readonly rejections = new RejectionLog();
  readonly failures: (readonly [unknown, string])[] = [];
  readonly #ended = new AbortController();
  readonly #running: Promise<void>;

  constructor(server: MemoryServer, clock: ManualClock, name: string, seed: number, range = RANGE) {
    let random = seed;
    const next = (): number => {
      random = (random * 16_807) % 2_147_483_647;
      return random / 2_147_483_647;
    };
    this.backend = new FaultyMemoryBackend({ server, clock, random: next, leaseSeconds: 30 });
    this.allocator = new IdentityAllocator({
      backend: this.backend,
      range,
      nodeSuffix: name,
      clock,
      random: next,
      rejections: this.rejections,
      onFailure: (error, task) => this.failures.push([error, task]),
    });
    this.#running = this.allocator.run(this.#ended.signal);
  }

  async stop(): Promise<void> {
    this.#ended.abort();
    await this.#running;
    await this.backend.close();
  }
}

describe('the identity allocator', () => {
  let clock: ManualClock;
  let server: MemoryServer;
  let a: Node;
  let b: Node;
  const content = (): Record<string, string> => {
    const { kvs } = server.range(prefixRange(IDENTITIES_PREFIX));
    return Object.fromEntries(
      kvs.map(({ key, value }) => [key.slice(IDENTITIES_PREFIX.length), textOfBytes(value) ?? '']),
    );
  };
  const slaves = (): string[] => Object.keys(content()).filter((key) => key.startsWith('value/'));
  const remove = (key: string): unknown =>
    server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(key) }] });

  beforeEach(async () => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
    a = new Node(server, clock, '10.0.0.1', 1);
    b = new Node(server, clock, '10.0.0.2', 2);
    await settle();
  });

  afterEach(async () => {
    await a.stop();
    await b.stop();
  });

  it('gives the same labels the same number on every node, in the formats of Cilium', async () => {
    const first = await a.allocator.allocate(WEB);
    const second = await b.allocator.allocate(WEB);
    expect(first.isNew).toBe(true);
    expect(second).toEqual({ id: first.id, isNew: false });
    expect(first.id >>> 16).toBe(3);
    const key = 'k8s:app=web;k8s:io.kubernetes.pod.namespace=shop;';
    expect(content()).toEqual({
      [`id/${first.id}`]: key,
      [`value/${key}/10.0.0.1`]: String(first.id),
      [`value/${key}/10.0.0.2`]: String(first.id),
    });
  });

  it('gives different labels different numbers, also concurrently', async () => {
    const many = Array.from({ length: 40 }, (_, i) => labels(`k8s:app=${i};`));
    const given = await Promise.all(many.flatMap((l) => [a.allocator.allocate(l), b.allocator.allocate(l)]));
    expect(new Set(given.map(({ id }) => id)).size).toBe(40);
    for (let i = 0; i < given.length; i += 2) expect(given[i]?.id).toBe(given[i + 1]?.id);
    expect(given.filter(({ isNew }) => isNew)).toHaveLength(40);
  });

  it('checks only the identities whose slave key was lost (regression: all of them, for each lost lease)', async () => {
    await a.allocator.allocate(WEB);
    await settle();
    const [slaveLease, ...others] = server.leases.slice(-1);
    expect(others).toEqual([]);
    for (let i = 0; i < 1001; i++) await a.backend.update(`other/${i}`, bytesOfText(''), { leased: true });
    const added = server.leases.filter((lease) => lease !== slaveLease).slice(-1);
    const read = vi.spyOn(a.backend.link, 'txn');
    const checks = (): number =>
      read.mock.calls.filter(([{ compare }]) => compare.some(({ key }) => key.startsWith(IDENTITIES_PREFIX)))
        .length;
    for (const lease of added) server.revokeLease(lease);
    await advance(clock, 15_000);
    expect(checks()).toBe(0);
    if (slaveLease !== undefined) server.revokeLease(slaveLease);
    await advance(clock, 15_000);
    expect(checks()).toBeGreaterThan(0);
    expect(slaves()).toHaveLength(1);
  });

  it('counts references; the last one deletes the slave key, never the master key', async () => {
    const { id } = await a.allocator.allocate(WEB);
    await a.allocator.allocate(WEB);
    expect(await a.allocator.release(WEB)).toBe('still-used');
    expect(await a.allocator.release(WEB)).toBe('released');
    expect(await a.allocator.release(WEB)).toBe('not-found');
    expect(Object.keys(content())).toEqual([`id/${id}`]);
  });

  it('reuses a number without users for the same labels', async () => {
    const { id } = await a.allocator.allocate(DB);
    await a.allocator.release(DB);
    expect(await b.allocator.allocate(DB)).toEqual({ id, isNew: false });
  });

  it.each([
    ['before', 0],
    ['after', 500],
  ])(
    'gives labels the number that they have in a restored store, %s it is followed (regression: a second one)',
    async (_, ms) => {
      const putMaster = (id: number, of: Labels): unknown => {
        const key = identityKey(id as NumericIdentity);
        const value = encodeIdentity(of);
        return server.txn({ compare: [], writes: [{ op: 'put', key, value, lease: NO_LEASE }] });
      };
      putMaster(RANGE.min + 7, DB);
      const backup = server.snapshot();
      for (let i = 0; i < 5; i++) putMaster(RANGE.min + 8, DB);
      remove(identityKey((RANGE.min + 8) as NumericIdentity));
      await settle();
      server.restore(backup);
      await advance(clock, ms);
      b.backend.link.stallWatch(MASTER_PREFIX);
      putMaster(RANGE.min + 9, WEB);
      expect(await b.allocator.allocate(WEB)).toEqual({ id: RANGE.min + 9, isNew: false });
      b.backend.link.unstallWatch(MASTER_PREFIX);
    },
  );

  it('writes a master key again that is deleted while it is in use (trap: identity GC)', async () => {
    const { id } = await a.allocator.allocate(WEB);
    remove(identityKey(id));
    await advance(clock, 100);
    expect(content()[`id/${id}`]).toBeDefined();
  });

  it('writes its slave keys again after the lease is lost', async () => {
    const { id } = await a.allocator.allocate(WEB);
    for (const lease of server.leases) server.expireLease(lease);
    expect(Object.keys(content())).toEqual([`id/${id}`]);
    await advance(clock, 15_000);
    expect(Object.keys(content())).toHaveLength(2);
  });

  it('reports a number that has other labels by now, and keeps it', async () => {
    const { id } = await a.allocator.allocate(WEB);
    await b.backend.update(identityKey(id), bytesOfText('k8s:app=other;'));
    await advance(clock, SYNC_INTERVAL_MS);
    expect(a.rejections.status().byReason['identity-conflict']).toBe(1);
  });

  it('does not use a number of a slave key that has other labels (regression: it was used for both)', async () => {
    const { id } = await a.allocator.allocate(WEB);
    await b.backend.update(identityValueKey('k8s:app=db;k8s:zone=a/b;', '10.0.0.0'), bytesOfText(String(id)));
    const given = await b.allocator.allocate(DB);
    expect(given.id).not.toBe(id);
    expect(await a.allocator.allocate(DB)).toEqual({ id: given.id, isNew: false });
    expect(b.rejections.status().byReason['identity-conflict']).toBe(1);
  });

  it.each([7, RANGE.max + 1])(
    'does not use the number %i of a slave or master key, which another cluster may use (regression: it did)',
    async (foreign) => {
      await b.backend.update(identityValueKey(formatLabels(WEB), '10.0.0.0'), bytesOfText(String(foreign)));
      await b.backend.update(identityKey(foreign), encodeIdentity(WEB));
      const { id } = await a.allocator.allocate(WEB);
      expect([id >= RANGE.min && id <= RANGE.max, a.rejections.status().byReason]).toEqual([
        true,
        { 'out-of-range': 2 },
      ]);
      expect((await b.allocator.allocate(WEB)).id).toBe(id);
    },
  );

  describe('an identity that was collected after the loss of its lease, and whose number has other labels,', () => {
    let taken: NumericIdentity;
    let told: string[];

    beforeEach(async () => {
      told = [];
      a.allocator.subscribe({
        onIdentity: () => {},
        onIdentityGone: () => {},
        onIdentityReassigned: (id, of) => told.push(`${id} ${formatLabels(of)}`),
      });
      ({ id: taken } = await a.allocator.allocate(WEB));
      await a.allocator.allocate(WEB);
      a.backend.link.down();
      for (const lease of server.leases) server.expireLease(lease);
      remove(identityKey(taken));
      await b.backend.update(identityKey(taken), encodeIdentity(DB));
      a.backend.link.up();
      await advance(clock, 40_000);
    });

    it('gets another number (regression: it got the one that it had reported as conflicting)', async () => {
      expect(a.rejections.status().byReason['identity-conflict']).toBe(1);
      expect(a.allocator.status()).toMatchObject({ used: 1, reassigned: 1 });
      expect(a.allocator.lookupByLabels(WEB)).toBeUndefined();
      expect(a.allocator.lookupByID(taken)).toEqual(DB);
      const again = await a.allocator.allocate(WEB);
      expect(again.id).not.toBe(taken);
      expect(content()[`id/${again.id}`]).toBe(formatLabels(WEB));
      expect(content()[`id/${taken}`]).toBe(formatLabels(DB));
      expect(slaves()).toEqual([`value/${formatLabels(WEB)}/10.0.0.1`]);
      expect(a.allocator.status()).toMatchObject({ used: 1, reassigned: 0 });
      expect(await a.allocator.allocate(WEB)).toEqual({ id: again.id, isNew: false });
    });

    it('notifies its users, and leaves no slave key with the number', () => {
      expect(told).toEqual([`${taken} ${formatLabels(WEB)}`]);
      expect(slaves()).toEqual([]);
    });

    it('keeps its reference count', async () => {
      const { id } = await a.allocator.allocate(WEB);
      expect(await a.allocator.release(WEB)).toBe('still-used');
      expect(await a.allocator.release(WEB)).toBe('still-used');
      expect(a.allocator.lookupByLabels(WEB)).toBe(id);
      expect(await a.allocator.release(WEB)).toBe('released');
      expect(slaves()).toEqual([]);
      expect(a.allocator.size).toBe(0);
    });

    it('can be released without effect on the labels that have the number now', async () => {
      expect(await a.allocator.allocate(DB)).toEqual({ id: taken, isNew: false });
      await a.allocator.release(WEB);
      expect(await a.allocator.release(WEB)).toBe('released');
      expect(a.allocator.status()).toMatchObject({ used: 1, reassigned: 0 });
      remove(identityKey(taken)); // a collector removes too much
      await settle(20);
      expect(content()[`id/${taken}`]).toBe(formatLabels(DB));
    });

    it('can be released without a number', async () => {
      expect(await a.allocator.release(WEB)).toBe('still-used');
      expect(await a.allocator.release(WEB)).toBe('released');
      expect(await a.allocator.release(WEB)).toBe('not-found');
      expect(a.allocator.status()).toMatchObject({ used: 0, reassigned: 0 });
      await advance(clock, SYNC_INTERVAL_MS);
      expect(a.rejections.status().byReason['identity-conflict']).toBe(1);
    });
  });

  it('one identity that always fails delays no other (regression: all behind it waited for ever)', async () => {
    const many = Array.from({ length: 20 }, (_, i) => labels(`k8s:app=${i};`));
    for (const each of many) await a.allocator.allocate(each);
    const put = a.backend.updateIfDifferent.bind(a.backend);
    const bad = identityValueKey('k8s:app=0;', '10.0.0.1');
    for (const code of ['internal', 'invalid-request'] as const) {
      const fails = vi.spyOn(a.backend, 'updateIfDifferent').mockImplementation((key, ...call) => {
        if (key !== bad) return put(key, ...call);
        return Promise.reject(new KvstoreError(code, 'it fails for ever'));
      });
      for (const lease of server.leases) server.expireLease(lease);
      await advance(clock, 60_000);
      expect(slaves()).toHaveLength(19);
      const { repairs } = a.allocator.status();
      expect(repairs).toMatchObject({ pending: 1, lastFailure: { code, message: 'it fails for ever' } });
      expect(repairs.failures).toBeGreaterThan(0);
      fails.mockRestore();
      await advance(clock, 2 * 60_000);
      expect(slaves()).toHaveLength(20);
      expect(a.allocator.status().repairs.pending).toBe(0);
    }
  });

  it('an allocation that waits for its lock delays no repair', async () => {
    const many = Array.from({ length: 12 }, (_, i) => labels(`k8s:app=${i};`));
    const locks = await Promise.all(
      many.map((each) => b.backend.lock(`${IDENTITY_LOCKS_PREFIX}${formatLabels(each)}`)),
    );
    await a.allocator.allocate(WEB);
    const waiting = many.map((each) => a.allocator.allocate(each));
    remove(identityValueKey(formatLabels(WEB), '10.0.0.1'));
    await advance(clock, SYNC_INTERVAL_MS);
    expect(slaves()).toEqual([`value/${formatLabels(WEB)}/10.0.0.1`]);
    for (const lock of locks) await lock.release();
    await advance(clock, 1000);
    await Promise.all(waiting);
  });

  it('a caller that aborts while another allocates the same labels ends immediately (regression: after the other)', async () => {
    const lock = await b.backend.lock(`${IDENTITY_LOCKS_PREFIX}${formatLabels(WEB)}`);
    const other = a.allocator.allocate(WEB);
    await settle();
    const controller = new AbortController();
    const aborted = a.allocator.allocate(WEB, controller.signal).catch(({ code }: { code: string }) => code);
    controller.abort();
    expect(await Promise.race([aborted, settle().then(() => 'waits')])).toBe('aborted');
    await lock.release();
    await advance(clock, 1000);
    await other;
    expect(await a.allocator.release(WEB)).toBe('released');
  });

  it('a listener that throws is counted and reported (regression: it was silent)', async () => {
    const fault = new Error('a broken listener');
    const fails = (): void => {
      throw fault;
    };
    a.allocator.subscribe({ onIdentity: fails, onIdentityGone: fails });
    await b.allocator.allocate(WEB);
    await settle();
    expect(a.allocator.status().faults).toBe(1);
    expect(a.failures).toEqual([[fault, 'identity listener']]);
  });

  it('reports its loops while it runs', async () => {
    const { background, identities } = a.allocator.status();
    expect(background.tasks.map(({ name }) => name)).toEqual([
      'identities of the cluster',
      'repairs',
      'resync',
    ]);
    expect(identities.synced).toBe(true);
    await a.stop();
    expect(a.allocator.status().background).toMatchObject({ tasks: [], failures: 0 });
  });

  it('a slave key that was given up is deleted by its release (regression: it blocked the collector)', async () => {
    const slave = identityValueKey(formatLabels(WEB), '10.0.0.1');
    const land = giveUpPut(a.backend.link, slave);
    await expect(a.allocator.allocate(WEB)).rejects.toMatchObject({ code: 'deadline' });
    await advance(clock, 10_000);
    await land();
    expect(slaves()).toEqual([]);
    await a.allocator.allocate(WEB);
    const landDelete = giveUpDelete(a.backend.link, slave);
    expect(await a.allocator.release(WEB)).toBe('released');
    await a.allocator.allocate(WEB);
    await landDelete();
    expect(slaves()).toEqual([`value/${formatLabels(WEB)}/10.0.0.1`]);
  });

  it('a release during an outage is completed later', async () => {
    const { id } = await a.allocator.allocate(WEB);
    a.backend.link.down();
    expect(await a.allocator.release(WEB)).toBe('released');
    a.backend.link.up();
    await advance(clock, SYNC_INTERVAL_MS);
    expect(Object.keys(content())).toEqual([`id/${id}`]);
  });

  it('fails if the kvstore is unreachable, and leaves nothing', async () => {
    a.backend.link.down();
    await expect(a.allocator.allocate(WEB)).rejects.toMatchObject({ code: 'unavailable' });
    expect(a.allocator.size).toBe(0);
    a.backend.link.up();
    expect((await a.allocator.allocate(WEB)).isNew).toBe(true);
  });

  it('a round does not delete the slave key of an identity that is in use again (regression: it did)', async () => {
    for (const each of [WEB, DB]) await a.allocator.allocate(each);
    a.backend.link.down();
    for (const each of [WEB, DB]) await a.allocator.release(each);
    a.backend.link.up();
    const remove = a.backend.delete.bind(a.backend);
    vi.spyOn(a.backend, 'delete').mockImplementationOnce(async (...call) => {
      await a.allocator.allocate(DB);
      return remove(...call);
    });
    await advance(clock, SYNC_INTERVAL_MS);
    expect(slaves()).toEqual(['value/k8s:app=db;k8s:zone=a/b;/10.0.0.1']);
  });

  /** Replaces the next put of `a`'s slave key by this function, which can call the put. */
  const duringPut = (what: (put: () => Promise<boolean>) => Promise<boolean>): void => {
    const put = a.backend.updateIfDifferent.bind(a.backend);
    vi.spyOn(a.backend, 'updateIfDifferent').mockImplementationOnce((...call) => what(() => put(...call)));
  };

  it('a failed allocation leaves no slave key that blocks the collector', async () => {
    duringPut(async (put) => {
      await put();
      throw new KvstoreError('deadline', 'the answer was lost');
    });
    await expect(a.allocator.allocate(WEB)).rejects.toMatchObject({ code: 'deadline' });
    await advance(clock, SYNC_INTERVAL_MS);
    expect(slaves()).toEqual([]);
  });

  it('a lease that is lost at the end of an allocation does not cost a slave key', async () => {
    duringPut(async (put) => {
      const written = await put();
      for (const lease of server.leases) server.expireLease(lease);
      await advance(clock, 15_000); // the loss is noticed
      return written;
    });
    await a.allocator.allocate(WEB);
    await advance(clock, 100);
    expect(slaves()).toHaveLength(1);
  });

  it('a repair in progress does not restore the slave key of a released identity', async () => {
    const { id } = await a.allocator.allocate(WEB);
    let released: Promise<unknown> | undefined;
    duringPut(async (put) => {
      released = a.allocator.release(WEB);
      await settle();
      return put();
    });
    remove(identityKey(id));
    await advance(clock, 100);
    expect(await released).toBe('released');
    expect(slaves()).toEqual([]);
  });

  it('an allocation and releases that wait for the same repair leave one reference, with its slave key', async () => {
    const { id } = await a.allocator.allocate(WEB);
    let waiting: Promise<unknown> | undefined;
    duringPut(async (put) => {
      const { allocator } = a;
      waiting = Promise.all([
        allocator.release(WEB),
        allocator.allocate(WEB),
        allocator.release(WEB),
        allocator.allocate(WEB),
      ]);
      await settle();
      return put();
    });
    remove(identityKey(id));
    await advance(clock, 100);
    await waiting;
    expect([a.allocator.size, slaves().length]).toEqual([1, 1]);
  });

  it('sends listeners the existing identities, then changes', async () => {
    const { id } = await a.allocator.allocate(WEB);
    await settle();
    const told: string[] = [];
    b.allocator.subscribe({
      onIdentity: (one) => told.push(`+${one}`),
      onIdentityGone: (one) => told.push(`-${one}`),
    });
    const other = await a.allocator.allocate(DB);
    await a.allocator.release(DB);
    await settle();
    remove(identityKey(other.id));
    await settle();
    expect(told).toEqual([`+${id}`, `+${other.id}`, `-${other.id}`]);
  });

  it('reports that all numbers are used', async () => {
    const small = new Node(server, clock, 'small', 3, { min: 1000, max: 1002 });
    for (const i of [1, 2, 3]) await small.allocator.allocate(labels(`k8s:n=${i};`));
    const none = small.allocator.allocate(labels('k8s:n=4;'));
    await expect(none).rejects.toMatchObject({ code: 'invalid-request' });
    await small.stop();
  });

  it('a collected identity is one that two rounds found unused and unchanged', async () => {
    const used = await a.allocator.allocate(WEB);
    const unused = await a.allocator.allocate(DB);
    await a.allocator.release(DB);
    const collection = identityCollection(b.backend, RANGE);
    const collector = new GarbageCollector({ collection, clock, intervalMs: 1000, removalsPerSecond: 1000 });
    const { signal } = new AbortController();
    await collector.round(signal);
    expect(content()[`id/${unused.id}`]).toBeDefined();
    const second = collector.round(signal);
    await advance(clock, 10);
    await second;
    expect(Object.keys(content())).toEqual([
      `id/${used.id}`,
      identityValueKey('k8s:app=web;k8s:io.kubernetes.pod.namespace=shop;', '10.0.0.1').slice(
        IDENTITIES_PREFIX.length,
      ),
    ]);
    expect(collector.status()).toMatchObject({ rounds: 2, removed: 1, failures: 0 });
  });
});

describe('the identity pool', () => {
  it('returns every number of its range once, whatever the random numbers', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 60 }),
        fc.infiniteStream(fc.double({ min: 0, max: 0.999, noNaN: true })),
        (size, stream) => {
          const pool = new IdentityPool({ min: 256, max: 255 + size }, () => stream.next().value);
          const given = Array.from({ length: size }, () => pool.reserve(() => false));
          expect(new Set(given).size).toBe(size);
          expect(pool.reserve(() => false)).toBeUndefined();
          pool.release(256);
          expect(pool.reserve(() => false)).toBe(256);
        },
      ),
    );
  });
});

type Step =
  | { readonly do: 'allocate' | 'release'; readonly node: number; readonly app: number }
  | { readonly do: 'cut' | 'lose-answers' | 'vandal' | 'expire'; readonly node: number }
  | { readonly do: 'gc' }
  | { readonly do: 'pass'; readonly ms: number };

const node = fc.nat(2);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constantFrom('allocate' as const, 'allocate' as const, 'release' as const),
      node,
      app: fc.nat(3),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('cut' as const, 'lose-answers' as const, 'expire' as const),
      node,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('gc' as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(1, 200, 12_000) }),
  },
);

describe('allocation under faults', () => {
  it('labels in use have one number everywhere, numbers in use one meaning, and nodes exactly the keys that they use', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30, size: 'max' }), async (script) => {
        const clock = new ManualClock();
        const server = new MemoryServer({ clock });
        const nodes = [0, 1, 2].map(
          (i) => new Node(server, clock, `10.0.0.${i}`, 11 + i, { min: 256, max: 259 }),
        );
        const collection = identityCollection(nodes[0]?.backend ?? new FaultyMemoryBackend({ clock }), {
          min: 256,
          max: 259,
        });
        const collector = new GarbageCollector({ collection, clock, intervalMs: 1000 });
        const { signal } = new AbortController();
        const inUse = new Map<string, { id: number; references: number }>();
        const pending: Promise<unknown>[] = [];
        for (const what of script) {
          const at = 'node' in what ? nodes[what.node] : undefined;
          if (what.do === 'allocate' && at !== undefined) {
            const text = `k8s:app=${what.app};`;
            const slot = `${what.node} ${text}`;
            const allocation = at.allocator.allocate(labels(text)).then(
              ({ id }) => {
                const held = inUse.get(slot);
                if (held !== undefined && held.id !== id) throw new Error(`${slot}: ${held.id} and ${id}`);
                inUse.set(slot, { id, references: (held?.references ?? 0) + 1 });
              },
              () => {},
            );
            pending.push(allocation);
            if (what.app % 2 === 0) await Promise.race([allocation, advance(clock, 50)]);
          }
          if (what.do === 'release' && at !== undefined) {
            const text = `k8s:app=${what.app};`;
            const slot = `${what.node} ${text}`;
            const held = inUse.get(slot);
            if (held === undefined) continue;
            if (held.references > 1) held.references--;
            else inUse.delete(slot);
            pending.push(at.allocator.release(labels(text)));
          }
          if (what.do === 'cut') at?.backend.link.cut();
          if (what.do === 'lose-answers') at?.backend.link.loseAnswers(1);
          if (what.do === 'expire') server.leases.forEach((lease) => void server.expireLease(lease));
          if (what.do === 'gc') {
            // Rounds are further apart than the time in which a node notices that its lease is lost and
            // writes its keys again. The protocol does not cover a lease that is lost exactly at two
            // consecutive rounds.
            await advance(clock, 20_000);
            pending.push(collector.round(signal).catch(() => {}));
            await settle();
          }
          if (what.do === 'pass') await advance(clock, what.ms);
        }
        await advance(clock, 30_000);
        await Promise.all(pending);
        await advance(clock, SYNC_INTERVAL_MS);
        const numberOf = new Map<string, number>();
        const meaningOf = new Map<number, string>();
        const keys = new Map(
          server.range(prefixRange(IDENTITIES_PREFIX)).kvs.map(({ key, value }) => [key, textOfBytes(value)]),
        );
        for (const [slot, { id }] of inUse) {
          const [name, text = ''] = slot.split(' ');
          expect(numberOf.get(text) ?? id).toBe(id);
          expect(meaningOf.get(id) ?? text).toBe(text);
          numberOf.set(text, id);
          meaningOf.set(id, text);
          expect(keys.get(identityKey(id))).toBe(text);
          const slave = identityValueKey(text, `10.0.0.${name}`);
          expect(keys.get(slave)).toBe(String(id));
          keys.delete(slave);
        }
        expect(
          [...keys.keys()].filter((key) => key.startsWith(IDENTITY_VALUES)),
          'not in use',
        ).toEqual([]);
        for (const one of nodes) await one.stop();
      }),
      fewerRuns(80),
    );
  });
});
