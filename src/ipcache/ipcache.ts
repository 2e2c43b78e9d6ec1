import {
  atLeast,
  BOOLEAN,
  type Check,
  checkArgument,
  checkArguments,
  FUNCTION,
  NUMBER,
  OBJECT,
  objectWith,
  optional,
  optionsWith,
  requireAllowed,
  requireArgument,
  SIGNAL,
  TEXT,
} from '../base/arguments.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Rejection, RejectionLog } from '../base/rejection.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import type { PrefixTable } from '../lpm/prefix-table.ts';
import { addressBits, type Family, maskWords } from '../net/address-words.ts';
import { formatKey, formatPrefixOf, type PrefixRegister, parseKey, prefixRegister } from '../net/prefix.ts';
import { CacheReads } from './cache-reads.ts';
import { prefixChange } from './change.ts';
import { ChangeHub, type ReadOptions } from './change-hub.ts';
import { ChangeJournal, type EntryMirror } from './change-journal.ts';
import type { ChangeBatch } from './change-reader.ts';
import { ChangedRows, type ClaimTracker } from './claims/changed-rows.ts';
import {
  claimRejection,
  hostRejection,
  ifPodRejection,
  keyRejection,
  writerRejection,
} from './claims/claim-rejection.ts';
import { type ClaimObserver, ClaimState } from './claims/claim-state.ts';
import { type WaitingClaim, WaitingClaims } from './claims/waiting-claims.ts';
import { decidingRule } from './deciding-rule.ts';
import { HostIndex } from './entry-indexes.ts';
import { NamedPortIndex, type NamedPortSets } from './named-port-index.ts';
import { OutcomeCounts } from './outcome-counts.ts';
import { PodIndex } from './pod-index.ts';
import { type CompleteClaim, FLAG } from './row-reader.ts';
import { IPCacheSnapshot } from './snapshot.ts';
import type { FamilyCounts, IPCacheOptions, IPCacheStatus } from './status.ts';
import type {
  Claim,
  ClaimWriter,
  DeleteOutcome,
  ExplainedClaim,
  Explanation,
  IPCacheChange,
  IPCacheListener,
  K8sMetadata,
  OwnerListener,
  PrefixDeleteOptions,
  UpsertOutcome,
  Writer,
} from './types.ts';

/** Maximum entries in one replay call to a listener. */
const REPLAY_CHUNK = 1024;

/** Number of claims that one step of a withdrawal deletes. A step takes about 1 ms. */
const CLAIMS_PER_STEP = 512;

/** Maximum number of rows that one step of {@link IPCache.keysOfWriters} scans. A step takes about 0.5 ms. */
const ROWS_PER_STEP = 16_384;

/** Maximum number of keys in one step of {@link IPCache.keysOfWriters}. */
const KEYS_PER_STEP = 256;

/** The default of `maxWaiting` is `maxEntries`, but at least this number. */
const MIN_WAITING_LIMIT = 65_536;

const NO_CLAIMS: readonly CompleteClaim[] = [];

/** The claims on the two keys of a prefix, each strongest first. If `endpoint` has claims, they shadow `cidr`. */
export interface PrefixClaims {
  /** Canonical CIDR text. */
  readonly prefix: string;
  /** The claims on the endpoint IP. */
  readonly endpoint: readonly CompleteClaim[];
  readonly cidr: readonly CompleteClaim[];
}

/**
 * Maps IPs and prefixes to their identity, host, encryption key and pod.
 *
 * Every write is a *claim* by a writer: a source, and an owner if the source has several writers. The effective entry
 * of a key is its strongest claim (SEMANTICS 2.2). An endpoint IP shadows the equal full-length CIDR. Overruled claims
 * are kept, and promoted if the stronger one is deleted. If `retainOverruled` is false, each key has one claim, and
 * overruled or overwritten claims are dropped.
 *
 * The cache is synchronous and single-threaded. When a write returns, reads show it and listeners have received it. If
 * the write is part of a batch or of a callback, listeners receive it after the batch or callback. Writes and exact
 * lookups cost O(1). A longest match costs a few probes, for IPv6 at most one for each eight bits, however many entries
 * the cache has. Nothing here does I/O.
 */
