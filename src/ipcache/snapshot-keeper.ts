import { copyRegister, type PrefixRegister, prefixRegister } from '../net/prefix.ts';
import type { ClaimState } from './claim-state.ts';
import { IPCacheSnapshot, type Placed } from './snapshot.ts';

// Below this many, noting changes is cheap however small the cache.
const FEW = 1024;

/**
 * Makes each snapshot from the one before and the keys that were written since. What was written is noted only once
 * somebody takes snapshots, and forgotten when it outgrows half of the cache: then the next one starts anew (I11).
 */
export class SnapshotKeeper {
  readonly #state: ClaimState;
  #last = IPCacheSnapshot.EMPTY;
  /** Keys written since the last snapshot, some of them twice; undefined when nobody keeps count. */
  #written: PrefixRegister[] | undefined;

  constructor(state: ClaimState) {
    this.#state = state;
  }

  /** Notes that the claims of a key change. */
  note(key: Readonly<PrefixRegister>): void {
    if (this.#written === undefined) return;
    if (this.#written.length > Math.max(FEW, this.#state.table.size / 2)) {
      this.#written = undefined;
      this.#last = IPCacheSnapshot.EMPTY;
    } else {
      this.#written.push(copyRegister(key));
    }
  }

  take(revision: number): IPCacheSnapshot {
    const placed = this.#written === undefined ? this.#all() : this.#changed(this.#written);
    this.#last = this.#last.with(revision, placed);
    this.#written = [];
    return this.#last;
  }

  *#all(): Generator<Placed, void, void> {
    const { table, rows } = this.#state;
    const key = prefixRegister();
    for (const slot of table.slots()) {
      table.keyOf(slot, key);
      yield { key, claim: rows.claim(slot) };
    }
  }

  *#changed(keys: readonly PrefixRegister[]): Generator<Placed, void, void> {
    const { table, rows } = this.#state;
    for (const key of keys) {
      const slot = table.find(key);
      yield { key, claim: slot < 0 ? undefined : rows.claim(slot) };
    }
  }
}
