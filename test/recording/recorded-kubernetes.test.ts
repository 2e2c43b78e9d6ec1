import { expect, it } from 'vitest';
import type { Rejection } from '../../src/base/rejection.ts';
import { RecordedKubernetes } from '../../src/recording/recorded-kubernetes.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

/** Returns an object that contains itself a number of times. */
function nested(depth: number): object {
  let object = {};
  for (let i = 0; i < depth; i++) object = { a: object };
  return object;
}

it.each([
  1_001, // regression: the result depended on the version of Node.js; 26 threw a RangeError
  200_000, // regression: the process crashed
])('rejects an object of %i levels, and stores the others', async (depth) => {
  const recorded = new RecordedKubernetes(new ManualClock());
  const rejected: Rejection[] = [];
  const service = (name: string, spec: object): object => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'shop' },
    spec,
  });
  const objects = async function* (): AsyncGenerator<{ object: Record<string, unknown>; at: string }> {
    yield { object: { ...service('deep', nested(depth)) }, at: 'tape services/shop/deep' };
    yield { object: { ...service('cart', {}) }, at: 'tape services/shop/cart' };
  };
  let stored = 0;
  await recorded.store(
    objects(),
    (one) => rejected.push(one),
    () => stored++,
  );
  expect(rejected.map(({ message }) => message)).toEqual([expect.stringContaining('is nested too deeply')]);
  expect(stored).toBe(2);
});

it.each([
  ['a name with a lone surrogate', { kind: 'Service', metadata: { name: 'a\ud800' } }, /not valid Unicode/],
  [
    'a namespace with one',
    { kind: 'Service', metadata: { name: 'a', namespace: '\udfff' } },
    /not valid Unicode/,
  ],
  [
    'a kind that is an object with toString',
    { kind: { toString: 1 } },
    /^v1 \{"toString":1\} is not supported$/,
  ],
])('%s is a reason, not a crash', async (_, object, reason) => {
  const recorded = new RecordedKubernetes(new ManualClock());
  expect(await recorded.apply({ apiVersion: 'v1', ...object })).toMatch(reason);
});
