import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { UsageError } from '../../../src/base/arguments.ts';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { IdentityAllocator } from '../../../src/kvstore/allocator/identity-allocator.ts';
import { MASTER_PREFIX } from '../../../src/kvstore/allocator/identity-keys.ts';
import { IdentityPool } from '../../../src/kvstore/allocator/identity-pool.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { encodeIdentity } from '../../../src/kvstore/codec/identity.ts';
import { identityKey, identityValueKey } from '../../../src/kvstore/codec/keys.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { formatLabels, type Labels, parseLabels } from '../../../src/model/labels.ts';
import type { IdentityRange, NumericIdentity } from '../../../src/model/numeric-identity.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';

function labels(text: string): Labels {
  const parsed = parseLabels(text);
  if (parsed === undefined) throw new Error(text);
  return parsed;
}

const WEB = labels('k8s:app=web;');
const DB = labels('k8s:app=db;');
const RANGE: IdentityRange = { min: 256, max: 265 };
const numberOf = (id: number): NumericIdentity => id as NumericIdentity;

it.each([
  ['nodeSuffix', '10.0.0.1/24', 'must be a name without /, not "10.0.0.1/24"'],
  ['nodeSuffix', '', 'must be a name without /, not ""'],
  ['range', { min: 255, max: 300 }, 'must be a result of clusterIdentityRange, not {"min":255,"max":300}'],
  ['range', { min: 300, max: 299 }, 'must be a result of clusterIdentityRange, not {"min":300,"max":299}'],
  ['range', { min: 300 }, 'must be a result of clusterIdentityRange, not {"min":300}'],
  ['range', undefined, 'must be a result of clusterIdentityRange, not undefined'],
])(
  'an allocator refuses the %s %j, with which it would write keys that agents reject',
  (option, value, fault) => {
    const backend = new FaultyMemoryBackend({ clock: new ManualClock() });
    const options = {
      backend,
      nodeSuffix: 'n',
      range: RANGE,
      rejections: new RejectionLog(),
      [option]: value,
    };
    expect(() => new IdentityAllocator(options)).toThrow(
      new UsageError('invalid-argument', `new IdentityAllocator: options.${option} ${fault}`),
    );
  },
);

