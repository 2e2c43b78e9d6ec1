import type { DesiredItems } from '../kernel-table.ts';

/**
 * Items by key, each claimed by one or several owners: two nodes that say the same pod CIDR is theirs. Of several claims the one
 * of the owner whose name comes first counts, so that the order in which they came does not matter (I2).
 */
export class ClaimedItems<Item> implements DesiredItems<Item> {
  readonly #byKey = new Map<string, Map<string, Item>>();
  readonly #byOwner = new Map<string, readonly string[]>();

  get size(): number {
    return this.#byKey.size;
  }

  /** Puts all claims of an owner in the place of those it had, and gives the keys of either. */
  replace(owner: string, items: ReadonlyMap<string, Item>): ReadonlySet<string> {
    const touched = new Set(items.keys());
    for (const key of this.#byOwner.get(owner) ?? []) {
      touched.add(key);
      if (!items.has(key)) this.#withdraw(owner, key);
    }
    for (const [key, item] of items) this.#claim(owner, key, item);
    if (items.size === 0) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, [...items.keys()]);
    return touched;
  }

  get(key: string): Item | undefined {
    const claims = this.#byKey.get(key);
    const owner = claims && firstOf(claims);
    return owner === undefined ? undefined : claims?.get(owner);
  }

  *entries(): Iterable<readonly [key: string, item: Item]> {
    for (const key of this.#byKey.keys()) {
      const item = this.get(key);
      if (item !== undefined) yield [key, item];
    }
  }

  /** The owners whose claim on a key does not count, with the one whose does. */
  *overruled(): Iterable<{ readonly key: string; readonly owner: string; readonly by: string }> {
    for (const [key, claims] of this.#byKey) {
      if (claims.size < 2) continue;
      const by = firstOf(claims) ?? '';
      for (const owner of claims.keys()) if (owner !== by) yield { key, owner, by };
    }
  }

  #claim(owner: string, key: string, item: Item): void {
    const claims = this.#byKey.get(key);
    if (claims === undefined) this.#byKey.set(key, new Map([[owner, item]]));
    else claims.set(owner, item);
  }

  #withdraw(owner: string, key: string): void {
    const claims = this.#byKey.get(key);
    claims?.delete(owner);
    if (claims?.size === 0) this.#byKey.delete(key);
  }
}

function firstOf(claims: ReadonlyMap<string, unknown>): string | undefined {
  let first: string | undefined;
  for (const owner of claims.keys()) if (first === undefined || owner < first) first = owner;
  return first;
}
