import { compareWriters, mayOverwrite } from '../identity/source.ts';
import { addressBits } from '../net/address-words.ts';
import type { PrefixRegister } from '../net/prefix.ts';
import type { PrefixTable } from '../net/prefix-table.ts';
import type { EntryIndex } from './entry-indexes.ts';
import { FLAG, type HeldClaim } from './entry-reader.ts';
import { EntryRows } from './entry-rows.ts';
import { OverruledClaims } from './overruled-claims.ts';
import type {
  Claim,
  ClaimWriter,
  DeleteOptions,
  DeleteOutcome,
  IPCacheEntry,
  UpsertOutcome,
  Writer,
} from './types.ts';

/** What the claims on one key were: the effective one first. */
export interface KeyImage {
  readonly claims: readonly HeldClaim[];
  readonly contested: boolean;
}

/**
 * Receives what {@link ClaimState} does. Keys are registers that are reused: copy what is to be kept. It must
 * not write to the state.
 */
export interface ClaimSink {
  /** Whether a batch is under way, of which {@link ClaimSink.willChange} is to be called. */
  readonly inBatch: boolean;
  /** The claims of `key` are about to change; they are `image`, or undefined where there are none. */
  willChange(key: Readonly<PrefixRegister>, image: KeyImage | undefined): void;
  /** The visible entry of the prefix of `key` may have changed: compare. */
  visibleChanged(
    key: Readonly<PrefixRegister>,
    old: IPCacheEntry | undefined,
    next: IPCacheEntry | undefined,
  ): void;
  /** A contested key has changed hands. */
  ownerChanged(
    key: Readonly<PrefixRegister>,
    from: ClaimWriter | undefined,
    to: ClaimWriter | undefined,
  ): void;
}

/** A look at a row takes some ns, taking a claim away about a µs. */
const LOOKS_PER_CLAIM = 128;

function isFullLengthCIDR(key: Readonly<PrefixRegister>): boolean {
  return key.form === 'cidr' && key.length === addressBits(key.family);
}

/**
 * Every live claim, and which of them is effective: the rules of SEMANTICS 2.2 and 2.3 and nothing else. It
 * trusts its input, which the intake has checked.
 *
 *     key ──table──► slot ──rows──► the effective claim of the key
 *                      └──overruled──► the overruled ones, strongest first (few keys have any)
 *
 *     endpoint 10.0.0.1 ┐ counterparts: two keys over one prefix.
 *     CIDR 10.0.0.1/32  ┘ While the endpoint is held, the CIDR is shadowed: kept, but not visible.
 */
export class ClaimState {
  readonly table: PrefixTable;
  readonly rows: EntryRows;
  readonly overruled: OverruledClaims = new OverruledClaims();
  readonly #sink: ClaimSink;
  readonly #retainOverruled: boolean;
  readonly #maxEntries: number;
  /** Full-length CIDRs in the table: while there are none, no endpoint needs to look for its counterpart. */
  #fullLengthCIDRs = 0;
  #shadowed = 0;
  #highWater = 0;
  #indexes: readonly EntryIndex[] = [];

  constructor(
    newTable: () => PrefixTable,
    sink: ClaimSink,
    options: {
      readonly retainOverruled: boolean;
      readonly maxEntries: number;
      readonly hashSeed?: number | undefined;
    },
  ) {
    this.table = newTable();
    this.rows = new EntryRows(newTable(), options.hashSeed);
    this.#sink = sink;
    this.#retainOverruled = options.retainOverruled;
    this.#maxEntries = options.maxEntries;
  }

  /** The most keys that were ever held at once. */
  get highWater(): number {
    return this.#highWater;
  }

  /** CIDRs that an endpoint hides at the moment. */
  get shadowed(): number {
    return this.#shadowed;
  }

  /** Puts a claim on a key. `host` is the number of the claim's host IP. */
  put(key: PrefixRegister, claim: Claim, host: number): UpsertOutcome {
    const slot = this.table.find(key);
    if (slot < 0) return this.#claimFree(key, claim, host);
    if (this.rows.writer(slot) === this.rows.writers.find(claim))
      return this.#claimOwn(slot, key, claim, host);
    return this.#contest(slot, key, claim, host);
  }

