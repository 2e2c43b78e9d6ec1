import { type Backoff, backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random, Timer } from '../../base/clock.ts';
import type { DesiredItems, KernelTable, MapUse, TableChange } from './kernel-table.ts';
import { KeyQueue } from './key-queue.ts';
import { differences, orderPlan, type PlannedChange } from './plan.ts';
import { RankedKeys } from './ranked-keys.ts';
import { SyscallError } from './syscall/syscall-error.ts';

/** What a {@link KeptTable} takes from its process. */
export interface KeptTableContext {
  readonly clock: Pick<Clock, 'now' | 'after'>;
  readonly random: Random;
  /** Calls back in a later turn of the event loop: `setImmediate`. */
  readonly nextTurn: (callback: () => void) => unknown;
  /** Resolves when deletes that are due now may go: other tables may lead to what they take. Never rejects. By default at once. */
  readonly deletesMayGo?: (() => Promise<void>) | undefined;
}

/** A key that could not be written or deleted, and is tried again. */
export interface FailingKey {
  readonly key: string;
  readonly reason: string;
  readonly attempts: number;
}

/** How a table stands. */
export interface KeptTableStatus {
  readonly name: string;
  /** `holding`: nothing of what was found at the start is deleted yet. `degraded`: see `failing` and `noRoom`. */
  readonly state: 'unread' | 'holding' | 'kept' | 'degraded';
  /** Items that are to be there. */
  readonly desired: number;
  /** Items of ours that are there. */
  readonly actual: number;
  /** Keys that wait for their turn. */
  readonly pending: number;
  /** Those of them that are to be deleted, and wait until other tables do not lead to them any more. */
  readonly waiting: number;
  /** Keys found at the start that no change has named yet, kept until deletes are allowed. */
  readonly held: number;
  /** Keys that there is no room for, counted, and how often there was none. */
  readonly noRoom: number;
  readonly noRoomErrors: number;
  /** Keys that are tried again, counted, and some of them. */
  readonly failing: number;
  readonly failures: readonly FailingKey[];
  readonly capacity: number | undefined;
  /** `actual` as a part of `capacity`, or how full the fullest of `maps` is, 0 to 1; undefined without either. */
  readonly pressure: number | undefined;
  /** Where an item takes entries of several maps: how full they are. */
  readonly maps: readonly MapUse[];
  readonly upserts: number;
  readonly deletes: number;
}

const CHUNK = 256;
const BACKOFF: Backoff = { baseMs: 200, capMs: 30_000 };
const SHOWN_FAILURES = 16;
/** Of what was found at the start and is not confirmed: never given up for the sake of others. */
const HELD_RANK = Number.MAX_SAFE_INTEGER;
/** A full LPM trie, a full hash map. */
const NO_ROOM: ReadonlySet<string> = new Set(['ENOSPC', 'E2BIG']);

