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

/** Bounds that have learnt a page of the subtrees `p/10.0.0` and `p/10.0.1`. */
function learnt(end = 'p0'): PageBounds {
  const bounds = new PageBounds('p/', end);
  bounds.observe(page(['p/10.0.0.1', 'p/10.0.1.9'], 100), 50);
  return bounds;
}

describe('the bounds of a page', () => {
  it('are those of the list while no page has returned two keys', () => {
    const bounds = new PageBounds('p/', 'p0');
    expect(bounds.endFor('p/')).toBe('p0');
    bounds.observe(page(['p/10.0.0.1'], 1000), 50);
    bounds.observe(page([], 0), 50);
    expect(bounds.endFor('p/10.0.0.1\0')).toBe('p0');
    bounds.observe(page(['p/10.0.0.1', 'p/10.0.1.9'], 100), 50);
    expect(bounds.endFor('p/10.0.1.9\0')).toBe('p/10.0.2');
  });

  it('end with the subtree in which they start, one character deeper than the common prefix of a page', () => {
    const bounds = learnt();
    expect(['p/10.0.1', 'p/10.0.1.9\0', 'p/10.7.3'].map((from) => bounds.endFor(from))).toEqual([
      ...['p/10.0.2', 'p/10.0.2', 'p/10.7.4'],
    ]);
    expect(bounds.endFor('p/10.')).toBe('p/10.0.2'); // the missing part is taken from the last key
    const prefixed = new PageBounds('p/', 'p0');
    prefixed.observe(page(['p/1', 'p/10'], 100), 50);
    expect(prefixed.endFor('p/12')).toBe('p/13');
  });

  it.each([
    [200, 'p/10.0.2'],
    [201, 'p/10.0.1/'],
    [50, 'p/10.0.2'],
    [49, 'p/10.0/'],
  ])('are %i keys of at most 100 in a subtree: the next one ends at %s', (count, end) => {
    const bounds = learnt();
    bounds.observe(page(['p/10.0.1.1', 'p/10.0.1.2'], count), 100);
    expect(bounds.endFor('p/10.0.1.3')).toBe(end);
  });

  it('are never wider than the list, and return from there in one step', () => {
    const bounds = learnt(NO_END);
    for (let i = 0; i < 20; i++) bounds.observe(page(['p/1', 'p/2'], 1), 100);
    expect(bounds.endFor('p/10')).toBe('p0');
    bounds.observe(page(['p/1', 'p/2'], 1000), 100);
    expect(bounds.endFor('p/10')).toBe('p/2');
    expect(learnt('p/10.0.15').endFor('p/10.0.1')).toBe('p/10.0.15');
    expect(learnt('p/10.0.2').endFor('p/10.0.1')).toBe('p/10.0.2');
  });

  it('widen by a character for each empty page beyond four, until a page has keys', () => {
    const bounds = learnt(NO_END);
    const ends: string[] = [];
    for (let empty = 1; empty <= 11; empty++) {
      bounds.observe(page([], 0), 50);
      ends.push(bounds.endFor('p/10.0.3'));
    }
    expect(ends).toEqual([
      ...['p/10.0.4', 'p/10.0.4', 'p/10.0.4', 'p/10.0.4', 'p/10.0/', 'p/10.1', 'p/10/', 'p/11', 'p/2', 'p0'],
      NO_END,
    ]);
    bounds.observe(page(['p/10.0.1.1', 'p/10.0.1.2'], 100), 50);
    expect(bounds.endFor('p/10.0.3')).toBe('p/10.0.4');
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
