import { checkArgument, FUNCTION, OBJECT, objectWith, optional } from '../../base/arguments.ts';
import type { Clock, Random } from '../../base/clock.ts';
import { messageOf } from '../../base/failure.ts';
import { type FailingKey, FailingKeys } from './failing-keys.ts';
import type {
  ApplyOutcome,
  DesiredItems,
  KernelTable,
  MapUse,
  PlannedChange,
  TableChange,
} from './kernel-table.ts';
import { KeyQueue } from './key-queue.ts';
import { SyscallError } from './syscall/syscall-error.ts';
import { WaitingDeletes } from './waiting-deletes.ts';

/** Time source, scheduler and conditions of a {@link KeptTable}. */
export interface KeptTableContext {
  readonly clock: Pick<Clock, 'now' | 'after'>;
  readonly random: Random;
  /** Calls back in a later turn of the event loop: `setImmediate`. */
  readonly nextTurn: (callback: () => void) => unknown;
  /**
   * Resolves when deletes that are due now may be applied, because no other table refers to the deleted items. If it
   * rejects, it is called again after a second. Default: immediately.
   */
  readonly whenDeletesAllowed?: (() => Promise<void>) | undefined;
  /**
   * Returns true if all inputs of a key are known. Called for initially found keys while deletes are not allowed. Until
   * it returns true, such a key is neither written nor deleted. `isDesired` is false if the key would be deleted.
   * Default: the key is written immediately, and deleted when deletes are allowed.
   */
  readonly isComplete?: ((key: string, isDesired: boolean) => boolean) | undefined;
}

/** Counts of a {@link KeptTable}. Those of `upserts`, `deletes` and errors are since its start. */
export interface KeptTableStatus {
  readonly name: string;
  /**
   * `unread`: the table has not been read yet, or its reconciler has ended. `adopting`: deletes of initially found
   * items are not allowed yet. `in-sync`: the table is kept equal to the desired items. `degraded`: see `failing` and
   * `noRoom`.
   */
  readonly state: 'unread' | 'adopting' | 'in-sync' | 'degraded';
  readonly desired: number;
  /** Number of our items in the table. */
  readonly actual: number;
  /** Number of keys with pending writes and deletes, including those of `waiting`. */
  readonly pending: number;
  /** Number of pending deletes that wait until other tables do not refer to the items. */
  readonly waiting: number;
  /** Number of initially found keys not confirmed by a change yet. They are kept until deletes are allowed. */
  readonly unconfirmed: number;
  /** Number of keys without room in the table. */
  readonly noRoom: number;
  readonly noRoomErrors: number;
  readonly failing: number;
  /** Up to 16 of the retried keys. */
  readonly failures: readonly FailingKey[];
  readonly capacity: number | undefined;
  /** Used fraction of the table, or of the fullest of `maps`, from 0 to 1; undefined if there is no capacity. */
  readonly pressure: number | undefined;
  /** Usage of each map if an item takes entries of several maps. */
  readonly maps: readonly MapUse[];
  readonly upserts: number;
  readonly deletes: number;
}

/** Maximum number of keys handled in a turn of the event loop. */
const CHUNK = 256;
/** Number of turns for pending writes between two reads, if the last read did not take more. */
const WRITE_TURNS = 16;
/** Rank of items not confirmed by a change, of foreign items, and of those whose delete failed. */
const NEVER_EVICTED = Number.MAX_SAFE_INTEGER;
/** Errors of a full LPM trie or hash map. */
const NO_ROOM: ReadonlySet<string> = new Set(['ENOSPC', 'E2BIG']);

/**
 * Keeps a table of the kernel equal to its desired content. It is the only reconciler of the Linux datapath. The owner
 * calls `mark` with each changed key. The desired item is read when the key is written, so several changes of a key
 * cause one write. At most one chunk is written in a turn of the event loop. Failed writes are retried with backoff.
 * Writes without room are retried when something was deleted. Initially found items are kept until deletes are allowed,
 * because a missing key may be unknown until the inputs are complete.
 *
 *     mark ─► dirty ─► chunk ─► apply ─► actual
 *               ▲                 │ ENOSPC ─► without room ─┐
 *               │                 │ else   ─► failing ──────┤
 *               └───────────── room, or time ◄──────────────┘
 */
