import { HashPrefixTable } from '../../lpm/hash-prefix-table.ts';
import type { PrefixTable } from '../../lpm/prefix-table.ts';
import { compareWriters, mayOverwrite } from '../../model/source.ts';
import { hasAddressLength, type PrefixRegister } from '../../net/prefix.ts';
import { sameEntry } from '../change.ts';
import type { ChangeJournal } from '../change-journal.ts';
import type { EntryIndex } from '../entry-indexes.ts';
import { type CompleteClaim, FLAG } from '../row-reader.ts';
import { RowStore } from '../row-store.ts';
import type {
  Claim,
  ClaimWriter,
  DeleteOutcome,
  IPCacheEntry,
  PrefixDeleteOptions,
  UpsertOutcome,
  Writer,
} from '../types.ts';
import type { ChangedRows } from './changed-rows.ts';
import { OverruledClaims } from './overruled-claims.ts';
import type { SortedClaims } from './sorted-claims.ts';

/** The claims on one key at some moment. */
export interface KeyImage {
  readonly effective: CompleteClaim;
  readonly overruled: SortedClaims<CompleteClaim>;
  /** True if a second writer has claimed the key since its first claim. */
  readonly contested: boolean;
}

/**
 * Receives every change of a claim, those of a batch when the batch is complete. `key` is a reused register. `before`
 * and `after` are the writer's claim before and after the change; one of them may be missing. `effect` is a sum of
 * {@link EFFECT}. `continues` is true for all changes of a batch except the first one, because they happen at the same
 * time (I8). An observer must not throw and must not write to the cache.
 */
export type ClaimObserver = (
  key: Readonly<PrefixRegister>,
  writer: ClaimWriter,
  before: CompleteClaim | undefined,
  after: CompleteClaim | undefined,
  effect: number,
  continues?: boolean,
) => void;

/** Bits which state if the claims of a change were effective, and if it only confirms a restored claim. */
export const EFFECT = {
  /** `before` was the effective claim of the key; if `before` is undefined, the key had no claim. */
  before: 1,
  /** `after` is the effective claim of the key; if `after` is undefined, the key has no claim. */
  after: 2,
  /** `after` is new, equals a claim of source `restored` and of the same owner, and changes no attribute of the key. */
  confirms: 4,
} as const;

const BEFORE_AND_AFTER: number = EFFECT.before | EFFECT.after;

/** Number of rows whose scan takes as long as one deletion: a few ns for each row, about 1 µs for the deletion. */
const SCANNED_PER_CLAIM = 128;

function isFullLengthCIDR(key: Readonly<PrefixRegister>): boolean {
  return key.form === 'cidr' && hasAddressLength(key);
}

/**
 * All claims, and the selection of the effective ones by the rules of SEMANTICS 2.2 and 2.3. The caller has checked the
 * input (see `claim-rejection`).
 *
 *     key ──table──► slot ──rows──► the effective claim of the key
 *                      └──overruled──► the overruled ones, strongest first (few keys have any)
 *
 *     endpoint 10.0.0.1 ┐ counterparts: two keys of one prefix.
 *     CIDR 10.0.0.1/32  ┘ If the endpoint has a claim, the CIDR is shadowed: kept, but not visible.
 */
export class ClaimState {
  readonly table: PrefixTable;
  readonly rows: RowStore;
  readonly overruled: OverruledClaims = new OverruledClaims();
  /** Each set receives the slots whose claims may have changed, also in a batch that throws. */
  changedSlots: readonly ChangedRows[] = [];
  readonly #journal: ChangeJournal;
  readonly #retainOverruled: boolean;
  readonly #maxEntries: number;
  /** Number of full-length CIDRs. If it is 0, endpoints have no counterparts. */
  #fullLengthCIDRs = 0;
  #shadowed = 0;
  #highWater = 0;
  #indexes: readonly EntryIndex[] = [];

  constructor(
    journal: ChangeJournal,
    options: {
      readonly retainOverruled: boolean;
      readonly maxEntries: number;
      readonly hashSeed?: number | undefined;
    },
  ) {
    this.table = new HashPrefixTable(options.hashSeed);
    this.rows = new RowStore(new HashPrefixTable(options.hashSeed), options.hashSeed);
    this.#journal = journal;
    this.#retainOverruled = options.retainOverruled;
    this.#maxEntries = options.maxEntries;
  }

