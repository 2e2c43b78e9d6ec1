import type { SharedLookupHandle } from '../../src/sharedlookup/shared-reader.ts';

/**
 * How a worker looks up. `shared`: in shared memory. `postMessage`: by a message to the main thread. `copy`: in a
 * separate `IPCache`.
 */
export type ReaderKind = 'shared' | 'postMessage' | 'copy';

/** The `workerData` of a reader. */
export interface ReaderTask {
  readonly kind: ReaderKind;
  readonly handle: SharedLookupHandle;
  /** Number of addresses, from 10.0.0.0 on. */
  readonly entries: number;
  /** Number of addresses that are looked up together. */
  readonly group: number;
  readonly seed: number;
}

/** A message to a reader: look up for a time. */
export interface Round {
  readonly kind: 'round';
  readonly ms: number;
}

/** The answer to a question of a reader. */
export interface Identities {
  readonly kind: 'identities';
  readonly identities: Uint32Array;
}

/** A message of a reader. */
export type ReaderAnswer =
  | { readonly kind: 'ready'; readonly copyBytes: number }
  | { readonly kind: 'ask'; readonly addresses: Uint32Array }
  | {
      readonly kind: 'read';
      readonly lookups: number;
      readonly found: number;
      /** Wall clock and CPU of the thread. */
      readonly ms: number;
      readonly cpuMs: number;
    };