export class KeptTable<Item> implements Disposable {
  readonly #table: KernelTable<Item>;
  readonly #desired: DesiredItems<Item>;
  readonly #context: KeptTableContext;
  /** Marked keys. Their desired items are read when they are written. */
  readonly #dirty = new KeyQueue('lowest');
  /** Keys to delete, unless they are desired again by then. */
  readonly #deletes = new KeyQueue('highest');
  /** Keys waiting until they may be added to `#deletes`. Undefined if deletes need not wait. */
  readonly #waiting: WaitingDeletes | undefined;
  /** Our items in the table, the weakest first. */
  readonly #actual = new KeyQueue('lowest');
  /** Items without room, the strongest first. */
  readonly #noRoom = new KeyQueue('highest');
  readonly #failing: FailingKeys;
  /** Initially found items not confirmed by a change yet. */
  #foundItems = new Map<string, Item>();
  /** The found keys still to be marked after deletes were allowed. Undefined if all are marked. */
  #unmarkedFound: Iterator<string> | undefined;
  readonly #counts = { upserts: 0, deletes: 0, noRoomErrors: 0 };
  #state: 'unread' | 'adopted' | 'closed' = 'unread';
  #deletesAllowed = false;
  /** True while the table is being read. Nothing is written meanwhile. */
  #isReading = false;
  /** Ends with the last queued read. */
  #lastRead: Promise<unknown> = Promise.resolve();
  /** The plan that waits for the next read. All callers until then share it. */
  #nextPlan: Promise<readonly PlannedChange<Item>[]> | undefined;
  #readTurns = 0;
  #isScheduled = false;
  readonly #writeWaiters: (() => void)[] = [];

  constructor(table: KernelTable<Item>, desired: DesiredItems<Item>, context: KeptTableContext) {
    checkArgument('new KeptTable: table', table, objectWith({ dump: FUNCTION, apply: FUNCTION }));
    checkArgument('new KeptTable: desired', desired, OBJECT);
    checkArgument('new KeptTable: context', context, CONTEXT);
    this.#table = table;
    this.#desired = desired;
    this.#context = context;
    const { clock, random, nextTurn, whenDeletesAllowed: whenAllowed } = context;
    this.#failing = new FailingKeys(clock, random, (key) => this.mark(key));
    const allow = (key: string): void => this.#queueDelete(key);
    if (whenAllowed !== undefined)
      this.#waiting = new WaitingDeletes({ clock, nextTurn, whenAllowed, allow });
  }

  /** Must be called when the desired item of a key has changed or may have changed. Costs a `Map.set`. */
  mark(key: string): void {
    this.#dirty.set(key, this.#orderOf(key));
    this.#schedule();
  }