/**
 * Keeps a table of the kernel equal to what is desired: the one reconciler of the Linux datapath. Its owner says which
 * keys have changed (`mark`); what is written is what is desired when their turn comes, so that changes of one key become
 * one. At most a chunk is written in a turn of the event loop. What fails is tried again by itself, with backoff; what there is
 * no room for, when something has been deleted. What was found at the start stays until deletes are allowed: before the
 * inputs are complete a key that is missing is not known yet.
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
  readonly #dirty = new KeyQueue();
  readonly #deletes = new KeyQueue();
  /** Deletes that may not go yet: those that are waited for, and those that came since. */
  #waiting = new Set<string>();
  #waitingNext = new Set<string>();
  #isHolding = false;
  /** What is there of ours, the weakest first. */
  readonly #actual = new RankedKeys(-1);
  /** What there is no room for, the strongest first. */
  readonly #noRoom = new RankedKeys(1);
  readonly #failing = new Map<string, { error: SyscallError; attempts: number; due: number }>();
  #found = new Map<string, Item>();
  readonly #counts = { upserts: 0, deletes: 0, noRoomErrors: 0 };
  #state: 'unread' | 'holding' | 'kept' | 'closed' = 'unread';
  #deletesAllowed = false;
  /** How many are reading the table: nothing is written meanwhile. */
  #readers = 0;
  #still: Promise<unknown> = Promise.resolve();
  #scheduled = false;
  #retry: Timer | undefined;
  #retryDue: number = Number.POSITIVE_INFINITY;
  #idle: (() => void)[] = [];

  constructor(table: KernelTable<Item>, desired: DesiredItems<Item>, context: KeptTableContext) {
    this.#table = table;
    this.#desired = desired;
    this.#context = context;
  }

  /** What is desired at this key has changed, or may have. Costs a `Set.add`. */
  mark(key: string): void {
    this.#dirty.add(this.#orderOf(key), key);
    this.#schedule();
  }

  /**
   * What is desired at this key has another rank, and is the same otherwise: nothing is written unless it waits for room, or
   * a stronger one does. Costs a look-up.
   */
  rerank(key: string): void {
    if (this.#table.rank === undefined || this.#found.has(key)) return;
    const item = this.#actual.has(key) ? this.#desired.get(key) : undefined;
    if (item !== undefined) this.#setActual(key, item);
    else if (this.#noRoom.has(key)) this.mark(key);
  }

  /**
   * Reads what is there, from an earlier process for instance; writing begins after that. Rejects with what the dump
   * throws; it may be called again then.
   */
  async adopt(): Promise<void> {
    await this.#whileStill(async () => {
      const there = await this.#read();
      await this.#inTurns(there.keys(), (key) => this.#actual.set(key, HELD_RANK));
      this.#found = there;
      // What is right already has no turn of its own, unless it has one anyway: most of it is right, after a restart.
      const isUnmarked = this.#dirty.size === 0;
      await this.#inTurns(this.#desired.entries(), ([key, item]) => {
        if (!(isUnmarked && this.#isAdopted(key, item))) this.mark(key);
      });
      if (this.#state === 'closed') return;
      this.#state = this.#deletesAllowed ? 'kept' : 'holding';
      if (this.#deletesAllowed) this.#release();
    });
  }

  /** The inputs are complete: what was found at the start and is not desired goes. */
  allowDeletes(): void {
    if (this.#deletesAllowed) return;
    this.#deletesAllowed = true;
    if (this.#state !== 'holding') return;
    this.#state = 'kept';
    this.#release();
  }

  /** Whether it was found at the start, and no change has named it yet. */
  isHeld(key: string): boolean {
    return this.#found.has(key);
  }

  /** Where the table differs from what is desired now, in the order in which it would be written. */
  async plan(): Promise<readonly PlannedChange<Item>[]> {
    const steps = await this.#whileStill(async () => this.#differences(await this.#read()));
    return orderPlan(this.#table, steps);
  }

  /** Writes what somebody else has changed behind our back. Resolves when its turn is over, to the steps of that. */
  async repair(): Promise<readonly PlannedChange<Item>[]> {
    const steps = await this.#whileStill(async () => {
      const there = await this.#read();
      await this.#inTurns(this.#found.keys(), (key) => this.#findAgain(key, there.get(key)));
      const different = await this.#differences(there);
      for (const { key, actual } of different) {
        if (actual === undefined) this.#actual.delete(key);
        else if (!this.#actual.has(key)) this.#take(key, actual);
      }
      const changed = different.filter((step) => !this.#isKnown(step));
      for (const { key } of different) if (!this.#noRoom.has(key)) this.mark(key);
      const { capacity = Number.POSITIVE_INFINITY } = this.#table;
      this.#admit(Math.min(this.#noRoom.size, capacity - there.size));
      return changed;
    });
    await this.flushed();
    return orderPlan(this.#table, steps);
  }

  /** Resolves once nothing waits for its turn, but for what fails and for what there is no room for. */
  flushed(): Promise<void> {
    if (this.#state === 'closed') return Promise.resolve();
    return new Promise((resolve) => {
      this.#idle.push(resolve);
      this.#schedule();
    });
  }

  /** Items that are not there and should be. Where they have ranks the weakest are given up, and are none of them. */
  missing(): number {
    return this.#failing.size + (this.#table.rank === undefined ? this.#noRoom.size : 0);
  }

  status(): KeptTableStatus {
    const { capacity, name } = this.#table;
    const maps = this.#table.maps?.() ?? [];
    const failures = [...this.#failing]
      .slice(0, SHOWN_FAILURES)
      .map(([key, { error, attempts }]) => ({ key, reason: error.message, attempts }));
    const isDegraded = this.#failing.size > 0 || this.#noRoom.size > 0;
    const state = this.#state === 'closed' ? 'unread' : this.#state;
    return {
      name,
      state: isDegraded ? 'degraded' : state,
      desired: this.#desired.size,
      actual: this.#actual.size,
      pending: this.#dirty.size + this.#deletes.size + this.#waitingDeletes,
      waiting: this.#waitingDeletes,
      held: this.#deletesAllowed ? 0 : this.#found.size,
      noRoom: this.#noRoom.size,
      failing: this.#failing.size,
      failures,
      capacity,
      pressure: pressureOf([
        ...(capacity === undefined ? [] : [{ used: this.#actual.size, capacity }]),
        ...maps,
      ]),
      maps,
      ...this.#counts,
    };
  }

  /** Ends it; the table stays as it is. */
  [Symbol.dispose](): void {
    this.#state = 'closed';
    this.#retry?.cancel();
    this.#rest();
  }

  #schedule(): void {
    if (this.#scheduled || this.#readers > 0 || this.#state === 'unread' || this.#state === 'closed') return;
    this.#scheduled = true;
    this.#context.nextTurn(() => this.#turn());
  }

  #turn(): void {
    this.#scheduled = false;
    if (this.#readers > 0 || this.#state === 'closed') return;
    const changes = this.#nextChunk();
    if (changes.length > 0) this.#write(changes);
    if (this.#dirty.size + this.#deletes.size > 0) this.#schedule();
    else if (this.#waitingDeletes === 0) this.#rest();
  }

  #rest(): void {
    const idle = this.#idle;
    this.#idle = [];
    for (const resolve of idle) resolve();
  }

  /** Upserts first: what they take away may be in use until they are there. */
  #nextChunk(): readonly TableChange<Item>[] {
    const limit = Math.min(CHUNK, this.#table.chunk ?? CHUNK);
    const changes: TableChange<Item>[] = [];
    for (let looked = 0; looked < CHUNK && changes.length < limit; looked++) {
      const key = this.#dirty.take(-1);
      if (key === undefined) break;
      const item = this.#desired.get(key);
      if (item === undefined) {
        this.#leave(key);
        continue;
      }
      this.#waiting.delete(key);
      this.#waitingNext.delete(key);
      if (!this.#isAdopted(key, item)) changes.push({ key, item });
    }
    if (changes.length > 0 || this.#dirty.size > 0) return changes;
    while (changes.length < limit) {
      const key = this.#deletes.take(1);
      if (key === undefined) break;
      if (this.#desired.get(key) !== undefined) this.mark(key);
      else if (!this.#isWaiting(key)) changes.push({ key, item: undefined });
    }
    return changes;
  }

  /** Whether it was found as it is to be. */
  #isAdopted(key: string, item: Item): boolean {
    const found = this.#found.get(key);
    if (found === undefined) return false;
    this.#found.delete(key);
    this.#setActual(key, item);
    return this.#table.equal(found, item);
  }

  /** Nothing is desired at this key. */
  #leave(key: string): void {
    this.#noRoom.delete(key);
    const isHeld = this.#found.has(key) && !this.#deletesAllowed;
    if (!this.#actual.has(key)) this.#failing.delete(key);
    else if (!isHeld) this.#delete(key);
  }

  #delete(key: string): void {
    if (this.#context.deletesMayGo === undefined) this.#deletes.add(this.#orderOf(key), key);
    else if (!this.#waiting.has(key)) {
      this.#waitingNext.add(key);
      this.#hold();
    }
  }

  /** What comes while others wait is of a later change, and waits by itself. */
  #hold(): void {
    const { deletesMayGo, nextTurn } = this.#context;
    if (deletesMayGo === undefined || this.#isHolding || this.#waitingNext.size === 0) return;
    this.#isHolding = true;
    nextTurn(() => {
      this.#waiting = this.#waitingNext;
      this.#waitingNext = new Set();
      void deletesMayGo().then(() => this.#letGo());
    });
  }

  #letGo(): void {
    for (const key of this.#waiting) this.#deletes.add(this.#orderOf(key), key);
    this.#waiting.clear();
    this.#isHolding = false;
    this.#hold();
    this.#schedule();
  }

  #isWaiting(key: string): boolean {
    return this.#waiting.has(key) || this.#waitingNext.has(key);
  }

  get #waitingDeletes(): number {
    return this.#waiting.size + this.#waitingNext.size;
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
      if (error === undefined) freed += this.#done(change);
      else if (change.item !== undefined && NO_ROOM.has(error.code)) full.push(change);
      else this.#failed(change.key, error);
    });
    if (full.length > 0) freed += this.#makeRoom(full);
    // An item of many entries may have become one of fewer: as long as something is written, one more is tried.
    const hasWritten = this.#table.maps !== undefined && outcomes.includes(undefined);
    this.#admit(hasWritten ? Math.max(freed, 1) : freed);
  }

  #apply(changes: readonly TableChange<Item>[]): readonly (SyscallError | undefined)[] {
    try {
      return this.#table.apply(changes);
    } catch (error) {
      // One that the table cannot take is not to keep back the others of its chunk.
      if (changes.length > 1) return changes.flatMap((change) => this.#apply([change]));
      const known = error instanceof SyscallError ? error : new SyscallError(String(error), 0);
      return changes.map(() => known);
    }
  }

  /** How much room it has made. */
  #done({ key, item }: TableChange<Item>): number {
    if (this.#failing.size > 0) this.#failing.delete(key);
    if (this.#found.size > 0) this.#found.delete(key);
    if (item === undefined) {
      this.#counts.deletes++;
      return this.#actual.delete(key) ? 1 : 0;
    }
    this.#counts.upserts++;
    if (this.#noRoom.size > 0) this.#noRoom.delete(key);
    this.#setActual(key, item);
    return 0;
  }

  /** It is there; a stronger one that waits for room is tried again for it. */
  #setActual(key: string, item: Item): void {
    const rank = this.#rankOf(key, item);
    this.#actual.set(key, rank);
    const waiting = this.#noRoom.size === 0 ? undefined : this.#noRoom.first();
    if (waiting !== undefined && waiting.rank > rank) this.#admit(1);
  }

  #failed(key: string, error: SyscallError): void {
    const attempts = (this.#failing.get(key)?.attempts ?? 0) + 1;
    const { clock, random } = this.#context;
    // Not less than half of it: a table of which all fails would be tried again at once.
    const due = clock.now() + BACKOFF.baseMs / 2 + backoffDelay(attempts, BACKOFF, random);
    this.#failing.set(key, { error, attempts, due });
    this.#noRoom.delete(key);
    this.#tryAgainBy(due);
  }

  #tryAgainBy(due: number): void {
    if (due >= this.#retryDue) return;
    const { clock } = this.#context;
    this.#retry?.cancel();
    this.#retryDue = due;
    this.#retry = clock.after(Math.max(due - clock.now(), BACKOFF.baseMs / 2), () => this.#tryAgain());
  }

  #tryAgain(): void {
    this.#retry = undefined;
    this.#retryDue = Number.POSITIVE_INFINITY;
    const now = this.#context.clock.now();
    let next = Number.POSITIVE_INFINITY;
    for (const [key, { due }] of this.#failing) {
      if (due <= now) this.mark(key);
      else next = Math.min(next, due);
    }
    this.#tryAgainBy(next);
  }

  /** Weaker ones go for stronger ones, as far as ranks say so. Gives how much room that has made. */
  #makeRoom(full: readonly TableChange<Item>[]): number {
    this.#counts.noRoomErrors += full.length;
    const evicted: TableChange<Item>[] = [];
    for (const { key, item } of full) {
      if (item === undefined) continue;
      const rank = this.#rankOf(key, item);
      this.#noRoom.set(key, rank);
      this.#failing.delete(key);
      const victim = this.#victim(key, rank);
      if (victim === undefined) continue;
      this.#actual.delete(victim.key);
      if (this.#desired.get(victim.key) !== undefined) this.#noRoom.set(victim.key, victim.rank);
      evicted.push({ key: victim.key, item: undefined });
    }
    let freed = 0;
    this.#apply(evicted).forEach((error, at) => {
      const key = evicted[at]?.key;
      if (key === undefined) return;
      if (error === undefined) freed++;
      else {
        this.#actual.set(key, HELD_RANK);
        this.#failed(key, error);
      }
    });
    return freed;
  }

  /** What goes for the sake of `key`: some kernels have no room in a full map for another value of the same key, either. */
  #victim(key: string, rank: number): { readonly key: string; readonly rank: number } | undefined {
    if (this.#table.rank === undefined) return undefined;
    if (this.#actual.has(key)) return { key, rank };
    const weakest = this.#actual.first();
    return weakest !== undefined && weakest.rank < rank ? weakest : undefined;
  }

  /** Tries the strongest again for which there may be room now. */
  #admit(freed: number): void {
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

  /** Somebody has put it there. */
  #take(key: string, item: Item): void {
    this.#actual.set(key, HELD_RANK);
    if (!this.#deletesAllowed) this.#found.set(key, item);
  }

  /** What was found at the start is this by now. */
  #findAgain(key: string, item: Item | undefined): void {
    if (item !== undefined) this.#found.set(key, item);
    else if (this.#found.delete(key)) this.#actual.delete(key);
  }

  /** No other has changed it: it is held, it waits, it fails, or there is no room for it. */
  #isKnown({ key, actual, desired }: PlannedChange<Item>): boolean {
    if (desired === undefined) return this.#isWaiting(key) || (!this.#deletesAllowed && this.#found.has(key));
    return this.#failing.has(key) || (actual === undefined && this.#noRoom.has(key));
  }

  #release(): void {
    for (const key of this.#found.keys()) this.mark(key);
  }

  get #isClosed(): boolean {
    return this.#state === 'closed';
  }

  /** One after the other: a table is read through memory of its own. */
  async #whileStill<T>(work: () => Promise<T>): Promise<T> {
    this.#readers++;
    const run = this.#still.then(work);
    this.#still = run.catch(() => {});
    try {
      return await run;
    } finally {
      this.#readers--;
      this.#schedule();
    }
  }

  async #read(): Promise<Map<string, Item>> {
    const there = new Map<string, Item>();
    // What it is read through may be gone by then.
    if (this.#isClosed) return there;
    await this.#inTurns(this.#table.dump(), (entry) => {
      if (entry !== undefined) there.set(entry[0], entry[1]);
      return entry === undefined;
    });
    return there;
  }

  async #differences(there: ReadonlyMap<string, Item>): Promise<readonly PlannedChange<Item>[]> {
    const steps: PlannedChange<Item>[] = [];
    const compared = differences(this.#table, this.#desired, there);
    await this.#inTurns(compared, (step) => {
      if (step !== undefined) steps.push(step);
    });
    return steps;
  }

  /** An `each` that gives true has taken a turn's time by itself. */
  async #inTurns<T>(items: Iterable<T>, each: (item: T) => unknown): Promise<void> {
    if (this.#isClosed) return;
    let left = CHUNK;
    for (const item of items) {
      if (each(item) !== true && --left > 0) continue;
      await new Promise<void>((resolve) => this.#context.nextTurn(resolve));
      if (this.#isClosed) return;
      left = CHUNK;
    }
  }
}

function pressureOf(all: readonly Omit<MapUse, 'name'>[]): number | undefined {
  return all.length === 0 ? undefined : Math.max(...all.map(({ used, capacity }) => used / capacity));
}
