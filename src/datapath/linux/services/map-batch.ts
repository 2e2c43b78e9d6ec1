import { BATCH_ENTRIES, type BatchedMap } from '../bpf/bpf-map.ts';
import type { SyscallError } from '../syscall/syscall-error.ts';

/** Receives the outcome of an entry: undefined, or the error. */
export type OnOutcome = (error: SyscallError | undefined) => void;

/** Writes or deletes many entries of a map in one call. Passes each outcome to the callback of its entry. */
export class MapBatch {
  readonly #map: BatchedMap;
  readonly #kind: 'update' | 'delete';
  readonly #done: OnOutcome[] = [];

  constructor(map: BatchedMap, kind: 'update' | 'delete') {
    this.#map = map;
    this.#kind = kind;
  }

  /** Adds an entry. `write` writes its key and value into the buffers of the map, at these offsets. */
  add(write: (keyAt: number, valueAt: number) => void, done: OnOutcome): void {
    const { keySize, valueSize } = this.#map.shape;
    const at = this.#done.push(done) - 1;
    write(at * keySize, at * valueSize);
    if (at === BATCH_ENTRIES - 1) this.flush();
  }

  flush(): void {
    const done = this.#done.splice(0);
    if (done.length === 0) return;
    const outcomes = this.#map[this.#kind](done.length);
    done.forEach((callback, at) => {
      callback(outcomes[at]);
    });
  }
}
