import { compareWriters, type Source } from '../../../model/source.ts';
import type { DesiredItems } from '../kernel-table.ts';

/** The writer of a claim: a node as its owner, and the source of the node. */
export interface PathWriter {
  readonly owner: string;
  readonly source: Source;
}

/**
 * Items by key, each claimed by one or several owners, for example by two nodes with the same pod CIDR. The claim of
 * the strongest source is effective, then that of the owner whose name sorts first. So the order of arrival does not
 * matter (I2, I4).
 */
export class ClaimedItems<Item> implements DesiredItems<Item> {
  readonly #byKey = new Map<string, Map<string, Item>>();
  readonly #byOwner = new Map<string, PathWriter & { readonly keys: readonly string[] }>();

  get size(): number {
    return this.#byKey.size;
  }

  /** Replaces all claims of an owner, and its source. Returns the keys claimed by it before or now. */
  replace({ owner, source }: PathWriter, items: ReadonlyMap<string, Item>): ReadonlySet<string> {
    const touched = new Set(items.keys());
    for (const key of this.#byOwner.get(owner)?.keys ?? []) {
      touched.add(key);
      if (!items.has(key)) this.#withdraw(owner, key);
    }
    for (const [key, item] of items) this.#claim(owner, key, item);
    if (items.size === 0) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, { owner, source, keys: [...items.keys()] });
    return touched;
  }

  get(key: string): Item | undefined {
    const claims = this.#byKey.get(key);
    const owner = claims && this.#winner(claims);
    return owner === undefined ? undefined : claims?.get(owner);
  }

  *entries(): Iterable<readonly [key: string, item: Item]> {
    for (const key of this.#byKey.keys()) {
      const item = this.get(key);
      if (item !== undefined) yield [key, item];
    }
  }

  #winner(claims: ReadonlyMap<string, unknown>): string | undefined {
    let first: PathWriter | undefined;
    for (const name of claims.keys()) {
      const claimant = this.#byOwner.get(name);
      if (claimant !== undefined && (first === undefined || compareWriters(claimant, first) < 0))
        first = claimant;
    }
    return first?.owner;
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
