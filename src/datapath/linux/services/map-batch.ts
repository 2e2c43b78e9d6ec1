import type { BatchedMap } from '../bpf/bpf-map.ts';
import type { SyscallError } from '../syscall/syscall-error.ts';

/** What becomes of an entry: undefined, or why it could not be written. */
export type Done = (error: SyscallError | undefined) => void;

/** As many as a `BpfMap` takes at a time. */
const ENTRIES = 1024;

/** Collects entries of one map, and writes or deletes them many at a time. What becomes of each is said to who gave it. */
export class MapBatch {
  readonly #map: BatchedMap;
  readonly #kind: 'update' | 'delete';
  readonly #done: Done[] = [];

  constructor(map: BatchedMap, kind: 'update' | 'delete') {
    this.#map = map;
    this.#kind = kind;
  }

  /** `write` gets the places where its key and its value belong. */
  add(write: (keyAt: number, valueAt: number) => void, done: Done): void {
    const { keySize, valueSize } = this.#map.shape;
    const at = this.#done.push(done) - 1;
    write(at * keySize, at * valueSize);
    if (at === ENTRIES - 1) this.flush();
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
