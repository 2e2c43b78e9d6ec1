import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import { addressBits, maskWords } from '../net/address-words.ts';
import { formatKey, parsePrefix, prefixRegister } from '../net/prefix.ts';
import type { KeyedEntry } from './types.ts';

/** All entries of an `IPCache` at one revision. Immutable: later writes do not show. */
export class IPCacheSnapshot {
  readonly revision: number;
  readonly #entries: ImmutableMap<string, KeyedEntry>;
  readonly #byIdentity: ImmutableMap<number, ImmutableSet<string>>;

  constructor(revision: number, entries: Iterable<KeyedEntry>) {
    this.revision = revision;
    this.#entries = ImmutableMap<string, KeyedEntry>().withMutations((map) => {
      for (const entry of entries) map.set(entry.key, entry);
    });
    this.#byIdentity = ImmutableMap<number, ImmutableSet<string>>().withMutations((map) => {
      for (const { identity, key } of this.#entries.values()) {
        map.update(identity, ImmutableSet<string>(), (keys) => keys.add(key));
      }
    });
  }

  /** Keys held, shadowed ones included. */
  get size(): number {
    return this.#entries.size;
  }

  /** As `IPCache.get`. */
  get(key: string): KeyedEntry | undefined {
    const register = prefixRegister();
    return parsePrefix(key, register) ? this.#entries.get(formatKey(register)) : undefined;
  }

  /** As `IPCache.lookup`. Cost: one look-up for every prefix length of the family. */
  lookup(ip: string): KeyedEntry | undefined {
    const register = prefixRegister();
    if (!parsePrefix(ip, register) || register.form !== 'endpoint') return undefined;
    const endpoint = this.#entries.get(formatKey(register));
    if (endpoint !== undefined) return endpoint;
    register.form = 'cidr';
    for (let length: number = addressBits(register.family); length >= 0; length--) {
      maskWords(register, length);
      register.length = length;
      const entry = this.#entries.get(formatKey(register));
      if (entry !== undefined) return entry;
    }
    return undefined;
  }

  /** As `IPCache.lookupByIdentity`. */
  lookupByIdentity(identity: number): readonly string[] {
    return this.#byIdentity.get(identity)?.toArray() ?? [];
  }

  /** The entries by canonical key, shadowed ones included. */
  entries(): ImmutableMap<string, KeyedEntry> {
    return this.#entries;
  }
}