export class IPCache extends CacheReads {
  readonly #journal: ChangeJournal;
  readonly #state: ClaimState;
  readonly #waiting: WaitingClaims;
  readonly #maxEntries: number;
  readonly #replayChunk: number;
  readonly #guard: CallbackGuard;
  readonly #hub: ChangeHub;
  readonly #rejections: RejectionLog;
  readonly #outcomes = new OutcomeCounts();
  readonly #hashSeed: number | undefined;
  /** The key of the current call. Listeners may overwrite it, so it is not read after they were called. */
  readonly #key: PrefixRegister = prefixRegister();
  #namedPorts: NamedPortIndex | undefined;
  #pods: PodIndex | undefined;
  #hosts: HostIndex | undefined;

  constructor(options: IPCacheOptions = {}) {
    checkArgument('new IPCache: options', options, OPTIONS);
    const { retainOverruled = true, maxEntries = Number.POSITIVE_INFINITY, hashSeed } = options;
    const { maxWaiting = Math.max(maxEntries, MIN_WAITING_LIMIT), replayChunk = REPLAY_CHUNK } = options;
    const journal = new ChangeJournal();
    const state = new ClaimState(journal, { retainOverruled, maxEntries, hashSeed });
    super(state.table, state.rows);
    this.#journal = journal;
    this.#state = state;
    this.#maxEntries = maxEntries;
    this.#hashSeed = hashSeed;
    this.#replayChunk = replayChunk;
    this.#waiting = new WaitingClaims(maxWaiting);
    this.#guard = new CallbackGuard(options.onListenerFault);
    this.#rejections = new RejectionLog(options.onReject, this.#guard);
    this.#hub = new ChangeHub(this.#guard);
  }