describe('an allocator of identities', () => {
  let clock: ManualClock;
  let backend: FaultyMemoryBackend;
  let rejections: RejectionLog;
  let failures: unknown[];
  let ended: AbortController;
  let allocator: IdentityAllocator;
  let running: Promise<void>;

  const start = async (range = RANGE): Promise<void> => {
    ended = new AbortController();
    allocator = new IdentityAllocator({
      backend,
      range,
      nodeSuffix: '10.0.0.1',
      clock,
      rejections,
      random: () => 0.5,
      onFailure: (error) => failures.push(error),
    });
    running = allocator.run(ended.signal);
    await settle(4);
  };
  const stop = async (): Promise<void> => {
    ended.abort();
    await running;
  };
  const putMaster = async (id: number, of: Labels): Promise<void> => {
    await backend.update(identityKey(numberOf(id)), encodeIdentity(of));
    await settle(4);
  };
  const putSlave = (node: string, value: string): Promise<number> =>
    backend.update(identityValueKey(formatLabels(WEB), node), bytesOfText(value));

  beforeEach(async () => {
    clock = new ManualClock();
    backend = new FaultyMemoryBackend({ clock });
    rejections = new RejectionLog();
    failures = [];
    await start();
  });
  afterEach(async () => {
    await stop();
    await backend.close();
  });

  it('passes its signal to every call of an allocation, and each write is guarded by its lock', async () => {
    const { signal } = new AbortController();
    await putMaster(258, DB);
    const locked = vi.spyOn(backend, 'lock');
    const reads = [vi.spyOn(backend, 'listPrefix'), vi.spyOn(backend, 'get')];
    const writes = [vi.spyOn(backend, 'createOnly'), vi.spyOn(backend, 'updateIfDifferent')];
    await allocator.allocate(WEB, signal);
    await allocator.allocate(DB, signal);
    expect(locked.mock.calls.map(([, options]) => options?.signal)).toEqual([signal, signal]);
    for (const { mock } of reads) {
      expect(mock.calls.length).toBeGreaterThan(0);
      for (const [, options] of mock.calls) expect(options?.signal).toBe(signal);
    }
    const locks = await Promise.all(locked.mock.results.map(({ value }) => value));
    for (const { mock } of writes) {
      expect(mock.calls.map(([, , options]) => options?.ifLocked)).toEqual(locks);
      for (const [, , options] of mock.calls) expect(options?.signal).toBe(signal);
    }
  });

  it('reads only master keys that were written since the last known revision', async () => {
    await putMaster(258, DB);
    const lists = vi.spyOn(backend, 'listPrefix');
    const cursor = backend.server.header.revision + 1;
    await allocator.allocate(WEB);
    const [, options] = lists.mock.calls.find(([prefix]) => prefix === MASTER_PREFIX) ?? [];
    expect(options?.minModRevision).toBe(cursor);
  });

  it('deletes the slave key of an allocation whose answer was lost', async () => {
    const update = backend.updateIfDifferent.bind(backend);
    vi.spyOn(backend, 'updateIfDifferent').mockImplementationOnce(async (...call) => {
      await update(...call);
      throw new KvstoreError('unavailable', 'connection reset');
    });
    await expect(allocator.allocate(WEB)).rejects.toMatchObject({ code: 'unavailable' });
    await advance(clock, 60_000);
    expect(await backend.get(identityValueKey(formatLabels(WEB), '10.0.0.1'))).toBeUndefined();
  });

  it('uses no number from a slave key of longer labels, nor an invalid number', async () => {
    await putSlave('b=c;/10.0.0.9', '258');
    await putSlave('10.0.0.8', 'many');
    await expect(allocator.allocate(WEB)).resolves.toEqual({ id: 261, isNew: true });
    expect(rejections.status().byReason).toEqual({ 'out-of-range': 1 });
  });

  it('uses no number from a master key of other labels, nor an invalid number', async () => {
    backend.link.stallWatch(MASTER_PREFIX);
    await putMaster(258, DB);
    await backend.update(`${MASTER_PREFIX}none`, encodeIdentity(WEB));
    await expect(allocator.allocate(WEB)).resolves.toEqual({ id: 261, isNew: true });
    expect(rejections.status().total).toBe(0);
  });

  describe('after a conflict with another node', () => {
    it.each([
      ['takes the number that it tries', () => Promise.resolve(false)],
      ['takes its lock', () => Promise.reject(new KvstoreError('lock-lost', 'it is lost'))],
    ])('and %s, retries seven times with growing delays', async (_, fail) => {
      const locks = vi.spyOn(backend, 'lock');
      const create = vi.spyOn(backend, 'createOnly');
      for (let i = 0; i < 7; i++) create.mockImplementationOnce(fail);
      const allocation = allocator.allocate(WEB);
      await settle(4);
      expect(locks).toHaveBeenCalledTimes(1);
      await advance(clock, 60_000);
      expect(await allocation).toEqual({ id: 261, isNew: true });
      expect(locks).toHaveBeenCalledTimes(8);
    });

    it('each time, reports it', async () => {
      const create = vi.spyOn(backend, 'createOnly').mockResolvedValue(false);
      const refusal = expect(allocator.allocate(WEB)).rejects.toThrow(
        'no identity was allocated for k8s:app=web;: too many conflicts with other nodes',
      );
      await advance(clock, 10_000);
      await refusal;
      expect(create).toHaveBeenCalledTimes(8);
    });

    it('fails after eight lost locks, with the last error', async () => {
      const lost = new KvstoreError('lock-lost', 'it is lost');
      const create = vi.spyOn(backend, 'createOnly').mockRejectedValue(lost);
      const refusal = expect(allocator.allocate(WEB)).rejects.toBe(lost);
      await advance(clock, 10_000);
      await refusal;
      expect(create).toHaveBeenCalledTimes(8);
    });
  });

  it('does not retry other errors, and releases the number', async () => {
    await stop();
    await start({ min: 300, max: 300 });
    const failure = new KvstoreError('internal', 'it is broken');
    const create = vi.spyOn(backend, 'createOnly').mockRejectedValueOnce(failure);
    await expect(allocator.allocate(WEB)).rejects.toBe(failure);
    expect(create).toHaveBeenCalledTimes(1);
    await expect(allocator.allocate(WEB)).resolves.toEqual({ id: 300, isNew: true });
  });

  it('writes nothing more after an allocation without a loss', async () => {
    const create = vi.spyOn(backend, 'createOnly');
    const put = vi.spyOn(backend, 'updateIfDifferent');
    await allocator.allocate(WEB);
    await advance(clock, 1000);
    expect([create.mock.calls.length, put.mock.calls.length]).toEqual([1, 1]);
  });

  it('writes a master key again if it is deleted during the check', async () => {
    await allocator.allocate(WEB);
    await stop();
    await start();
    vi.spyOn(backend, 'createOnly').mockResolvedValueOnce(false);
    vi.spyOn(backend, 'get').mockResolvedValue(undefined);
    await expect(allocator.allocate(WEB)).rejects.toMatchObject({
      code: 'unavailable',
      message: `${identityKey(numberOf(261))} was deleted concurrently`,
    });
  });

  it('allocates once for two concurrent requests', async () => {
    const [first, second] = await Promise.all([allocator.allocate(WEB), allocator.allocate(WEB)]);
    expect([first, second]).toEqual([
      { id: 261, isNew: true },
      { id: 261, isNew: false },
    ]);
    expect(await allocator.release(WEB)).toBe('still-used');
    expect(await allocator.release(WEB)).toBe('released');
  });

  it('returns its own numbers before the kvstore contains them', async () => {
    backend.link.stallWatch(MASTER_PREFIX);
    const { id } = await allocator.allocate(WEB);
    expect(allocator.cache.size).toBe(0);
    expect(allocator.lookupByID(id)).toEqual(WEB);
    expect(allocator.lookupByLabels(WEB)).toBe(id);
    expect([allocator.lookupByID(256), allocator.lookupByLabels(DB)]).toEqual([undefined, undefined]);
  });

  it('is synced once the identities of the cluster are complete', async () => {
    await stop();
    backend.link.stallWatch(MASTER_PREFIX);
    await start();
    let isSynced = false;
    void allocator.synced.then(() => {
      isSynced = true;
    });
    await settle(4);
    expect(isSynced).toBe(false);
    backend.link.unstallWatch(MASTER_PREFIX);
    await settle(4);
    expect(isSynced).toBe(true);
  });

  it('reports a number with other labels as deleted, then as added; with the same labels nothing', async () => {
    const story: string[] = [];
    allocator.subscribe({
      onIdentity: (id, of) => story.push(`${id} ${formatLabels(of)}`),
      onIdentityGone: (id, of) => story.push(`${id} ${formatLabels(of)} gone`),
    });
    await putMaster(258, WEB);
    await putMaster(258, WEB);
    await putMaster(258, DB);
    expect(story).toEqual(['258 k8s:app=web;', '258 k8s:app=web; gone', '258 k8s:app=db;']);
  });

  it('requires no listener for used numbers', async () => {
    allocator.subscribe({ onIdentity: () => {}, onIdentityGone: () => {} });
    const { id } = await allocator.allocate(WEB);
    await putMaster(id, DB);
    await advance(clock, 1000);
    expect(allocator.status()).toMatchObject({ reassigned: 1, faults: 0 });
    expect(failures).toEqual([]);
  });

  it.each([
    ['run: signal must be an AbortSignal', () => allocator.run({} as never)],
    ['subscribe: listener.onIdentity must be', () => allocator.subscribe({} as never)],
    ['onIdentityGone must be', () => allocator.subscribe({ onIdentity: () => {} } as never)],
    ['lookupByLabels: labels must be', () => allocator.lookupByLabels('k8s:app=web;' as never)],
    ['allocate: labels[0].source must be', () => allocator.allocate([{}] as never)],
    ['labels[0].key must be', () => allocator.allocate([{ source: '' }] as never)],
    ['labels[0].value must be', () => allocator.allocate([{ source: '', key: '' }] as never)],
    ['allocate: signal must be an AbortSignal', () => allocator.allocate(WEB, 7 as never)],
    ['release: labels must be', () => allocator.release(7 as never)],
  ])('rejects invalid options: %s', async (wrong, call) => {
    await expect((async () => call())()).rejects.toThrow(wrong);
  });
});

