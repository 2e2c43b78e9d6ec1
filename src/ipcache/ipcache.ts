import { checkArguments, FUNCTION, LIST, objectWith, optional, SIGNAL } from '../base/arguments.ts';
import { assert } from '../base/assert.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Rejection, RejectionLog } from '../base/rejection.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { addressBits, type Family } from '../net/address-words.ts';
import { formatPrefix } from '../net/format-address.ts';
import { HashPrefixTable } from '../net/hash-prefix-table.ts';
import { formatKey, type PrefixRegister, parsePrefix, prefixRegister } from '../net/prefix.ts';
import { BLOCK_KEYS, PrefixBlock } from '../net/prefix-block.ts';
import type { PrefixTable } from '../net/prefix-table.ts';
import { prefixChange } from './change.ts';
import { ChangeHub, type ReadOptions } from './change-hub.ts';
import { ChangeJournal } from './change-journal.ts';
import type { ChangeBatch } from './change-reader.ts';
import { claimFault, hostFault, keyFault, writerFault } from './claim-intake.ts';
import { ClaimState } from './claim-state.ts';
import { HostIndex, PodIndex } from './entry-indexes.ts';
import { FLAG } from './entry-reader.ts';
import { EntryView } from './entry-view.ts';
import { decidingRule } from './explain.ts';
import { NamedPortIndex, type NamedPortSets } from './named-port-index.ts';
import { OutcomeCounts } from './outcome-counts.ts';
import { IPCacheSnapshot } from './snapshot.ts';
import type { FamilyCounts, IPCacheOptions, IPCacheStatus } from './status.ts';
import type {
  Claim,
  DeleteOptions,
  DeleteOutcome,
  ExplainedClaim,
  Explanation,
  IPCacheChange,
  IPCacheListener,
  K8sMetadata,
  OwnerListener,
  UpsertOutcome,
  Writer,
} from './types.ts';
import { type WaitingClaim, WaitingClaims } from './waiting-claims.ts';

/** Most entries of one call in a replay. */
const REPLAY_CHUNK = 1024;

/** Claims that a step of a withdrawal takes away: about a ms. */
const CLAIMS_PER_STEP = 512;

/** Keys that may wait for room in a small cache; a large one lets as many wait as it holds. */
const MANY_WAITING = 65_536;

/**
 * What is where: which identity, host, encryption key and pod stand behind an IP or prefix.
 *
 * Every write is a *claim* by a writer (a source and, where there are several of a kind, an owner). The
 * effective entry of a key is its strongest claim (SEMANTICS 2.2); an endpoint IP shadows the equal full-length
 * CIDR. Overruled claims are kept, and promoted when the stronger one goes, unless `retainOverruled` is
 * false: then there is one claim a key, and what is overruled or overwritten is forgotten.
 *
 * Synchronous and single-threaded: when a write returns, reads show it and listeners have received it, except
 * within a batch and within a callback, which they receive after it. Writes and exact lookups cost O(1), longest matches
 * a few probes, for IPv6 at most one for each eight bits; none depends on the number of entries. Nothing here does I/O.
 */
export class IPCache extends EntryView {
  readonly #journal: ChangeJournal;
  readonly #state: ClaimState;
  readonly #waiting: WaitingClaims;
  readonly #maxEntries: number;
  readonly #replayChunk: number;
  readonly #guard: CallbackGuard;
  readonly #hub: ChangeHub;
  readonly #rejections: RejectionLog;
  readonly #outcomes = new OutcomeCounts();
  /** The key of the call under way. No call yields, and what listeners do comes after its last use. */
  readonly #key: PrefixRegister = prefixRegister();
  #spareBlock: PrefixBlock | undefined;
  #namedPorts: NamedPortIndex | undefined;
  #pods: PodIndex | undefined;
  #hosts: HostIndex | undefined;

  constructor(options: IPCacheOptions = {}) {
    const { retainOverruled = true, maxEntries = Number.POSITIVE_INFINITY, hashSeed } = options;
    const newTable = (): PrefixTable => new HashPrefixTable(hashSeed);
    const journal = new ChangeJournal();
    const state = new ClaimState(newTable, journal, { retainOverruled, maxEntries, hashSeed });
    super(state.table, state.rows);
    this.#journal = journal;
    this.#state = state;
    this.#maxEntries = maxEntries;
    this.#replayChunk = options.replayChunk ?? REPLAY_CHUNK;
    this.#waiting = new WaitingClaims(options.maxWaiting ?? Math.max(maxEntries, MANY_WAITING));
    this.#guard = new CallbackGuard(options.onListenerFault);
    this.#rejections = new RejectionLog(options.onReject, this.#guard);
    this.#hub = new ChangeHub(this.#guard);
  }

