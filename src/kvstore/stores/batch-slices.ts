import type { WatchEvent } from '../session/backend.ts';
import { valueLength } from '../session/table-event.ts';

/**
 * Number of bytes of a value whose decoding takes as long as the rest of an event: 2 to 3 µs, at about 10 ns a byte. An
 * event has weight 1, plus 1 for each of these.
 */
const BYTES_PER_WEIGHT = 256;

/** Maximum weight of a slice: 3 to 10 ms of work. A single event may be heavier. */
const SLICE_WEIGHT = 1024;

/** Events that are applied in one turn. */
export interface BatchSlice {
  readonly events: readonly WatchEvent[];
  /** For the `TurnGate`, in events of typical size. */
  readonly weight: number;
}

/**
 * Yields the events of a batch in order, in slices of bounded weight. An event that alone exceeds the weight is a
 * separate slice.
 *
 * @param sizeOf returns the number of bytes to decode; for a compressed value, the decompressed size
 */
export function* slicesOf(
  batch: readonly WatchEvent[],
  sizeOf?: (value: Uint8Array) => number,
): Generator<BatchSlice, void, void> {
  let from = 0;
  let weight = 0;
  for (let index = 0; index < batch.length; index++) {
    const event = batch[index] as WatchEvent;
    const bytes = sizeOf === undefined ? valueLength(event) : sizeOf(event.value);
    const eventWeight = 1 + Math.floor(bytes / BYTES_PER_WEIGHT);
    if (index > from && weight + eventWeight > SLICE_WEIGHT) {
      yield { events: batch.slice(from, index), weight };
      from = index;
      weight = 0;
    }
    weight += eventWeight;
  }
  yield { events: from === 0 ? batch : batch.slice(from), weight };
}