  /** Maximum number of keys so far. */
  get highWater(): number {
    return this.#highWater;
  }

  get shadowed(): number {
    return this.#shadowed;
  }

  /** Sets a claim on a key. `host` is the number of the claim's host IP. */
  put(key: PrefixRegister, claim: Claim, host: number): UpsertOutcome {
    const slot = this.table.find(key);
    if (slot < 0) return this.#insert(key, claim, host);
    if (this.rows.writerID(slot) === this.rows.writers.find(claim))
      return this.#updateEffective(slot, key, claim, host);
    return this.#contest(slot, key, claim, host);
  }

  /** Deletes one writer's claim on a key if `ifPod` matches. */
  remove(key: PrefixRegister, by: PrefixDeleteOptions): Exclude<DeleteOutcome, 'invalid'> {
    const slot = this.table.find(key);
    if (slot < 0) return 'not-found';
    const effective = this.rows.writerID(slot) === this.rows.writers.find(by);
    const claim = effective ? this.rows.entry(slot) : this.overruled.find(slot, by);
    if (claim === undefined || !namesPod(claim, by.ifPod)) return 'not-owner';
    this.#willChange(key, slot);
    if (effective) this.#removeEffective(slot, key, claim);
    else this.#removeOverruled(slot, key, by);
    return 'applied';
  }

  /** Returns the writers with a claim, unordered. */
  writers(): readonly ClaimWriter[] {
    const overruled = Array.from(this.overruled.writers()).filter((by) => this.rows.writers.find(by) < 0);
    return [...this.rows.writers.all(), ...overruled];
  }

  /** Returns true if a writer has a claim. */
  holds(writer: Writer): boolean {
    return this.rows.writers.find(writer) >= 0 || this.overruled.slotsOf(writer).size > 0;
  }

  /**
   * Deletes at most `limit` claims of a writer, overruled ones first. Scans at most `limit` × {@link SCANNED_PER_CLAIM}
   * rows, beginning at row `from`. Returns the number of deleted claims, and `next`, which is `from` of the next call.
   * `key` is a scratch register.
   */
  withdraw(by: Writer, key: PrefixRegister, limit: number, from = 0): { withdrawn: number; next: number } {
    let withdrawn = 0;
    for (const slot of this.overruled.slotsOf(by).keys()) {
      if (withdrawn === limit) break;
      this.table.keyOf(slot, key);
      this.#willChange(key, slot);
      this.#removeOverruled(slot, key, by);
      withdrawn++;
    }
    let next = from;
    for (let left = SCANNED_PER_CLAIM * limit; withdrawn < limit && left > 0; ) {
      const writer = this.rows.writers.find(by);
      if (writer < 0) break;
      const end = Math.min(this.table.slotLimit, next + left);
      const slot = this.rows.findRowOf(writer, next, end);
      left -= slot + 1 - next;
      next = slot < this.table.slotLimit ? slot : 0;
      if (slot === end) continue;
      this.table.keyOf(slot, key);
      this.#willChange(key, slot);
      this.#removeEffective(slot, key, this.rows.entry(slot));
      withdrawn++;
    }
    return { withdrawn, next };
  }

  /** Restores the claims of a key from `image`; undefined means none. No owner changes are recorded. */
  restore(key: PrefixRegister, image: KeyImage | undefined): void {
    const slot = this.table.find(key);
    if (slot >= 0) {
      this.#markChanged(slot);
      this.overruled.set(slot, []);
      this.#disappear(slot, key, this.rows.entry(slot));
    }
    if (image === undefined) return;
    const { effective, overruled, contested } = image;
    const newSlot = this.#appear(key, effective, this.rows.hosts.resolve(effective.hostIP));
    this.#markChanged(newSlot);
    this.overruled.set(newSlot, overruled);
    this.rows.setFlag(newSlot, FLAG.contested, contested);
  }

  /** Returns the slot of the other form of a full-length key, endpoint or CIDR; -1 if there is none. */
  counterpart(key: PrefixRegister): number {
    if (!hasAddressLength(key)) return -1;
    if (key.form === 'endpoint' && this.#fullLengthCIDRs === 0) return -1;
    const form = key.form;
    key.form = form === 'cidr' ? 'endpoint' : 'cidr';
    const slot = this.table.find(key);
    key.form = form;
    return slot;
  }

  /** Fills an index with the current entries and maintains it from now on. */
  track<I extends EntryIndex>(index: I): I {
    for (const slot of this.table.slots()) index.add(slot, this.rows.entry(slot));
    this.#indexes = [...this.#indexes, index];
    return index;
  }

  #markChanged(slot: number): void {
    for (const slots of this.changedSlots) slots.add(slot);
  }

