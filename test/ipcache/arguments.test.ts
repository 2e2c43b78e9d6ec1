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

  it('but accepts omitted options', () => {
    const cache = new IPCache();
    cache.changes().return?.();
    cache.changes({}).return?.();
    expect([[...cache.entries()], [...cache.entries({})]]).toEqual([[], []]);
  });
});
