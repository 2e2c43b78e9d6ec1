import { BATCH_ENTRIES, type BatchedMap } from '../bpf/bpf-map.ts';
import type { SyscallError } from '../syscall/syscall-error.ts';

/** Receives the outcome of an entry: undefined, or the error. */
export type OnOutcome = (error: SyscallError | undefined) => void;

/**
 * Writes or deletes entries of a map, up to {@link BATCH_ENTRIES} in one call. Passes each outcome to the callback of
 * its entry. {@link MapBatch.flush} must be called after the last entry.
 */
export class MapBatch {
  readonly #map: BatchedMap;
  readonly #kind: 'update' | 'delete';
  readonly #callbacks: OnOutcome[] = [];

  constructor(map: BatchedMap, kind: 'update' | 'delete') {
    this.#map = map;
    this.#kind = kind;
  }

  /** Adds an entry. `write` writes its key and value into the buffers of the map, at these offsets. */
  add(write: (keyAt: number, valueAt: number) => void, onOutcome: OnOutcome): void {
    const { keySize, valueSize } = this.#map.shape;
    const at = this.#callbacks.push(onOutcome) - 1;
    write(at * keySize, at * valueSize);
    if (at === BATCH_ENTRIES - 1) this.flush();
  }

  /** Makes the call for the entries that were added since the last one. */
  flush(): void {
    const callbacks = this.#callbacks.splice(0);
    if (callbacks.length === 0) return;
    const outcomes = this.#map[this.#kind](callbacks.length);
    callbacks.forEach((callback, at) => {
      callback(outcomes[at]);
    });
  }
}
