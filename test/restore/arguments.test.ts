import { describe, it } from 'vitest';
import { IPAM } from '../../src/restore/ipam.ts';
import type { Restoration } from '../../src/restore/restoration.ts';
import { alone, expectRefused, without } from '../base/support/wrong-arguments.ts';
import { MemoryFolder } from './support/memory-folder.ts';
import { restart } from './support/world.ts';

type WrongCalls<T> = Partial<Record<keyof T, readonly (readonly unknown[])[]>>;

const LEFT = { entries: [], nodes: [], identities: [], knownAt: 1 };
const POD = { use: 'endpoint', name: 'shop/web-1' };

const OF_RESTORATION: WrongCalls<Restoration> = {
  read: [[null], [undefined, 7]],
  adopt: alone(without(LEFT, 'entries', 'nodes', 'identities', 'knownAt')),
  knownAt: [[undefined]],
  labelsOf: [['7']],
  clusterOf: [['7']],
  release: [[undefined]],
  releaseOffers: [[undefined]],
};

const OF_ADDRESSES: WrongCalls<IPAM> = Object.fromEntries([
  ...['reserve', 'release'].map((method) => [
    method,
    [
      [undefined, POD],
      ['10.1.0.1', POD, 7],
      ...without(POD, 'use', 'name').map((owner) => ['10.1.0.1', owner]),
    ],
  ]),
  ...['ownerOf', 'isFree'].map((method) => [method, [[undefined], ['10.1.0.1', 7]]]),
]);

describe('an incomplete argument is rejected', () => {
  it.each(Object.entries(OF_RESTORATION))('by a restoration: %s', (method, calls) => {
    expectRefused(restart(new MemoryFolder()).restoration, method, calls);
  });

  it.each(Object.entries(OF_ADDRESSES))('by an IPAM: %s', (method, calls) => {
    expectRefused(new IPAM([['default', []]]), method, calls);
  });
});
