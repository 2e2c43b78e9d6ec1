import type { IPCacheChange, IPCacheListener } from '../ipcache/types.ts';

/** One thing that an IPCache has told. */
export type IPCacheRecord =
  | { readonly kind: 'change'; readonly change: IPCacheChange }
  | { readonly kind: 'synced' };

/** A datapath that does nothing but hand on what it is told, in order, to `record`: a list, a log, a monitor. */
export class RecordingIPCacheListener implements IPCacheListener {
  readonly #record: (record: IPCacheRecord) => void;

  constructor(record: (record: IPCacheRecord) => void) {
    this.#record = record;
  }

  onChanges(changes: readonly IPCacheChange[]): void {
    for (const change of changes) this.#record({ kind: 'change', change });
  }

  onSynced(): void {
    this.#record({ kind: 'synced' });
  }
}
