import fc from 'fast-check';
import { expect, it } from 'vitest';
import { shareEqual } from '../../ui/agent/share-equal.ts';

it('returns the next value, with every equal part as the previous object', () => {
  const json = fc.jsonValue({ maxDepth: 3, noUnicodeString: true } as object);
  fc.assert(
    fc.property(json, json, (previous, next) => {
      expect(shareEqual(structuredClone(previous), structuredClone(next))).toEqual(next);
      expect(shareEqual(previous, structuredClone(previous))).toBe(previous);
    }),
  );
});

it('shares the equal rows of a list', () => {
  const rows = (name: string): object[] => [
    { name, labels: ['a'] },
    { name: 'b', labels: [] },
  ];
  const [previous, next] = [rows('old'), rows('new')];
  const shared = shareEqual(previous, next);
  expect(shared).toEqual(rows('new'));
  expect([shared === previous, shared[0] === previous[0], shared[1] === previous[1]]).toEqual([
    false,
    false,
    true,
  ]);
});

it('does not take an object for a list, or an inherited field for a part', () => {
  expect(shareEqual([], {})).toEqual({});
  expect(Array.isArray(shareEqual({}, []))).toBe(true);
  expect(shareEqual({ a: 1 }, JSON.parse('{"constructor":{}}'))).toEqual(JSON.parse('{"constructor":{}}'));
});
