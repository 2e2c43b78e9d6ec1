import type { Claim } from '../../src/ipcache/types.ts';
import type { Subject } from './subject.ts';

/** A bare `Map` of the same keys and claims: the yardstick. It parses nothing and has no listeners. */
export class NativeMapSubject implements Subject {
  readonly map: Map<string, Claim> = new Map();
  readonly changes = 0;

  get size(): number {
    return this.map.size;
  }

  upsertAll(keys: readonly string[], claims: readonly Claim[]): void {
    for (let i = 0; i < keys.length; i++) {
      const claim = claims[i];
      if (claim !== undefined) this.map.set(keys[i] ?? '', claim);
    }
  }

  getAll(keys: readonly string[]): number {
    let found = 0;
    for (const key of keys) if (this.map.get(key) !== undefined) found++;
    return found;
  }

  deleteAll(keys: readonly string[]): void {
    for (const key of keys) this.map.delete(key);
  }
}
