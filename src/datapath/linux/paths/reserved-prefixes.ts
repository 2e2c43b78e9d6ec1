import { HashPrefixTable } from '../../../lpm/hash-prefix-table.ts';
import { addressBits } from '../../../net/address-words.ts';
import { Prefix, type PrefixRegister, prefixRegister } from '../../../net/prefix.ts';

export interface ReservedPrefix {
  readonly prefix: string;
  readonly owner: string;
}

/**
 * Prefixes in use, by owner: pod CIDRs and addresses of nodes, addresses of this host. Several owners may reserve one
 * prefix. `overlapping` costs two lookups, regardless of the number of prefixes.
 */
export class ReservedPrefixes {
  readonly #table = new HashPrefixTable();
  /** Owners of each prefix, by slot of the table. */
  readonly #owners = new Map<number, Set<string>>();
  readonly #byOwner = new Map<string, readonly string[]>();
  readonly #key: PrefixRegister = prefixRegister();

  /** Replaces all prefixes of an owner. Ignores invalid prefixes. Returns true if they have changed. */
  replace(owner: string, prefixes: readonly string[]): boolean {
    const previous = this.#byOwner.get(owner) ?? [];
    if (previous.length === prefixes.length && previous.every((text, at) => text === prefixes[at]))
      return false;
    for (const text of previous) this.#remove(owner, text);
    for (const text of prefixes) this.#add(owner, text);
    if (prefixes.length === 0) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, prefixes);
    return true;
  }

  /** Returns a reserved prefix sharing addresses with `prefix`. */
  overlapping(prefix: Prefix): ReservedPrefix | undefined {
    // A prefix that contains the first address of `prefix` overlaps it. All other overlapping ones are inside `prefix`.
    const first = this.#readKey(prefix);
    first.form = 'endpoint';
    first.length = addressBits(prefix.family);
    const containing = this.#table.longestMatch(first);
    if (containing >= 0) return this.#at(containing);
    for (const slot of this.#table.covered(this.#readKey(prefix))) return this.#at(slot);
    return undefined;
  }

  #at(slot: number): ReservedPrefix {
    this.#table.keyOf(slot, this.#key);
    const [owner = ''] = this.#owners.get(slot) ?? [];
    return { prefix: new Prefix(this.#key, this.#key.length).toString(), owner };
  }

  #add(owner: string, text: string): void {
    const prefix = Prefix.parse(text);
    if (prefix === undefined) return;
    const key = this.#readKey(prefix);
    const found = this.#table.find(key);
    const slot = found < 0 ? this.#table.insert(key) : found;
    const owners = this.#owners.get(slot);
    if (owners === undefined) this.#owners.set(slot, new Set([owner]));
    else owners.add(owner);
  }

  #remove(owner: string, text: string): void {
    const prefix = Prefix.parse(text);
    if (prefix === undefined) return;
    const key = this.#readKey(prefix);
    const slot = this.#table.find(key);
    const owners = this.#owners.get(slot);
    owners?.delete(owner);
    if (owners?.size !== 0) return;
    this.#owners.delete(slot);
    this.#table.remove(slot, key);
  }

  /** Reads the key of a prefix into `#key`, and returns `#key`. */
  #readKey({ family, w0, w1, w2, w3, length }: Prefix): PrefixRegister {
    return Object.assign(this.#key, { family, w0, w1, w2, w3, length, form: 'cidr' });
  }
}
