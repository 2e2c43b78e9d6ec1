import { assert } from '../base/assert.ts';
import { copyRegister, formatKey, type PrefixRegister } from '../net/prefix.ts';
import { netChanges, prefixChange, prefixHash, sameEntry } from './change.ts';
import type { ClaimSink, KeyImage } from './claim-state.ts';
import type { ClaimWriter, IPCacheChange, IPCacheEntry, OwnerChange } from './types.ts';

const NO_CHANGES: IPCacheChange[] = []; // never added to
const NO_OWNER_CHANGES: readonly OwnerChange[] = [];

interface Before {
  readonly key: PrefixRegister;
  readonly image: KeyImage | undefined;
}

/** Makes the claims of a key what they were. */
type Restore = (key: PrefixRegister, image: KeyImage | undefined) => void;

/** Notes what a write or batch does to the claims: what listeners are to receive, and how to roll a batch back (I8). */
export class ChangeJournal implements ClaimSink {
  #changes: IPCacheChange[] = NO_CHANGES;
  /** Hashes of the prefixes that the batch under way has changed. */
  readonly #hashes = new Set<number>();
  /** Whether the changes are known to be of different prefixes: numbers cost less to compare than texts. */
  #distinct = false;
  /** Whether changes of writes outside of batches are wanted; and whether one was made that was not. */
  #heard = true;
  #unheard = false;
  /** The text of the key that is being written; `''` where there is none. */
  #text = '';
  #ownerChanges: OwnerChange[] = [];
  /** What keys were before each step of a batch, oldest first; undefined outside of batches. */
  #before: Before[] | undefined;

  get inBatch(): boolean {
    return this.#before !== undefined;
  }

  willChange(key: Readonly<PrefixRegister>, image: KeyImage | undefined): void {
    this.#before?.push({ key: copyRegister(key), image });
  }

  visibleChanged(
    key: Readonly<PrefixRegister>,
    old: IPCacheEntry | undefined,
    next: IPCacheEntry | undefined,
  ): void {
    if (sameEntry(old, next)) return;
    if (!this.#heard && this.#before === undefined) {
      this.#unheard = true;
      return;
    }
    const change = prefixChange(key, old, next, this.#text);
    // Most writes make one change, and its array goes to the listeners: an array of just one is the cheapest.
    if (this.#changes.length === 0) this.#changes = [change];
    else this.#changes.push(change);
    if (this.#before === undefined) this.#distinct = false;
    else this.#noteHash(prefixHash(key));
  }

  ownerChanged(
    key: Readonly<PrefixRegister>,
    from: ClaimWriter | undefined,
    to: ClaimWriter | undefined,
  ): void {
    this.#ownerChanges.push({
      key: formatKey(key),
      previous: from && { source: from.source, owner: from.owner },
      current: to && { source: to.source, owner: to.owner },
    });
  }

  /** Runs `write` as part of the batch under way, or as a batch; has its part restored, last first, when it throws. */
  batch<T>(write: () => T, restore: Restore): T {
    const outermost = this.#before === undefined;
    if (outermost) this.#begin();
    this.#before ??= [];
    const mark = this.#before.length;
    const marks = { changes: this.#changes.length, owners: this.#ownerChanges.length };
    try {
      const result = write();
      assert(!(result instanceof Promise), 'batch: the function must be synchronous');
      return result;
    } catch (error) {
      for (const { key, image } of this.#before.splice(mark).reverse()) restore(key, image);
      this.#changes = this.#changes.slice(0, marks.changes);
      this.#ownerChanges = this.#ownerChanges.slice(0, marks.owners);
      throw error;
    } finally {
      if (outermost) this.#before = undefined;
    }
  }

  /**
   * Whether the changes of the write that begins are to be noted outside of a batch. When they are not, it may make one at
   * most: a second might undo the first.
   */
  listen(heard: boolean): void {
    this.#heard = heard;
  }

  /** Until the next call, what changes is the key that was parsed from this text; `''`: any key. */
  about(text: string): void {
    this.#text = text;
  }

  /** Whether something visible has changed since the last time of which nothing was noted. */
  takeUnheard(): boolean {
    const unheard = this.#unheard;
    this.#unheard = false;
    return unheard;
  }

  /** Takes out the visible changes noted since the last time, net: each prefix once (I8). */
  takeChanges(): readonly IPCacheChange[] {
    if (this.#changes.length === 0) return NO_CHANGES;
    const changes = this.#changes;
    this.#changes = NO_CHANGES;
    return changes.length === 1 || this.#distinct ? changes : netChanges(changes);
  }

  /** Takes out the changes of owners noted since the last time, net. */
  takeOwnerChanges(): readonly OwnerChange[] {
    if (this.#ownerChanges.length === 0) return NO_OWNER_CHANGES;
    const changes = this.#ownerChanges;
    this.#ownerChanges = [];
    return changes.length === 1 ? changes : netOwnerChanges(changes);
  }

  #begin(): void {
    this.#distinct = true;
    this.#hashes.clear();
  }

  #noteHash(hash: number): void {
    if (this.#hashes.has(hash)) this.#distinct = false;
    else this.#hashes.add(hash);
  }
}

/** First holder to last holder of each key, where they differ. */
function netOwnerChanges(changes: readonly OwnerChange[]): readonly OwnerChange[] {
  const byKey = new Map<string, OwnerChange>();
  for (const change of changes) {
    const earlier = byKey.get(change.key);
    const previous = earlier === undefined ? change.previous : earlier.previous;
    byKey.set(change.key, { key: change.key, previous, current: change.current });
  }
  return [...byKey.values()].filter(
    ({ previous, current }) => previous?.source !== current?.source || previous?.owner !== current?.owner,
  );
}
