import { requireArgument } from '../base/arguments.ts';
import { copyRegister, formatKey, type PrefixRegister } from '../net/prefix.ts';
import { netChanges, prefixChange, prefixHash, sameEntry } from './change.ts';
import type { ClaimObserver, KeyImage } from './claims/claim-state.ts';
import type { CompleteClaim } from './row-reader.ts';
import type { ClaimWriter, IPCacheChange, IPCacheEntry, OwnerChange } from './types.ts';

const NO_CHANGES: IPCacheChange[] = []; // never modified
const NO_OWNER_CHANGES: readonly OwnerChange[] = [];

/** A change of a claim in a batch that is not complete. */
interface BatchedClaimChange {
  readonly key: PrefixRegister;
  readonly writer: ClaimWriter;
  readonly before: CompleteClaim | undefined;
  readonly after: CompleteClaim | undefined;
  /** Sum of `EFFECT`. */
  readonly effect: number;
}

/**
 * A copy of the visible entries of a cache. It receives each change immediately, without the text and the objects of an
 * `IPCacheChange`. If a batch throws, the mirror receives the changes that undo it. A mirror must not throw and
 * must not write to the cache.
 */
export interface EntryMirror {
  /**
   * Replaces the entry `old` of a prefix by `next`. At most one of them is undefined, which means no entry. `key` is a
   * reused register. Within a batch, a prefix may be set repeatedly.
   */
  set(key: Readonly<PrefixRegister>, old: IPCacheEntry | undefined, next: IPCacheEntry | undefined): void;
  /**
   * Called before listeners at the end of a write or batch that does not throw. The mirror now equals the cache at this
   * revision.
   */
  publish(revision: number): void;
}

/** Sets the claims of a key as they were; undefined means none. */
type Restore = (key: PrefixRegister, image: KeyImage | undefined) => void;

/** Records the changes of a write or batch, and the images to roll it back (I8). Keys are reused registers. */
export class ChangeJournal {
  #changes: IPCacheChange[] = NO_CHANGES;
  /**
   * Hashes of the prefixes that the current batch changed. The end of a batch replaces the set instead of clearing it,
   * because V8 links the table of a cleared set to its new one, and both then stay until a collection of the old
   * generation.
   */
  #hashes = new Set<number>();
  /** True if all changes are known to have different prefixes, because their hashes differ. */
  #distinct = false;
  /** False if changes outside batches have no receiver. They are then not recorded, but set `#skippedChange`. */
  #hasAudience = true;
  /** True if a change was not recorded since the last `takeSkipped`. */
  #skippedChange = false;
  /** The text from which the key of the current write was parsed; empty if it has several keys. */
  #keyText = '';
  #ownerChanges: OwnerChange[] = [];
  /** Images of keys before each step of a batch, oldest first; undefined outside batches. */
  #previousImages: { readonly key: PrefixRegister; readonly image: KeyImage | undefined }[] | undefined;
  /**
   * The index of the last image of each contested key. A batch records only one image of such a key, because it may be
   * large and the first one restores the key.
   */
  readonly #lastImages = new Map<string, number>();
  /** Number of images when the innermost open batch began. */
  #batchStart = 0;
  /** Observed changes of claims in the current batch, oldest first. */
  #batchedClaimChanges: BatchedClaimChange[] = [];
  #observers: readonly ClaimObserver[] = [];
  #mirrors: readonly EntryMirror[] = [];

  get inBatch(): boolean {
    return this.#previousImages !== undefined;
  }

  /** Receives the changes of claims; undefined if there is no observer. */
  get claimObserver(): ClaimObserver | undefined {
    return this.#observers.length === 0 ? undefined : this.#claimChanged;
  }

