import { assert } from '../base/assert.ts';
import { DeliveryQueue } from '../base/delivery-queue.ts';
import { ListenerSet } from '../base/listener-set.ts';
import { type Rejection, RejectionLog } from '../base/rejection.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { formatPrefix } from '../net/format-address.ts';
import { HashPrefixTable } from '../net/hash-prefix-table.ts';
import { formatKey, type PrefixRegister, parsePrefix, prefixRegister } from '../net/prefix.ts';
import type { PrefixTable } from '../net/prefix-table.ts';
import { PrefixChange } from './change.ts';
import { ChangeJournal } from './change-journal.ts';
import { claimFault, hostFault, keyFault, writerFault } from './claim-intake.ts';
import { ClaimState } from './claim-state.ts';
import { FLAG } from './entry-rows.ts';
import { decidingRule } from './explain.ts';
import { NamedPortIndex, type NamedPortSets } from './named-port-index.ts';
import { OutcomeCounts } from './outcome-counts.ts';
import { IPCacheSnapshot } from './snapshot.ts';
import type { IPCacheOptions, IPCacheStatus } from './status.ts';
import type {
  Claim,
  DeleteOptions,
  DeleteOutcome,
  ExplainedClaim,
  Explanation,
  IPCacheListener,
  K8sMetadata,
  KeyedEntry,
  OwnerChange,
  OwnerListener,
  UpsertOutcome,
  Writer,
} from './types.ts';

/** How many entries a replay hands to a new listener at a time. */
const REPLAY_CHUNK = 1024;

/**
 * What is where: which identity, host, encryption key and pod stand behind an IP or prefix.
 *
 * Every write is a *claim* by a writer (a source and, where there are several of a kind, an owner). The
 * effective entry of a key is its strongest claim (SEMANTICS 2.2); an endpoint IP shadows the equal full-length
 * CIDR. Overruled claims are kept and come into force when the stronger one goes, unless `retainOverruled` is
 * false: then there is one claim a key, and what is overruled or overwritten is forgotten.
 *
 * Synchronous and single-threaded: when a write returns, reads show it and listeners have been told, except
 * within a batch and within a listener's own call, where telling waits for the end of it. Writes cost O(1),
 * lookups O(prefix lengths in use); none depends on the number of entries. Nothing here does I/O.
 */
export class IPCache {
  readonly #journal: ChangeJournal = new ChangeJournal();
  readonly #state: ClaimState;
  readonly #maxEntries: number;
  readonly #listeners: ListenerSet<IPCacheListener>;
  readonly #ownerListeners: ListenerSet<OwnerListener>;
  readonly #namedPortsListeners: ListenerSet<{ changed(): void }>;
  readonly #deliveries = new DeliveryQueue();
  readonly #rejections: RejectionLog;
  readonly #outcomes = new OutcomeCounts();
  /** The key of the call under way. No call yields, and what listeners do comes after its last use. */
  readonly #key: PrefixRegister = prefixRegister();
  #namedPorts: NamedPortIndex | undefined;
  #replaying = false;
  #listenerFaults = 0;
  #revision = 0;

