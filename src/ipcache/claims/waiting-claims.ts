import { KeyedQueue } from '../../base/keyed-queue.ts';
import { sourceRank } from '../../model/source.ts';
import type { CompleteClaim } from '../row-reader.ts';
import type { PrefixDeleteOptions, Writer } from '../types.ts';
import { ByWriter, claimOf, withClaim, withoutClaim } from './by-writer.ts';
import { namesPod } from './claim-state.ts';

/** A claim that waits for room, with its canonical key. */
export interface WaitingClaim extends CompleteClaim {
  readonly key: string;
}

/** The claims that wait for one key. */
interface WaitingKey {
  /** Strongest first, at least one. */
  readonly claims: readonly WaitingClaim[];
  /** Rank of the strongest claim. */
  readonly rank: number;
  /** Increases with every key that starts to wait or changes its rank. */
  readonly arrival: number;
}

/**
 * The claims that did not fit into a full cache. They are admitted when keys are deleted, the strongest source first,
 * then by arrival. Claims on more than `limit` keys are dropped and counted.
 */
export class WaitingClaims {
  readonly #limit: number;
  readonly #waiting = new Map<string, WaitingKey>();
  readonly #byWriter = new ByWriter<string>(() => new Map());
  /** Keys by rank, in order of arrival. */
  readonly #ranks = new Map<number, KeyedQueue<string>>();
  /** The keys that the innermost batch has changed, as they were before it; undefined outside batches. */
  #previousImages: Map<string, WaitingKey | undefined> | undefined;
  #arrivals = 0;
  #dropped = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Number of claims that were dropped because too many keys waited. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Adds a claim. It replaces an earlier one of the same writer on the same key. */
  put(key: string, claim: CompleteClaim): void {
    if (!this.#waiting.has(key) && this.size >= this.#limit) {
      this.#dropped++;
      return;
    }
    this.#set(key, withClaim(this.#claimsOn(key), { key, ...claim }));
    this.#byWriter.add(claim, key);
  }

  /** Removes one writer's claim on a key if `ifPod` matches. Returns true if there was one. */
  remove(key: string, by: PrefixDeleteOptions): boolean {
    const claims = this.#claimsOn(key);
    const claim = claimOf(claims, by);
    if (claim === undefined || !namesPod(claim, by.ifPod)) return false;
    this.#set(key, withoutClaim(claims, by));
    this.#byWriter.delete(claim, key);
    return true;
  }

  /** Returns true if a claim of a writer waits. */
  holds(writer: Writer): boolean {
    return this.#byWriter.of(writer).size > 0;
  }

  /** Removes at most `limit` claims of a writer and returns their number. */
  withdraw({ source, owner }: Writer, limit: number): number {
    let withdrawn = 0;
    for (const key of this.#byWriter.of({ source, owner }).keys()) {
      if (withdrawn === limit) break;
      this.remove(key, { source, owner });
      withdrawn++;
    }
    return withdrawn;
  }

  /** Returns the key that is admitted next; undefined if none waits. */
  next(): string | undefined {
    return this.#ranks.get(Math.max(...this.#ranks.keys()))?.first;
  }

  /** Removes and returns the claims on a key, strongest first. */
  removeAll(key: string): readonly WaitingClaim[] {
    const claims = this.#claimsOn(key);
    this.#set(key, []);
    for (const claim of claims) this.#byWriter.delete(claim, key);
    return claims;
  }

  /** Yields all waiting claims in the order of admission. */
  *list(): Generator<WaitingClaim, void, void> {
    for (const rank of [...this.#ranks.keys()].sort((a, b) => b - a)) {
      for (const [key] of this.#ranks.get(rank) ?? []) yield* this.#claimsOn(key);
    }
  }

  /** Runs `write`, which may be nested. If it throws, its changes here are rolled back (I8). */
  batch<T>(write: () => T): T {
    const outer = this.#previousImages;
    const images = new Map<string, WaitingKey | undefined>();
    this.#previousImages = images;
    try {
      const result = write();
      if (outer !== undefined) {
        for (const [key, waiting] of images) if (!outer.has(key)) outer.set(key, waiting);
      }
      return result;
    } catch (error) {
      this.#rollBack(images);
      throw error;
    } finally {
      this.#previousImages = outer;
    }
  }

  #claimsOn(key: string): readonly WaitingClaim[] {
    return this.#waiting.get(key)?.claims ?? [];
  }

  #set(key: string, claims: readonly WaitingClaim[]): void {
    const waiting = this.#waiting.get(key);
    const [strongest] = claims;
    if (this.#previousImages?.has(key) === false) this.#previousImages.set(key, waiting);
    if (strongest === undefined) {
      this.#store(key, undefined);
      return;
    }
    const rank = sourceRank(strongest.source);
    const arrival = waiting?.rank === rank ? waiting.arrival : this.#arrivals++;
    this.#store(key, { claims, rank, arrival });
  }

  /** Stores or deletes the claims on a key, and updates the index by rank. */
  #store(key: string, waiting: WaitingKey | undefined): void {
    const previous = this.#waiting.get(key);
    if (previous !== undefined && previous.arrival !== waiting?.arrival) {
      const remaining = this.#ranks.get(previous.rank);
      remaining?.delete(key);
      if (remaining?.size === 0) this.#ranks.delete(previous.rank);
    }
    if (waiting === undefined) {
      this.#waiting.delete(key);
      return;
    }
    this.#waiting.set(key, waiting);
    const keys = this.#ranks.get(waiting.rank) ?? new KeyedQueue<string>();
    keys.set(key, undefined);
    this.#ranks.set(waiting.rank, keys);
  }

  /** Restores keys to their images. They are added to the end of their ranks, so these ranks are sorted again. */
  #rollBack(images: ReadonlyMap<string, WaitingKey | undefined>): void {
    const ranks = new Set<number>();
    for (const [key, waiting] of images) {
      for (const claim of this.#claimsOn(key)) this.#byWriter.delete(claim, key);
      for (const claim of waiting?.claims ?? []) this.#byWriter.add(claim, key);
      this.#store(key, waiting);
      if (waiting !== undefined) ranks.add(waiting.rank);
    }
    const arrivalOf = (key: string): number => this.#waiting.get(key)?.arrival ?? 0;
    for (const rank of ranks) {
      const keys = Array.from(this.#ranks.get(rank) ?? [], ([key]) => key);
      const sorted = new KeyedQueue<string>();
      for (const key of keys.sort((a, b) => arrivalOf(a) - arrivalOf(b))) sorted.set(key, undefined);
      if (sorted.size > 0) this.#ranks.set(rank, sorted);
    }
  }
}