  /** Takes one writer's claim off a key, if `ifPod` allows. */
  remove(key: PrefixRegister, by: DeleteOptions): Exclude<DeleteOutcome, 'invalid'> {
    const slot = this.table.find(key);
    if (slot < 0) return 'not-found';
    const effective = this.rows.writer(slot) === this.rows.writers.find(by);
    const claim = effective ? this.rows.entry(slot) : this.overruled.find(slot, by);
    if (claim === undefined || !namesPod(claim, by.ifPod)) return 'not-owner';
    this.#willChange(key, slot);
    if (effective) this.#promote(slot, key, claim);
    else this.overruled.remove(slot, by);
    return 'applied';
  }

  /** Whether a writer has any claim. */
  holds(writer: Writer): boolean {
    return this.rows.writers.find(writer) >= 0 || this.overruled.slotsOf(writer).size > 0;
  }

  /**
   * Takes claims of a writer away, overruled ones first: at most `limit`, and looking at no more than
   * {@link LOOKS_PER_CLAIM} rows for each of them. Says how many, and the row to go `on` from. `key` is a register to
   * work in.
   */
  withdraw(by: Writer, key: PrefixRegister, limit: number, from = 0): { withdrawn: number; on: number } {
    let withdrawn = 0;
    for (const slot of this.overruled.slotsOf(by).keys()) {
      if (withdrawn === limit) break;
      this.table.keyOf(slot, key);
      this.#willChange(key, slot);
      this.overruled.remove(slot, by);
      withdrawn++;
    }
    let on = from;
    for (let looks = LOOKS_PER_CLAIM * limit; withdrawn < limit && looks > 0; ) {
      const writer = this.rows.writers.find(by);
      if (writer < 0) break;
      const end = Math.min(this.table.slotLimit, on + looks);
      const slot = this.rows.findWriter(writer, on, end);
      looks -= slot + 1 - on;
      on = slot < this.table.slotLimit ? slot : 0;
      if (slot === end) continue;
      this.table.keyOf(slot, key);
      this.#willChange(key, slot);
      this.#promote(slot, key, this.rows.entry(slot));
      withdrawn++;
    }
    return { withdrawn, on };
  }

  /** Makes the claims of a key what `image` says; `undefined` means none. The sink receives nothing about owners. */
  restore(key: PrefixRegister, image: KeyImage | undefined): void {
    const slot = this.table.find(key);
    if (slot >= 0) {
      this.overruled.set(slot, []);
      this.#disappear(slot, key, this.rows.entry(slot));
    }
    const [effective, ...overruled] = image?.claims ?? [];
    if (effective === undefined) return;
    const again = this.#appear(key, effective, this.rows.hosts.resolve(effective.hostIP));
    this.overruled.set(again, overruled);
    this.rows.mark(again, FLAG.contested, image?.contested === true);
  }

  /** The other form of a full-length key: the CIDR over an endpoint, the endpoint under a CIDR; or -1. */
  counterpart(key: PrefixRegister): number {
    if (key.length !== addressBits(key.family)) return -1;
    if (key.form === 'endpoint' && this.#fullLengthCIDRs === 0) return -1;
    const form = key.form;
    key.form = form === 'cidr' ? 'endpoint' : 'cidr';
    const slot = this.table.find(key);
    key.form = form;
    return slot;
  }

  /** Keeps an index from now on, filled with what is there. */
  track<I extends EntryIndex>(index: I): I {
    for (const slot of this.table.slots()) index.add(slot, this.rows.entry(slot));
    this.#indexes = [...this.#indexes, index];
    return index;
  }

  #willChange(key: Readonly<PrefixRegister>, slot: number): void {
    if (this.#sink.inBatch) this.#sink.willChange(key, slot < 0 ? undefined : this.#image(slot));
  }

  /** What the claims on the key of a slot in use are now. */
  #image(slot: number): KeyImage {
    return {
      claims: [this.rows.claim(slot), ...this.overruled.of(slot)],
      contested: this.rows.has(slot, FLAG.contested),
    };
  }

  /** The key has no claim yet. */
  #claimFree(key: PrefixRegister, claim: Claim, host: number): UpsertOutcome {
    if (this.table.size >= this.#maxEntries) return 'capacity';
    this.#willChange(key, -1);
    this.#appear(key, claim, host);
    return 'applied';
  }

