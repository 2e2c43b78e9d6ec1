import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compareKeys, NO_END, prefixEnd } from '../../../src/kvstore/codec/key-range.ts';
import type { RangeResponse } from '../../../src/kvstore/session/transport.ts';
import { PageBounds } from '../../../src/kvstore/watch/page-bounds.ts';

const page = (keys: readonly string[], count: number): RangeResponse => ({
  header: { clusterID: 'c', revision: 1, raftTerm: 1 },
  more: false,
  count,
  kvs: keys.map((key) => ({ key, value: new Uint8Array(0), createRevision: 1, modRevision: 1 })),
});

/** Bounds of a listing of a thousand keys, after a page of two in `p/10.0.1`. */
function learnt(end = 'p0'): PageBounds {
  const bounds = new PageBounds('p/', end);
  bounds.observe(page(['p/10.0.15.8', 'p/10.0.19.9'], 1000), 2);
  return bounds;
}

describe('the bounds of a page', () => {
  it('are those of the list for the first page, and if four pages remain', () => {
    const bounds = new PageBounds('p/', 'p0');
    expect(bounds.endFor('p/')).toBe('p0');
    bounds.observe(page(['p/10.0.0.1', 'p/10.0.0.2'], 11), 2);
    expect(bounds.endFor('p/10.0.0.2\0')).toBe('p/10.0.0/');
    bounds.observe(page(['p/10.0.0.3'], 1), 2);
    expect(bounds.endFor('p/10.0.0/')).toBe('p0');
  });

  it('end with the keys that have the common prefix of a page from a range of more than four pages', () => {
    const bounds = learnt();
    expect(bounds.endFor('p/10.0.19.9\0')).toBe('p/10.0.2');
    bounds.observe(page(['p/10.0.20.1', 'p/10.0.20.2'], 8), 2);
    expect(bounds.endFor('p/10.0.20.2\0')).toBe('p/10.0.3');
    bounds.observe(page(['p/10.0.20.3', 'p/10.0.20.4'], 9), 2);
    expect(bounds.endFor('p/10.0.20.4\0')).toBe('p/10.0.20/');
  });

  it('end with the next wider subtree after the end of a subtree (regression: half of the pages were empty or short)', () => {
    const bounds = learnt();
    expect(bounds.endFor('p/10.0.2')).toBe('p/10.0/');
  });

  it('are wider by one character more for each empty page in a row', () => {
    const bounds = new PageBounds('p/', 'p0');
    bounds.observe(page(['p/a/name-1', 'p/a/name-2'], 1000), 2);
    const ends: string[] = [];
    for (let from = 'p/a/name-2\0'; from !== 'p0'; bounds.observe(page([], 0), 2)) {
      from = bounds.endFor(from);
      ends.push(from);
    }
    expect(ends).toEqual(['p/a/name.', 'p/a/namf', 'p/a/nb', 'p/b', 'p0']);
  });

  it('are never wider than the list', () => {
    expect(learnt('p/10.0.17').endFor('p/10.0.16')).toBe('p/10.0.17');
    expect(learnt('p/10.0.2').endFor('p/10.0.16')).toBe('p/10.0.2');
    expect(learnt(NO_END).endFor('p/10.0.16')).toBe('p/10.0.2');
    expect(learnt(NO_END).endFor('q')).toBe(NO_END);
  });

  it('follow each other without a gap or a repetition, for any keys', () => {
    const unit = fc.constantFrom('a', 'b', '0', '\u00ff', '\ue000', '\u{1f600}', '\u{1f601}', '\udcff');
    const key = fc.string({ unit, maxLength: 6 }).map((text) => `p/${text}`);
    const pages = fc.array(fc.tuple(fc.array(key, { maxLength: 3 }), fc.nat(300)), { maxLength: 6 });
    fc.assert(
      fc.property(pages, key, fc.boolean(), (seen, from, isEndless) => {
        const end = isEndless ? NO_END : prefixEnd('p/');
        const bounds = new PageBounds('p/', end);
        for (const [keys, count] of seen) {
          bounds.observe(page(keys.toSorted(compareKeys), count), 100);
          const next = bounds.endFor(from);
          if (next !== NO_END && compareKeys(next, from) <= 0) return false;
          if (!isEndless && (next === NO_END || compareKeys(next, end) > 0)) return false;
        }
        return true;
      }),
      { numRuns: Math.ceil((fc.readConfigureGlobal().numRuns ?? 300) / 2) },
    );
  });
});