  /** Must be called when only the rank of a key's item has changed. Writes only if something waits for room. */
  rerank(key: string): void {
    if (this.#table.rank === undefined || this.#foundItems.has(key)) return;
    const item = this.#actual.has(key) ? this.#desired.get(key) : undefined;
    if (item !== undefined) this.#setActual(key, item);
    else if (this.#noRoom.has(key)) this.mark(key);
  }

  /**
   * Reads the existing items, for instance those of an earlier process. Writes start afterwards. Rejects if the dump
   * throws; may then be called again.
   */
  async adopt(): Promise<void> {
    await this.#runExclusive(async () => {
      const found = await this.#read();
      await this.inTurns(found.keys(), (key) => this.#actual.set(key, NEVER_EVICTED));
      this.#foundItems = found;
      // Correct items need no mark if nothing else is marked. After a restart, most items are correct.
      const isUnmarked = this.#dirty.size === 0;
      await this.inTurns(this.#desired.entries(), ([key, item]) => {
        if (this.#mustStay(key, item)) return;
        if (!(isUnmarked && this.#adoptFound(key, item))) this.mark(key);
      });
      if (this.#isClosed) return;
      this.#state = 'adopted';
      if (this.#deletesAllowed) this.#markFound();
    });
  }

  /** Must be called when the inputs are complete: initially found items that are not desired are deleted. */
  allowDeletes(): void {
    if (this.#deletesAllowed) return;
    this.#deletesAllowed = true;
    if (this.#state === 'adopted') this.#markFound();
  }

  /** Must be called when inputs of found keys may be complete: those with complete inputs are written or deleted. */
  recheck(): void {
    if (this.#context.isComplete === undefined || this.#deletesAllowed) return;
    void this.inTurns(this.#foundItems.keys(), (key) => {
      if (this.#dirty.has(key)) return;
      const item = this.#desired.get(key);
      if (this.#mustStay(key, item)) return;
      // Correct items need no mark.
      if (item === undefined || !this.#adoptFound(key, item)) this.mark(key);
    });
  }

  /** Returns true if the key was found initially and no change has confirmed it yet. */
  isUnconfirmed(key: string): boolean {
    return this.#foundItems.has(key);
  }

  /**
   * Returns the differences from the desired content, in the order of their writes. Calls that wait for the same read
   * share its result. Before a read, pending writes get as many turns as the last read took, or 16 if it took fewer.
   */
  plan(): Promise<readonly PlannedChange<Item>[]> {
    this.#nextPlan ??= this.#runExclusive(async () => {
      this.#nextPlan = undefined;
      return this.#differences(await this.#read());
    });
    return this.#nextPlan;
  }

  /**
   * Writes keys changed by others. Resolves to the differences when the writes are done. Deletes may still wait.
   */
  async repair(): Promise<readonly PlannedChange<Item>[]> {
    const steps = await this.#runExclusive(async () => {
      const found = await this.#read();
      await this.inTurns(this.#foundItems.keys(), (key) => this.#updateFound(key, found.get(key)));
      const changed: PlannedChange<Item>[] = [];
      await this.inTurns(await this.#differences(found), (step) => {
        this.#recordRead(step);
        if (!this.#isExpected(step)) changed.push(step);
        if (!this.#noRoom.has(step.key)) this.mark(step.key);
      });
      // Failing keys which are correct now are written again, because only a write ends their failure.
      await this.inTurns(this.#failing.keys(), (key) => this.mark(key));
      const { capacity = Number.POSITIVE_INFINITY } = this.#table;
      for (let room = capacity - found.size; room > 0 && this.#noRoom.size > 0; room -= CHUNK) {
        this.#retryWithoutRoom(Math.min(room, CHUNK));
        await this.#nextTurn();
      }
      return changed;
    });
    await this.#written();
    return steps;
  }

  /**
   * Resolves when the changes pending now are applied, except those of failing keys and keys without room.
   * Does not wait for deletes of later changes, because under constant change some delete always waits.
   */
  async flushed(): Promise<void> {
    await this.#written();
    if (this.#waitingDeletes === 0) return;
    await this.#waiting?.whenPresentAllowed();
    await this.#written();
  }

  /** Resolves when every change is applied or is a waiting delete. */
  #written(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    return new Promise((resolve) => {
      this.#writeWaiters.push(resolve);
      this.#schedule();
    });
  }

  /** Number of desired items missing from the table. If items have ranks, evicted ones are not counted. */
  missing(): number {
    return this.#failing.size + (this.#table.rank === undefined ? this.#noRoom.size : 0);
  }

  status(): KeptTableStatus {
    const { capacity, name } = this.#table;
    const maps = this.#table.maps?.() ?? [];
    return {
      name,
      state: this.#statusState(),
      desired: this.#desired.size,
      actual: this.#actual.size,
      pending: this.#queued + this.#waitingDeletes,
      waiting: this.#waitingDeletes,
      unconfirmed: this.#deletesAllowed ? 0 : this.#foundItems.size,
      noRoom: this.#noRoom.size,
      failing: this.#failing.size,
      failures: this.#failing.shown(),
      capacity,
      pressure: pressureOf([
        ...(capacity === undefined ? [] : [{ used: this.#actual.size, capacity }]),
        ...maps,
      ]),
      maps,
      ...this.#counts,
    };
  }

  #statusState(): KeptTableStatus['state'] {
    if (this.#failing.size > 0 || this.#noRoom.size > 0) return 'degraded';
    if (this.#state !== 'adopted') return 'unread';
    return this.#deletesAllowed ? 'in-sync' : 'adopting';
  }

  /** Ends the reconciler. Does not change the table. */
  [Symbol.dispose](): void {
    this.#state = 'closed';
    this.#waiting?.[Symbol.dispose]();
    this.#failing.clear();
    this.#resolveWritten();
  }

  /** Number of keys to handle in later turns. Found keys already marked may count twice. */
  get #queued(): number {
    const unmarked = this.#unmarkedFound === undefined ? 0 : this.#foundItems.size;
    return this.#dirty.size + this.#deletes.size + unmarked;
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isReading || this.#state !== 'adopted') return;
    this.#isScheduled = true;
    this.#context.nextTurn(() => this.#turn());
  }

  #turn(): void {
    this.#isScheduled = false;
    if (this.#isReading || this.#isClosed) return;
    this.#markSomeFound();
    const changes = this.#nextChunk();
    if (changes.length > 0) this.#write(changes);
    if (this.#queued > 0) this.#schedule();
    else this.#resolveWritten();
  }

  #resolveWritten(): void {
    for (const resolve of this.#writeWaiters.splice(0)) resolve();
  }

  /** Returns the next changes. Upserts come first, because deleted items may be in use until the new ones exist. */
  #nextChunk(): readonly TableChange<Item>[] {
    const upserts = this.#take(this.#dirty, (key, item) => this.#needsUpsert(key, item));
    if (upserts.length > 0 || this.#dirty.size > 0 || this.#unmarkedFound !== undefined) return upserts;
    return this.#take(this.#deletes, (key, item) => this.#needsDelete(key, item));
  }

  /** Takes up to a chunk of keys from a queue, until their changes fill a call of `apply`. */
  #take(
    queue: KeyQueue,
    needsChange: (key: string, desired: Item | undefined) => boolean,
  ): readonly TableChange<Item>[] {
    const limit = Math.min(CHUNK, this.#table.chunk ?? CHUNK);
    const changes: TableChange<Item>[] = [];
    let weight = 0;
    for (let taken = 0; taken < CHUNK && weight < limit; taken++) {
      const key = queue.shift();
      if (key === undefined) break;
      const item = this.#desired.get(key);
      if (!needsChange(key, item)) continue;
      changes.push({ key, item, isRetry: this.#failing.has(key) });
      weight += this.#table.weight?.(key, item) ?? 1;
    }
    return changes;
  }

  /** Returns true if the desired item of a marked key must be written. If there is none, handles the key itself. */
  #needsUpsert(key: string, desired: Item | undefined): boolean {
    if (desired === undefined) {
      this.#deleteUndesired(key);
      return false;
    }
    this.#waiting?.delete(key);
    return !this.#mustStay(key, desired) && !this.#adoptFound(key, desired);
  }

  /** Returns true if a key in `#deletes` must be deleted. One that is desired again was marked, and written before. */
  #needsDelete(key: string, desired: Item | undefined): boolean {
    return desired === undefined && !this.#isWaiting(key);
  }

  /** Returns true if an initially found key must be kept because its inputs are not known yet. */
  #mustStay(key: string, item: Item | undefined): boolean {
    if (this.#deletesAllowed || !this.#foundItems.has(key)) return false;
    const { isComplete } = this.#context;
    const isDesired = item !== undefined;
    return isComplete === undefined ? !isDesired : !isComplete(key, isDesired);
  }

  /** Confirms an initially found key by its desired item. Returns true if it was found with this item. */
  #adoptFound(key: string, item: Item): boolean {
    const found = this.#foundItems.get(key);
    if (found === undefined) return false;
    this.#foundItems.delete(key);
    this.#setActual(key, item);
    return this.#table.equal(found, item);
  }

  /** Handles a key without a desired item. */
  #deleteUndesired(key: string): void {
    this.#noRoom.delete(key);
    if (!this.#actual.has(key)) this.#failing.end(key);
    else if (this.#mustStay(key, undefined)) return;
    else if (this.#waiting === undefined) this.#deletes.set(key, this.#orderOf(key));
    else this.#waiting.add(key);
  }

  /** Queues a delete whose wait has ended. */
  #queueDelete(key: string): void {
    this.#deletes.set(key, this.#orderOf(key));
    this.#schedule();
  }

  #isWaiting(key: string): boolean {
    return this.#waiting?.has(key) === true;
  }

  get #waitingDeletes(): number {
    return this.#waiting?.size ?? 0;
  }

  #orderOf(key: string): number {
    return this.#table.order?.(key) ?? 0;
  }

  #write(changes: readonly TableChange<Item>[]): void {
    let freed = 0;
    const outcomes = this.#apply(changes);
    const full: TableChange<Item>[] = [];
    changes.forEach((change, at) => {
      const error = outcomes[at];
      if (error === undefined) freed += this.#recordSuccess(change);
      else if (error === 'unfinished') this.#requeue(change);
      else if (change.item !== undefined && NO_ROOM.has(error.code)) full.push(change);
      else this.#recordFailure(change.key, error);
    });
    if (full.length > 0) freed += this.#makeRoom(full);
    // If an item takes entries of several maps, an update may have released some of them. So at least one item without
    // room is tried after each chunk with a successful write.
    const hasWritten = this.#table.maps !== undefined && outcomes.includes(undefined);
    this.#retryWithoutRoom(hasWritten ? Math.max(freed, 1) : freed);
  }

  /** Queues a partly applied change again. */
  #requeue({ key, item }: TableChange<Item>): void {
    if (item === undefined) this.#deletes.set(key, this.#orderOf(key));
    else {
      this.#setActual(key, item);
      this.mark(key);
    }
  }

  #apply(changes: readonly TableChange<Item>[]): readonly ApplyOutcome[] {
    try {
      return this.#table.apply(changes);
    } catch (error) {
      // Apply the changes one by one, so that a rejected item does not block the others of its chunk.
      if (changes.length > 1) return changes.flatMap((change) => this.#apply([change]));
      const known = error instanceof SyscallError ? error : new SyscallError(messageOf(error), 0);
      return changes.map(() => known);
    }
  }

  /** Records a successful change. Returns the number of released entries. */
  #recordSuccess({ key, item }: TableChange<Item>): number {
    this.#failing.end(key);
    if (this.#foundItems.size > 0) this.#foundItems.delete(key);
    if (item === undefined) {
      this.#counts.deletes++;
      return this.#actual.delete(key) ? 1 : 0;
    }
    this.#counts.upserts++;
    if (this.#noRoom.size > 0) this.#noRoom.delete(key);
    this.#setActual(key, item);
    return 0;
  }

  /** Records an item in the table. If a stronger item waits for room, it is tried again. */
  #setActual(key: string, item: Item): void {
    const rank = this.#rankOf(key, item);
    this.#actual.set(key, rank);
    const strongest = this.#noRoom.size === 0 ? undefined : this.#noRoom.first();
    if (strongest !== undefined && strongest.rank > rank) this.#retryWithoutRoom(1);
  }

  #recordFailure(key: string, error: SyscallError): void {
    this.#failing.add(key, error);
    this.#noRoom.delete(key);
  }

  /** Evicts weaker items for stronger ones if items have ranks. Returns the number of released entries. */
  #makeRoom(full: readonly TableChange<Item>[]): number {
    this.#counts.noRoomErrors += full.length;
    const evicted: TableChange<Item>[] = [];
    for (const { key, item } of full) {
      if (item === undefined) continue;
      const rank = this.#rankOf(key, item);
      this.#noRoom.set(key, rank);
      this.#failing.end(key);
      const weaker = this.#evictionCandidate(key, rank);
      if (weaker === undefined) continue;
      this.#actual.delete(weaker.key);
      if (this.#desired.get(weaker.key) !== undefined) this.#noRoom.set(weaker.key, weaker.rank);
      evicted.push({ key: weaker.key, item: undefined });
    }
    let freed = 0;
    this.#apply(evicted).forEach((error, at) => {
      const key = evicted[at]?.key;
      if (key === undefined) return;
      if (error === undefined) freed++;
      else if (error !== 'unfinished') {
        this.#actual.set(key, NEVER_EVICTED);
        this.#recordFailure(key, error);
      }
    });
    return freed;
  }

  /** Returns the key to evict for `key`: itself if it is present, because some kernels cannot replace its value. */
  #evictionCandidate(key: string, rank: number): { readonly key: string; readonly rank: number } | undefined {
    if (this.#table.rank === undefined) return undefined;
    if (this.#actual.has(key)) return { key, rank };
    const weakest = this.#actual.first();
    return weakest !== undefined && weakest.rank < rank ? weakest : undefined;
  }

  /** Retries the strongest items without room, one per released entry. */
  #retryWithoutRoom(freed: number): void {
    for (let left = freed; left > 0; left--) {
      const next = this.#noRoom.first();
      if (next === undefined) return;
      this.#noRoom.delete(next.key);
      this.mark(next.key);
    }
  }

  #rankOf(key: string, item: Item): number {
    return this.#table.rank?.(key, item) ?? 0;
  }

  /** Records the item of a differing key that a read has returned. Unknown items are those of another process. */
  #recordRead({ key, actual }: PlannedChange<Item>): void {
    if (actual === undefined) this.#actual.delete(key);
    else if (!this.#actual.has(key)) {
      this.#actual.set(key, NEVER_EVICTED);
      if (!this.#deletesAllowed) this.#foundItems.set(key, actual);
    }
  }

  /** Updates an initially found item to its current value. */
  #updateFound(key: string, item: Item | undefined): void {
    if (item !== undefined) this.#foundItems.set(key, item);
    else if (this.#foundItems.delete(key)) this.#actual.delete(key);
  }

  /**
   * Returns true if this table itself is the reason for a difference: the key is unconfirmed, waits, fails or has no
   * room.
   */
  #isExpected({ key, actual, desired }: PlannedChange<Item>): boolean {
    if (this.#mustStay(key, desired)) return true;
    if (desired === undefined) return this.#isWaiting(key);
    return this.#failing.has(key) || (actual === undefined && this.#noRoom.has(key));
  }

  /** Starts to mark all initially found keys, some in each turn. */
  #markFound(): void {
    this.#unmarkedFound = this.#foundItems.keys();
    this.#schedule();
  }

  #markSomeFound(): void {
    for (let left = CHUNK; this.#unmarkedFound !== undefined && left > 0; left--) {
      const { done, value: key } = this.#unmarkedFound.next();
      if (done === true) this.#unmarkedFound = undefined;
      else this.mark(key);
    }
  }