  /**
   * Claims `key` (an IP or a CIDR, any spelling) for the claim's writer, instead of that writer's earlier claim
   * on it. The cache keeps `claim.k8s` itself: do not change it afterwards. See {@link UpsertOutcome}.
   */
  upsert(key: string, claim: Claim): UpsertOutcome {
    return this.#claim(key, parsePrefix(key, this.#key), claim);
  }

  /**
   * {@link IPCache.upsert} of `claims[i]` on `keys[i]`, one after the other, and the outcomes in order. Listeners receive
   * each change as if it came alone; within a {@link IPCache.batch} they receive the net effect. Costs less than the
   * single calls where keys come in random order and entries are many: 256 of them wait for memory together.
   */
  upsertMany(keys: readonly string[], claims: readonly Claim[]): UpsertOutcome[] {
    assert(keys.length === claims.length, 'upsertMany: as many claims as keys');
    const outcomes = new Array<UpsertOutcome>(keys.length);
    const block = this.#takeBlock();
    for (let from = 0; from < keys.length; from += BLOCK_KEYS) {
      const end = this.#readAhead(keys, from, block);
      for (let at = from; at < end; at++) {
        const isKey = block.get(at - from, this.#key);
        outcomes[at] = this.#claim(keys[at] as string, isKey, claims[at] as Claim); // which are looked at there
      }
    }
    this.#spareBlock = block;
    return outcomes;
  }

  /**
   * Withdraws the writer's claim on `key`, and no other; the next claim, if there is one, becomes effective.
   * See {@link DeleteOutcome}.
   */
  delete(key: string, by: DeleteOptions): DeleteOutcome {
    return this.#unclaim(key, parsePrefix(key, this.#key), by);
  }

  /** {@link IPCache.delete} of each of the keys, one after the other; see {@link IPCache.upsertMany}. */
  deleteMany(keys: readonly string[], by: DeleteOptions): DeleteOutcome[] {
    const outcomes = new Array<DeleteOutcome>(keys.length);
    const block = this.#takeBlock();
    for (let from = 0; from < keys.length; from += BLOCK_KEYS) {
      const end = this.#readAhead(keys, from, block);
      for (let at = from; at < end; at++) {
        const isKey = block.get(at - from, this.#key);
        outcomes[at] = this.#unclaim(keys[at] as string, isKey, by); // which is looked at there
      }
    }
    this.#spareBlock = block;
    return outcomes;
  }

  /**
   * Withdraws every claim of a writer as one batch (I10) and says how many there were. Cost: about 2 µs a claim, half a
   * second for 300,000, and a look through the pages of 1,024 entries where it may have some.
   * {@link IPCache.withdrawSteps} does not hold up others.
   */
  withdraw(by: Writer): number {
    return this.batch(() => {
      let withdrawn = 0;
      for (const step of this.withdrawSteps(by, Number.POSITIVE_INFINITY)) withdrawn += step;
      return withdrawn;
    });
  }

  /**
   * {@link IPCache.withdraw} in steps: each is a batch that takes at most `limit` claims away and gives how many. A step
   * that looks in vain at 128 entries for each of these gives 0. `TurnGate.runSteps` shares steps out over the turns of
   * an event loop; its `slice` is a good limit.
   *
   * After each step the cache is in a consistent state: listeners and `explain` show the claims that are left. Between
   * steps anything may be read and written. It ends with the step after which the writer has no claim: what it claims
   * meanwhile is withdrawn too. Ended early, it leaves what it has not come to.
   */
  *withdrawSteps(by: Writer, limit: number = CLAIMS_PER_STEP): Generator<number, void, void> {
    const fault = writerFault(by, 'withdraw');
    if (fault !== undefined) {
      this.#outcomes.count(this.#reject(fault));
      return;
    }
    assert(limit >= 1, 'withdrawSteps: a step takes at least one claim');
    let from = 0;
    while (this.#waiting.holds(by) || this.#state.holds(by)) {
      const withdrawn = this.batch(() => {
        const waited = this.#waiting.withdraw(by, limit);
        const { withdrawn: held, on } = this.#state.withdraw(by, this.#key, limit - waited, from);
        from = on;
        return waited + held;
      });
      this.#outcomes.count('deleted', withdrawn);
      yield withdrawn;
    }
  }

  /**
   * Runs `write`; listeners receive the net effect of all its writes, once for each prefix, when it is through
   * (I8). When `write` throws, everything that it wrote is rolled back, nothing is delivered, and the error goes on to
   * the caller. Batches nest: the outermost one counts, and an inner one that throws takes back only its own
   * part. Reads inside see what was written so far. `write` must be synchronous.
   */
  batch<T>(write: () => T): T {
    this.#hub.beforeChange();
    this.#journal.about('');
    const nested = this.#journal.inBatch;
    const result = this.#waiting.batch(() =>
      this.#journal.batch(
        () => {
          const written = write();
          if (!nested) this.#admit(true);
          return written;
        },
        (key, image) => this.#state.restore(key, image),
      ),
    );
    if (!nested) this.#publish();
    return result;
  }

