import { expect, it } from 'vitest';
import { BATCH_ENTRIES, type BatchedMap } from '../../../../src/datapath/linux/bpf/bpf-map.ts';
import { MapBatch } from '../../../../src/datapath/linux/services/map-batch.ts';

it('a batch is written when it has as many entries as a call accepts, each within the buffers of the map', () => {
  const counts: number[] = [];
  const shape = { keySize: 4, valueSize: 8, maxEntries: BATCH_ENTRIES };
  const update = (count: number): readonly undefined[] => {
    counts.push(count);
    return Array.from({ length: count }, () => undefined);
  };
  const batch = new MapBatch({ shape, update } as unknown as BatchedMap, 'update');
  const places: (readonly [number, number])[] = [];
  let done = 0;
  for (let i = 0; i <= BATCH_ENTRIES; i++)
    batch.add(
      (keyAt, valueAt) => places.push([keyAt, valueAt]),
      () => done++,
    );
  expect([counts, done]).toEqual([[BATCH_ENTRIES], BATCH_ENTRIES]);
  batch.flush();
  expect([counts, done]).toEqual([[BATCH_ENTRIES, 1], BATCH_ENTRIES + 1]);
  const last = BATCH_ENTRIES - 1;
  expect([places[0], places[last], places[last + 1]]).toEqual([
    [0, 0],
    [last * 4, last * 8],
    [0, 0],
  ]);
});
