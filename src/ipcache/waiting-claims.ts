import { Map as ImmutableMap, OrderedSet } from 'immutable';
import { compareWriters, sourceRank } from '../identity/source.ts';
import { namesPod } from './claim-state.ts';
import type { HeldClaim } from './entry-rows.ts';
import type { DeleteOptions, Writer } from './types.ts';

/** A claim that found no room, under its canonical key. */
export interface WaitingClaim extends HeldClaim {
  readonly key: string;
}

interface State {
  /** For each key its claims, strongest first. */
  readonly claims: ImmutableMap<string, readonly WaitingClaim[]>;
  /** Keys by the rank of their strongest claim, in order of arrival. */
  readonly keys: ImmutableMap<number, OrderedSet<string>>;
}

function isOf(claim: HeldClaim, writer: Writer): boolean {
  return claim.source === writer.source && claim.owner === (writer.owner ?? '');
}

/**
 * The claims that a full cache could not take: they are let in as room appears, the strongest source first, then by
 * arrival. Bounded: beyond `limit` keys, further ones are dropped and counted.
 */
export class WaitingClaims {
  readonly #limit: number;
  #state: State = { claims: ImmutableMap(), keys: ImmutableMap() };
  #dropped = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Keys that wait. */
  get size(): number {
    return this.#state.claims.size;
  }

  /** Claims that found no room even here. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Keeps a claim, instead of an earlier one of the same writer on the same key. */
  put(key: string, claim: HeldClaim): void {
    const others = this.#on(key).filter((other) => !isOf(other, claim));
    if (others.length === 0 && !this.#state.claims.has(key) && this.size >= this.#limit) {
      this.#dropped++;
      return;
    }
    this.#set(key, [...others, { ...claim, key }].sort(compareWriters));
  }

  /** Forgets one writer's claim on a key, if `ifPod` allows; whether there was one. */
  remove(key: string, by: DeleteOptions): boolean {
    const claims = this.#on(key);
    const left = claims.filter((claim) => !isOf(claim, by) || !namesPod(claim, by.ifPod));
    if (left.length === claims.length) return false;
    this.#set(key, left);
    return true;
  }

  /** Forgets every claim of a writer, and says how many there were. */
  withdraw(by: Writer): number {
    let withdrawn = 0;
    const writer = { source: by.source, owner: by.owner };
    for (const key of this.#state.claims.keys()) if (this.remove(key, writer)) withdrawn++;
    return withdrawn;
  }

  /** The key that is next to be let in. */
  next(): string | undefined {
    const rank = this.#state.keys.keySeq().max();
    return rank === undefined ? undefined : this.#state.keys.get(rank)?.first();
  }

  /** Takes out the claims on a key, strongest first. */
  take(key: string): readonly WaitingClaim[] {
    const claims = this.#on(key);
    this.#set(key, []);
    return claims;
  }

  /** All that wait, in the order in which they would be let in. */
  *list(): Generator<WaitingClaim, void, void> {
    const ranks = [...this.#state.keys.keys()].sort((a, b) => b - a);
    for (const rank of ranks) {
      for (const key of this.#state.keys.get(rank) ?? []) yield* this.#on(key);
    }
  }

  /** What waits now, to come back to with {@link WaitingClaims.restore}. Costs nothing: the state is immutable. */
  image(): unknown {
    return this.#state;
  }

  restore(image: unknown): void {
    this.#state = image as State; // made by image()
  }

  #on(key: string): readonly WaitingClaim[] {
    return this.#state.claims.get(key) ?? [];
  }

  #set(key: string, claims: readonly WaitingClaim[]): void {
    const [before] = this.#on(key);
    const [after] = claims;
    let { keys } = this.#state;
    if (before?.source !== after?.source) {
      if (before !== undefined) keys = without(keys, sourceRank(before.source), key);
      if (after !== undefined)
        keys = keys.update(sourceRank(after.source), OrderedSet<string>(), (set) => set.add(key));
    }
    const all = this.#state.claims;
    this.#state = { keys, claims: after === undefined ? all.delete(key) : all.set(key, claims) };
  }
}

function without(
  keys: ImmutableMap<number, OrderedSet<string>>,
  rank: number,
  key: string,
): ImmutableMap<number, OrderedSet<string>> {
  const left = keys.get(rank)?.delete(key);
  return left === undefined || left.isEmpty() ? keys.delete(rank) : keys.set(rank, left);
}
