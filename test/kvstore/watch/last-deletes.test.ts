import { expect, it } from 'vitest';
import { LastDeletes } from '../../../src/kvstore/watch/last-deletes.ts';

/** The deletes of the keys `k1`, `k2`, … at the revisions `at`. */
function deletesAt(...at: readonly number[]): LastDeletes {
  const deletes = new LastDeletes();
  at.forEach((revision, i) => {
    deletes.add(`k${i + 1}`, revision);
  });
  return deletes;
}

it('returns the keys that were deleted later than a revision', () => {
  const deletes = deletesAt(5, 7, 7, 9);
  expect([0, 5, 6, 7, 9].map((revision) => deletes.since(revision))).toEqual([
    ...[['k1', 'k2', 'k3', 'k4'], ['k2', 'k3', 'k4'], ['k2', 'k3', 'k4'], ['k4'], []],
  ]);
  expect(deletes.newest).toBe(9);
});

it('keeps eight deletes, and knows from which revision on these are all', () => {
  const eight = [2, 3, 4, 5, 6, 7, 8, 9] as const;
  expect(deletesAt(...eight).since(0)).toHaveLength(8);
  const nine = deletesAt(1, ...eight);
  expect(nine.since(0)).toBeUndefined();
  expect(nine.since(1)).toEqual(['k2', 'k3', 'k4', 'k5', 'k6', 'k7', 'k8', 'k9']);
});

it('does not treat the rest of a revision as all of it', () => {
  const nine = deletesAt(3, 3, 3, 3, 3, 3, 3, 3, 3);
  expect([nine.since(2), nine.since(3)]).toEqual([undefined, []]);
});

it('knows no delete at first, and none before the revision at which it restarts', () => {
  const fresh = new LastDeletes();
  const again = deletesAt(1, 2, 3, 4, 5, 6, 7, 8, 9);
  again.restart(9);
  expect([again.newest, again.since(8), again.since(9)]).toEqual([0, undefined, []]);
  expect([fresh.newest, fresh.since(0)]).toEqual([0, []]);
  again.add('k', 10);
  expect([again.newest, again.since(8), again.since(9)]).toEqual([10, undefined, ['k']]);
});