  get #isClosed(): boolean {
    return this.#state === 'closed';
  }

  /** Runs one piece of work at a time, without writes during it, because reads and writes share the table's memory. */
  #runExclusive<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#lastRead.then(async () => {
      await this.#writePending();
      this.#isReading = true;
      this.#readTurns = 0;
      try {
        return await work();
      } finally {
        this.#isReading = false;
        this.#schedule();
      }
    });
    this.#lastRead = run.catch(() => {});
    return run;
  }

  /** Lets pending changes be written before the table is read again, so that readers do not starve them. */
  async #writePending(): Promise<void> {
    for (let left = Math.max(WRITE_TURNS, this.#readTurns); left > 0; left--) {
      if (this.#queued === 0 || this.#state !== 'adopted') return;
      this.#schedule();
      await this.#nextTurn();
    }
  }

  #nextTurn(): Promise<void> {
    return new Promise((resolve) => this.#context.nextTurn(resolve));
  }

  async #read(): Promise<Map<string, Item>> {
    const found = new Map<string, Item>();
    // Disposed during a pause: the descriptors for reading may be closed.
    if (this.#isClosed) return found;
    await this.inTurns(this.#table.dump(), (entry) => {
      if (entry !== undefined) found.set(entry[0], entry[1]);
      return entry === undefined;
    });
    return found;
  }

  /** Returns the differences in the order of their writes: items others depend on come first, their deletes last. */
  async #differences(found: ReadonlyMap<string, Item>): Promise<readonly PlannedChange<Item>[]> {
    const upserts: PlannedChange<Item>[][] = [];
    const deletes: PlannedChange<Item>[][] = [];
    const add = (byOrder: PlannedChange<Item>[][], change: PlannedChange<Item>): void => {
      const order = this.#orderOf(change.key);
      while (byOrder.length <= order) byOrder.push([]);
      byOrder[order]?.push(change);
    };
    await this.inTurns(this.#desired.entries(), ([key, desired]) => {
      const actual = found.get(key);
      if (actual === undefined || !this.#table.equal(actual, desired)) add(upserts, { key, actual, desired });
    });
    await this.inTurns(found, ([key, actual]) => {
      if (this.#desired.get(key) === undefined) add(deletes, { key, actual, desired: undefined });
    });
    const none: PlannedChange<Item>[] = [];
    return none.concat(...upserts, ...deletes.reverse()); // `flat` takes ten times as long
  }

  /** Runs `each` for all items until dispose, a chunk per turn. A turn ends early if `each` returns true. */
  async inTurns<T>(items: Iterable<T>, each: (item: T) => unknown): Promise<void> {
    if (this.#isClosed) return;
    let left = CHUNK;
    for (const item of items) {
      if (each(item) !== true && --left > 0) continue;
      this.#readTurns++;
      await this.#nextTurn();
      if (this.#isClosed) return;
      left = CHUNK;
    }
  }
}

function pressureOf(all: readonly Omit<MapUse, 'name'>[]): number | undefined {
  return all.length === 0 ? undefined : Math.max(...all.map(({ used, capacity }) => used / capacity));
}

const CONTEXT = objectWith({
  clock: objectWith({ now: FUNCTION, after: FUNCTION }),
  random: FUNCTION,
  nextTurn: FUNCTION,
  whenDeletesAllowed: optional(FUNCTION),
  isComplete: optional(FUNCTION),
});