  #willChange(key: Readonly<PrefixRegister>, slot: number): void {
    if (this.#journal.inBatch) this.#journal.willChange(key, slot < 0 ? undefined : this.#image(slot));
  }

  /** Returns the current claims on the key of a slot in use. */
  #image(slot: number): KeyImage {
    return {
      effective: this.rows.claim(slot),
      overruled: this.overruled.of(slot),
      contested: this.rows.hasFlag(slot, FLAG.contested),
    };
  }

  /** Sets the first claim on a free key. */
  #insert(key: PrefixRegister, claim: Claim, host: number): UpsertOutcome {
    if (this.table.size >= this.#maxEntries) return 'capacity';
    this.#willChange(key, -1);
    const slot = this.#appear(key, claim, host);
    this.#markChanged(slot);
    if (this.#journal.claimObserver !== undefined)
      this.#observe(key, undefined, this.rows.claim(slot), BEFORE_AND_AFTER);
    return 'applied';
  }

  /** Updates the effective claim of the same writer. */
  #updateEffective(slot: number, key: PrefixRegister, claim: Claim, host: number): UpsertOutcome {
    if (this.rows.hasAttributes(slot, claim, host)) return 'unchanged';
    this.#willChange(key, slot);
    this.#markChanged(slot);
    const before = this.#journal.claimObserver && this.rows.claim(slot);
    const old = this.rows.entry(slot);
    this.rows.update(slot, claim, host);
    this.#entryChanged(slot, key, old);
    if (before !== undefined) this.#observe(key, before, this.rows.claim(slot), BEFORE_AND_AFTER);
    return 'applied';
  }

  /** Sets a claim on a key of another writer. The stronger one is effective (I4), the other may be retained. */
  #contest(slot: number, key: PrefixRegister, claim: Claim, host: number): UpsertOutcome {
    this.#willChange(key, slot);
    this.#markChanged(slot);
    this.rows.setFlag(slot, FLAG.contested, true);
    const holder = this.rows.claim(slot);
    const challenger = { source: claim.source, owner: claim.owner ?? '' };
    const wins = this.#retainOverruled
      ? compareWriters(challenger, holder) < 0
      : mayOverwrite(holder.source, challenger.source);
    if (!wins) {
      if (this.#retainOverruled) this.#putOverruled(slot, key, this.rows.toCompleteClaim(claim, host));
      return 'overruled';
    }
    if (this.#retainOverruled) this.overruled.put(slot, holder);
    else this.#observe(key, holder, undefined, EFFECT.before);
    const old = this.rows.entry(slot);
    this.rows.replace(slot, claim, host);
    this.#entryChanged(slot, key, old);
    this.#journal.ownerChanged(key, holder, challenger);
    if (this.#journal.claimObserver !== undefined) {
      const after = this.rows.claim(slot);
      const confirmation = sameEntry(old, after) ? this.#confirmation(slot, after) : 0;
      this.#observe(key, undefined, after, EFFECT.after + confirmation);
    }
    return 'applied';
  }

  #putOverruled(slot: number, key: PrefixRegister, claim: CompleteClaim): void {
    const before = this.#journal.claimObserver && this.overruled.find(slot, claim);
    this.overruled.put(slot, claim);
    if (this.#journal.claimObserver === undefined) return;
    if (before === undefined) this.#observe(key, undefined, claim, this.#confirmation(slot, claim));
    else if (!sameEntry(before, claim)) this.#observe(key, before, claim, 0);
  }

  /** Returns `EFFECT.confirms` if a new claim equals the restored claim of its owner on the same key, else 0. */
  #confirmation(slot: number, claim: CompleteClaim): number {
    // `restored` ranks below the sources that write after a restart, so the other claim makes it overruled.
    const restored = this.overruled.find(slot, { source: 'restored', owner: claim.owner });
    return restored !== undefined && restored !== claim && sameEntry(restored, claim) ? EFFECT.confirms : 0;
  }

  #removeOverruled(slot: number, key: PrefixRegister, by: Writer): void {
    this.#markChanged(slot);
    const before = this.#journal.claimObserver && this.overruled.find(slot, by);
    this.overruled.remove(slot, by);
    if (before !== undefined) this.#observe(key, before, undefined, 0);
  }

  #observe(
    key: PrefixRegister,
    before: CompleteClaim | undefined,
    after: CompleteClaim | undefined,
    effect: number,
  ): void {
    const writer = after ?? before;
    if (writer !== undefined) this.#journal.claimObserver?.(key, writer, before, after, effect);
  }

  /** Deletes the effective claim of a key. The strongest overruled claim, if any, becomes effective. */
  #removeEffective(slot: number, key: PrefixRegister, old: IPCacheEntry): void {
    this.#markChanged(slot);
    const before = this.#journal.claimObserver && this.rows.claim(slot);
    const isContested = this.rows.hasFlag(slot, FLAG.contested);
    const holder = isContested ? this.rows.writers.writer(this.rows.writerID(slot)) : undefined;
    const next = isContested ? this.overruled.strongest(slot) : undefined;
    if (next === undefined) this.#disappear(slot, key, old);
    else {
      this.overruled.remove(slot, next);
      this.rows.replace(slot, next, this.rows.hosts.resolve(next.hostIP));
      this.#entryChanged(slot, key, old);
    }
    if (isContested) this.#journal.ownerChanged(key, holder, next);
    const effect = next === undefined ? BEFORE_AND_AFTER : EFFECT.before;
    if (before !== undefined) this.#observe(key, before, undefined, effect);
  }

  /** Inserts a key with its first claim. It may shadow its counterpart, or be shadowed by it. */
  #appear(key: PrefixRegister, claim: Claim, host: number): number {
    const slot = this.table.insert(key);
    if (this.table.size > this.#highWater) this.#highWater = this.table.size;
    this.rows.fill(slot, claim, host);
    for (const index of this.#indexes) index.add(slot, this.rows.entry(slot));
    if (isFullLengthCIDR(key)) this.#fullLengthCIDRs++;
    const counterpart = this.counterpart(key);
    if (counterpart < 0) {
      this.#journal.visibleChanged(key, undefined, this.rows.entry(slot));
    } else if (key.form === 'endpoint') {
      this.#setShadowed(counterpart, true);
      this.#journal.visibleChanged(key, this.rows.entry(counterpart), this.rows.entry(slot));
    } else {
      this.#setShadowed(slot, true);
    }
    return slot;
  }

  /** Deletes a key with its last claim. A CIDR that it shadowed becomes visible with its own attributes. */
  #disappear(slot: number, key: PrefixRegister, old: IPCacheEntry): void {
    for (const index of this.#indexes) index.remove(slot, old);
    const shadowed = this.rows.hasFlag(slot, FLAG.shadowed);
    if (shadowed) this.#setShadowed(slot, false);
    this.rows.clear(slot);
    this.table.remove(slot, key);
    const counterpart = this.counterpart(key);
    if (isFullLengthCIDR(key)) this.#fullLengthCIDRs--;
    if (shadowed) return;
    if (counterpart >= 0) this.#setShadowed(counterpart, false);
    this.#journal.visibleChanged(key, old, counterpart < 0 ? undefined : this.rows.entry(counterpart));
  }

  /** Reports that the effective entry of a key changed from `old`. */
  #entryChanged(slot: number, key: PrefixRegister, old: IPCacheEntry): void {
    const entry = this.rows.entry(slot);
    for (const index of this.#indexes) {
      if (index.isSame(old, entry)) continue;
      index.remove(slot, old);
      index.add(slot, entry);
    }
    if (!this.rows.hasFlag(slot, FLAG.shadowed)) this.#journal.visibleChanged(key, old, entry);
  }

  #setShadowed(slot: number, on: boolean): void {
    this.rows.setFlag(slot, FLAG.shadowed, on);
    this.#shadowed += on ? 1 : -1;
  }
}

/** Returns true if a claim names this pod, or if `pod` is undefined. */
export function namesPod(claim: IPCacheEntry, pod: PrefixDeleteOptions['ifPod']): boolean {
  return pod === undefined || (claim.k8s?.namespace === pod.namespace && claim.k8s.podName === pod.podName);
}