  /**
   * Sets the writer's claim on `key` (an IP or a CIDR in any spelling). It replaces an earlier claim of the same
   * writer. The cache keeps the object `claim.k8s`; the caller must not change it afterwards. See
   * {@link UpsertOutcome}.
   */
  upsert(key: string, claim: Claim): UpsertOutcome {
    const isKey = parseKey(key, this.#key);
    this.#beginWrite(key);
    const outcome = isKey ? this.#upsert(key, claim) : this.#reject(keyRejection(key));
    this.#outcomes.count(outcome);
    this.#publish();
    return outcome;
  }

  /**
   * Deletes the writer's claim on `key`, and no other. If it was effective, the strongest remaining claim becomes
   * effective. See {@link DeleteOutcome}.
   */
  delete(key: string, by: PrefixDeleteOptions): DeleteOutcome {
    const isKey = parseKey(key, this.#key);
    this.#beginWrite(key);
    const outcome = isKey ? this.#delete(key, by) : this.#reject(keyRejection(key));
    if (!this.#journal.inBatch) this.#admit();
    this.#outcomes.count(outcome === 'applied' ? 'deleted' : outcome);
    this.#publish();
    return outcome;
  }

  /**
   * Deletes every claim of a writer as one batch (I10) and returns their number. Cost: about 2 µs a claim (half a
   * second for 300,000) and a scan of the pages of 1,024 entries in which the writer may have claims.
   * {@link IPCache.withdrawSteps} does not block the event loop.
   */
  withdraw(by: Writer): number {
    return this.batch(() => {
      let withdrawn = 0;
      for (const step of this.withdrawSteps(by, Number.POSITIVE_INFINITY)) withdrawn += step;
      return withdrawn;
    });
  }

  /**
   * Does the work of {@link IPCache.withdraw} in steps. Each step is a batch that deletes at most `limit` claims and
   * yields their number. A step scans at most about 128 × `limit` entries, so it may yield 0. `TurnGate.runSteps`
   * spreads the steps over turns of the event loop; its `slice` is a suitable limit.
   *
   * The cache is consistent after each step, and may be read and written between steps. The generator ends when the
   * writer has no claims, so claims that it adds between steps are deleted, too. If the caller stops early, the
   * remaining claims stay.
   */
  *withdrawSteps(by: Writer, limit: number = CLAIMS_PER_STEP): Generator<number, void, void> {
    const fault = writerRejection(by, 'withdraw');
    if (fault !== undefined) {
      this.#outcomes.count(this.#reject(fault));
      return;
    }
    requireArgument(limit >= 1, `withdrawSteps: limit must be at least 1, not ${limit}`);
    let from = 0;
    while (this.#waiting.holds(by) || this.#state.holds(by)) {
      const withdrawn = this.batch(() => {
        const waited = this.#waiting.withdraw(by, limit);
        const { withdrawn: stored, next } = this.#state.withdraw(by, this.#key, limit - waited, from);
        from = next;
        return waited + stored;
      });
      this.#outcomes.count('deleted', withdrawn);
      yield withdrawn;
    }
  }

  /**
   * Runs `write` and returns its result. When `write` returns, listeners receive the net effect of all its writes, each
   * prefix once (I8). If `write` throws, all its writes are rolled back, nothing is delivered, and the error is
   * rethrown. Batches may be nested: listeners are called after the outermost one, and an inner batch that throws rolls
   * back its own writes only. Reads inside a batch see its writes so far. `write` must be synchronous.
   */
  batch<T>(write: () => T): T {
    this.#hub.beforeChange();
    this.#journal.setKeyText('');
    const nested = this.#journal.inBatch;
    const result = this.#waiting.batch(() =>
      this.#journal.batch(
        () => {
          const written = write();
          if (!nested) this.#admit();
          return written;
        },
        (key, image) => this.#state.restore(key, image),
      ),
    );
    if (!nested) this.#publish();
    return result;
  }

  /** Returns the pod of exactly this IP. */
  getK8sMetadata(ip: string): K8sMetadata | undefined {
    return this.get(ip)?.k8s;
  }

  /**
   * Returns the canonical keys of the entries of a pod, unordered, shadowed ones included. The first call builds an
   * index: about 1 µs an entry, so call it while the cache is empty. The index takes about 32 bytes a pod. Later calls
   * are linear in their result.
   */
  lookupByPod(namespace: string, podName: string): readonly string[] {
    return Array.from(this.#trackedPods().of(namespace, podName), (slot) => this.keyAt(slot));
  }

  /** Yields the namespaces with entries of pods, unordered. Costs the same as {@link IPCache.lookupByPod}. */
  namespaces(): Iterable<string> {
    return this.#trackedPods().namespaces();
  }

  /**
   * Yields the names of the pods of a namespace, unordered, at most `limit` (default: all). The first call costs the
   * same as that of {@link IPCache.lookupByPod}. If the cache is written during the iteration, a pod that exists all
   * the time is yielded once.
   */
  podsOf(namespace: string, limit?: number): Iterable<string> {
    return this.#trackedPods().podsOf(namespace, limit);
  }

  /**
   * Returns the canonical keys of the entries on a host (an IP in any spelling), unordered, shadowed ones included.
   * Costs are those of {@link IPCache.lookupByPod}, with 8 bytes an entry.
   */
  lookupByHost(hostIP: string): readonly string[] {
    this.#hosts ??= this.#state.track(new HostIndex());
    return Array.from(this.#hosts.of(hostIP), (slot) => this.keyAt(slot));
  }

  /** Returns all claims on the prefix of `key`, strongest first, and the deciding rule; `undefined` if invalid. */
  explain(key: string): Explanation | undefined {
    if (!parseKey(key, this.#key)) return undefined;
    const prefix = formatPrefixOf('', this.#key);
    const keySlot = this.#state.table.find(this.#key);
    const counterpart = this.#state.counterpart(this.#key);
    const claims = (this.#key.form === 'endpoint' ? [keySlot, counterpart] : [counterpart, keySlot])
      .filter((slot) => slot >= 0)
      .flatMap((slot) => this.#explainSlot(slot));
    return { prefix, claims, decidedBy: decidingRule(claims) };
  }

  /** Returns the claims on exactly this key, the effective one first; none if the key is free or invalid. */
  claimsOf(key: string): readonly CompleteClaim[] {
    if (!parseKey(key, this.#key)) return [];
    return this.#claimsAt(this.#state.table.find(this.#key));
  }

  /** Returns the claims on both keys of the prefix of `key`; `undefined` if `key` is invalid. */
  claimsOfPrefix(key: string): PrefixClaims | undefined {
    if (!parseKey(key, this.#key)) return undefined;
    const prefix = formatPrefixOf(key, this.#key);
    const claims = this.#claimsAt(this.#state.table.find(this.#key));
    const counterpart = this.#claimsAt(this.#state.counterpart(this.#key));
    return this.#key.form === 'endpoint'
      ? { prefix, endpoint: claims, cidr: counterpart }
      : { prefix, endpoint: counterpart, cidr: claims };
  }

  /**
   * Yields the claims of each key which currently has several, strongest first; keys unordered. Claims may change
   * during the iteration. Cost: linear in these keys, which are few.
   */
  *contested(): Generator<readonly ExplainedClaim[], void, void> {
    for (const slot of this.#state.overruled.slots()) yield this.#explainSlot(slot);
  }

  /**
   * Yields the claims on the shorter prefixes that contain `key`, the longest prefix first. A prefix without claims is
   * yielded only if its length is in `lengths`. The cache must not be written during the iteration.
   * @internal
   */
  *claimsOfCovering(key: string, lengths: ReadonlySet<number>): Generator<PrefixClaims, void, void> {
    const around = prefixRegister();
    if (!parseKey(key, around)) return;
    around.form = 'cidr';
    while (around.length > 0) {
      around.length--;
      maskWords(around, around.length);
      const slot = this.#state.table.find(around);
      if (slot >= 0 || lengths.has(around.length))
        yield { prefix: formatPrefixOf('', around), endpoint: NO_CLAIMS, cidr: this.#claimsAt(slot) };
    }
  }

  /** Returns the writers with at least one claim, effective or overruled, unordered. */
  writers(): readonly ClaimWriter[] {
    return this.#state.writers();
  }

  /**
   * Yields the canonical keys with a claim of a wanted writer, effective or overruled, unordered, in steps of about 1
   * ms; a step may be empty. Claims may change between steps. A key that has such a claim during the whole iteration is
   * yielded once, even if the claim becomes overruled or effective in the meantime.
   */
  *keysOfWriters(isWanted: (writer: ClaimWriter) => boolean): Generator<readonly string[], void, void> {
    const { table, rows, overruled } = this.#state;
    const isWantedID = rows.writers.testByID(isWanted);
    const hasWanted = (slot: number): boolean => {
      if (!rows.isUsed(slot)) return false;
      if (isWantedID(rows.writerID(slot))) return true;
      return rows.hasFlag(slot, FLAG.contested) && overruled.list(slot).some(isWanted);
    };
    for (let from = 0; from < table.slotLimit; ) {
      const keys: string[] = [];
      const end = Math.min(table.slotLimit, from + ROWS_PER_STEP);
      for (; from < end && keys.length < KEYS_PER_STEP; from++)
        if (hasWanted(from)) keys.push(this.keyAt(from));
      yield keys;
    }
  }

  /**
   * Calls `observer` for every later change of a claim, effective or not, synchronously and before the listeners are
   * called. Changes of a batch are reported when it is complete, and not at all if it throws (I8). Without observers,
   * writes cost one comparison more. See {@link ClaimObserver}.
   */
  observeClaims(observer: ClaimObserver): Unsubscribe {
    this.#journal.addObserver(observer);
    return unsubscribeOnce(() => this.#journal.removeObserver(observer));
  }

  /**
   * Returns a reader of the keys whose claims change from now on, effective or not. All current keys count as changed.
   * Each change of a claim costs a few ns, and the reader has one bit for each key.
   */
  trackClaims(): ClaimTracker {
    const { table, rows, overruled } = this.#state;
    const changed = new ChangedRows(table.slotLimit);
    this.#state.changedSlots = [...this.#state.changedSlots, changed];
    const key = prefixRegister();
    const readRow: ClaimTracker['readRow'] = (slot, receive) => {
      if (!rows.isUsed(slot)) return receive(slot, key, undefined, NO_CLAIMS);
      table.keyOf(slot, key);
      receive(slot, key, rows.claim(slot), overruled.list(slot));
    };
    return {
      read: (limit, receive) => changed.take(limit, (slot) => readRow(slot, receive)),
      readRow,
      mark: (row) => changed.add(row),
      stop: () => {
        this.#state.changedSlots = this.#state.changedSlots.filter((other) => other !== changed);
      },
    };
  }

  /** Number of writes and batches that changed visible entries. */
  get revision(): number {
    return this.#hub.revision;
  }

  /**
   * Returns the named ports of all entries, shadowed ones included. The first call scans all entries and starts the
   * tracking of later changes.
   */
  namedPorts(): NamedPortSets {
    return this.#trackedNamedPorts().sets();
  }

  /**
   * Calls `listener` after {@link IPCache.namedPorts} changed, once per write or batch. If it was never called, costs
   * the same as its first call.
   */
  onNamedPortsChange(listener: () => void): Unsubscribe {
    this.#trackedNamedPorts();
    return this.#hub.onNamedPortsChange(listener);
  }

  /**
   * Subscribes a listener. It receives the visible entries, then `onSynced`, then every change, without gaps or
   * duplicates. If called within a callback, the replay follows the current delivery ({@link IPCacheListener}). Cost:
   * one pass over the entries in chunks of 1,024, about 0.12 s for 1,000,000; {@link IPCache.changes} returns a
   * snapshot, which can be read in steps. If a callback writes during the replay, the remaining entries are first
   * copied, so that the replay is the state at its start. Must not be called within a batch.
   *
   * @param options if `replay` is false, the listener receives only later changes and `onSynced` is not called
   */
  subscribe(
    listener: IPCacheListener,
    { replay = true }: { readonly replay?: boolean | undefined } = {},
  ): Unsubscribe {
    requireAllowed(!this.#journal.inBatch, 'subscribe must not be called inside a batch');
    return this.#hub.subscribe(listener, replay ? () => this.#visibleEntries() : undefined);
  }

  /**
   * Sets all visible entries in a mirror, and every later change until the subscription ends. Without mirrors, writes
   * cost one comparison more. Must not be called within a batch. See {@link EntryMirror}.
   */
  mirror(mirror: EntryMirror): Unsubscribe {
    requireAllowed(!this.#journal.inBatch, 'mirror must not be called inside a batch');
    const { table, rows } = this.#state;
    const key = prefixRegister();
    for (const slot of table.slots()) {
      if (rows.hasFlag(slot, FLAG.shadowed)) continue;
      table.keyOf(slot, key);
      mirror.set(key, undefined, rows.entry(slot));
    }
    mirror.publish(this.#hub.revision);
    this.#journal.addMirror(mirror);
    return unsubscribeOnce(() => this.#journal.removeMirror(mirror));
  }

  /** Notifies the listener of future owner changes of contested keys. See {@link OwnerListener}. */
  subscribeOwners(listener: OwnerListener): Unsubscribe {
    return this.#hub.subscribeOwners(listener);
  }

  /**
   * Returns changes for a slow consumer, such as the edge of a process, in batches that contain each prefix once with
   * its latest state. If `from`, the last revision that the consumer knows, is recent enough, the reader resumes from
   * there. If not, or if the consumer falls too far behind, it receives a `resync` with the whole state. The iteration
   * ends if `signal` aborts or the consumer stops. Revisions of different caches are unrelated.
   */
  changes(options: ReadOptions = {}): AsyncIterableIterator<ChangeBatch> {
    requireAllowed(!this.#journal.inBatch, 'changes must not be called inside a batch');
    return this.#hub.read(options, () => this.snapshot());
  }

  /**
   * Returns an immutable view of the current entries. Cost: a few words for every 1,024 entries;
   * {@link IPCacheSnapshot} describes the cost of later writes. Must not be called within a batch.
   */
  snapshot(): IPCacheSnapshot {
    requireAllowed(!this.#journal.inBatch, 'snapshot must not be called inside a batch');
    return new IPCacheSnapshot(this.table.fork(), this.rows.fork(), this.#hub.revision);
  }

  /** Yields the waiting claims in the order of admission. The cache must not be written during the iteration. */
  waiting(): Generator<WaitingClaim, void, void> {
    return this.#waiting.list();
  }

  /** Returns counts and rejections as plain data. Cost: a few µs for any number of entries. */
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

  #beginWrite(key: string): void {
    this.#hub.beforeChange();
    this.#journal.setKeyText(key);
    // A write that admits a waiting claim changes its key twice, so its changes must be recorded.
    this.#journal.setAudience(this.#hub.hasAudience || this.#waiting.size > 0);
  }

  /** Sets the claim on the key in the register. */
  #upsert(key: string, claim: Claim): UpsertOutcome {
    const fault = claimRejection(claim, key) ?? this.#checkWriter(claim, key);
    if (fault !== undefined) return this.#reject(fault);
    const host = this.#state.rows.hosts.resolve(claim.hostIP);
    if (host < 0) return this.#reject(hostRejection(claim.hostIP, key));
    const outcome = this.#state.put(this.#key, claim, host);
    if (outcome === 'capacity')
      this.#waiting.put(formatKey(this.#key), this.#state.rows.toCompleteClaim(claim, host));
    else if (this.#waiting.size > 0) {
      // Now that the key is stored, the claims of other writers that wait for it need no room.
      const stored = formatKey(this.#key);
      this.#waiting.remove(stored, claim);
      this.#admitKey(stored);
    }
    return outcome;
  }

  /**
   * Admits waiting claims while there is room. Called after a whole batch, because its next write may need the room.
   */
  #admit(): void {
    while (this.#waiting.size > 0 && this.#state.table.size < this.#maxEntries) {
      const key = this.#waiting.next();
      if (key === undefined) return;
      this.#admitKey(key);
    }
  }

  /** Stores all claims that wait for a key. The key has a claim already, or there is room for it. */
  #admitKey(key: string): void {
    this.#journal.setKeyText(key);
    for (const claim of this.#waiting.removeAll(key)) {
      parseKey(key, this.#key);
      const isFirstClaim = this.#state.table.find(this.#key) < 0;
      this.#state.put(this.#key, claim, this.#state.rows.hosts.resolve(claim.hostIP));
      if (isFirstClaim) this.#journal.ownerChanged(this.#key, undefined, claim);
    }
  }

  /** Deletes the claim on the key in the register. */
  #delete(key: string, by: PrefixDeleteOptions): DeleteOutcome {
    const fault = this.#checkWriter(by, key) ?? ifPodRejection(by.ifPod, key);
    if (fault !== undefined) return this.#reject(fault);
    const outcome = this.#state.remove(this.#key, by);
    if (outcome !== 'not-found' || this.#waiting.size === 0) return outcome;
    return this.#waiting.remove(formatKey(this.#key), by) ? 'applied' : outcome;
  }

  /** Returns the rejection of a writer. One with effective claims was checked at its first write. */
  #checkWriter(writer: Writer, key: string): Rejection | undefined {
    const known = typeof writer === 'object' && writer !== null && this.#state.rows.writers.find(writer) >= 0;
    return known ? undefined : writerRejection(writer, key);
  }

  #reject(rejection: Rejection): 'invalid' {
    this.#rejections.add(rejection);
    return 'invalid';
  }

  /** Delivers the journalled changes, unless a batch is open. */
  #publish(): void {
    if (this.#journal.inBatch) return;
    if (this.#journal.takeSkipped()) this.#hub.skipRevision(); // a change without receivers was not recorded
    const changes = this.#journal.takeChanges();
    this.#journal.publishToMirrors(this.#hub.revision + (changes.length > 0 ? 1 : 0));
    const ownerChanges = this.#journal.takeOwnerChanges();
    const namedPortsChanged = this.#namedPorts?.takeChanged() === true;
    if (changes.length > 0 || ownerChanges.length > 0 || namedPortsChanged) {
      this.#hub.publish(changes, ownerChanges, namedPortsChanged);
    }
  }

  #claimsAt(slot: number): readonly CompleteClaim[] {
    if (slot < 0) return NO_CLAIMS;
    const others = this.#state.overruled.list(slot);
    return others.length === 0 ? [this.rows.claim(slot)] : [this.rows.claim(slot), ...others];
  }

  *#visibleEntries(): Generator<readonly IPCacheChange[], void, void> {
    const { table, rows } = this.#state;
    const key = prefixRegister();
    let chunk: IPCacheChange[] = [];
    for (const slot of table.slots()) {
      if (rows.hasFlag(slot, FLAG.shadowed)) continue;
      table.keyOf(slot, key);
      chunk.push(prefixChange(key, undefined, rows.entry(slot)));
      if (chunk.length < this.#replayChunk) continue;
      yield chunk;
      chunk = [];
    }
    if (chunk.length > 0) yield chunk;
  }

  /** Returns the index of pods, which the first call builds. */
  #trackedPods(): PodIndex {
    const { rows } = this.#state;
    this.#pods ??= this.#state.track(new PodIndex((slot) => rows.k8s(slot), this.#hashSeed));
    return this.#pods;
  }

  #trackedNamedPorts(): NamedPortIndex {
    if (this.#namedPorts === undefined) {
      this.#namedPorts = this.#state.track(new NamedPortIndex());
      this.#namedPorts.takeChanged(); // the ports of the existing entries are no change
    }
    return this.#namedPorts;
  }

  #explainSlot(slot: number): readonly ExplainedClaim[] {
    const effective = this.entryAt(slot);
    const { key, shadowed } = effective;
    const overruled = this.#state.overruled.list(slot);
    return [
      { effective: true, ...effective },
      ...overruled.map((claim) => ({ key, shadowed, effective: false, ...claim })),
    ];
  }
}

const OPTIONS: Check = optionsWith({
  retainOverruled: optional(BOOLEAN),
  maxEntries: optional(atLeast(0)),
  maxWaiting: optional(atLeast(0)),
  hashSeed: optional(NUMBER),
  replayChunk: optional(atLeast(1)),
});

checkArguments(IPCache, {
  batch: { write: FUNCTION },
  observeClaims: { observer: FUNCTION },
  keysOfWriters: { isWanted: FUNCTION },
  lookupByPod: { namespace: TEXT, podName: TEXT },
  onNamedPortsChange: { listener: FUNCTION },
  mirror: { mirror: objectWith({ set: FUNCTION, publish: FUNCTION }) },
  subscribe: { listener: objectWith({ onChanges: FUNCTION }), options: optional(OBJECT) },
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
