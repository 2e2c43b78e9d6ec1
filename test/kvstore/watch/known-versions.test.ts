import { expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { KnownVersions } from '../../../src/kvstore/watch/known-versions.ts';

it('versions have revisions of any size, and are compared by revision and value', () => {
  const versions = new KnownVersions();
  const revisions = [0, 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32 + 5, Number.MAX_SAFE_INTEGER];
  const rows = revisions.map((revision) => versions.add(revision, bytesOfText(`v${revision}`)));
  for (const [at, revision] of revisions.entries()) {
    const row = rows[at] ?? -1;
    expect(versions.revisionOf(row)).toBe(revision);
    expect(versions.isSame(row, revision, bytesOfText(`v${revision}`))).toBe(true);
    expect(versions.isSame(row, revision, bytesOfText('other'))).toBe(false);
    expect(versions.isSame(row, revision + 2 ** 33, bytesOfText(`v${revision}`))).toBe(false);
  }
});

it('rows of deleted versions are reused, so that their number does not grow with the changes', () => {
  const versions = new KnownVersions();
  const value = bytesOfText('v');
  const rows = Array.from({ length: 5 }, (_, i) => versions.add(i, value));
  for (const row of rows) versions.delete(row);
  const again = Array.from({ length: 5 }, (_, i) => versions.add(10 + i, value));
  expect(new Set(again)).toEqual(new Set(rows));
  expect(again.map((row) => versions.revisionOf(row))).toEqual([10, 11, 12, 13, 14]);
  expect(versions.add(20, value)).toBe(5);
});