  constructor(options: IPCacheOptions = {}) {
    this.#maxEntries = options.maxEntries ?? Number.POSITIVE_INFINITY;
    const newTable = (): PrefixTable => new HashPrefixTable(options.hashSeed);
    this.#state = new ClaimState(newTable, this.#journal, {
      retainOverruled: options.retainOverruled ?? true,
      maxEntries: this.#maxEntries,
    });
    this.#journal.attach(this.#state);
    this.#rejections = new RejectionLog(options.onReject);
    const onFault = (error: unknown): void => {
      this.#listenerFaults++;
      options.onListenerFault?.(error);
    };
    this.#listeners = new ListenerSet(onFault);
    this.#ownerListeners = new ListenerSet(onFault);
    this.#namedPortsListeners = new ListenerSet(onFault);
  }

  /**
   * Claims `key` (an IP or a CIDR, any spelling) for the claim's writer, instead of that writer's earlier claim
   * on it. The cache keeps `claim.k8s` itself: do not change it afterwards. See {@link UpsertOutcome}.
   */
  upsert(key: string, claim: Claim): UpsertOutcome {
    this.#assertWritable();
    const outcome = this.#upsert(key, claim);
    this.#outcomes.count(outcome);
    this.#tell();
    return outcome;
  }

  /**
   * Withdraws the writer's claim on `key`, and no other; the next claim, if there is one, comes into force.
   * See {@link DeleteOutcome}.
   */
  delete(key: string, by: DeleteOptions): DeleteOutcome {
    this.#assertWritable();
    const outcome = this.#delete(key, by);
    this.#outcomes.count(outcome === 'applied' ? 'deleted' : outcome);
    this.#tell();
    return outcome;
  }

  /**
   * Withdraws every claim of a writer as one batch (I10) and says how many there were. Cost: one pass over the
   * entries, ended early when the last claim of the writer is found.
   */
  withdraw(by: Writer): number {
    const fault = writerFault(by, 'withdraw');
    if (fault !== undefined) {
      this.#outcomes.count(this.#reject(fault));
      return 0;
    }
    const withdrawn = this.batch(() => this.#state.withdraw(by, this.#key));
    this.#outcomes.count('deleted', withdrawn);
    return withdrawn;
  }

  /**
   * Runs `write` and tells listeners the net effect of all its writes, once for each prefix, when it is through
   * (I8). When `write` throws, everything that it wrote is taken back, nothing is told, and the error goes on to
   * the caller. Batches nest: the outermost one counts, and an inner one that throws takes back only its own
   * part. Reads inside see what was written so far. `write` must be synchronous.
   */
  batch<T>(write: () => T): T {
    this.#assertWritable();
    const nested = this.#journal.inBatch;
    const result = this.#journal.batch(write);
    if (!nested) this.#tell(true);
    return result;
  }

  /** The effective entry of exactly this key, shadowed or not. */
  get(key: string): KeyedEntry | undefined {
    return parsePrefix(key, this.#key) ? this.#entryAt(this.#state.table.find(this.#key)) : undefined;
  }

  /** The entry with the longest prefix that contains `ip` (I6). A CIDR is no IP: `undefined`. */
  lookup(ip: string): KeyedEntry | undefined {
    if (!parsePrefix(ip, this.#key) || this.#key.form !== 'endpoint') return undefined;
    return this.#entryAt(this.#state.table.longestMatch(this.#key));
  }

  /** As {@link IPCache.get}, but a full-length CIDR finds the endpoint IP first (SEMANTICS 2.4). */
  lookupByPrefix(prefix: string): KeyedEntry | undefined {
    if (!parsePrefix(prefix, this.#key)) return undefined;
    const endpoint = this.#key.form === 'cidr' ? this.#state.twin(this.#key) : -1;
    return this.#entryAt(endpoint >= 0 ? endpoint : this.#state.table.find(this.#key));
  }

  /** Canonical keys of every entry with this identity, shadowed ones included (I5), in no order that is promised. */
  lookupByIdentity(identity: number): readonly string[] {
    return Array.from(this.#state.rows.slotsOfIdentity(identity), (slot) => this.#keyAt(slot));
  }

  /** The pod behind exactly this IP. */
  getK8sMetadata(ip: string): K8sMetadata | undefined {
    return this.get(ip)?.k8s;
  }

  /**
   * The visible entries, with `includeShadowed` all of them. Entries may change meanwhile: one that is there all
   * the time comes once.
   */
  *entries(options: { readonly includeShadowed?: boolean } = {}): Generator<KeyedEntry, void, void> {
    for (const slot of this.#state.table.slots()) {
      if (options.includeShadowed || !this.#state.rows.has(slot, FLAG.shadowed)) yield this.#keyedEntry(slot);
    }
  }

  /** Every claim on the prefix of `key`, strongest first, and why the first one won; `undefined` for no prefix. */
  explain(key: string): Explanation | undefined {
    if (!parsePrefix(key, this.#key)) return undefined;
    const prefix = formatPrefix(this.#key, this.#key.length);
    const own = this.#state.table.find(this.#key);
    const twin = this.#state.twin(this.#key);
    const claims = (this.#key.form === 'endpoint' ? [own, twin] : [twin, own])
      .filter((slot) => slot >= 0)
      .flatMap((slot) => this.#explainSlot(slot));
    return { prefix, claims, decidedBy: decidingRule(claims) };
  }

  /** Keys that are held, shadowed ones included. */
  get size(): number {
    return this.#state.table.size;
  }

  /** Goes up by one with every write or batch that changes what is visible. */
  get revision(): number {
    return this.#revision;
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
    return this.#namedPortsListeners.add({ changed: listener });
  }

  /**
   * Replays the visible entries to the listener, tells it `onSynced`, then every change from here on: nothing is
   * lost or doubled in between. The listener must not write while the replay lasts. Not within a batch.
   */
  subscribe(listener: IPCacheListener): Unsubscribe {
    assert(!this.#journal.inBatch, 'subscribe: not within a batch');
    this.#replay(listener);
    return this.#listeners.add(listener);
  }

  /** Tells when contested keys change hands, from here on; see {@link OwnerListener}. */
  subscribeOwners(listener: OwnerListener): Unsubscribe {
    return this.#ownerListeners.add(listener);
  }

  /** An immutable view of all entries as they are now. Not within a batch. */
  snapshot(): IPCacheSnapshot {
    assert(!this.#journal.inBatch, 'snapshot: not within a batch');
    return new IPCacheSnapshot(this.#revision, this.entries({ includeShadowed: true }));
  }

  /** Counts and refused input, as plain data. */
  status(): IPCacheStatus {
    return {
      entries: this.size,
      shadowed: this.#state.shadowed,
      overruledClaims: this.#state.rivals.count,
      maxEntries: this.#maxEntries,
      entriesBySource: this.#state.rows.writers.entriesBySource(),
      outcomes: this.#outcomes.snapshot(),
      rejections: this.#rejections.status(),
      listeners: this.#listeners.size,
      listenerFaults: this.#listenerFaults,
      revision: this.#revision,
    };
  }

  #upsert(key: string, claim: Claim): UpsertOutcome {
    if (typeof key !== 'string' || !parsePrefix(key, this.#key)) return this.#reject(keyFault(key));
    const fault = claimFault(claim, key) ?? this.#writerFault(claim, key);
    if (fault !== undefined) return this.#reject(fault);
    const host = this.#state.rows.hosts.acquire(claim.hostIP);
    if (host < 0) return this.#reject(hostFault(claim.hostIP, key));
    return this.#state.put(this.#key, claim, host);
  }

  #delete(key: string, by: DeleteOptions): DeleteOutcome {
    if (typeof key !== 'string' || !parsePrefix(key, this.#key)) return this.#reject(keyFault(key));
    const fault = this.#writerFault(by, key);
    return fault === undefined ? this.#state.remove(this.#key, by) : this.#reject(fault);
  }

  /** A writer that has claims in force was checked when it got the first one. */
  #writerFault(writer: Writer, key: string): Rejection | undefined {
    return this.#state.rows.writers.find(writer) >= 0 ? undefined : writerFault(writer, key);
  }

  #reject(rejection: Rejection): 'invalid' {
    this.#rejections.add(rejection);
    return 'invalid';
  }

  #assertWritable(): void {
    assert(!this.#replaying, 'a listener must not write while entries are being replayed to it');
  }

  /** Tells listeners what has been journalled, unless a batch goes on. */
  #tell(batched = false): void {
    if (this.#journal.inBatch) return;
    const changes = this.#journal.takeChanges(batched);
    if (changes.length > 0) {
      this.#revision++;
      this.#deliveries.deliver(this.#listeners, tellChanges, changes);
    }
    const ownerChanges = this.#journal.takeOwnerChanges(batched);
    if (ownerChanges.length > 0)
      this.#deliveries.deliver(this.#ownerListeners, tellOwnerChanges, ownerChanges);
    if (this.#namedPorts?.takeChanged())
      this.#deliveries.deliver(this.#namedPortsListeners, tellChanged, undefined);
  }

  #replay(listener: IPCacheListener): void {
    this.#replaying = true;
    try {
      this.#listeners.guard(listener, () => {
        for (const changes of this.#replayChunks()) listener.onChanges(changes);
        listener.onSynced?.();
      });
    } finally {
      this.#replaying = false;
    }
  }

  *#replayChunks(): Generator<readonly PrefixChange[], void, void> {
    const { table, rows } = this.#state;
    const key = prefixRegister();
    let chunk: PrefixChange[] = [];
    for (const slot of table.slots()) {
      if (rows.has(slot, FLAG.shadowed)) continue;
      table.keyOf(slot, key);
      chunk.push(new PrefixChange(key, undefined, rows.entry(slot)));
      if (chunk.length < REPLAY_CHUNK) continue;
      yield chunk;
      chunk = [];
    }
    if (chunk.length > 0) yield chunk;
  }

  #trackedNamedPorts(): NamedPortIndex {
    if (this.#namedPorts === undefined) {
      this.#namedPorts = new NamedPortIndex();
      this.#state.trackNamedPorts(this.#namedPorts);
      this.#namedPorts.takeChanged();
    }
    return this.#namedPorts;
  }

  #explainSlot(slot: number): readonly ExplainedClaim[] {
    const effective = this.#keyedEntry(slot);
    const { key, shadowed } = effective;
    const overruled = this.#state.rivals.of(slot);
    return [
      { ...effective, effective: true },
      ...overruled.map((claim) => ({ ...claim, key, shadowed, effective: false })),
    ];
  }

  #keyAt(slot: number): string {
    this.#state.table.keyOf(slot, this.#key);
    return formatKey(this.#key);
  }

  #entryAt(slot: number): KeyedEntry | undefined {
    return slot < 0 ? undefined : this.#keyedEntry(slot);
  }

  #keyedEntry(slot: number): KeyedEntry {
    const { rows } = this.#state;
    const { identity, hostIP, encryptKey, k8s, source, owner } = rows.claim(slot);
    const shadowed = rows.has(slot, FLAG.shadowed);
    return { key: this.#keyAt(slot), identity, hostIP, encryptKey, k8s, source, owner, shadowed };
  }
}

function tellChanges(listener: IPCacheListener, changes: readonly PrefixChange[]): void {
  listener.onChanges(changes);
}

function tellOwnerChanges(listener: OwnerListener, changes: readonly OwnerChange[]): void {
  listener.onOwnerChanges(changes);
}

function tellChanged(listener: { changed(): void }): void {
  listener.changed();
}
