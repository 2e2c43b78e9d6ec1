import { SortedMap } from '../../base/sorted-map.ts';
import { sourceRank } from '../../model/source.ts';
import type { CompleteClaim } from '../row-reader.ts';
import type { PrefixDeleteOptions, Writer } from '../types.ts';
import { ByWriter } from './by-writer.ts';
import { namesPod } from './claim-state.ts';
import { claimOf, listOf, type SortedClaims, withClaim, withoutClaim } from './sorted-claims.ts';

/** A claim that waits for room, with its canonical key. */
export interface WaitingClaim extends CompleteClaim {
  readonly key: string;
}

interface WaitingKey {
  /** At least one. */
  readonly claims: SortedClaims<WaitingClaim>;
  readonly place: WaitingPlace;
}

/** The place of a key in the order of admission. */
interface WaitingPlace {
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
  /** The keys in the order of admission. */
  readonly #order = new SortedMap<WaitingPlace, string>((a, b) => b.rank - a.rank || a.arrival - b.arrival);
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
    const { first } = this.#order;
    return first && this.#order.get(first);
  }

  /** Removes and returns the claims on a key, strongest first. */
  removeAll(key: string): readonly WaitingClaim[] {
    const claims = listOf(this.#claimsOn(key));
    this.#set(key, []);
    for (const claim of claims) this.#byWriter.delete(claim, key);
    return claims;
  }

  /** Yields all waiting claims in the order of admission. They must not change during the iteration. */
  *list(): Generator<WaitingClaim, void, void> {
    const { first } = this.#order;
    if (first !== undefined)
      for (const [, key] of this.#order.from(first)) yield* listOf(this.#claimsOn(key));
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

  #claimsOn(key: string): SortedClaims<WaitingClaim> {
    return this.#waiting.get(key)?.claims ?? [];
  }

  #set(key: string, claims: SortedClaims<WaitingClaim>): void {
    const waiting = this.#waiting.get(key);
    const strongest = claims[0]?.[0];
    if (this.#previousImages?.has(key) === false) this.#previousImages.set(key, waiting);
    if (strongest === undefined) {
      this.#store(key, undefined);
      return;
    }
    const rank = sourceRank(strongest.source);
    const place = waiting?.place.rank === rank ? waiting.place : { rank, arrival: this.#arrivals++ };
    this.#store(key, { claims, place });
  }

  /** Stores or deletes the claims on a key, and updates the order. */
  #store(key: string, waiting: WaitingKey | undefined): void {
    const previous = this.#waiting.get(key);
    if (previous !== undefined && previous.place !== waiting?.place) this.#order.delete(previous.place);
    if (waiting === undefined) this.#waiting.delete(key);
    else {
      this.#waiting.set(key, waiting);
      this.#order.set(waiting.place, key);
    }
  }

  /** Restores keys to their images. */
  #rollBack(images: ReadonlyMap<string, WaitingKey | undefined>): void {
    for (const [key, waiting] of images) {
      for (const claim of listOf(this.#claimsOn(key))) this.#byWriter.delete(claim, key);
      for (const claim of listOf(waiting?.claims ?? [])) this.#byWriter.add(claim, key);
      this.#store(key, waiting);
    }
  }
}