  /** The writer holds the key: it only says something else of it. */
  #claimOwn(slot: number, key: PrefixRegister, claim: Claim, host: number): UpsertOutcome {
    if (this.rows.holds(slot, claim, host)) return 'unchanged';
    this.#willChange(key, slot);
    const old = this.rows.entry(slot);
    this.rows.update(slot, claim, host);
    this.#entryChanged(slot, key, old);
    return 'applied';
  }

  /** Another writer holds the key: the stronger claim is effective (I4); the other is kept, if any is. */
  #contest(slot: number, key: PrefixRegister, claim: Claim, host: number): UpsertOutcome {
    this.#willChange(key, slot);
    this.rows.mark(slot, FLAG.contested, true);
    const holder = this.rows.claim(slot);
    const challenger = { source: claim.source, owner: claim.owner ?? '' };
    const wins = this.#retainOverruled
      ? compareWriters(challenger, holder) < 0
      : mayOverwrite(holder.source, challenger.source);
    if (!wins) {
      if (this.#retainOverruled) this.overruled.put(slot, this.rows.held(claim, host));
      return 'overruled';
    }
    if (this.#retainOverruled) {
      this.overruled.remove(slot, challenger);
      this.overruled.put(slot, holder);
    }
    const old = this.rows.entry(slot);
    this.rows.replace(slot, claim, host);
    this.#entryChanged(slot, key, old);
    this.#sink.ownerChanged(key, holder, challenger);
    return 'applied';
  }

  /** The effective claim of a key goes: the strongest overruled claim becomes effective, or the key goes with it. */
  #promote(slot: number, key: PrefixRegister, old: IPCacheEntry): void {
    if (!this.rows.has(slot, FLAG.contested)) {
      this.#disappear(slot, key, old);
      return;
    }
    const holder = this.rows.writers.writer(this.rows.writer(slot));
    const [next] = this.overruled.of(slot);
    if (next === undefined) {
      this.#disappear(slot, key, old);
    } else {
      this.overruled.remove(slot, next);
      this.rows.replace(slot, next, this.rows.hosts.resolve(next.hostIP));
      this.#entryChanged(slot, key, old);
    }
    this.#sink.ownerChanged(key, holder, next);
  }

  /** A free key gets its first claim. It may shadow its counterpart, or be shadowed by it. */
  #appear(key: PrefixRegister, claim: Claim, host: number): number {
    const slot = this.table.insert(key);
    if (this.table.size > this.#highWater) this.#highWater = this.table.size;
    this.rows.fill(slot, claim, host);
    for (const index of this.#indexes) index.add(slot, this.rows.entry(slot));
    if (isFullLengthCIDR(key)) this.#fullLengthCIDRs++;
    const counterpart = this.counterpart(key);
    if (counterpart < 0) {
      this.#sink.visibleChanged(key, undefined, this.rows.entry(slot));
    } else if (key.form === 'endpoint') {
      this.#shadow(counterpart, true);
      this.#sink.visibleChanged(key, this.rows.entry(counterpart), this.rows.entry(slot));
    } else {
      this.#shadow(slot, true);
    }
    return slot;
  }

  /** The last claim of a key goes. A CIDR that it shadowed becomes visible, with its own attributes. */
  #disappear(slot: number, key: PrefixRegister, old: IPCacheEntry): void {
    for (const index of this.#indexes) index.remove(slot, old);
    const shadowed = this.rows.has(slot, FLAG.shadowed);
    if (shadowed) this.#shadow(slot, false);
    this.rows.clear(slot);
    this.table.remove(slot, key);
    const counterpart = this.counterpart(key);
    if (isFullLengthCIDR(key)) this.#fullLengthCIDRs--;
    if (shadowed) return;
    if (counterpart >= 0) this.#shadow(counterpart, false);
    this.#sink.visibleChanged(key, old, counterpart < 0 ? undefined : this.rows.entry(counterpart));
  }

  /** The effective entry of a key had other attributes, or another writer, before. */
  #entryChanged(slot: number, key: PrefixRegister, old: IPCacheEntry): void {
    const entry = this.rows.entry(slot);
    for (const index of this.#indexes) {
      if (index.isSame(old, entry)) continue; // tables from which keys come and go are rebuilt again and again
      index.remove(slot, old);
      index.add(slot, entry);
    }
    if (!this.rows.has(slot, FLAG.shadowed)) this.#sink.visibleChanged(key, old, entry);
  }

  #shadow(slot: number, on: boolean): void {
    this.rows.mark(slot, FLAG.shadowed, on);
    this.#shadowed += on ? 1 : -1;
  }
}

/** Whether a claim may be deleted by a writer that means this pod. */
export function namesPod(claim: IPCacheEntry, pod: DeleteOptions['ifPod']): boolean {
  return pod === undefined || (claim.k8s?.namespace === pod.namespace && claim.k8s.podName === pod.podName);
}
