import { describe, expect, it } from 'vitest';
import { ChangedValues } from '../../src/sharedlookup/changed-values.ts';
import { CHANGED, isMarked, SLOT } from '../../src/sharedlookup/layout.ts';
import { SharedHeap } from '../../src/sharedlookup/shared-memory.ts';

const MIB: number = 1 << 20;

/** A heap with two leaves, in the batch 1. */
function started(): {
  readonly changed: ChangedValues;
  readonly words: Int32Array;
  readonly slot: number;
  readonly copy: number;
} {
  const heap = new SharedHeap(MIB, MIB, MIB);
  const changed = new ChangedValues(heap);
  changed.begin(1);
  return { changed, words: heap.words, slot: heap.allocate(4 * CHANGED.limit), copy: heap.allocate(64) };
}

describe('an identity that is changed in place', () => {
  it('keeps its mark while lookups of the last batch may need it', () => {
    const { changed, words, slot } = started();
    changed.change(slot, 7);
    expect([isMarked(words, slot), words[slot + SLOT.identity]]).toEqual([true, 0]);
    changed.begin(2);
    changed.change(slot, 8);
    expect([isMarked(words, slot), words[slot + SLOT.identity]]).toEqual([true, 7]);
    changed.begin(3);
    expect([isMarked(words, slot), words[slot + SLOT.identity]]).toEqual([true, 8]);
    changed.begin(4);
    expect([isMarked(words, slot), words[slot + SLOT.identity]]).toEqual([false, 8]);
  });

  it('is not written to a leaf that was copied, because another block may be there', () => {
    const { changed, words, slot, copy } = started();
    changed.change(slot, 7);
    changed.moveToCopy(slot, copy);
    expect([isMarked(words, copy), words[copy + SLOT.identity]]).toEqual([false, 7]);
    changed.begin(2);
    for (const at of [SLOT.meta, SLOT.identity]) words[slot + at] = -1;
    changed.begin(3);
    expect([SLOT.meta, SLOT.identity].map((at) => words[slot + at])).toEqual([-1, -1]);
  });

  it('is refused if its batch has changed too many, until the next batch', () => {
    const { changed, words, slot } = started();
    for (let i = 0; i < CHANGED.limit; i++) expect(changed.change(slot + 3 * i, i)).toBe(true);
    const further = slot + 3 * CHANGED.limit;
    expect([changed.change(further, 7), isMarked(words, further), changed.change(slot, 7)]).toEqual([
      false,
      false,
      true,
    ]);
    changed.begin(2);
    expect(changed.change(further, 7)).toBe(true);
  });
});
