import type { CompleteClaim } from '../ipcache/row-reader.ts';
import { compareWriters } from '../model/source.ts';
import { formatKey, parseKey, prefixRegister } from '../net/prefix.ts';
import { writerText } from './claim-codec.ts';
import { cidrOf, keysOf } from './prefix-timeline.ts';
import type { ClaimChange } from './record-reader.ts';

/** The visible claim of a prefix at a moment, and its key. */
export interface VisibleClaim extends CompleteClaim {
  readonly key: string;
}

/**
 * The prefixes that have changed since a moment, with their claims at that moment. If a writer has changed its claim on
 * a key, its claim at the moment is `before` of its first change. All other claims are read from the IPCache.
 */
export class ChangedPrefixes {
  readonly #claimsOf: (key: string) => readonly CompleteClaim[];
  /** The claims that have changed, as they were at the moment, by key and writer; undefined if the writer had none. */
  readonly #before = new Map<string, Map<string, CompleteClaim | undefined>>();

  constructor(claimsOf: (key: string) => readonly CompleteClaim[]) {
    this.#claimsOf = claimsOf;
  }

  get size(): number {
    return this.#before.size;
  }

  /** Adds a change that is older than all added before. */
  addOlder(key: string, { writer, before }: ClaimChange): void {
    this.#changedOn(key).set(writerText(writer), before);
  }

  /** Adds a change that is newer than all added before. */
  addNewer(key: string, { writer, before }: ClaimChange): void {
    const claims = this.#changedOn(key);
    const name = writerText(writer);
    if (!claims.has(name)) claims.set(name, before);
  }

  /** Yields each changed prefix as a CIDR once, with its visible claim at the moment. Call it after the last change. */
  *visible(): Generator<readonly [prefix: string, claim: VisibleClaim | undefined], void, void> {
    const register = prefixRegister();
    for (const text of this.#before.keys()) {
      parseKey(text, register);
      const keys = keysOf(register).map(formatKey);
      // If both keys of a full-length prefix have changed, the endpoint, which is first, yields the prefix.
      const isSecond = keys.length > 1 && keys[1] === text && this.#before.has(keys[0] ?? '');
      if (isSecond) continue;
      yield [cidrOf(register), this.#visibleOf(keys)];
    }
  }

  /** Returns the strongest claim of the first key with a claim (I4). */
  #visibleOf(keys: readonly string[]): VisibleClaim | undefined {
    for (const key of keys) {
      const [strongest] = this.#claimsAt(key);
      if (strongest !== undefined) return { key, ...strongest };
    }
    return undefined;
  }

  /** Returns the claims on a key at the moment, strongest first. */
  #claimsAt(key: string): readonly CompleteClaim[] {
    const before = this.#before.get(key);
    const now = this.#claimsOf(key);
    if (before === undefined) return now;
    const unchanged = now.filter((claim) => !before.has(writerText(claim)));
    const changed = [...before.values()].filter((claim) => claim !== undefined);
    return [...unchanged, ...changed].sort(compareWriters);
  }

  /** Returns the map of a key in `#before`, which it creates for the first change. */
  #changedOn(key: string): Map<string, CompleteClaim | undefined> {
    const known = this.#before.get(key);
    if (known !== undefined) return known;
    const claims = new Map<string, CompleteClaim | undefined>();
    this.#before.set(key, claims);
    return claims;
  }
}