describe('a pool of identities', () => {
  const numbers = (...given: readonly number[]): { readonly next: () => number; calls: number } => {
    const random = {
      calls: 0,
      next: () => given[Math.min(random.calls++, given.length - 1)] ?? 0,
    };
    return random;
  };

  it('returns a random number of its range', () => {
    for (const [random, id] of [
      [0, 256],
      [0.55, 261],
      [0.999, 265],
    ] as const)
      expect(new IdentityPool(RANGE, () => random).reserve(() => false)).toBe(id);
  });

  it('tries 32 times, then searches all numbers from a random one on, and wraps around', () => {
    const last = numbers(...Array.from({ length: 31 }, () => 0), 0.7);
    expect(new IdentityPool(RANGE, last.next).reserve((id) => id !== 263)).toBe(263);
    expect(last.calls).toBe(32);
    const none = numbers(...Array.from({ length: 32 }, () => 0), 0.5);
    expect(new IdentityPool(RANGE, none.next).reserve((id) => id !== 263 && id !== 258)).toBe(263);
    expect(none.calls).toBe(33);
    const asked: number[] = [];
    const full = new IdentityPool(RANGE, () => 0.5).reserve((id) => asked.push(id) > 0);
    expect(full).toBeUndefined();
    expect(asked.slice(32)).toEqual([261, 262, 263, 264, 265, 256, 257, 258, 259, 260]);
  });
});
