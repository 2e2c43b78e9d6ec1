import { describe, expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { alone, expectRefused, without } from '../base/support/wrong-arguments.ts';

const LIST = { bytes: new Uint8Array(4), family: 4 };
const SIGNAL = { addEventListener: () => {}, removeEventListener: () => {} };
const HALF_SIGNALS = [null, ...without(SIGNAL, 'addEventListener', 'removeEventListener').slice(1)];

const WRONG: Partial<Record<keyof IPCache, readonly (readonly unknown[])[]>> = {
  batch: [[undefined]],
  onNamedPortsChange: [[undefined]],
  subscribe: alone(without({ onChanges: () => {} }, 'onChanges')),
  subscribeOwners: alone(without({ onOwnerChanges: () => {} }, 'onOwnerChanges')),
  lookupByPod: [['a'], [undefined, 'b'], [null, 'b']],
  lookupByIdentity: [[7n], [undefined]],
  countByIdentity: [[7n], [undefined]],
  changes: [['from'], ...HALF_SIGNALS.map((signal) => [{ signal }])],
  entries: [[null], [true]],
  lookupMany: [
    ...without(LIST, 'bytes').map((list) => [list, new Uint32Array(1)]),
    ['10.0.0.1', new Uint32Array(1)],
    [[], []],
    [LIST, [0]],
  ],
};

describe('a cache rejects an incomplete argument', () => {
  it.each(Object.entries(WRONG))('%s', (method, calls) => {
    expectRefused(new IPCache(), method, calls);
  });

  it.each([
    [null, 'ifPod'],
    [[], 'ifPod.namespace'],
    [{ namespace: 'a' }, 'ifPod.podName'],
  ])('and deletes nothing if the pod is %j (regression: a TypeError)', (ifPod, field) => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 1, source: 'k8s' });
    const by = { source: 'k8s', ifPod };
    expect(Reflect.apply(cache.delete, cache, ['10.0.0.1', by])).toBe('invalid');
    expect(cache.status().rejections.recent).toMatchObject([{ reason: 'invalid-metadata', field }]);
    expect(cache.size).toBe(1);
  });

  it('but ignores further fields of the pod of a delete (regression: named `k8s.serviceAccount`)', () => {
    const cache = new IPCache();
    const pod = { namespace: 'shop', podName: 'a' };
    cache.upsert('10.0.0.1', { identity: 1, source: 'k8s', k8s: pod });
    const by = { source: 'k8s', ifPod: { ...pod, serviceAccount: null } };
    expect(Reflect.apply(cache.delete, cache, ['10.0.0.1', by])).toBe('applied');
  });

  it.each([Number.NaN, -1])('and a limit of %j keys (regression: NaN meant no limit)', (maxEntries) => {
    expect(() => new IPCache({ maxEntries })).toThrow('maxEntries must be at least 0');
  });

  it.each([Number.NaN, -1])(
    'and a limit of %j waiting keys (regression: NaN meant no limit)',
    (maxWaiting) => {
      expect(() => new IPCache({ maxWaiting })).toThrow('maxWaiting must be at least 0');
    },
  );

  it.each([Number.NaN, 0])('and replays of %j entries a call', (replayChunk) => {
    expect(() => new IPCache({ replayChunk })).toThrow('replayChunk must be at least 1');
  });

  it('but accepts omitted options', () => {
    const cache = new IPCache();
    cache.changes().return?.();
    cache.changes({}).return?.();
    expect([[...cache.entries()], [...cache.entries({})]]).toEqual([[], []]);
  });
});