  /** Records the claims of a key before they change; undefined if there are none. Has no effect outside batches. */
  willChange(key: Readonly<PrefixRegister>, image: KeyImage | undefined): void {
    const images = this.#previousImages;
    if (images === undefined) return;
    if (image?.contested === true) {
      const text = formatKey(key);
      if ((this.#lastImages.get(text) ?? -1) >= this.#batchStart) return; // that image restores the key
      this.#lastImages.set(text, images.length);
    }
    images.push({ key: copyRegister(key), image });
  }

  /** Records a change of the visible entry of the prefix of `key`. The two entries may be equal. */
  visibleChanged(
    key: Readonly<PrefixRegister>,
    old: IPCacheEntry | undefined,
    next: IPCacheEntry | undefined,
  ): void {
    if (sameEntry(old, next)) return;
    if (this.#mirrors.length > 0) for (const mirror of this.#mirrors) mirror.set(key, old, next);
    if (!this.#hasAudience && this.#previousImages === undefined) {
      this.#skippedChange = true;
      return;
    }
    const change = prefixChange(key, old, next, this.#keyText);
    // Most writes make one change. An array literal of one element is the cheapest to create.
    if (this.#changes.length === 0) this.#changes = [change];
    else this.#changes.push(change);
    if (this.#previousImages === undefined) this.#distinct = false;
    else this.#noteHash(prefixHash(key));
  }

  /** Records a change of the owner of a contested key. */
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

  addObserver(observer: ClaimObserver): void {
    this.#observers = [...this.#observers.filter((other) => other !== observer), observer];
  }

  removeObserver(observer: ClaimObserver): void {
    this.#observers = this.#observers.filter((other) => other !== observer);
  }

  addMirror(mirror: EntryMirror): void {
    this.#mirrors = [...this.#mirrors.filter((other) => other !== mirror), mirror];
  }

  removeMirror(mirror: EntryMirror): void {
    this.#mirrors = this.#mirrors.filter((other) => other !== mirror);
  }

  /** Ends a write or batch for the mirrors. */
  publishToMirrors(revision: number): void {
    if (this.#mirrors.length > 0) for (const mirror of this.#mirrors) mirror.publish(revision);
  }

  /** Delivers a change of a claim; within a batch only at its end, because a batch that throws leaves no trace (I8). */
  readonly #claimChanged: ClaimObserver = (key, writer, before, after, effect) => {
    if (this.#previousImages !== undefined)
      this.#batchedClaimChanges.push({ key: copyRegister(key), writer, before, after, effect });
    else for (const observer of this.#observers) observer(key, writer, before, after, effect);
  };

  #deliverClaimChanges(): void {
    if (this.#batchedClaimChanges.length === 0) return;
    const changes = this.#batchedClaimChanges;
    this.#batchedClaimChanges = [];
    for (const [index, { key, writer, before, after, effect }] of changes.entries())
      for (const observer of this.#observers) observer(key, writer, before, after, effect, index > 0);
  }

  /** Runs `write` as a batch or as part of the current one. If it throws, its steps are undone in reverse order. */
  batch<T>(write: () => T, restore: Restore): T {
    const outermost = this.#previousImages === undefined;
    if (outermost) this.#distinct = true;
    this.#previousImages ??= [];
    const lengthsBefore = {
      images: this.#previousImages.length,
      changes: this.#changes.length,
      owners: this.#ownerChanges.length,
      claimChanges: this.#batchedClaimChanges.length,
    };
    const outerStart = this.#batchStart;
    this.#batchStart = lengthsBefore.images;
    try {
      const result = write();
      requireArgument(!(result instanceof Promise), 'batch: write must be synchronous');
      return result;
    } catch (error) {
      for (const { key, image } of this.#previousImages.splice(lengthsBefore.images).reverse())
        restore(key, image);
      this.#changes = this.#changes.slice(0, lengthsBefore.changes);
      this.#ownerChanges = this.#ownerChanges.slice(0, lengthsBefore.owners);
      this.#batchedClaimChanges.length = lengthsBefore.claimChanges;
      this.#lastImages.clear();
      throw error;
    } finally {
      this.#batchStart = outerStart;
      if (outermost) {
        this.#previousImages = undefined;
        this.#hashes = new Set();
        this.#lastImages.clear();
        this.#deliverClaimChanges();
      }
    }
  }

  /**
   * If `hasAudience` is false, changes outside a batch are not recorded. The next write must then make at most one
   * change, because a second one could undo the first.
   */
  setAudience(hasAudience: boolean): void {
    this.#hasAudience = hasAudience;
  }

  /** Sets the text from which the key of the next changes was parsed; empty if they have several keys. */
  setKeyText(text: string): void {
    this.#keyText = text;
  }

  /** Returns true if a visible change since the last call was not recorded. */
  takeSkipped(): boolean {
    const skipped = this.#skippedChange;
    this.#skippedChange = false;
    return skipped;
  }

  /** Removes and returns the net visible changes, each prefix once (I8). */
  takeChanges(): readonly IPCacheChange[] {
    if (this.#changes.length === 0) return NO_CHANGES;
    const changes = this.#changes;
    this.#changes = NO_CHANGES;
    return changes.length === 1 || this.#distinct ? changes : netChanges(changes);
  }

  takeOwnerChanges(): readonly OwnerChange[] {
    if (this.#ownerChanges.length === 0) return NO_OWNER_CHANGES;
    const changes = this.#ownerChanges;
    this.#ownerChanges = [];
    return changes.length === 1 ? changes : netOwnerChanges(changes);
  }

  #noteHash(hash: number): void {
    if (this.#hashes.has(hash)) this.#distinct = false;
    else this.#hashes.add(hash);
  }
}

/** Returns the first and last owner of each key if they differ. */
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
