import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Claim } from '../../src/ipcache/types.ts';
import { CHUNK } from '../fresh-strings.ts';
import type { PrefixSubject } from './subject.ts';

/** Number of claims in a usual batch of kvstore events. */
const BATCH = 256;

/** The `IPCache` with one listener that counts. */
export class EngineSubject implements PrefixSubject {
  readonly cache: IPCache = new IPCache();
  changes = 0;
  readonly #identities = new Uint32Array(CHUNK);

  constructor() {
    this.cache.subscribe({
      onChanges: (changes) => {
        this.changes += changes.length;
      },
    });
  }

  get size(): number {
    return this.cache.size;
  }

  upsertAll(keys: readonly string[], claims: readonly Claim[]): void {
    for (let i = 0; i < keys.length; i++) {
      const claim = claims[i];
      if (claim !== undefined) this.cache.upsert(keys[i] ?? '', claim);
    }
  }

  /** Like `upsertAll`, in batches of 256. */
  upsertInBatches(keys: readonly string[], claims: readonly Claim[]): void {
    for (let from = 0; from < keys.length; from += BATCH) {
      this.cache.batch(() => {
        const end = Math.min(keys.length, from + BATCH);
        for (let i = from; i < end; i++) {
          const claim = claims[i];
          if (claim !== undefined) this.cache.upsert(keys[i] ?? '', claim);
        }
      });
    }
  }

  getAll(keys: readonly string[]): number {
    let found = 0;
    for (const key of keys) if (this.cache.get(key) !== undefined) found++;
    return found;
  }

  matchAll(addresses: readonly string[]): number {
    let found = 0;
    for (const address of addresses) if (this.cache.lookup(address) !== undefined) found++;
    return found;
  }

  /** Like `getAll`, but reads only identities. */
  identitiesOf(keys: readonly string[]): number {
    let found = 0;
    for (const key of keys) if (this.cache.identityOf(key) !== undefined) found++;
    return found;
  }

  /** Like `matchAll`, but reads only identities. */
  matchIdentities(addresses: readonly string[]): number {
    let found = 0;
    for (const address of addresses) if (this.cache.lookupIdentity(address) !== undefined) found++;
    return found;
  }

  /** Like `matchIdentities`, in one call. */
  lookupMany(addresses: readonly string[]): number {
    return this.cache.lookupMany(addresses, this.#identities);
  }

  deleteAll(keys: readonly string[]): void {
    for (const key of keys) this.cache.delete(key, { source: 'kvstore' });
  }
}