  /** The pod behind exactly this IP. */
  getK8sMetadata(ip: string): K8sMetadata | undefined {
    return this.get(ip)?.k8s;
  }

  /**
   * Canonical keys of the entries of a pod, shadowed ones included, in no order that is promised. The first call walks
   * all entries, some 200 ns each: make it while the cache is empty, and it costs nothing. From then on an index is kept,
   * of some 100 bytes a pod; a call costs what it gives.
   */
  lookupByPod(namespace: string, podName: string): readonly string[] {
    this.#pods ??= this.#state.track(new PodIndex());
    return Array.from(this.#pods.of(namespace, podName), (slot) => this.keyAt(slot));
  }

  /**
   * Canonical keys of the entries behind a host (an IP in any spelling), shadowed ones included, in no order that is
   * promised. Costs as {@link IPCache.lookupByPod}: the index is kept from the first call on.
   */
  lookupByHost(hostIP: string): readonly string[] {
    this.#hosts ??= this.#state.track(new HostIndex());
    return Array.from(this.#hosts.of(hostIP), (slot) => this.keyAt(slot));
  }

  /** Every claim on the prefix of `key`, strongest first, and why the first one won; `undefined` for no prefix. */
  explain(key: string): Explanation | undefined {
    if (!parsePrefix(key, this.#key)) return undefined;
    const prefix = formatPrefix(this.#key, this.#key.length);
    const own = this.#state.table.find(this.#key);
    const counterpart = this.#state.counterpart(this.#key);
    const claims = (this.#key.form === 'endpoint' ? [own, counterpart] : [counterpart, own])
      .filter((slot) => slot >= 0)
      .flatMap((slot) => this.#explainSlot(slot));
    return { prefix, claims, decidedBy: decidingRule(claims) };
  }

  /** Goes up by one with every write or batch that changes what is visible. */
  get revision(): number {
    return this.#hub.revision;
  }

  /**
   * The ports that live entries name, shadowed ones included. The first call walks all entries; from then on the
   * sets are kept as entries change.
   */
  namedPorts(): NamedPortSets {
    return this.#trackedNamedPorts().sets();
  }

  /** Calls back after {@link IPCache.namedPorts} has changed, once a write or batch. Starts the tracking. */
  onNamedPortsChange(listener: () => void): Unsubscribe {
    this.#trackedNamedPorts();
    return this.#hub.onNamedPortsChange(listener);
  }

  /**
   * The listener receives the visible entries, `onSynced`, then every change: nothing is lost or doubled in between.
   * Within a callback the replay comes in its turn ({@link IPCacheListener}). Cost: one pass over the entries, in parts
   * of 1024; the rest is read at once when a callback writes meanwhile. Not within a batch.
   */
  subscribe(listener: IPCacheListener): Unsubscribe {
    assert(!this.#journal.inBatch, 'subscribe: not within a batch');
    return this.#hub.subscribe(listener, () => this.#visibleEntries());
  }

  /** Notifies the listener when contested keys change hands, from here on; see {@link OwnerListener}. */
  subscribeOwners(listener: OwnerListener): Unsubscribe {
    return this.#hub.subscribeOwners(listener);
  }

  /**
   * Changes for a reader that takes its time, such as the edge of a process: batches in which each prefix comes once,
   * with its latest state. The first is a `resync` with all that is known, unless `from`, the revision up to which the
   * reader is informed, is recent enough to go on from there. A reader that falls too far behind gets a `resync`
   * instead of what it missed. Ends when `signal` aborts or the reader stops. Revisions mean nothing to another cache.
   */
  changes(options: ReadOptions = {}): AsyncIterableIterator<ChangeBatch, undefined> {
    assert(!this.#journal.inBatch, 'changes: not within a batch');
    return this.#hub.read(options, () => this.snapshot());
  }

  /**
   * An immutable view of all entries as they are now. Cost: a few words for every 1,024 entries; for the writes after
   * it see {@link IPCacheSnapshot}. Not within a batch.
   */
  snapshot(): IPCacheSnapshot {
    assert(!this.#journal.inBatch, 'snapshot: not within a batch');
    return new IPCacheSnapshot(this.table.fork(), this.rows.fork(), this.#hub.revision);
  }

  /** The claims that found no room, in the order in which they will be let in. */
  waiting(): Generator<WaitingClaim, void, void> {
    return this.#waiting.list();
  }

  /** Counts and rejections, as plain data. Cost: some µs, however many entries there are. */
  status(): IPCacheStatus {
    return {
      entries: this.size,
      shadowed: this.#state.shadowed,
      overruledClaims: this.#state.overruled.count,
      maxEntries: this.#maxEntries === Number.POSITIVE_INFINITY ? 'unlimited' : this.#maxEntries,
      highWater: this.#state.highWater,
      pressure: this.size >= this.#maxEntries ? 1 : this.size / this.#maxEntries,
      waiting: this.#waiting.size,
      dropped: this.#waiting.dropped,
      ipv4: familyCounts(this.#state.table, 4),
      ipv6: familyCounts(this.#state.table, 6),
      bytes: this.#state.table.bytes + this.#state.rows.bytes,
      entriesBySource: this.#state.rows.writers.entriesBySource(),
      outcomes: this.#outcomes.snapshot(),
      rejections: this.#rejections.status(),
      listeners: this.#hub.listeners,
      listenerFaults: this.#guard.faults,
      revision: this.#hub.revision,
    };
  }

  /** A block to work in: not the one of a call under way, whose listener may have come here. */
  #takeBlock(): PrefixBlock {
    const block = this.#spareBlock ?? new PrefixBlock();
    this.#spareBlock = undefined;
    return block;
  }

  /** Parses keys from `from` on into a block, reads ahead for them where that pays, and gives where they end. */
  #readAhead(keys: readonly string[], from: number, block: PrefixBlock): number {
    const count = Math.min(keys.length - from, BLOCK_KEYS);
    for (let i = 0; i < count; i++) {
      block.set(i, parsePrefix(keys[from + i] as string, this.#key) ? this.#key : undefined);
    }
    if (block.isScattered(count)) this.table.warm(block, count);
    return from + count;
  }

  #beginWrite(key: string): void {
    this.#hub.beforeChange();
    this.#journal.about(key);
    this.#journal.listen(this.#hub.isHeard || this.#waiting.size > 0); // what waited may change the same key once more
  }

  /** The register holds the key, if it is one. */
  #claim(key: string, isKey: boolean, claim: Claim): UpsertOutcome {
    this.#beginWrite(key);
    const outcome = isKey ? this.#upsert(key, claim) : this.#reject(keyFault(key));
    this.#outcomes.count(outcome);
    this.#publish();
    return outcome;
  }

  /** The register holds the key, if it is one. */
  #unclaim(key: string, isKey: boolean, by: DeleteOptions): DeleteOutcome {
    this.#beginWrite(key);
    const outcome = isKey ? this.#delete(key, by) : this.#reject(keyFault(key));
    this.#admit();
    this.#outcomes.count(outcome === 'applied' ? 'deleted' : outcome);
    this.#publish();
    return outcome;
  }

  #upsert(key: string, claim: Claim): UpsertOutcome {
    const fault = claimFault(claim, key) ?? this.#writerFault(claim, key);
    if (fault !== undefined) return this.#reject(fault);
    const host = this.#state.rows.hosts.resolve(claim.hostIP);
    if (host < 0) return this.#reject(hostFault(claim.hostIP, key));
    const outcome = this.#state.put(this.#key, claim, host);
    if (this.#waiting.size > 0 || outcome === 'capacity') this.#await(claim, host, outcome === 'capacity');
    return outcome;
  }

  /** Keeps a claim that found no room; or, where its key is held now, lets in what waited for the same key. */
  #await(claim: Claim, host: number, full: boolean): void {
    const key = formatKey(this.#key);
    if (full) {
      this.#waiting.put(key, this.#state.rows.held(claim, host));
      return;
    }
    this.#waiting.remove(key, claim);
    this.#letIn(key);
  }

  /** Lets claims in that waited, while there is room: at the end of a batch, or of a write outside of one. */
  #admit(endOfBatch = false): void {
    if (this.#waiting.size === 0 || (this.#journal.inBatch && !endOfBatch)) return;
    while (this.#state.table.size < this.#maxEntries) {
      const key = this.#waiting.next();
      if (key === undefined) return;
      this.#letIn(key);
    }
  }

  #letIn(key: string): void {
    this.#journal.about(key);
    for (const claim of this.#waiting.take(key)) {
      parsePrefix(key, this.#key);
      const free = this.#state.table.find(this.#key) < 0;
      this.#state.put(this.#key, claim, this.#state.rows.hosts.resolve(claim.hostIP));
      if (free) this.#journal.ownerChanged(this.#key, undefined, claim);
    }
  }

  #delete(key: string, by: DeleteOptions): DeleteOutcome {
    const fault = this.#writerFault(by, key);
    if (fault !== undefined) return this.#reject(fault);
    const outcome = this.#state.remove(this.#key, by);
    if (outcome !== 'not-found' || this.#waiting.size === 0) return outcome;
    return this.#waiting.remove(formatKey(this.#key), by) ? 'applied' : outcome;
  }

  /** A writer with effective claims was checked when it wrote the first one. */
  #writerFault(writer: Writer, key: string): Rejection | undefined {
    const known = typeof writer === 'object' && writer !== null && this.#state.rows.writers.find(writer) >= 0;
    return known ? undefined : writerFault(writer, key);
  }

  #reject(rejection: Rejection): 'invalid' {
    this.#rejections.add(rejection);
    return 'invalid';
  }

  /** Delivers what has been journalled, unless a batch goes on. */
  #publish(): void {
    if (this.#journal.inBatch) return;
    if (this.#journal.takeUnheard()) this.#hub.passOver();
    const changes = this.#journal.takeChanges();
    const ownerChanges = this.#journal.takeOwnerChanges();
    const namedPortsChanged = this.#namedPorts?.takeChanged() === true;
    if (changes.length > 0 || ownerChanges.length > 0 || namedPortsChanged) {
      this.#hub.publish(changes, ownerChanges, namedPortsChanged);
    }
  }

  *#visibleEntries(): Generator<readonly IPCacheChange[], void, void> {
    const { table, rows } = this.#state;
    const key = prefixRegister();
    let chunk: IPCacheChange[] = [];
    for (const slot of table.slots()) {
      if (rows.has(slot, FLAG.shadowed)) continue;
      table.keyOf(slot, key);
      chunk.push(prefixChange(key, undefined, rows.entry(slot)));
      if (chunk.length < this.#replayChunk) continue;
      yield chunk;
      chunk = [];
    }
    if (chunk.length > 0) yield chunk;
  }

  #trackedNamedPorts(): NamedPortIndex {
    if (this.#namedPorts === undefined) {
      this.#namedPorts = this.#state.track(new NamedPortIndex());
      this.#namedPorts.takeChanged();
    }
    return this.#namedPorts;
  }

  #explainSlot(slot: number): readonly ExplainedClaim[] {
    const effective = this.entryAt(slot);
    const { key, shadowed } = effective;
    const overruled = this.#state.overruled.of(slot);
    return [
      { ...effective, effective: true },
      ...overruled.map((claim) => ({ ...claim, key, shadowed, effective: false })),
    ];
  }
}

checkArguments(IPCache, {
  upsertMany: { keys: LIST, claims: LIST },
  deleteMany: { keys: LIST },
  batch: { write: FUNCTION },
  onNamedPortsChange: { listener: FUNCTION },
  subscribe: { listener: objectWith({ onChanges: FUNCTION }) },
  subscribeOwners: { listener: objectWith({ onOwnerChanges: FUNCTION }) },
  changes: { options: optional(objectWith({ signal: optional(SIGNAL) })) },
});

function familyCounts(table: PrefixTable, family: Family): FamilyCounts {
  const bits = addressBits(family);
  const cidrs: Record<string, number> = {};
  for (let length = 0; length <= bits; length++) {
    const count = table.countOf(family, length, 'cidr');
    if (count > 0) cidrs[length] = count;
  }
  return { endpoints: table.countOf(family, bits, 'endpoint'), cidrs };
}
