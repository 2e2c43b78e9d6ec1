import { describe, expect, it } from 'vitest';
import type { WatchEvent } from '../../../src/kvstore/session/backend.ts';
import { slicesOf } from '../../../src/kvstore/stores/batch-slices.ts';

/** Returns one event for each number, with a value of this number of bytes. */
function eventsOf(bytes: readonly number[]): readonly WatchEvent[] {
  return bytes.map((length, i) => ({
    type: 'create',
    key: `p/${i}`,
    modRevision: i + 1,
    value: new Uint8Array(length),
  }));
}

/** Returns the number of events of each slice, and its weight. */
function slices(bytes: readonly number[]): readonly (readonly [events: number, weight: number])[] {
  return [...slicesOf(eventsOf(bytes))].map(({ events, weight }) => [events.length, weight]);
}

const times = (count: number, bytes: number): readonly number[] => Array.from({ length: count }, () => bytes);

describe('the slices of a batch', () => {
  it('have 1,024 small events, and the rest', () => {
    expect(slices(times(1024, 0))).toEqual([[1024, 1024]]);
    expect(slices(times(2049, 255))).toEqual([
      [1024, 1024],
      [1024, 1024],
      [1, 1],
    ]);
  });

  it('have fewer large ones: each 256 bytes count as an event', () => {
    expect(slices(times(513, 256))).toEqual([
      [512, 1024],
      [1, 2],
    ]);
    expect(slices([1023 * 256, 0])).toEqual([
      [1, 1024],
      [1, 1],
    ]);
  });

  it('have only one event if it is heavier', () => {
    expect(slices([0, 2048 * 256, 0])).toEqual([
      [1, 1],
      [1, 2049],
      [1, 1],
    ]);
  });

  it('start with a heavier one', () => {
    expect(slices([2048 * 256, 0])).toEqual([
      [1, 2049],
      [1, 1],
    ]);
  });

  it('have all events in order', () => {
    const batch = eventsOf([0, 500_000, 0, 300_000, 10_000, 0]);
    expect([...slicesOf(batch)].flatMap(({ events }) => events)).toEqual(batch);
  });

  it('are one empty slice for a batch without events', () => {
    expect(slices([])).toEqual([[0, 0]]);
  });
});
