import { expect, it } from 'vitest';
import { SetMap } from '../../src/operator/set-map.ts';

it('a map of sets has the values of each key, and no key without values', () => {
  const map = new SetMap<number>();
  for (const [key, value] of [
    ['a', 1],
    ['a', 2],
    ['a', 2],
    ['b', 1],
  ] as const)
    map.add(key, value);
  expect([...map.get('a')]).toEqual([1, 2]);
  map.delete('a', 1);
  map.delete('a', 7);
  map.delete('c', 1);
  expect([[...map.get('a')], [...map.keys()]]).toEqual([[2], ['a', 'b']]);
  map.delete('a', 2);
  expect([[...map.get('a')], [...map.keys()]]).toEqual([[], ['b']]);
  expect([[...map.take('b')], [...map.keys()]]).toEqual([[1], []]);
  map.add('b', 3);
  map.clear();
  expect([...map.keys()]).toEqual([]);
});
